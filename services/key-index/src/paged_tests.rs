//! Compares paged runs with the same runs in memory.

use std::collections::HashMap;
use std::sync::Arc;

use address::RowAddr;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::found::Found;
use crate::geometry::FormName;
use crate::line::PAGE_BYTES;
use crate::model_tests::{Hashing, Rows, build, file, forms, hashings, rows};
use crate::paged_run::{PagedRun, SPILL_PAGES_MAX};
use crate::pages::{PageId, Pages};
use crate::run::Run;
use crate::run_set::RunSet;
use crate::spill_bytes::SPILLED_A_PAGE;
use crate::{KeyIndexError, Loading, Paging};

/// Opens the bytes of a file as a run whose pages stay in it.
pub fn paged(name: &str, bytes: &[u8]) -> Result<PagedRun, KeyIndexError> {
    let head = Loading::head_len(bytes)?.min(bytes.len());
    let mut paging = Paging::new(name, &bytes[..head], bytes.len() as u64)?;
    let spilled = paging.spill_bytes();
    for piece in bytes[spilled.start as usize..spilled.end as usize].chunks(2 * PAGE_BYTES) {
        paging.push(piece)?;
    }
    paging.finish()
}

/// Reads the pages that look-ups need, each once, from the bytes of the runs' files. Also returns the errors of damaged
/// pages.
pub fn read_pages<'a>(
    set: &RunSet,
    hashes: &[u64],
    bytes_of: impl Fn(&str) -> &'a [u8],
) -> (Pages, Vec<KeyIndexError>) {
    let (mut pages, mut errors) = (Pages::default(), Vec::new());
    loop {
        let mut needed = set.needed_pages(hashes, &pages);
        assert!(needed.is_sorted_by(|a, b| a < b), "each page once");
        needed.retain(|id| !pages.contains(id));
        if needed.is_empty() {
            return (pages, errors);
        }
        for id in needed {
            let run = set.paged_run(id);
            let range = run.bytes_of(id.page);
            let bytes = &bytes_of(run.name())[range.start as usize..range.end as usize];
            let page = run.check(id.page, bytes).map_err(|error| errors.push(error));
            pages.insert(id, page.ok());
        }
    }
}

/// The hashes of all keys that occur, and of some that do not.
fn hashes_of(hashing: Hashing, files: &[Rows]) -> Vec<u64> {
    let keys = files.iter().flatten().flatten().copied().chain(60_000..60_100);
    keys.map(|key| hashing.hash(key)).collect()
}

/// Returns whether a key has more spilled entries than are sure to fit into the pages that a look-up reads.
fn spills_much(run: &Run, hash: u64) -> bool {
    let spot =
        crate::geometry::with_form!(run.body.geometry, F => run.body.geometry.spot::<F>(hash));
    let few = (SPILL_PAGES_MAX as usize - 1) * SPILLED_A_PAGE;
    run.body.spill.ranks(spot.bucket, spot.tag).count() > few
}

/// Compares the rows of each key in any order or, if there is a limit, only their number. Leaves out the keys that are
/// unread in `found`; `unread` says whether a key may be. Returns the number of compared keys.
fn compare(
    all: &Found,
    found: &Found,
    limit: u32,
    unread: impl Fn(usize) -> bool,
) -> Result<usize, TestCaseError> {
    let mut read = 0;
    for key in 0..all.keys() {
        if found.is_unread(key) {
            prop_assert!(unread(key));
            prop_assert!(found.rows_of(key).is_empty() && !found.has_more(key));
            continue;
        }
        read += 1;
        prop_assert_eq!(found.has_more(key), all.has_more(key));
        let (mut expected, mut rows) = (all.rows_of(key).to_vec(), found.rows_of(key).to_vec());
        if limit == u32::MAX {
            expected.sort_unstable();
            rows.sort_unstable();
            prop_assert_eq!(rows, expected);
        } else {
            prop_assert_eq!(rows.len(), expected.len());
        }
    }
    Ok(read)
}

