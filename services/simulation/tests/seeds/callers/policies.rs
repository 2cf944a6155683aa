//! The policy file and the key set of the tokens' issuer, which change and are faulty at times, and a plain model of
//! what a node that reads them uses.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use access_model::{KEYS, May, Policy, SUBJECTS, Verdict, Who};
use certificates::{TokenSigner, key_set};
use serde_json::json;
use tempfile::TempDir;

use crate::dice::Dice;
use crate::trace::BEGAN_UNIX_MS;

/// The policy and the issuer's keys that a node uses, until it has read others.
#[derive(Clone)]
pub struct Regime {
    pub policy: Rc<Policy>,
    /// For each signer, whether tokens that it signed are accepted.
    signers: [bool; 2],
    from_ms: u64,
    /// The time at which another regime began. `None` for the current one.
    until_ms: Option<u64>,
}

/// The outcome of a decision about a caller and a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Unauthenticated,
    Unknown,
    Forbidden,
}

/// The credentials of a caller.
pub struct Credential {
    pub who: Who,
    /// The token or API key.
    pub secret: Option<String>,
    /// The names of the client certificate.
    pub names: Vec<String>,
    /// The number of the token's signer, and the time of its expiry in ms since the start of the run.
    token: Option<(usize, u64)>,
}

/// The files, and the regimes of all times.
pub struct PolicyFiles {
    folder: TempDir,
    signers: [TokenSigner; 2],
    /// The policy in the file; `None` if the file is faulty or missing.
    written: RefCell<Option<Rc<Policy>>>,
    /// The signers in the key set; `None` if the file is faulty.
    written_signers: RefCell<Option<[bool; 2]>>,
    regimes: RefCell<Vec<Regime>>,
}

