//! API keys. A policy has only their SHA-256 digests: a key is random, so it can't be guessed from its digest.

use subtle::ConstantTimeEq;

use crate::digest::{Digest, digest};

/// Returns the digest of an API key as it is written in a policy: 64 hexadecimal digits.
pub fn digest_of_key(key: &[u8]) -> String {
    digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a digest as it is written in a policy.
pub fn parse(text: &str) -> Option<Digest> {
    let digits = text.as_bytes();
    let mut digest = Digest::default();
    if digits.len() != 2 * digest.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// An API key of a policy.
#[derive(Clone)]
pub struct ApiKey {
    /// Its name.
    pub name: String,
    /// The digests that are accepted: several during a rotation.
    pub digests: Vec<Digest>,
}

/// Returns the key with this digest. Compares the digest with those of all keys, in constant time.
pub fn find<'a>(keys: &'a [ApiKey], digest: &Digest) -> Option<&'a ApiKey> {
    let mut found = None;
    for key in keys {
        for known in &key.digests {
            if bool::from(known.ct_eq(digest)) {
                found = Some(key);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_any_of_its_digests() {
        let written = digest_of_key(b"abc");
        assert_eq!(written, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(parse(&written), Some(digest(b"abc")));
        assert_eq!(parse(&written[1..]), None);
        assert_eq!(parse(&written.replace('b', "g")), None);
        assert_eq!(parse(&"+1".repeat(32)), None);
        let key = |name: &str, keys: &[&[u8]]| ApiKey {
            name: name.into(),
            digests: keys.iter().map(|key| digest(key)).collect(),
        };
        let keys = [key("one", &[b"old", b"new"]), key("two", &[b"x"])];
        let found =
            |credential: &[u8]| find(&keys, &digest(credential)).map(|key| key.name.as_str());
        assert_eq!(
            [found(b"old"), found(b"new"), found(b"x"), found(b"y")],
            [Some("one"), Some("one"), Some("two"), None]
        );
    }
}
