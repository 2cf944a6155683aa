//! Merges runs without the key column.
//!
//! Each run gives its entries in the order of their hashes, so merging is one pass over all runs. A run from which
//! files are dropped is read once more before, to count its entries. Merging takes the memory of the new run; the old
//! ones are only read. The new run keeps as many bits of each hash as the old run that keeps the fewest, or fewer if
//! its own lines hold fewer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::KeyIndexError;
use crate::body::Body;
use crate::files::{DataFile, Files};
use crate::fill::Fill;
use crate::geometry::{FormName, Geometry};
use crate::key_type::KeyType;
use crate::line::{Form, Narrow, Wide};
use crate::run::Run;

impl Run {
    /// Merges runs into one that covers their files for which `keep` returns true. Rows of the first run are found
    /// first: give newer runs first.
    ///
    /// # Errors
    /// If no run is given, if the runs differ in their seed or key type, or if the files have too many rows.
    pub fn merge(runs: &[&Run], keep: impl Fn(&DataFile) -> bool) -> Result<Self, KeyIndexError> {
        let first = *runs.first().ok_or(KeyIndexError::NoRuns)?;
        alike(runs.iter().map(|run| (run.seed, run.key_type)))?;
        let kept = runs.iter().flat_map(|run| run.files()).filter(|file| keep(file));
        let files = Files::new(kept.cloned().collect())?;
        let hash_bits = runs.iter().map(|run| run.hash_bits()).min().unwrap_or(u64::BITS);
        let mut next_file = 0;
        let parts: Vec<Part<'_>> =
            runs.iter().map(|run| Part::new(run, &keep, &files, &mut next_file)).collect();
        let entries: u64 = parts.iter().map(Part::entries).sum();
        let geometry = Geometry::for_keys(entries, hash_bits);
        let body = match geometry.form() {
            FormName::Narrow => fill(Fill::<Narrow>::new(geometry), parts),
            FormName::Wide => fill(Fill::<Wide>::new(geometry), parts),
        };
        Ok(Self { seed: first.seed, key_type: first.key_type, files, entries, body })
    }
}

/// Checks that the hashes of all runs were made in the same way. `runs` has the seed and the key type of each.
pub fn alike(runs: impl Iterator<Item = (u64, KeyType)>) -> Result<(), KeyIndexError> {
    let mut first = None;
    for (seed, key_type) in runs {
        let (first_seed, first_type) = *first.get_or_insert((seed, key_type));
        if seed != first_seed {
            return Err(KeyIndexError::Unlike { what: "their seeds" });
        }
        if key_type != first_type {
            return Err(KeyIndexError::Unlike { what: "the types of their keys" });
        }
    }
    Ok(())
}

/// A run that is merged, and the ranks that its rows get in the new run.
struct Part<'a> {
    run: &'a Run,
    /// For each file, the new rank of its first row, if the file is kept.
    starts: Vec<Option<u32>>,
}

impl<'a> Part<'a> {
    fn new(
        run: &'a Run,
        keep: &impl Fn(&DataFile) -> bool,
        files: &Files,
        next_file: &mut usize,
    ) -> Self {
        let starts = run.files().iter().map(|file| {
            keep(file).then(|| {
                *next_file += 1;
                files.start_of(*next_file - 1)
            })
        });
        Self { run, starts: starts.collect() }
    }

    fn keeps_all(&self) -> bool {
        self.starts.iter().all(Option::is_some)
    }

    /// Returns the number of entries that are kept.
    fn entries(&self) -> u64 {
        match self.keeps_all() {
            true => self.run.entries(),
            false => self.hashes().count() as u64,
        }
    }

    /// Returns the hashes that are kept, in order, with their new ranks.
    fn hashes(&self) -> impl Iterator<Item = (u64, u32)> {
        self.run.hashes().filter_map(|(hash, rank)| {
            let file = self.run.files.file_of(rank);
            let start = self.starts[file]?;
            Some((hash, start + (rank - self.run.files.start_of(file))))
        })
    }
}

fn fill<F: Form>(mut fill: Fill<F>, parts: Vec<Part<'_>>) -> Body {
    let mut streams: Vec<_> = parts.iter().map(Part::hashes).collect();
    let mut heads = BinaryHeap::with_capacity(streams.len());
    for (index, stream) in streams.iter_mut().enumerate() {
        heads.extend(stream.next().map(|entry| Reverse((entry, index))));
    }
    while let Some(mut head) = heads.peek_mut() {
        let Reverse(((hash, rank), index)) = *head;
        fill.push(hash, rank);
        match streams[index].next() {
            Some(entry) => *head = Reverse((entry, index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(head);
            }
        }
    }
    fill.finish()
}
