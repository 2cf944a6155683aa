//! Proofs that a node knows a secret, and their form in a header.
//!
//! ```text
//! proof    v1 TIME NONCE TO MAC    TIME: ms since 1970, decimal; NONCE and MAC: 32 bytes, hexadecimal;
//!                                  TO: the I/O node's address and port, or `-`
//! answer   v1 MAC
//! MAC      BLAKE3, keyed with the secret's key, of
//!          role (`q` or `i`) · nonce (32 bytes) · time (8 bytes, little-endian) · TO · a space · path of the rpc
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use blake3::Hash;

use crate::Secret;

/// The header with the proof of a request, or the answer of a response.
pub const PROOF_HEADER: &str = "bireme-peer-proof";

/// The maximum difference between the clocks of two nodes. A proof is accepted from this long before its time until
/// this long after it.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(30);

/// The form of proofs, which comes first in the headers.
const VERSION: &str = "v1";

/// A number that is used in one proof only.
pub type Nonce = [u8; 32];

/// The tier of the node that makes a MAC. It is part of the MAC's input, so a proof that is sent back proves nothing.
#[derive(Clone, Copy)]
enum Role {
    QueryNode,
    IoNode,
}

/// The contents of a proof, which its MAC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The number that is used only in this proof.
    pub nonce: Nonce,
    /// The time of the call, in milliseconds since 1970.
    pub time_ms: u64,
    /// The address of the I/O node that is called, if it is known. The proof is then valid at no other address.
    pub to: Option<SocketAddr>,
    /// The path of the rpc.
    pub rpc: &'a str,
}

/// Writes an address in the form that proofs use.
struct To(Option<SocketAddr>);

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl Claim<'_> {
    fn mac(&self, secret: &Secret, role: Role) -> Hash {
        let role = match role {
            Role::QueryNode => b'q',
            Role::IoNode => b'i',
        };
        let mut mac = blake3::Hasher::new_keyed(secret.key());
        mac.update(&[role]).update(&self.nonce).update(&self.time_ms.to_le_bytes());
        // Neither the address nor the path contains a space, so no two claims have the same bytes.
        mac.update(format!("{} {}", To(self.to), self.rpc).as_bytes());
        mac.finalize()
    }

    /// Returns a query node's proof.
    pub fn proof(&self, secret: &Secret) -> String {
        let (nonce, mac) = (Hash::from_bytes(self.nonce), self.mac(secret, Role::QueryNode));
        let (time, nonce, to) = (self.time_ms, nonce.to_hex(), To(self.to));
        format!("{VERSION} {time} {nonce} {to} {}", mac.to_hex())
    }

    /// Returns an I/O node's answer.
    pub fn answer(&self, secret: &Secret) -> String {
        format!("{VERSION} {}", self.mac(secret, Role::IoNode).to_hex())
    }

    /// Returns whether `mac` is that of a query node that knows the secret. Takes the same time for every wrong MAC.
    pub fn is_proven(&self, secret: &Secret, mac: Hash) -> bool {
        // `Hash` compares in constant time.
        self.mac(secret, Role::QueryNode) == mac
    }

    /// Returns whether `header` is the answer of an I/O node that knows the secret.
    pub fn is_answered(&self, secret: &Secret, header: &[u8]) -> bool {
        let mac = || {
            let mac = std::str::from_utf8(header).ok()?.strip_prefix(VERSION)?.strip_prefix(' ')?;
            Hash::from_hex(mac).ok()
        };
        mac().is_some_and(|mac| self.mac(secret, Role::IoNode) == mac)
    }
}

