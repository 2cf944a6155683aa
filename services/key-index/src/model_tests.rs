//! Compares runs with a plain map. Most hashes here collide far more often than real ones.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use address::RowAddr;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::build::KeyHashes;
use crate::files::DataFile;
use crate::found::Found;
use crate::geometry::{FormName, Geometry, Spot};
use crate::pages::Pages;
use crate::policy::RunFacts;
use crate::run::Run;
use crate::run_set::RunSet;
use crate::{KeyIndexError, KeyType};

const SEED: u64 = 7;

/// The way in which a key's hash is computed. All variants but `Full` make keys collide.
#[derive(Clone, Copy, Debug)]
pub enum Hashing {
    /// The key's full 64-bit hash. Hardly any keys collide.
    Full,
    /// Only the first bits differ: a bucket's number and a tag of eight bits.
    ShortTags,
    /// A few buckets get all keys.
    FewBuckets,
    /// A handful of hashes.
    Few,
}

impl Hashing {
    pub fn hash(self, key: u16) -> u64 {
        let hash = xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes());
        match self {
            Self::Full => hash,
            Self::ShortTags => hash & u64::MAX << (64 - 5 - 8),
            Self::FewBuckets => hash >> 9,
            Self::Few => hash & 3 << 62 | 0xff,
        }
    }
}

/// The keys of one data file's rows.
pub type Rows = Vec<Option<u16>>;

pub fn file(fragment: usize, rows: &Rows) -> DataFile {
    let path = format!("data/{fragment}.lance");
    DataFile { path, fragment: fragment as u32, rows: rows.len() as u32 }
}

pub fn build(hashing: Hashing, form: FormName, bits: u32, files: &[(usize, &Rows)]) -> Run {
    let mut hashes = KeyHashes::default();
    let rows = || files.iter().flat_map(|(_, rows)| rows.iter());
    rows().for_each(|key| hashes.push(key.map(|key| hashing.hash(key))));
    let geometry = Geometry::with_form(form, hashes.keys() as u64, bits);
    let files = files.iter().map(|(fragment, rows)| file(*fragment, rows)).collect();
    Run::build_as(geometry, SEED, KeyType::Integer, files, &hashes).unwrap()
}

/// All rows of all files, by key, in the order of fragments and offsets.
fn model(files: &[Rows]) -> HashMap<u16, Vec<RowAddr>> {
    let mut rows_of = HashMap::<_, Vec<_>>::new();
    for (fragment, rows) in (0..).zip(files) {
        for (offset, key) in (0..).zip(rows) {
            let Some(key) = key else { continue };
            rows_of.entry(*key).or_default().push(RowAddr::new(fragment, offset));
        }
    }
    rows_of
}

fn key_of(files: &[Rows], row: RowAddr) -> Option<u16> {
    files[row.fragment() as usize][row.offset() as usize]
}

/// Checks look-ups of all keys that occur, and of some that do not.
fn check(set: &RunSet, hashing: Hashing, files: &[Rows]) -> Result<(), TestCaseError> {
    let model = model(files);
    let keys: Vec<u16> = model.keys().copied().chain(60_000..60_100).collect();
    let hashes: Vec<u64> = keys.iter().map(|&key| hashing.hash(key)).collect();
    let mut found = Found::default();
    set.lookup(&hashes, &Pages::default(), u32::MAX, |_| true, &mut found);
    prop_assert_eq!(found.keys(), keys.len());
    for (position, key) in keys.iter().enumerate() {
        let candidates = found.rows_of(position);
        let distinct: HashSet<_> = candidates.iter().collect();
        prop_assert_eq!(distinct.len(), candidates.len(), "a row is a candidate twice");
        let mut proven: Vec<RowAddr> =
            candidates.iter().copied().filter(|&row| key_of(files, row) == Some(*key)).collect();
        proven.sort_unstable();
        prop_assert_eq!(Some(proven), model.get(key).cloned().or(Some(Vec::new())));
        prop_assert!(!found.has_more(position));
        if matches!(hashing, Hashing::Full) && set.runs().all(|run| run.hash_bits() > 30) {
            prop_assert!(candidates.len() <= model.get(key).map_or(0, Vec::len) + 1);
        }
    }
    check_limits(set, &hashes, &found)
}

