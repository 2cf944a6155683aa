//! A secret that the nodes of both tiers know.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The context in which keys are derived from secrets. A program that uses the same secret for something else derives
/// other keys from it.
const KEY_CONTEXT: &str = "bireme 2026-11 proofs between query nodes and I/O nodes";

/// The minimum length of a secret. Whoever sees a proof can try candidate secrets against it, so a secret must not be
/// guessable.
const CHARACTERS_MIN: usize = 32;

/// The maximum number of secrets: the old one and the new one, during a rotation.
const SECRETS_MAX: usize = 2;

/// A secret that the nodes of both tiers know.
pub struct Secret {
    key: [u8; 32],
    is_withdrawn: Arc<AtomicBool>,
}

impl Secret {
    /// Returns the key of its MACs.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Returns whether the secret is no longer in its file. Calls that began with it then end.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    /// Returns a flag that is set once the secret is no longer in its file.
    pub fn withdrawn(&self) -> &Arc<AtomicBool> {
        &self.is_withdrawn
    }

    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Secret {
    /// Does not show the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// Reads the secrets in the text of a file: one, or two during a rotation, a line each. Secrets that are also in
/// `before` are taken from there.
///
/// # Errors
/// A description of the problem, without any part of a secret.
pub fn parse(text: &str, before: &[Arc<Secret>]) -> Result<Vec<Arc<Secret>>, String> {
    const EXAMPLE: &str = "such as the output of `openssl rand -hex 32`";
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut secrets: Vec<Arc<Secret>> = Vec::new();
    for line in lines {
        let count = line.chars().count();
        if line.contains(char::is_whitespace) {
            return Err("has a line with white space inside; write one secret on each line".into());
        }
        if count < CHARACTERS_MIN {
            return Err(format!(
                "has a secret of {count} characters, which could be guessed; write at least {CHARACTERS_MIN}, {EXAMPLE}"
            ));
        }
        let key = blake3::derive_key(KEY_CONTEXT, line.as_bytes());
        if secrets.iter().any(|secret| secret.key == key) {
            return Err("has the same secret twice; remove one of the lines".into());
        }
        let known = before.iter().find(|secret| secret.key == key).map(Arc::clone);
        secrets
            .push(known.unwrap_or_else(|| Arc::new(Secret { key, is_withdrawn: Arc::default() })));
    }
    match secrets.len() {
        0 => Err(format!("is empty; write a secret into it, {EXAMPLE}")),
        1..=SECRETS_MAX => Ok(secrets),
        more => Err(format!("has {more} secrets; write one, or two while one replaces the other")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_file_has_one_or_two_secrets() {
        let one = parse(ONE, &[]).unwrap();
        let both = parse(&format!("\n  {OTHER}\r\n\n{ONE}\n"), &one).unwrap();
        assert_eq!((one.len(), both.len()), (1, 2));
        assert!(Arc::ptr_eq(&one[0], &both[1]), "a known secret is kept");
        assert_ne!(both[0].key, both[1].key);
        assert_eq!(one[0].key, blake3::derive_key(KEY_CONTEXT, ONE.as_bytes()));
    }

    #[test]
    fn a_faulty_file_is_described_without_its_secrets() {
        let three = format!("{ONE}\n{OTHER}\n{ONE}x");
        for (text, said) in [
            ("", "is empty; write a secret"),
            (" \n\n", "is empty; write a secret"),
            ("changeme", "has a secret of 8 characters"),
            (&ONE[1..], "has a secret of 31 characters"),
            (&format!("{ONE} {OTHER}"), "white space"),
            (&format!("{ONE}\n{ONE}"), "has the same secret twice"),
            (&three, "has 3 secrets"),
        ] {
            let problem = parse(text, &[]).unwrap_err();
            assert!(problem.contains(said), "{text:?}: {problem}");
            assert!(!problem.contains("changeme") && !problem.contains(&ONE[1..]), "{problem}");
        }
        assert_eq!(format!("{:?}", parse(ONE, &[]).unwrap()[0]), "Secret { .. }");
    }
}
