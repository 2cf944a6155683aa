//! A plain model of access policies: the rights of each caller, the texts of refusals, and the policies that were in
//! force at any time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use client::fetch::Instant;
use query_node::QueryNode;
use rand::Rng;
use rand::rngs::StdRng;
use spelling::nearest;

/// The configured tables, sorted. Four names are so similar that each could be suggested for another. The names occur
/// nowhere else in answers.
pub const TABLES: [&str; 5] = ["abies", "larex", "larix", "larox", "larux"];

/// The table that is configured but does not exist.
pub const BROKEN: &str = "larox";

/// Names of tables that are not configured.
pub const ABSENT: [&str; 2] = ["larax", "abiex"];

/// The callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Key(usize),
    Token(usize),
    Certificate,
    Anonymous,
}

pub const CALLERS: [Who; 6] =
    [Who::Key(0), Who::Key(1), Who::Token(0), Who::Token(1), Who::Certificate, Who::Anonymous];

/// The names of the keys, and the subjects of the tokens.
pub const KEYS: [&str; 2] = ["one", "two"];
pub const SUBJECTS: [&str; 2] = ["team:a", "team:b"];

/// The entries for `who` in random grants, each with the callers that it covers.
const WHO: [(&str, &[Who]); 9] = [
    ("key:one", &[Who::Key(0)]),
    ("key:two", &[Who::Key(1)]),
    ("jwt:idp:team:a", &[Who::Token(0)]),
    ("jwt:idp:team:*", &[Who::Token(0), Who::Token(1)]),
    ("jwt:idp:*b", &[Who::Token(1)]),
    ("san:search.example", &[Who::Certificate]),
    ("san:*.example", &[Who::Certificate]),
    ("san:other.example", &[]),
    ("anyone", &CALLERS),
];

/// The entries for `tables` in random grants, each with the tables that it covers.
const PATTERNS: [(&str, &[&str]); 9] = [
    ("abies", &["abies"]),
    ("larex", &["larex"]),
    ("larix", &["larix"]),
    ("larux", &["larux"]),
    ("lar*", &["larex", "larix", "larox", "larux"]),
    ("l*ix", &["larix"]),
    ("*es", &["abies"]),
    ("pinus*", &[]),
    ("*", &TABLES),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    Read,
    Warm,
    Observe,
}

impl May {
    const ALL: [Self; 3] = [Self::Read, Self::Warm, Self::Observe];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Warm => "warm",
            Self::Observe => "observe",
        }
    }
}

/// A grant. Callers and tables are indexes in [`WHO`] and [`PATTERNS`].
#[derive(Debug)]
struct Grant {
    who: Vec<usize>,
    tables: Vec<usize>,
    may: Vec<May>,
}

impl Grant {
    fn is_for(&self, who: Who) -> bool {
        self.who.iter().any(|&at| WHO[at].1.contains(&who))
    }

    fn names(&self, table: &str) -> bool {
        self.tables.iter().any(|&at| PATTERNS[at].1.contains(&table))
    }
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    /// For each of the [`KEYS`], whether the policy contains it.
    keys: [bool; 2],
    /// Whether the policy contains the issuer of the tokens.
    has_issuer: bool,
    grants: Vec<Grant>,
}

/// The outcome of a call under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Unauthenticated,
    /// The answer is that the table does not exist, with this message.
    Unknown(String),
    /// The answer is that the caller lacks the permission, with this message.
    Forbidden(String),
}

fn some<T: Clone>(dice: &mut StdRng, of: &[T], most: usize) -> Vec<T> {
    (0..dice.random_range(1..=most)).map(|_| of[dice.random_range(0..of.len())].clone()).collect()
}

impl Policy {
    /// Returns a policy that allows every caller everything.
    pub fn everything() -> Self {
        Self::of("anyone", "*", &May::ALL)
    }

    /// Returns a policy with one grant, given by entries of [`WHO`] and [`PATTERNS`].
    pub fn of(who: &str, tables: &str, may: &[May]) -> Self {
        let who = WHO.iter().position(|(text, _)| *text == who).unwrap();
        let tables = PATTERNS.iter().position(|(text, _)| *text == tables).unwrap();
        let grant = Grant { who: vec![who], tables: vec![tables], may: may.to_vec() };
        Self { keys: [true; 2], has_issuer: true, grants: vec![grant] }
    }

    pub fn random(dice: &mut StdRng) -> Self {
        let keys = [dice.random_bool(0.9), dice.random_bool(0.9)];
        let has_issuer = dice.random_bool(0.9);
        // The node refuses a policy whose grants name a key or an issuer that the policy does not define.
        let is_usable = |&at: &usize| match WHO[at].1 {
            [Who::Key(key)] => keys[*key],
            [Who::Token(_), ..] => has_issuer,
            _ => true,
        };
        // Only one policy in four may contain `anyone`, the last entry.
        let last = if dice.random_bool(0.25) { WHO.len() } else { WHO.len() - 1 };
        let usable: Vec<usize> = (0..last).filter(is_usable).collect();
        let patterns: Vec<usize> = (0..PATTERNS.len()).collect();
        let grant = |dice: &mut StdRng| {
            let mut may = some(dice, &May::ALL, 2);
            if dice.random_bool(0.6) {
                may.push(May::Read);
            }
            may.dedup();
            Grant { who: some(dice, &usable, 3), tables: some(dice, &patterns, 2), may }
        };
        let grants = (0..dice.random_range(2..=5)).map(|_| grant(dice)).collect();
        Self { keys, has_issuer, grants }
    }