/// Checks that look-ups with limits and deletions return the first live candidates in `all`.
fn check_limits(set: &RunSet, hashes: &[u64], all: &Found) -> Result<(), TestCaseError> {
    let mut found = Found::default();
    for limit in [0, 1, 3] {
        for is_live in [|_| true, |row: RowAddr| !row.offset().is_multiple_of(3)] {
            set.lookup(hashes, &Pages::default(), limit, is_live, &mut found);
            for position in 0..hashes.len() {
                let live: Vec<RowAddr> =
                    all.rows_of(position).iter().copied().filter(|&row| is_live(row)).collect();
                let expected = &live[..live.len().min(limit as usize)];
                prop_assert_eq!(found.rows_of(position), expected);
                prop_assert_eq!(found.has_more(position), live.len() > expected.len());
            }
        }
    }
    Ok(())
}

pub fn hashings() -> impl Strategy<Value = Hashing> {
    use Hashing::*;
    prop_oneof![Just(Full), Just(ShortTags), Just(FewBuckets), Just(Few)]
}

pub fn forms() -> impl Strategy<Value = FormName> {
    prop_oneof![Just(FormName::Narrow), Just(FormName::Wide)]
}

/// Generates the keys of a file's rows: mostly unique ones, some that many rows have, and nulls.
pub fn rows() -> impl Strategy<Value = Rows> {
    let key = prop_oneof![9 => (0u16..50_000).prop_map(Some), 2 => (0u16..5).prop_map(Some), 1 => Just(None)];
    prop_oneof![vec(key.clone(), 0..40), vec(key, 0..1_500)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_run_finds_all_rows_of_every_key(
        files in vec(rows(), 1..4), hashing in hashings(), form in forms(), bits in 6u32..=64,
    ) {
        let numbered: Vec<_> = files.iter().enumerate().collect();
        let run = build(hashing, form, bits, &numbered);
        prop_assert_eq!(run.entries(), files.iter().flatten().flatten().count() as u64);
        let loaded = Run::from_bytes(&run.to_bytes()).unwrap();
        for run in [run, loaded] {
            let all: Vec<DataFile> = run.files().to_vec();
            let set = RunSet::new([Arc::new(run)], [], &all).unwrap();
            check(&set, hashing, &files)?;
        }
    }

    #[test]
    fn merged_runs_find_what_their_parts_find(
        files in vec(rows(), 1..6), hashing in hashings(), forms in vec(forms(), 6), bits in 6u32..=64,
        dropped in 0usize..8,
    ) {
        let parts: Vec<Run> = files.iter().enumerate().zip(&forms)
            .map(|(file, form)| build(hashing, *form, bits, &[file])).collect();
        let parts: Vec<&Run> = parts.iter().rev().collect();
        let merged = Run::merge(&parts, |file| file.fragment as usize != dropped).unwrap();
        prop_assert!(merged.hash_bits() <= parts.iter().map(|run| run.hash_bits()).min().unwrap());
        let bytes = merged.to_bytes();
        prop_assert_eq!(Run::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        let mut kept = files.clone();
        if let Some(rows) = kept.get_mut(dropped) {
            rows.iter_mut().for_each(|key| *key = None);
        }
        let covered = merged.files().to_vec();
        prop_assert_eq!(covered.len(), files.len() - usize::from(dropped < files.len()));
        check(&RunSet::new([Arc::new(merged)], [], &covered).unwrap(), hashing, &kept)?;
    }

    #[test]
    fn a_merge_is_the_run_that_a_build_would_give(
        files in vec(rows(), 1..4), hashing in hashings(),
    ) {
        let parts: Vec<Run> = files.iter().enumerate()
            .map(|file| build(hashing, FormName::Wide, 64, &[file])).collect();
        let merged = Run::merge(&parts.iter().collect::<Vec<_>>(), |_| true).unwrap();
        let numbered: Vec<_> = files.iter().enumerate().collect();
        let built = build(hashing, FormName::Wide, merged.hash_bits(), &numbered);
        prop_assert_eq!(merged.to_bytes(), built.to_bytes());
    }

    #[test]
    fn a_set_finds_every_row_of_covered_files_once(
        files in vec(rows(), 1..9), hashing in hashings(), cuts in vec(0usize..9, 0..4),
        gone in vec(any::<bool>(), 9),
    ) {
        // Runs of one file each, and runs that cover several; a version that has some of the files.
        let numbered: Vec<_> = files.iter().enumerate().collect();
        let mut runs: Vec<Arc<Run>> = numbered.iter()
            .map(|one| Arc::new(build(hashing, FormName::Wide, 64, &[*one]))).collect();
        runs.extend(cuts.iter().filter_map(|&cut| numbered.get(cut..)).filter(|files| !files.is_empty())
            .map(|files| Arc::new(build(hashing, FormName::Narrow, 64, files))));
        let version: Vec<DataFile> = numbered.iter().filter(|(number, _)| !gone[*number])
            .map(|(number, rows)| file(*number, rows)).collect();
        let set = RunSet::new(runs, [], &version).unwrap();
        prop_assert!(set.runs().count() <= crate::RUNS_MAX);
        let missing: HashSet<u32> = set.uncovered().iter().map(|file| file.fragment).collect();
        let visible: Vec<Rows> = (0..).zip(&files).map(|(number, rows)| {
            let is_visible = !gone[number] && !missing.contains(&(number as u32));
            if is_visible { rows.clone() } else { vec![None; rows.len()] }
        }).collect();
        check(&set, hashing, &visible)?;
        if cuts.contains(&0) {
            prop_assert!(missing.is_empty());
        }
    }
}

#[test]
fn a_key_with_a_hundred_thousand_rows_is_found_with_all_of_them() {
    let mut keys: Rows = vec![Some(1); 100_000];
    keys.extend((2..2_000).map(Some));
    for form in [FormName::Narrow, FormName::Wide] {
        let run = build(Hashing::Full, form, 64, &[(0, &keys)]);
        let spot = match form {
            FormName::Narrow => {
                run.body.geometry.spot::<crate::line::Narrow>(Hashing::Full.hash(1))
            }
            FormName::Wide => run.body.geometry.spot::<crate::line::Wide>(Hashing::Full.hash(1)),
        };
        assert_eq!(ranks(&run, spot), (0..100_000).collect::<Vec<_>>());
        assert!(run.spilled_entries() > 99_000);
        let covered = run.files().to_vec();
        let facts = RunFacts::of(&run, &covered.iter().cloned().collect());
        assert_eq!(facts.spilled, run.spilled_entries() as u64);
        assert_eq!(RunFacts::of(&run, &HashSet::new()).spilled, 0);
        let set = RunSet::new([Arc::new(run)], [], &covered).unwrap();
        check(&set, Hashing::Full, &[keys.clone()]).unwrap();
    }
}

fn ranks(run: &Run, spot: Spot) -> Vec<u32> {
    let mut ranks = Vec::new();
    let _ = run.each(spot, |rank| {
        ranks.push(rank);
        ControlFlow::Continue(())
    });
    ranks
}

#[test]
fn memory_is_what_the_formula_says() {
    let sizes = [(0, 1), (1, 1), (345, 1), (346, 2), (30_000, 87)];
    for (keys, pages) in sizes {
        let rows: Rows = (0..keys).map(|key| Some(key as u16)).collect();
        let run = build(Hashing::Full, FormName::Wide, 64, &[(3, &rows)]);
        let spilled = run.spilled_entries();
        let spill = if spilled > 0 { 12 * spilled + 4 * (pages + 1) } else { 0 };
        assert_eq!(run.ram_bytes(), 4_096 * pages + spill + 36 + "data/3.lance".len());
    }
}

#[test]
fn runs_that_do_not_belong_together_are_refused() {
    let rows: Rows = vec![Some(1)];
    let run = build(Hashing::Full, FormName::Wide, 64, &[(0, &rows)]);
    let (mut other_seed, mut other_type) = (run.clone(), run.clone());
    other_seed.seed += 1;
    other_type.key_type = KeyType::Text;
    for (other, what) in [(other_seed, "their seeds"), (other_type, "the types of their keys")] {
        let merged = Run::merge(&[&run, &other], |_| true).unwrap_err();
        assert_eq!(merged, KeyIndexError::Unlike { what });
        let set = RunSet::new([Arc::new(run.clone()), Arc::new(other)], [], &[]).unwrap_err();
        assert_eq!(set, merged);
    }
    assert_eq!(Run::merge(&[], |_| true).unwrap_err(), KeyIndexError::NoRuns);
    let too_few = Run::build(1, KeyType::Text, vec![file(0, &rows)], &KeyHashes::default());
    assert_eq!(too_few.unwrap_err(), KeyIndexError::Rows { expected: 1, found: 0 });
    assert_eq!(RunSet::new([], [], &[file(0, &rows)]).unwrap().uncovered(), [file(0, &rows)]);
}