impl PolicyFiles {
    /// Writes a policy, and a key set with both signers.
    pub fn new(dice: &mut Dice) -> Self {
        let policy = Rc::new(Policy::random(dice.rng()));
        let signers = [policy.has_issuer(); 2];
        let regime = Regime { policy: Rc::clone(&policy), signers, from_ms: 0, until_ms: None };
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
            signers: ["k0", "k1"].map(TokenSigner::new),
            written: RefCell::new(None),
            written_signers: RefCell::new(None),
            regimes: RefCell::new(vec![regime]),
        };
        files.write_signers([true; 2]);
        files.write(policy);
        files
    }

    /// Returns the path of the policy.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    fn jwks(&self) -> PathBuf {
        self.folder.path().join("jwks.json")
    }

    fn write(&self, policy: Rc<Policy>) {
        let digests = KEYS.map(|name| access::digest_of_key(api_key(name).as_bytes()));
        std::fs::write(self.path(), policy.text(&digests, &self.jwks())).unwrap();
        *self.written.borrow_mut() = Some(policy);
    }

    fn write_signers(&self, which: [bool; 2]) {
        let signers = self.signers.iter().zip(which).filter(|it| it.1).map(|it| it.0);
        std::fs::write(self.jwks(), key_set(&signers.collect::<Vec<_>>())).unwrap();
        *self.written_signers.borrow_mut() = Some(which);
    }

    /// Changes a file: usually writes another policy, sometimes other keys or a faulty file. Returns what it did.
    pub fn change(&self, dice: &mut Dice) -> &'static str {
        match dice.below(20) {
            0..=11 => {
                self.write(Rc::new(Policy::random(dice.rng())));
                "policies written"
            }
            12 => {
                self.write(Rc::new(Policy::everything()));
                "policies written"
            }
            13..=14 => {
                let cut = || {
                    let text = std::fs::read_to_string(self.path()).unwrap_or_default();
                    text[..text.len() / 2].to_owned() + "\n[["
                };
                match dice.below(3) {
                    0 => std::fs::write(self.path(), cut()).unwrap(),
                    1 => std::fs::write(self.path(), "grants = []").unwrap(),
                    _ => drop(std::fs::remove_file(self.path())),
                }
                *self.written.borrow_mut() = None;
                "faulty policies"
            }
            15..=18 => {
                self.write_signers([[true, true], [true, false], [false, true]][dice.below(3)]);
                "key sets written"
            }
            _ => {
                std::fs::write(self.jwks(), "{}").unwrap();
                *self.written_signers.borrow_mut() = None;
                "faulty key sets"
            }
        }
    }

    /// Notes that a node has read the files at `now`.
    pub fn were_read(&self, now_ms: u64) {
        let mut regimes = self.regimes.borrow_mut();
        let last = regimes.last_mut().expect("there is one from the start");
        let policy = match &*self.written.borrow() {
            Some(policy) => Rc::clone(policy),
            None => Rc::clone(&last.policy),
        };
        let signers = match *self.written_signers.borrow() {
            _ if !policy.has_issuer() => [false; 2],
            Some(signers) => signers,
            // Keys that can't be read stay as they are.
            None => last.signers,
        };
        last.until_ms = Some(now_ms);
        regimes.push(Regime { policy, signers, from_ms: now_ms, until_ms: None });
    }

    /// Returns the regimes that were in force between two times, each with the first time in this range at which it was
    /// in force.
    pub fn in_force(&self, from_ms: u64, until_ms: u64) -> Vec<(u64, Regime)> {
        let regimes = self.regimes.borrow();
        let is_in = |it: &&Regime| {
            it.from_ms <= until_ms && it.until_ms.is_none_or(|until| until > from_ms)
        };
        let in_force = regimes.iter().filter(is_in);
        in_force.map(|it| (it.from_ms.max(from_ms), it.clone())).collect()
    }

    /// Returns the regime that is in force now.
    pub fn current(&self) -> Regime {
        self.regimes.borrow().last().expect("there is one from the start").clone()
    }

    /// Returns the credentials of a caller. A token has a random signer, and expires within some seconds.
    pub fn credential(&self, who: Who, now_ms: u64, dice: &mut Dice) -> Credential {
        let (mut names, mut token) = (Vec::new(), None);
        let secret = match who {
            Who::Key(key) => Some(api_key(KEYS[key])),
            Who::Token(subject) => {
                let signer = dice.below(2);
                let expires_s = now_ms / 1000 + dice.in_range(1..=8);
                token = Some((signer, expires_s * 1000));
                Some(self.signers[signer].sign(&json!({
                    "iss": "https://idp", "sub": SUBJECTS[subject], "aud": "bireme",
                    "exp": BEGAN_UNIX_MS / 1000 + expires_s,
                })))
            }
            Who::Certificate => {
                names.push("search.example".into());
                None
            }
            Who::Anonymous => None,
        };
        Credential { who, secret, names, token }
    }
}

fn api_key(name: &str) -> String {
    format!("the key of {name}, which nobody can guess")
}

impl Credential {
    /// Returns whether the caller's token has expired. Other credentials do not expire.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.token.is_some_and(|(_, expires_ms)| now_ms >= expires_ms)
    }
}

impl Regime {
    fn is_identified(&self, credential: &Credential, now_ms: u64) -> bool {
        let is_accepted = credential.token.is_none_or(|(signer, _)| self.signers[signer]);
        is_accepted
            && !credential.has_expired(now_ms)
            && self.policy.visible(credential.who).is_some()
    }

    /// Returns whether a caller sees a table.
    pub fn sees(&self, credential: &Credential, now_ms: u64, table: &str) -> bool {
        self.is_identified(credential, now_ms) && self.policy.sees(credential.who, table)
    }

    /// Returns the right decision about a caller and a table, which the node serves unless `is_served` is false.
    pub fn decision(
        &self,
        credential: &Credential,
        now_ms: u64,
        (table, is_served): (&str, bool),
        may: May,
    ) -> Decision {
        if !self.is_identified(credential, now_ms) {
            return Decision::Unauthenticated;
        }
        match self.policy.verdict(credential.who, table, may) {
            Verdict::Unauthenticated => Decision::Unauthenticated,
            _ if !is_served => Decision::Unknown,
            Verdict::Unknown(_) => Decision::Unknown,
            Verdict::Forbidden(_) => Decision::Forbidden,
            Verdict::Allowed => Decision::Allowed,
        }
    }
}