    /// Returns the text of the policy file. `digests` are the digests of the keys.
    fn text(&self, digests: &[String; 2], jwks: &Path) -> String {
        let mut text = String::new();
        for ((name, digest), is_in) in KEYS.iter().zip(digests).zip(self.keys) {
            if is_in {
                text += &format!("[keys.{name}]\nsha256 = [\"{digest}\"]\n");
            }
        }
        if self.has_issuer {
            text += &format!(
                "[issuers.idp]\nissuer = \"https://idp\"\njwks = \"{}\"\naudiences = [\"bireme\"]\n\
                 algorithms = [\"ES256\"]\n",
                jwks.display()
            );
        }
        for (number, Grant { who, tables, may }) in self.grants.iter().enumerate() {
            let who: Vec<_> = who.iter().map(|&at| WHO[at].0).collect();
            let tables: Vec<_> = tables.iter().map(|&at| PATTERNS[at].0).collect();
            let may: Vec<_> = may.iter().map(|may| may.name()).collect();
            text += &format!(
                "[[grants]]\nname = \"grant-{number}\"\nwho = {who:?}\ntables = {tables:?}\nmay = {may:?}\n"
            );
        }
        text
    }

    fn is_identified(&self, who: Who) -> bool {
        match who {
            Who::Key(key) => self.keys[key],
            Who::Token(_) => self.has_issuer,
            Who::Certificate => true,
            Who::Anonymous => self.grants.iter().any(|grant| grant.is_for(who)),
        }
    }

    pub fn sees(&self, who: Who, table: &str) -> bool {
        let names = |grant: &Grant| grant.is_for(who) && grant.names(table);
        self.is_identified(who) && self.grants.iter().any(names)
    }

    /// Returns the tables that a caller sees. `None` if the caller is not identified.
    pub fn visible(&self, who: Who) -> Option<Vec<&'static str>> {
        let visible = || TABLES.into_iter().filter(|table| self.sees(who, table)).collect();
        self.is_identified(who).then(visible)
    }

    /// Returns whether a caller may request the node's status. `None` if the caller is not identified.
    pub fn observes(&self, who: Who) -> Option<bool> {
        let observes = |grant: &Grant| grant.is_for(who) && grant.may.contains(&May::Observe);
        self.is_identified(who).then(|| self.grants.iter().any(observes))
    }

    pub fn verdict(&self, who: Who, table: &str, may: May) -> Verdict {
        let Some(visible) = self.visible(who) else { return Verdict::Unauthenticated };
        if !visible.contains(&table) {
            let listed = if visible.is_empty() { "none".into() } else { visible.join(", ") };
            let meant = nearest(table, visible.iter().copied());
            let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            let said = format!("no table `{table}` is served here; there is {listed}{meant}");
            return Verdict::Unknown(said);
        }
        let allows =
            |grant: &Grant| grant.is_for(who) && grant.names(table) && grant.may.contains(&may);
        match self.grants.iter().any(allows) {
            true => Verdict::Allowed,
            false => {
                let may = may.name();
                Verdict::Forbidden(format!(
                    "no grant lets you {may} table `{table}`; ask the operator for one with `may = [\"{may}\"]`"
                ))
            }
        }
    }
}

/// A policy, the time at which it was written, and a time by which the node had certainly read a later policy, if there
/// is one.
type PastPolicy = (Arc<Policy>, Instant, Option<Instant>);

/// The policy file, and all policies that it has contained.
pub struct PolicyFile {
    path: PathBuf,
    jwks: PathBuf,
    digests: [String; 2],
    history: Mutex<Vec<PastPolicy>>,
}

impl PolicyFile {
    /// Writes the first policy.
    pub fn new(folder: &Path, digests: [String; 2], jwks: PathBuf, first: Policy) -> Self {
        let path = folder.join("access.toml");
        let file = Self { path, jwks, digests, history: Mutex::default() };
        file.write(first);
        file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a policy, which the node may read from now on.
    pub fn write(&self, policy: Policy) {
        let text = policy.text(&self.digests, &self.jwks);
        self.history.lock().unwrap().push((Arc::new(policy), Instant::now(), None));
        self.write_text(&text);
    }

    /// Writes text that is not a valid policy. The node must keep the policy that it has.
    pub fn write_nonsense(&self) {
        self.write_text("nonsense");
    }

    fn write_text(&self, text: &str) {
        let next = self.path.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &self.path).unwrap();
    }

    /// Makes the node read the file, which must contain the policy that was written last.
    pub async fn read_by(&self, node: &QueryNode) {
        node.reload_policy().await;
        let mut history = self.history.lock().unwrap();
        if let Some((_, before)) = history.split_last_mut() {
            let now = Instant::now();
            before.iter_mut().for_each(|(_, _, until)| *until = until.or(Some(now)));
        }
    }

    /// Returns the policies that may have been in force between two times.
    pub fn in_force(&self, began: Instant, ended: Instant) -> Vec<Arc<Policy>> {
        let history = self.history.lock().unwrap();
        let overlaps = |&&(_, from, until): &&(Arc<Policy>, Instant, Option<Instant>)| {
            from <= ended && until.is_none_or(|until| until >= began)
        };
        history.iter().filter(overlaps).map(|(policy, ..)| Arc::clone(policy)).collect()
    }
}
