//! The policy file: its form, and its checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use scheduler::WEIGHT_MAX;
use serde::Deserialize;

use crate::api_key::{self, ApiKey};
use crate::error::AccessError;
use crate::grant::{Grant, Limits, Permission, flow_of};
use crate::identity::Who;
use crate::key_set::{KeySet, KeySource};
use crate::part::Part;
use crate::pattern::Pattern;
use crate::token::Issuer;

/// The clock skew if the policy gives none, and its maximum. A token is accepted for this long after its expiry: 30 s
/// suffice for clocks that are synchronised, and the maximum keeps a policy from accepting tokens for much longer.
const CLOCK_SKEW: Duration = Duration::from_secs(30);
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// The maximum number of grants: each has metrics of its own. They are fewer than the flows that a queue distinguishes
/// (`scheduler::FLOWS_MAX`), so that each grant can have a flow of its own.
const GRANTS_MAX: usize = 1000;

/// The maximum of a limit per second. At this rate a unit takes 10 ns, and times are kept in whole nanoseconds.
const RATE_MAX: u64 = 100_000_000;

/// The problem of a file without grants.
const EXAMPLE: &str = "has no grants, so nobody may do anything; a grant looks like this:\n\
    [[grants]]\nname = \"readers\"\nwho = [\"anyone\"]\ntables = [\"*\"]\nmay = [\"read\"]";