/// Reads the proof in the header of a request for `rpc`. Returns `None` if it has another form.
pub fn read<'a>(header: &[u8], rpc: &'a str) -> Option<(Claim<'a>, Hash)> {
    let parts: Vec<_> = std::str::from_utf8(header).ok()?.splitn(6, ' ').collect();
    let [VERSION, time, nonce, to, mac] = parts[..] else { return None };
    if !time.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let to = match to {
        "-" => None,
        address => Some(address.parse().ok()?),
    };
    let nonce = *Hash::from_hex(nonce).ok()?.as_bytes();
    Some((Claim { nonce, time_ms: time.parse().ok()?, to, rpc }, Hash::from_hex(mac).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::parse;

    const RPC: &str = "/bireme.fetch.v1.FetchService/Fetch";
    const TIME: u64 = 1_790_000_000_123;

    fn claim() -> Claim<'static> {
        Claim { nonce: [7; 32], time_ms: TIME, to: "10.0.0.7:7071".parse().ok(), rpc: RPC }
    }

    fn secret(byte: char) -> std::sync::Arc<Secret> {
        parse(&byte.to_string().repeat(32), &[]).unwrap().remove(0)
    }

    #[test]
    fn a_proof_has_exactly_these_bytes() {
        let secret = secret('a');
        for (to, proof, answer) in [
            (
                "10.0.0.7:7071",
                "5b7106eda17e3bf51a281475424ce85f01f1f1c5641348d381dcca4442dc446d",
                "0b0c71148b04b90d91ffbcb41459a0623d7eddaed68d0a4c33de3c128464ead7",
            ),
            (
                "-",
                "6c44171c00f38c461355190d0674d23713346f7b4cf82dc8ba0c5418bc1aec92",
                "404a7fd4d67e5c763956f0a4fd6bfdff97f5e3feaee409a6bda2666100925d85",
            ),
        ] {
            let claim = Claim { to: to.parse().ok(), ..claim() };
            let end = format!("{to} {RPC}");
            let mac = |role: u8| {
                let head = [&[role][..], &[7; 32], &TIME.to_le_bytes()].concat();
                blake3::keyed_hash(secret.key(), &[&head, end.as_bytes()].concat()).to_hex()
            };
            // Nodes of different builds must agree, so these values may never change.
            assert_eq!(mac(b'q').as_str(), proof);
            assert_eq!(mac(b'i').as_str(), answer);
            let nonce = "07".repeat(32);
            let header = format!("v1 1790000000123 {nonce} {to} {proof}");
            assert_eq!(claim.proof(&secret), header);
            assert_eq!(claim.answer(&secret), format!("v1 {answer}"));
        }
    }

    #[test]
    fn a_proof_is_read_back() {
        let secret = secret('a');
        for to in ["10.0.0.7:7071", "[::1]:7071", "-"] {
            let claim = Claim { to: to.parse().ok(), ..claim() };
            let proof = claim.proof(&secret);
            let (read, mac) = read(proof.as_bytes(), RPC).unwrap();
            assert_eq!(read, claim);
            assert!(read.is_proven(&secret, mac));
        }
    }

    #[test]
    fn every_part_counts() {
        let ours = secret('a');
        let (_, mac) = read(claim().proof(&ours).as_bytes(), RPC).unwrap();
        let answer = claim().answer(&ours);
        assert!(claim().is_answered(&ours, answer.as_bytes()));
        for other in [
            Claim { nonce: [8; 32], ..claim() },
            Claim { time_ms: TIME + 1, ..claim() },
            Claim { to: None, ..claim() },
            Claim { to: "10.0.0.7:7072".parse().ok(), ..claim() },
            Claim { rpc: "/bireme.fetch.v1.FetchService/Warm", ..claim() },
        ] {
            assert!(!other.is_proven(&ours, mac), "{other:?}");
            assert!(!other.is_answered(&ours, answer.as_bytes()), "{other:?}");
        }
        assert!(!claim().is_proven(&secret('b'), mac));
        assert!(!claim().is_answered(&secret('b'), answer.as_bytes()));
    }

    #[test]
    fn a_proof_sent_back_is_no_answer_and_an_answer_is_no_proof() {
        let secret = secret('a');
        let proof = claim().proof(&secret);
        let reflected = format!("v1 {}", proof.rsplit(' ').next().unwrap());
        assert!(!claim().is_answered(&secret, reflected.as_bytes()));
        assert!(!claim().is_answered(&secret, proof.as_bytes()));
        let answer = claim().answer(&secret);
        assert!(!claim().is_proven(&secret, Hash::from_hex(&answer[3..]).unwrap()));
    }

    #[test]
    fn other_forms_are_no_proof() {
        let proof = claim().proof(&secret('a'));
        let parts: Vec<_> = proof.split(' ').collect();
        let with = |at: usize, part: &str| {
            let mut parts = parts.clone();
            parts[at] = part;
            parts.join(" ")
        };
        for wrong in [
            String::new(),
            "v1".into(),
            proof[..proof.len() - 1].into(),
            format!("{proof}0"),
            format!("{proof} 0"),
            with(0, "v2"),
            with(1, ""),
            with(1, "+1"),
            with(1, "99999999999999999999"),
            with(2, &parts[2][1..]),
            with(3, ""),
            with(3, "10.0.0.7"),
            with(3, "io-0:7071"),
        ] {
            assert_eq!(read(wrong.as_bytes(), RPC), None, "{wrong}");
        }
        assert_eq!(read(b"v1 \xff", RPC), None);
        for wrong in ["", "v1", "v1 ", "v1 00", "v2 00"] {
            assert!(!claim().is_answered(&secret('a'), wrong.as_bytes()), "{wrong}");
        }
    }
}