fn is_live(row: RowAddr) -> bool {
    !row.offset().is_multiple_of(3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_paged_run_finds_what_it_finds_in_memory(
        files in vec(rows(), 1..4), hashing in hashings(), form in forms(), bits in 6u32..=64,
    ) {
        let numbered: Vec<_> = files.iter().enumerate().collect();
        let run = Arc::new(build(hashing, form, bits, &numbered));
        let bytes = run.to_bytes();
        let head = Loading::head_len(&bytes).unwrap();
        let most = Paging::bytes_of(&bytes[..PAGE_BYTES]).unwrap() as usize;
        let to_finish = Paging::new("a", &bytes[..head], bytes.len() as u64).unwrap().bytes_to_finish();
        let paged = Arc::new(paged("a", &bytes).unwrap());
        prop_assert!((head + paged.ram_bytes()..7 * head).contains(&most), "{most} for {head}");
        prop_assert_eq!(to_finish as usize, paged.ram_bytes() + PAGE_BYTES);
        prop_assert_eq!(paged.entries(), run.entries());
        prop_assert_eq!(paged.files(), run.files());
        prop_assert_eq!(paged.paged_bytes() as usize % PAGE_BYTES, 0);
        let covered = run.files().to_vec();
        let in_memory = RunSet::new([Arc::clone(&run)], [], &covered).unwrap();
        let set = RunSet::new([], [paged], &covered).unwrap();
        prop_assert_eq!((set.runs().count(), set.paged().count()), (0, 1));
        let hashes = hashes_of(hashing, &files);
        let (pages, errors) = read_pages(&set, &hashes, |_| &bytes);
        prop_assert!(errors.is_empty());
        let (mut all, mut found) = (Found::default(), Found::default());
        for limit in [u32::MAX, 0, 1, 3] {
            in_memory.lookup(&hashes, &Pages::default(), limit, is_live, &mut all);
            set.lookup(&hashes, &pages, limit, is_live, &mut found);
            let unread = |key: usize| spills_much(&run, hashes[key]);
            let read = compare(&all, &found, limit, unread)?;
            // A single run is searched in the same order, in memory and in pages.
            if read == hashes.len() {
                prop_assert_eq!(&found, &all);
            }
        }
    }

    #[test]
    fn runs_in_memory_and_paged_ones_find_every_row_together(
        files in vec(rows(), 2..5), hashing in hashings(), is_paged in vec(any::<bool>(), 5),
        lacks in 0usize..6,
    ) {
        let runs: Vec<Arc<Run>> = files.iter().enumerate()
            .map(|one| Arc::new(build(hashing, FormName::Wide, 64, &[one]))).collect();
        let bytes: HashMap<String, Vec<u8>> =
            runs.iter().enumerate().map(|(at, run)| (at.to_string(), run.to_bytes())).collect();
        let version: Vec<_> = files.iter().enumerate().filter(|(at, _)| *at != lacks)
            .map(|(at, rows)| file(at, rows)).collect();
        let all = RunSet::new(runs.clone(), [], &version).unwrap();
        let is_paged = &is_paged;
        let part = |wanted: bool| (0..runs.len()).filter(move |&at| is_paged[at] == wanted);
        let in_memory: Vec<_> = part(false).map(|at| Arc::clone(&runs[at])).collect();
        let paged: Vec<_> = part(true)
            .map(|at| Arc::new(paged(&at.to_string(), &bytes[&at.to_string()]).unwrap())).collect();
        let set = RunSet::new(in_memory, paged, &version).unwrap();
        prop_assert!(set.uncovered().is_empty());
        let hashes = hashes_of(hashing, &files);
        let (pages, errors) = read_pages(&set, &hashes, |name| &bytes[name]);
        prop_assert!(errors.is_empty());
        let (mut expected, mut found) = (Found::default(), Found::default());
        for limit in [u32::MAX, 2] {
            all.lookup(&hashes, &Pages::default(), limit, is_live, &mut expected);
            set.lookup(&hashes, &pages, limit, is_live, &mut found);
            let unread = |key: usize| runs.iter().any(|run| spills_much(run, hashes[key]));
            compare(&expected, &found, limit, unread)?;
        }
    }

    #[test]
    fn keys_of_a_damaged_page_are_not_looked_up_and_all_others_are(
        files in vec(rows(), 1..3), hashing in hashings(), form in forms(), page: prop::sample::Index,
        at in 0usize..PAGE_BYTES, bit in 0u32..8,
    ) {
        let numbered: Vec<_> = files.iter().enumerate().collect();
        let run = Arc::new(build(hashing, form, 64, &numbered));
        let good = run.to_bytes();
        let paged = Arc::new(paged("a", &good).unwrap());
        let covered = run.files().to_vec();
        let page = page.index((paged.paged_bytes() as usize) / PAGE_BYTES) as u32;
        let mut bytes = good;
        bytes[paged.bytes_of(page).start as usize + at] ^= 1 << bit;
        let in_memory = RunSet::new([Arc::clone(&run)], [], &covered).unwrap();
        let set = RunSet::new([], [Arc::clone(&paged)], &covered).unwrap();
        let hashes = hashes_of(hashing, &files);
        let (pages, errors) = read_pages(&set, &hashes, |_| &bytes);
        let of_page = |hash: u64| {
            let spot = paged.spot(hash);
            let id = |page| PageId { run: 0, page };
            let is_spilled = paged.spill_pages_of(spot).is_some_and(|pages| pages.contains(&page));
            paged.page_of(spot) == page || is_spilled && pages.contains(&id(page))
        };
        let is_needed = hashes.iter().any(|&hash| of_page(hash));
        let damaged = KeyIndexError::CorruptPage { page, reason: "wrong checksum" };
        prop_assert_eq!(errors, if is_needed { vec![damaged] } else { Vec::new() });
        let (mut all, mut found) = (Found::default(), Found::default());
        in_memory.lookup(&hashes, &Pages::default(), u32::MAX, |_| true, &mut all);
        set.lookup(&hashes, &pages, u32::MAX, |_| true, &mut found);
        let unread = |key: usize| of_page(hashes[key]) || spills_much(&run, hashes[key]);
        compare(&all, &found, u32::MAX, unread)?;
        let bucket_page = |hash: u64| paged.page_of(paged.spot(hash)) == page;
        prop_assert!((0..hashes.len()).all(|key| found.is_unread(key) || !bucket_page(hashes[key])));
    }
}

#[test]
fn only_the_head_takes_memory() {
    let rows: Rows = (0..30_000).map(Some).collect();
    let run = build(Hashing::Full, FormName::Wide, 64, &[(3, &rows)]);
    let bytes = run.to_bytes();
    let paged = paged("0.keys", &bytes).unwrap();
    let spill_pages = run.spilled_entries().div_ceil(SPILLED_A_PAGE);
    assert_eq!((paged.paged_bytes() as usize / PAGE_BYTES, spill_pages), (87 + 1, 1));
    assert_eq!(paged.ram_bytes(), 4 * 88 + 8 + 36 + "data/3.lance".len() + "0.keys".len());
    assert_eq!(run.ram_bytes() / paged.ram_bytes(), 861);
}

#[test]
fn most_keys_need_one_page_and_no_key_needs_many() {
    let rows: Rows = (0..30_000).map(Some).collect();
    let run = build(Hashing::Full, FormName::Wide, 64, &[(3, &rows)]);
    let bytes = run.to_bytes();
    let paged = Arc::new(paged("0.keys", &bytes).unwrap());
    let covered = run.files().to_vec();
    let set = RunSet::new([], [paged], &covered).unwrap();
    let mut several = 0;
    for key in 0..30_000 {
        let hash = [Hashing::Full.hash(key)];
        let (pages, _) = read_pages(&set, &hash, |_| &bytes);
        match set.needed_pages(&hash, &pages).len() {
            1 => {}
            2 => several += 1,
            pages => panic!("{pages} pages for key {key}"),
        }
    }
    // These are the keys with spilled entries, and keys with high tags in the same buckets.
    assert!((1..100).contains(&several), "{several}");

    // The spilled entries of a key with 10,000 rows are on some 30 pages, so the key is not looked up.
    let rows: Rows = [vec![Some(1); 10_000], vec![Some(2)]].concat();
    let run = build(Hashing::Full, FormName::Wide, 64, &[(3, &rows)]);
    let bytes = run.to_bytes();
    let run = Arc::new(self::paged("0.keys", &bytes).unwrap());
    let covered = run.files().to_vec();
    let set = RunSet::new([], [run], &covered).unwrap();
    let hashes = [1, 2, 3].map(|key| Hashing::Full.hash(key));
    let (pages, _) = read_pages(&set, &hashes, |_| &bytes);
    let mut found = Found::default();
    set.lookup(&hashes, &pages, u32::MAX, |_| true, &mut found);
    assert_eq!([0, 1, 2].map(|key| found.is_unread(key)), [true, false, false]);
    assert_eq!(found.rows(), [RowAddr::new(3, 10_000)]);
    // If the entries of key 1 in its bucket's page are more than the limit, the look-up needs no spilled entries.
    set.lookup(&hashes, &pages, 5, |_| true, &mut found);
    assert_eq!([0, 1, 2].map(|key| found.has_more(key)), [true, false, false]);
    assert_eq!((found.is_unread(0), found.rows_of(0).len()), (false, 5));
}

#[test]
fn a_run_that_is_not_whole_is_not_opened() {
    // Most entries are spilled, to several pages.
    let rows: Rows = vec![Some(7); 3_000];
    let good = build(Hashing::Full, FormName::Wide, 64, &[(3, &rows)]).to_bytes();
    assert!(paged("a", &good).is_ok());
    let reason = |bytes: &[u8]| paged("a", bytes).unwrap_err().to_string();
    assert_eq!(reason(&[]), "not a usable key index: its head is truncated");
    let length = "not a usable key index: it is truncated, or has bytes after its end";
    assert_eq!(reason(&good[..good.len() - 1]), length);
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let pages = (good.len() / PAGE_BYTES - 1) as u32;
    let last = KeyIndexError::CorruptPage { page: pages - 1, reason: "wrong checksum" };
    assert_eq!(paged("a", &damaged).unwrap_err(), last);
    let mut few = Paging::new("a", &good[..PAGE_BYTES], good.len() as u64).unwrap();
    let spilled = few.spill_bytes();
    let head = |reason| KeyIndexError::CorruptHead { reason };
    let part = &good[spilled.start as usize..][..100];
    assert_eq!(few.push(part).unwrap_err(), head("a part of a page was given to load"));
    assert_eq!(few.finish().unwrap_err(), head("it is truncated"));
    let run = paged("a", &good).unwrap();
    let truncated = KeyIndexError::CorruptPage { page: 0, reason: "it is truncated" };
    assert_eq!(run.check(0, &good[..100]).unwrap_err(), truncated);
    assert!(run.check(pages, &good[..PAGE_BYTES]).is_err(), "after the end");
}