/// A policy.
pub struct Policy {
    /// The number of this policy, counted from 1 in the order in which policies were in use.
    pub number: u64,
    /// Whether the node verifies certificates of callers. If not, no grant may name one.
    pub certificates: bool,
    pub issuers: Vec<Issuer>,
    pub keys: Vec<ApiKey>,
    pub grants: Vec<Arc<Grant>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    issuers: BTreeMap<String, IssuerEntry>,
    #[serde(default)]
    keys: BTreeMap<String, KeyEntry>,
    #[serde(default)]
    grants: Vec<GrantEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerEntry {
    issuer: String,
    jwks: String,
    ca: Option<PathBuf>,
    token_file: Option<PathBuf>,
    audiences: Vec<String>,
    algorithms: Vec<String>,
    #[serde(default, with = "humantime_serde")]
    clock_skew: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    sha256: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantEntry {
    name: String,
    who: Vec<String>,
    tables: Vec<String>,
    may: Vec<PermissionEntry>,
    columns: Option<Vec<String>>,
    rows: Option<String>,
    requests_per_second: Option<u64>,
    rows_per_second: Option<u64>,
    concurrent: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    timeout: Option<Duration>,
    #[serde(default)]
    priority: PriorityEntry,
    weight: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PermissionEntry {
    Read,
    Warm,
    Observe,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PriorityEntry {
    #[default]
    Interactive,
    Batch,
}

/// A problem with a value: its place in the file, and what is wrong and how to fix it.
type Problem = (String, String);

impl Policy {
    /// Parses a policy for a node that verifies certificates of callers, or not. Grants of the same name and key sets of
    /// the same source keep the state that they have in `before`, the policy in use.
    ///
    /// # Errors
    /// [`AccessError::Syntax`] or [`AccessError::Invalid`].
    pub fn parse(
        text: &str,
        path: &Path,
        certificates: bool,
        before: Option<&Self>,
    ) -> Result<Self, AccessError> {
        let syntax = |error: toml::de::Error| AccessError::Syntax {
            path: path.to_owned(),
            problem: error.to_string(),
        };
        let file: PolicyFile = toml::from_str(text).map_err(syntax)?;
        file.policy(certificates, before).map_err(|(at, problem)| AccessError::Invalid {
            path: path.to_owned(),
            at,
            problem,
        })
    }
}

impl Policy {
    /// Returns a number that grows whenever the policy or the keys of an issuer have changed.
    pub fn generation(&self) -> u64 {
        let keys: u64 = self.issuers.iter().map(|issuer| issuer.keys.generation()).sum();
        (self.number << 32) + keys
    }

    /// Checks that each token belongs to one issuer, and each API key to one name.
    fn check_ambiguity(&self) -> Result<(), Problem> {
        for (at, issuer) in self.issuers.iter().enumerate() {
            for other in &self.issuers[..at] {
                let shares = |audience: &String| other.audiences.contains(audience);
                if other.issuer == issuer.issuer && issuer.audiences.iter().any(shares) {
                    let problem = format!(
                        "has the `issuer` and an audience of [issuers.{}], so that tokens would belong to both; merge them",
                        other.name
                    );
                    return Err((format!("issuers.{}", issuer.name), problem));
                }
            }
        }
        for (at, key) in self.keys.iter().enumerate() {
            for other in &self.keys[..at] {
                if key.digests.iter().any(|digest| other.digests.contains(digest)) {
                    let problem = format!(
                        "has a digest of [keys.{}] too; give each key one name",
                        other.name
                    );
                    return Err((format!("keys.{}.sha256", key.name), problem));
                }
            }
        }
        Ok(())
    }
}

impl PolicyFile {
    fn policy(self, certificates: bool, before: Option<&Policy>) -> Result<Policy, Problem> {
        if self.grants.is_empty() {
            return Err(("grants".into(), EXAMPLE.into()));
        }
        if self.grants.len() > GRANTS_MAX {
            let problem = format!("has {} entries; {GRANTS_MAX} is the most", self.grants.len());
            return Err(("grants".into(), problem));
        }
        let issuers = self.issuers.into_iter().map(|(name, entry)| entry.issuer(name, before));
        let keys = self.keys.into_iter().map(|(name, entry)| entry.key(name));
        let mut policy = Policy {
            number: before.map_or(0, |policy| policy.number) + 1,
            certificates,
            issuers: issuers.collect::<Result<_, _>>()?,
            keys: keys.collect::<Result<_, _>>()?,
            grants: Vec::with_capacity(self.grants.len()),
        };
        policy.check_ambiguity()?;
        for entry in self.grants {
            let grant = entry.grant(&policy, before)?;
            policy.grants.push(Arc::new(grant));
        }
        Ok(policy)
    }
}

impl IssuerEntry {
    fn issuer(self, name: String, before: Option<&Policy>) -> Result<Issuer, Problem> {
        let at = |field: &str| format!("issuers.{name}.{field}");
        if name.contains(':') {
            return Err((
                format!("issuers.{name}"),
                "has a `:` in its name; `who` could not name it".into(),
            ));
        }
        if self.audiences.is_empty() {
            let problem =
                "is empty; name the audience that tokens for this service have, such as \"bireme\"";
            return Err((at("audiences"), problem.into()));
        }
        if self.algorithms.is_empty() {
            return Err((
                at("algorithms"),
                "is empty; name the issuer's, such as \"RS256\"".into(),
            ));
        }
        let algorithms = self.algorithms.iter().map(|text| algorithm(text));
        let algorithms = algorithms.collect::<Result<_, _>>();
        let algorithms = algorithms.map_err(|problem| (at("algorithms"), problem))?;
        let clock_skew = self.clock_skew.unwrap_or(CLOCK_SKEW);
        if clock_skew > CLOCK_SKEW_MAX {
            return Err((
                at("clock_skew"),
                format!("is {clock_skew:?}; {CLOCK_SKEW_MAX:?} is the most"),
            ));
        }
        let source = KeySource::parse(&self.jwks, self.ca, self.token_file);
        let source = source.map_err(|problem| (at("jwks"), problem))?;
        let kept = before.into_iter().flat_map(|policy| &policy.issuers);
        let kept = kept.map(|issuer| &issuer.keys).find(|keys| keys.is_from(&source)).cloned();
        let keys = kept.unwrap_or_else(|| Arc::new(KeySet::new(source)));
        let Self { issuer, audiences, .. } = self;
        Ok(Issuer { name, issuer, audiences, algorithms, clock_skew, keys })
    }
}

/// Parses the name of an algorithm with a public key.
fn algorithm(text: &str) -> Result<Algorithm, String> {
    let usable = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";
    match text.parse() {
        Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) => Err(format!(
            "names `{text}`, which needs a secret that could also sign tokens; give some of {usable}"
        )),
        Ok(algorithm) => Ok(algorithm),
        Err(_) => Err(format!("names `{text}`, which is not accepted; give some of {usable}")),
    }
}

impl KeyEntry {
    fn key(self, name: String) -> Result<ApiKey, Problem> {
        let at = format!("keys.{name}.sha256");
        let digests: Option<Vec<_>> = self.sha256.iter().map(|text| api_key::parse(text)).collect();
        match digests {
            Some(digests) if !digests.is_empty() => Ok(ApiKey { name, digests }),
            Some(_) => Err((at, "is empty; make a key with `bireme api-key NAME`".into())),
            None => {
                let problem = "has an entry that is no SHA-256 digest (64 hexadecimal digits); \
                               `bireme api-key NAME` makes a key and its digest";
                Err((at, problem.into()))
            }
        }
    }
}

impl GrantEntry {
    fn grant(self, policy: &Policy, before: Option<&Policy>) -> Result<Grant, Problem> {
        let name = self.name;
        let at = |field: &str| format!("grants.{name}.{field}");
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err((
                "grants".into(),
                "has an entry without a printable name; give it one".into(),
            ));
        }
        if policy.grants.iter().any(|grant| grant.name() == name) {
            return Err((
                "grants".into(),
                format!("has two entries named `{name}`; names are unique"),
            ));
        }
        for (field, is_empty) in [
            ("who", self.who.is_empty()),
            ("tables", self.tables.is_empty()),
            ("may", self.may.is_empty()),
        ] {
            if is_empty {
                return Err((
                    at(field),
                    "is empty, so the grant allows nothing; fill it, or remove the grant".into(),
                ));
            }
        }
        if let Some(table) =
            self.tables.iter().find(|it| it.is_empty() || it.chars().any(char::is_control))
        {
            return Err((
                at("tables"),
                format!("names {table:?}, which no table is called; give a name or a pattern"),
            ));
        }
        for (field, rate) in [
            ("requests_per_second", self.requests_per_second),
            ("rows_per_second", self.rows_per_second),
        ] {
            if rate.is_some_and(|rate| rate > RATE_MAX) {
                return Err((
                    at(field),
                    format!("is more than {RATE_MAX}; leave it out for no limit"),
                ));
            }
        }
        for (field, limit) in [
            ("requests_per_second", self.requests_per_second),
            ("rows_per_second", self.rows_per_second),
            ("concurrent", self.concurrent.map(|it| it as u64)),
            ("timeout", self.timeout.map(|it| it.as_millis() as u64)),
        ] {
            if limit == Some(0) {
                return Err((
                    at(field),
                    "is 0, which allows nothing; leave it out for no limit".into(),
                ));
            }
        }
        let weight = self.weight.unwrap_or(1);
        if !(1..=WEIGHT_MAX).contains(&weight) {
            return Err((at("weight"), format!("is {weight}; give 1 to {WEIGHT_MAX}")));
        }
        let part = Part::of(self.columns, self.rows).map_err(|(field, it)| (at(field), it))?;
        if part.is_some() && self.may.iter().any(|it| !matches!(it, PermissionEntry::Read)) {
            let problem = "has more than `read`, but the grant shows only a part of its tables; \
                           give the other permissions in a grant of their own";
            return Err((at("may"), problem.into()));
        }
        let who = self.who.iter().map(|text| who(text, policy)).collect::<Result<_, _>>();
        let who = who.map_err(|problem| (at("who"), problem))?;
        let state = before.into_iter().flat_map(|policy| &policy.grants);
        let state =
            state.filter(|grant| grant.name() == name).map(|grant| Arc::clone(&grant.state));
        let may = |entry: &PermissionEntry| match entry {
            PermissionEntry::Read => Permission::Read,
            PermissionEntry::Warm => Permission::Warm,
            PermissionEntry::Observe => Permission::Observe,
        };
        Ok(Grant {
            who,
            tables: self.tables.iter().map(|text| Pattern::new(text)).collect(),
            may: self.may.iter().map(may).collect(),
            part,
            limits: Limits {
                requests_per_second: self.requests_per_second,
                rows_per_second: self.rows_per_second,
                concurrent: self.concurrent,
                timeout: self.timeout,
                batch_only: self.priority == PriorityEntry::Batch,
            },
            flow: flow_of(&name, weight),
            state: { state }.next().unwrap_or_default(),
            name,
        })
    }
}

/// Parses an entry of `who`, and checks that it names an issuer or key of the policy, or a certificate that the node
/// verifies.
fn who(text: &str, policy: &Policy) -> Result<Who, String> {
    let parsed = Who::parse(text)?;
    let (section, name, is_known) = match &parsed {
        Who::Token { issuer, .. } => {
            ("issuers", issuer, policy.issuers.iter().any(|it| it.name == *issuer))
        }
        Who::Key(name) => ("keys", name, policy.keys.iter().any(|it| it.name == *name)),
        Who::Certificate(_) if !policy.certificates => {
            return Err(format!(
                "names `{text}`, but the node has no `tls.client_ca`, the authority of callers' certificates: without \
                 it nobody shows a name; add it, or remove the entry"
            ));
        }
        Who::Certificate(_) | Who::Anyone => return Ok(parsed),
    };
    match is_known {
        true => Ok(parsed),
        false => Err(format!("names `{text}`, but there is no section [{section}.{name}]; add it")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"
        [issuers.kube]
        issuer = "https://kubernetes"
        jwks = "keys.json"
        audiences = ["bireme"]
        algorithms = ["RS256"]
        [keys.ci]
        sha256 = ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]
        [[grants]]
        name = "a"
        who = ["key:ci", "jwt:kube:*", "san:x.example", "anyone"]
        tables = ["*"]
        may = ["read"]
        timeout = "5s"
        weight = 3
    "#;

    fn parse(text: &str) -> Result<Policy, AccessError> {
        Policy::parse(text, Path::new("access.toml"), true, None)
    }

    #[test]
    fn a_policy_is_read_as_people_write_it() {
        let policy = parse(GOOD).unwrap();
        assert_eq!((policy.issuers.len(), policy.keys.len(), policy.grants.len()), (1, 1, 1));
        assert_eq!(policy.issuers[0].clock_skew, CLOCK_SKEW);
        let grant = &policy.grants[0];
        assert_eq!((grant.flow().weight(), grant.timeout()), (3, Some(Duration::from_secs(5))));
    }

    #[test]
    fn errors_name_the_place_and_the_remedy() {
        for (from, to, problem) in [
            (
                "who = [\"key:ci\",",
                "who = [\"key:co\",",
                "`grants.a.who` names `key:co`, but there is no section [keys.co]",
            ),
            ("\"jwt:kube:*\"", "\"jwt:cube:*\"", "no section [issuers.cube]"),
            ("\"anyone\"", "\"everyone\"", "write san:NAME"),
            ("tables = [\"*\"]", "tables = []", "`grants.a.tables` is empty"),
            (
                "may = [\"read\"]",
                "may = [\"write\"]",
                "unknown variant `write`, expected one of `read`, `warm`, `observe`",
            ),
            ("weight = 3", "weight = 0", "`grants.a.weight` is 0; give 1 to 1000"),
            ("weight = 3", "concurrent = 0", "`grants.a.concurrent` is 0"),
            ("weight = 3", "wait = 3", "unknown field `wait`"),
            ("weight = 3", "columns = []", "`grants.a.columns` is empty"),
            ("weight = 3", "columns = [\"x\", \"x\"]", "`grants.a.columns` names `x` twice"),
            ("weight = 3", "rows = \" \"", "`grants.a.rows` is empty"),
            (
                "may = [\"read\"]",
                "may = [\"read\", \"warm\"]\nrows = \"x = 1\"",
                "`grants.a.may` has more than `read`, but the grant shows only a part",
            ),
            (
                "\"RS256\"",
                "\"HS256\"",
                "`issuers.kube.algorithms` names `HS256`, which needs a secret",
            ),
            ("\"RS256\"", "\"none\"", "names `none`, which is not accepted"),
            ("\"keys.json\"", "\"http://issuer.example/keys\"", "keys come over https://"),
            ("[\"bireme\"]", "[]", "`issuers.kube.audiences` is empty"),
            ("ba78", "xx78", "`keys.ci.sha256` has an entry that is no SHA-256 digest"),
            (
                "timeout = \"5s\"",
                "timeout = \"5s\"\nclock_skew = \"1h\"",
                "unknown field `clock_skew`",
            ),
            (
                "jwks =",
                "clock_skew = \"1h\"\njwks =",
                "`issuers.kube.clock_skew` is 3600s; 300s is the most",
            ),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let error = parse(&text).err().expect(to).to_string();
            assert!(error.starts_with("access.toml: ") && error.contains(problem), "{error}");
        }
        let twice = GOOD.to_owned() + &GOOD[GOOD.find("[[grants]]").unwrap()..];
        assert!(parse(&twice).err().unwrap().to_string().contains("two entries named `a`"));
        assert!(parse("").err().unwrap().to_string().contains("[[grants]]"));
    }

    #[test]
    fn a_grant_names_certificates_only_where_the_node_verifies_them() {
        let without = |text: &str| Policy::parse(text, Path::new("access.toml"), false, None);
        let error = without(GOOD).err().unwrap().to_string();
        let problem = "`grants.a.who` names `san:x.example`, but the node has no `tls.client_ca`";
        assert!(error.contains(problem), "{error}");
        assert!(without(&GOOD.replace("\"san:x.example\", ", "")).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_an_error_or_a_policy(text in ".{0,200}", at in 0..GOOD.len()) {
            let _ = parse(&text);
            let _ = parse(&format!("{}{text}{}", &GOOD[..at], &GOOD[at..]));
        }
    }
}
