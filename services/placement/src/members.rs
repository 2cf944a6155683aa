//! Weighted rendezvous hashing: assigns chunks to I/O nodes.
//!
//! For each chunk, a member has the score `-weight / ln(h)`, where `h` is a hash of the chunk and the member's name,
//! between 0 and 1. The member with the highest score owns the chunk (Schindelhauer and Schomaker, 2005). When a member
//! joins, only the chunks that it now owns change their owner. When a member leaves, only the chunks that it owned do.

use std::collections::HashSet;

use address::ChunkId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// An I/O node that may own chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name that is hashed for placement. It stays the same when the member's address changes.
    pub name: String,
    /// The address on which the member listens, such as `http://10.0.0.7:7071`.
    pub endpoint: String,
    /// The member's relative share of the chunks. Must be above 0, and in the same unit for all members (capacity, for
    /// example).
    pub weight: f64,
}

/// A hash of a table's URI, as used for placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableHash(u64);

impl TableHash {
    /// Hashes the table's URI. All nodes must spell the URI alike; trailing slashes are ignored.
    pub fn of(uri: &str) -> Self {
        Self(xxh3_64(uri.trim_end_matches('/').as_bytes()))
    }

    /// Returns the hash as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A validated list of members.
#[derive(Clone, Debug)]
pub struct Members {
    members: Vec<Member>,
    seeds: Vec<u64>,
}

/// The reason why a list of members is invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MembersError {
    /// The list is empty.
    #[error("there is no I/O node; name at least one")]
    Empty,
    /// Two members have the same name.
    #[error("two I/O nodes are named `{0}`; give each a name of its own")]
    Duplicate(String),
    /// A weight is not finite or not positive.
    #[error("I/O node `{name}` has weight {weight}; give it a finite weight above 0")]
    Weight {
        /// The member's name.
        name: String,
        /// The invalid weight.
        weight: f64,
    },
}

impl Members {
    /// Validates a list of members.
    ///
    /// # Errors
    /// If the list is empty, two members have the same name, or a weight is not finite and above 0.
    pub fn new(members: Vec<Member>) -> Result<Self, MembersError> {
        let mut names = HashSet::new();
        for member in &members {
            if !names.insert(member.name.as_str()) {
                return Err(MembersError::Duplicate(member.name.clone()));
            }
            if !(member.weight.is_finite() && member.weight > 0.0) {
                let (name, weight) = (member.name.clone(), member.weight);
                return Err(MembersError::Weight { name, weight });
            }
        }
        if members.is_empty() {
            return Err(MembersError::Empty);
        }
        let seeds = members.iter().map(|m| xxh3_64(m.name.as_bytes())).collect();
        Ok(Self { members, seeds })
    }

    /// Returns the members, in the order in which they were given.
    pub fn as_slice(&self) -> &[Member] {
        &self.members
    }

    /// Returns the index, in the list, of the member that owns `chunk` of `table`.
    pub fn owner(&self, table: TableHash, chunk: ChunkId) -> usize {
        if self.members.len() == 1 {
            return 0;
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&table.0.to_le_bytes());
        key[8..12].copy_from_slice(&chunk.fragment.to_le_bytes());
        key[12..].copy_from_slice(&chunk.index.to_le_bytes());
        let mut best = (0, f64::NEG_INFINITY);
        for (at, (member, &seed)) in self.members.iter().zip(&self.seeds).enumerate() {
            let score = -member.weight / unit(xxh3_64_with_seed(&key, seed)).ln();
            if score > best.1 {
                best = (at, score);
            }
        }
        best.0
    }
}

/// Maps a hash to a number above 0 and at most 1. The high 53 bits of the hash select one of 2^53 equal intervals of
/// that range. The result is the middle of the interval, rounded to an f64. For one hash in 2^53 it is rounded to 1,
/// which gives the member the lowest score instead of the highest.
fn unit(hash: u64) -> f64 {
    ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(weights: &[f64]) -> Members {
        let member = |(i, &weight): (usize, &f64)| Member {
            name: format!("io-{i}"),
            endpoint: format!("http://io-{i}:7071"),
            weight,
        };
        Members::new(weights.iter().enumerate().map(member).collect()).unwrap()
    }

    fn owners(members: &Members) -> Vec<usize> {
        let table = TableHash::of("s3://bucket/table");
        let chunk = |i: u32| ChunkId { fragment: i / 64, index: i % 64 };
        (0..20_000).map(|i| members.owner(table, chunk(i))).collect()
    }

    #[test]
    fn shares_follow_weights() {
        let owners = owners(&members(&[1.0, 2.0, 1.0]));
        let share = |m| owners.iter().filter(|&&o| o == m).count() as f64 / owners.len() as f64;
        for (member, expected) in [(0, 0.25), (1, 0.5), (2, 0.25)] {
            assert!((share(member) - expected).abs() < 0.02, "{member}: {}", share(member));
        }
    }

    #[test]
    fn placement_is_the_same_in_every_release() {
        assert_eq!(owners(&members(&[1.0, 1.0, 1.0]))[..8], PLACED);
    }

    /// Nodes of different releases must agree on the owners, so these values must never change.
    const PLACED: [usize; 8] = [2, 0, 0, 1, 0, 1, 1, 0];

    #[test]
    fn invalid_lists_are_refused() {
        let member =
            |name: &str, weight| Member { name: name.into(), endpoint: String::new(), weight };
        assert_eq!(Members::new(vec![]).unwrap_err(), MembersError::Empty);
        let twice = Members::new(vec![member("a", 1.0), member("a", 1.0)]);
        assert_eq!(twice.unwrap_err(), MembersError::Duplicate("a".into()));
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Members::new(vec![member("a", weight)]).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_member_more_takes_its_share_and_moves_nothing_else(
            weights in prop::collection::vec(0.5..4.0f64, 1..8),
            joining in 0.5..4.0f64,
        ) {
            let before = owners(&members(&weights));
            let all: Vec<f64> = weights.iter().copied().chain([joining]).collect();
            let after = owners(&members(&all));
            let new = weights.len();
            let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count();
            prop_assert!(before.iter().zip(&after).all(|(b, a)| b == a || *a == new));
            let share = joining / all.iter().sum::<f64>();
            prop_assert!((moved as f64 / before.len() as f64 - share).abs() < 0.03);
        }
    }
}
