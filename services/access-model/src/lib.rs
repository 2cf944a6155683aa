//! Random access policies for tests, and a plain model of them: the rights of each caller, and the texts of refusals.
//!
//! A list says which callers or tables each entry of a policy covers, so the model computes nothing with patterns.

use std::path::Path;

use rand::Rng;
use spelling::nearest;

/// The configured tables, sorted. Four names are so similar that each could be suggested for another. The names occur
/// nowhere else in answers.
pub const TABLES: [&str; 5] = ["abies", "larex", "larix", "larox", "larux"];

/// Names of tables that are not configured.
pub const ABSENT: [&str; 2] = ["larax", "abiex"];

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A caller with the API key of this index in [`KEYS`].
    Key(usize),
    /// A caller with a token of the subject of this index in [`SUBJECTS`].
    Token(usize),
    /// A caller with a client certificate for `search.example`.
    Certificate,
    /// A caller without credentials.
    Anonymous,
}

/// All callers.
pub const CALLERS: [Who; 6] =
    [Who::Key(0), Who::Key(1), Who::Token(0), Who::Token(1), Who::Certificate, Who::Anonymous];

/// The names of the API keys.
pub const KEYS: [&str; 2] = ["one", "two"];

/// The subjects of the tokens, which the issuer `https://idp` signs with ES256 for the audience `bireme`.
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

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Read a table.
    Read,
    /// Fill the cache with a table.
    Warm,
    /// See the state of the nodes.
    Observe,
}

impl May {
    /// All permissions.
    pub const ALL: [Self; 3] = [Self::Read, Self::Warm, Self::Observe];

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
pub struct Grant {
    /// The grant's name.
    pub name: String,
    /// The grant's weight in the fair queues.
    pub weight: u32,
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
    /// The call is answered.
    Allowed,
    /// The caller's credentials are missing or not accepted.
    Unauthenticated,
    /// The answer is that the table does not exist, with this message.
    Unknown(String),
    /// The answer is that the caller lacks the permission, with this message.
    Forbidden(String),
}

fn some<T: Clone>(dice: &mut impl Rng, of: &[T], most: usize) -> Vec<T> {
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
        let (who, tables, may) = (vec![who], vec![tables], may.to_vec());
        let grant = Grant { name: "grant-0".into(), weight: 1, who, tables, may };
        Self { keys: [true; 2], has_issuer: true, grants: vec![grant] }
    }

    /// Returns a random policy.
    pub fn random(dice: &mut impl Rng) -> Self {
        let keys = [dice.random_bool(0.9), dice.random_bool(0.9)];
        let has_issuer = dice.random_bool(0.9);
        // The node refuses a policy whose grants name a key or an issuer that the policy does not define.
        let is_usable = |&at: &usize| match WHO[at].1 {
            [Who::Key(key)] => keys[*key],
            [Who::Token(_), ..] => has_issuer,
            _ => true,
        };
        // Only one policy in four may contain `anyone`, the last entry of `WHO`.
        let last = if dice.random_bool(0.25) { WHO.len() } else { WHO.len() - 1 };
        let count = dice.random_range(2..=5);
        let usable: Vec<usize> = (0..last).filter(is_usable).collect();
        let patterns: Vec<usize> = (0..PATTERNS.len()).collect();
        let mut grant = |number: usize| {
            let mut may = some(dice, &May::ALL, 2);
            if dice.random_bool(0.6) {
                may.push(May::Read);
            }
            may.dedup();
            let (who, tables) = (some(dice, &usable, 3), some(dice, &patterns, 2));
            let (name, weight) = (format!("grant-{number}"), dice.random_range(1..=5));
            Grant { name, weight, who, tables, may }
        };
        let grants = (0..count).map(&mut grant).collect();
        Self { keys, has_issuer, grants }
    }

    /// Returns whether the policy contains the issuer of the tokens.
    pub fn has_issuer(&self) -> bool {
        self.has_issuer
    }

    /// Returns the text of the policy file. `digests` are the digests of the keys, and `jwks` is the file with the keys
    /// of the tokens' issuer.
    pub fn text(&self, digests: &[String; 2], jwks: &Path) -> String {
        let mut text = String::new();
        for ((name, digest), is_in) in KEYS.iter().zip(digests).zip(self.keys) {
            if is_in {
                text += &format!("[keys.{name}]\nsha256 = [\"{digest}\"]\n");
            }
        }
        if self.has_issuer {
            text += &format!(
                "[issuers.idp]\nissuer = \"https://idp\"\njwks = \"{}\"\naudiences = [\"bireme\"]\n\
                 algorithms = [\"ES256\"]\nclock_skew = \"0s\"\n",
                jwks.display()
            );
        }
        for Grant { name, weight, who, tables, may } in &self.grants {
            let who: Vec<_> = who.iter().map(|&at| WHO[at].0).collect();
            let tables: Vec<_> = tables.iter().map(|&at| PATTERNS[at].0).collect();
            let may: Vec<_> = may.iter().map(|may| may.name()).collect();
            text += &format!(
                "[[grants]]\nname = \"{name}\"\nweight = {weight}\nwho = {who:?}\ntables = {tables:?}\n\
                 may = {may:?}\n"
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

    /// Returns whether a caller sees a table.
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

    /// Returns the grant under which an identified caller may use a table: the first one that allows it.
    pub fn grant(&self, who: Who, table: &str, may: May) -> Option<&Grant> {
        let allows =
            |grant: &&Grant| grant.is_for(who) && grant.names(table) && grant.may.contains(&may);
        self.grants.iter().find(allows)
    }

    /// Returns the outcome of a call.
    pub fn verdict(&self, who: Who, table: &str, may: May) -> Verdict {
        let Some(visible) = self.visible(who) else { return Verdict::Unauthenticated };
        if !visible.contains(&table) {
            let listed = if visible.is_empty() { "none".into() } else { visible.join(", ") };
            let meant = nearest(table, visible.iter().copied());
            let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            let said = format!("no table `{table}` is served here; there is {listed}{meant}");
            return Verdict::Unknown(said);
        }
        match self.grant(who, table, may) {
            Some(_) => Verdict::Allowed,
            None => {
                let may = may.name();
                Verdict::Forbidden(format!(
                    "no grant lets you {may} table `{table}`; ask the operator for one with `may = [\"{may}\"]`"
                ))
            }
        }
    }
}
