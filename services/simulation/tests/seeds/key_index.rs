//! A key index over the versions of a table: one run for each data file with keys, shared by all versions that have the
//! file, and merged as `key_index` decides. Its runs are the real ones. Most indexes have short hashes, so that keys
//! collide more often than in a real index.
//!
//! Unlike a query node's index, it is complete before a version is used: files without a run, which a query node
//! searches through Lance, do not occur.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use key_index::{DataFile, Key, KeyHasher, KeyHashes, KeyType, Run, RunFacts, RunSet, next_merge};

use crate::dice::Dice;
use crate::keyed::keys_of;
use crate::truth::Version;

/// The runs of the table's key column.
pub struct KeyIndex {
    seed: u64,
    /// The bits of a key's hash that are kept. With few bits, many keys have the same hash.
    mask: u64,
    runs: Vec<Arc<Run>>,
    /// The number of merges so far.
    pub merges: u64,
}

impl KeyIndex {
    /// Creates an index without runs. Its hashes have 64 bits; or 13 bits, so that some keys have a wrong candidate; or
    /// 9 bits, so that a key has a few of them.
    pub fn new(dice: &mut Dice) -> Self {
        let bits = [64, 13, 9][dice.below(3)];
        Self { seed: dice.any(), mask: u64::MAX << (64 - bits), runs: Vec::new(), merges: 0 }
    }

    /// Returns whether two keys hardly ever have the same hash.
    pub fn has_full_hashes(&self) -> bool {
        self.mask == u64::MAX
    }

    /// Returns the hashes of keys. Null gets the hash 0, as on a query node: it may have candidates.
    pub fn hashes(&self, keys: &ArrayRef) -> Vec<u64> {
        keys.as_string::<i32>().iter().map(|key| key.map_or(0, |key| self.hash(key))).collect()
    }

    fn hash(&self, key: &str) -> u64 {
        let hasher = KeyHasher::new(self.seed, KeyType::Text);
        hasher.hash(Key::Text(key)).expect("the key is text") & self.mask
    }

    /// Builds the runs that the versions in use need, drops the others, and merges runs.
    pub fn follow(&mut self, in_use: &[&Version]) {
        let live: HashSet<DataFile> = in_use.iter().flat_map(|version| files(version)).collect();
        self.runs.retain(|run| run.files().iter().any(|file| live.contains(file)));
        for version in in_use {
            for file in files(version) {
                if !self.runs.iter().any(|run| run.files().contains(&file)) {
                    self.runs.push(Arc::new(self.build(version, file)));
                }
            }
        }
        loop {
            let facts: Vec<RunFacts> =
                self.runs.iter().map(|run| RunFacts::of(run, &live)).collect();
            let Some(merge) = next_merge(&facts, u64::MAX) else { break };
            assert!(!merge.needs_keys, "a small run keeps enough bits of the hashes");
            let merged: Vec<&Run> = merge.runs.iter().map(|&at| &*self.runs[at]).collect();
            let merged = Run::merge(&merged, |file| live.contains(file)).unwrap();
            let mut at = 0..self.runs.len();
            self.runs.retain(|_| at.next().is_some_and(|at| !merge.runs.contains(&at)));
            self.runs.push(Arc::new(merged));
            self.merges += 1;
        }
    }

    /// Returns the runs that look-ups in a version probe. The version must be in use.
    pub fn of_version(&self, version: &Version) -> RunSet {
        let files: Vec<DataFile> = files(version).collect();
        let set = RunSet::new(self.runs.iter().cloned(), [], &files).unwrap();
        assert_eq!(set.uncovered(), [], "files of version {} have no run", version.version);
        set
    }

    fn build(&self, version: &Version, file: DataFile) -> Run {
        let keys = keys_of(version, file.fragment);
        let mut hashes = KeyHashes::with_capacity(keys.len());
        let keys = keys.as_string::<i32>().iter();
        keys.for_each(|key| hashes.push(key.map(|key| self.hash(key))));
        Run::build(self.seed, KeyType::Text, vec![file], &hashes).unwrap()
    }
}

/// Returns the files of a version's key column.
fn files(version: &Version) -> impl Iterator<Item = DataFile> {
    let column = version.schema.index_of("key").unwrap();
    version.infos.iter().zip(&version.fragments).map(move |(info, fragment)| DataFile {
        path: fragment.identity(info.id, column),
        fragment: info.id,
        rows: info.physical_rows,
    })
}
