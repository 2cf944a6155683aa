//! Fuzzes the decoder of persisted runs: arbitrary bytes, damaged runs, and damaged runs with corrected checksums.

use std::sync::Arc;

use fuzz::{cases, damage, noise, within};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::build::KeyHashes;
use crate::files::DataFile;
use crate::found::Found;
use crate::geometry::{FormName, Geometry};
use crate::head::{Head, head_checksum, page_checksum};
use crate::line::PAGE_BYTES;
use crate::paged_tests::{paged, read_pages};
use crate::pages::Pages;
use crate::run::Run;
use crate::run_set::RunSet;
use crate::{KeyIndexError, KeyType, Loading, Paging};

const CRC_AT: usize = 52;

fn subject(rng: &mut StdRng) -> Run {
    let files: Vec<DataFile> = (0..rng.random_range(1..4))
        .map(|fragment| {
            let rows = rng.random_range(0..700);
            DataFile { path: format!("data/{fragment}.lance"), fragment, rows }
        })
        .collect();
    let distinct: u64 = [3, 50, 1 << 40][rng.random_range(0..3)];
    let mut hashes = KeyHashes::default();
    for _ in 0..files.iter().map(|file| file.rows).sum() {
        let hash = rng.random_range(0..distinct).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hashes.push(rng.random_bool(0.95).then_some(hash));
    }
    let form = [FormName::Narrow, FormName::Wide][rng.random_range(0..2)];
    let geometry = Geometry::with_form(form, hashes.keys() as u64, rng.random_range(8..=64));
    Run::build_as(geometry, rng.random(), KeyType::Decimal { scale: -2 }, files, &hashes).unwrap()
}

/// Corrects all checksums of a persisted run, as far as its head can be understood.
pub fn correct(bytes: &mut [u8], head_len: usize) {
    let Some((head, pages)) = bytes.split_at_mut_checked(head_len) else { return };
    let sum = head_checksum(head).to_le_bytes();
    head[CRC_AT..CRC_AT + 4].copy_from_slice(&sum);
    if let Ok(decoded) = Head::from_bytes(head) {
        let files: usize = decoded.files.list().iter().map(|file| 10 + file.path.len()).sum();
        let sums = head[56 + files..].as_chunks_mut::<4>().0;
        for (page, sum) in
            pages.as_chunks::<PAGE_BYTES>().0.iter().zip(sums).take(decoded.checksums.len())
        {
            *sum = page_checksum(page).to_le_bytes();
        }
        let sum = head_checksum(head).to_le_bytes();
        head[CRC_AT..CRC_AT + 4].copy_from_slice(&sum);
    }
}

/// Damages anything, or flips bits of bytes that are in use in the pages: heads, tags, ranks.
fn damage_some(rng: &mut StdRng, bytes: &mut Vec<u8>, head_len: usize) {
    if rng.random_bool(0.4) {
        return damage(rng, bytes);
    }
    let is_used = |at: &usize| ![0, 0xff].contains(&bytes[*at]);
    let used: Vec<usize> = (head_len..bytes.len()).filter(is_used).collect();
    for _ in 0..rng.random_range(1..3) {
        if let Some(&at) = used.choose(rng) {
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
    }
}

#[test]
fn fuzz_persisted_runs() {
    let (mut refused, mut refused_pages, mut accepted) = (0, 0, 0);
    cases("fuzz_persisted_runs", 400, |rng| {
        let good = subject(rng).to_bytes();
        let head_len = Loading::head_len(&good).unwrap();
        assert_eq!(Run::from_bytes(&good).unwrap().to_bytes(), good);
        for _ in 0..40 {
            let mut bytes = good.clone();
            match rng.random_range(0..20) {
                0 => bytes = noise(rng, 9_000),
                1 => {
                    let from = rng.random_range(0..bytes.len());
                    bytes.truncate(from);
                }
                _ => damage_some(rng, &mut bytes, head_len),
            }
            let is_corrected = rng.random_bool(0.8);
            if is_corrected {
                correct(&mut bytes, head_len);
            }
            decode_head_within_its_bound(&bytes);
            let paged = within(bytes.len() * 8 + (64 << 10), || page_it(&bytes, rng));
            if let Err(error) = paged {
                refused_pages += 1;
                assert!(
                    Run::from_bytes(&bytes).is_err(),
                    "{error}: a whole run is checked for it too"
                );
            }
            match within(bytes.len() * 8 + (16 << 10), || Run::from_bytes(&bytes)) {
                Ok(run) => {
                    accepted += 1;
                    assert!(is_corrected || bytes == good, "damage was not noticed");
                    assert_eq!(run.to_bytes(), bytes);
                    use_it(run, rng);
                }
                Err(error) => {
                    refused += 1;
                    assert!(
                        matches!(&error, KeyIndexError::CorruptHead { reason }
                            | KeyIndexError::CorruptPage { reason, .. } if !reason.is_empty())
                            || matches!(error, KeyIndexError::UnknownVersion { .. }),
                        "{error}"
                    );
                }
            }
        }
    });
    assert!(refused_pages > refused / 20, "{refused_pages} {refused}");
    assert!(refused > accepted / 20 && accepted > refused / 20, "{refused} {accepted}");
}

/// Looks keys up in a run that was accepted, although its bytes may have been changed, and merges it. Nothing may
/// panic.
fn use_it(run: Run, rng: &mut StdRng) {
    let entries: Vec<(u64, u32)> = run.hashes().collect();
    assert_eq!(entries.len() as u64, run.entries());
    let mut hashes: Vec<u64> = entries.iter().map(|(hash, _)| *hash).take(100).collect();
    hashes.extend((0..50).map(|_| rng.random::<u64>()));
    let merged = Run::merge(&[&run, &run], |file| file.rows % 2 == 0);
    let rows =
        |run: &Run| run.files().iter().filter(|f| f.rows % 2 == 0).map(|f| f.rows).sum::<u32>();
    match merged {
        Ok(merged) => assert_eq!(merged.rows(), 2 * rows(&run)),
        Err(error) => assert!(matches!(error, KeyIndexError::TooManyRows { .. })),
    }
    let files = run.files().to_vec();
    let set = RunSet::new([Arc::new(run)], [], &files).unwrap();
    let mut found = Found::default();
    set.lookup(&hashes, &Pages::default(), 10, |_| true, &mut found);
    assert_eq!(found.keys(), hashes.len());
}

/// Decodes the head of bytes that may be damaged. Decoding may take as much memory as [`Paging::bytes_of`] says, less
/// the head's own bytes, which are in memory already, plus 256 bytes for the name and an error.
fn decode_head_within_its_bound(bytes: &[u8]) {
    let first = &bytes[..bytes.len().min(PAGE_BYTES)];
    let (Ok(head), Ok(most)) = (Loading::head_len(first), Paging::bytes_of(first)) else { return };
    assert!(most as usize <= 7 * head, "{most} for {head}");
    let name_and_error = 256;
    let head = &bytes[..head.min(bytes.len())];
    within(most as usize - head.len() + name_and_error, || {
        drop(Paging::new("a", head, bytes.len() as u64));
    });
}

/// Opens bytes as a run whose pages stay in its file, and looks keys up in it. Nothing may panic.
fn page_it(bytes: &[u8], rng: &mut StdRng) -> Result<Found, KeyIndexError> {
    let run = Arc::new(paged("a", bytes)?);
    let hashes: Vec<u64> = (0..200).map(|_| rng.random_range(0..50u64) << 58).collect();
    let files = run.files().to_vec();
    let set = RunSet::new([], [run], &files)?;
    let (pages, failed) = read_pages(&set, &hashes, |_| bytes);
    let mut found = Found::default();
    set.lookup(&hashes, &pages, 10, |_| true, &mut found);
    assert_eq!(found.keys(), hashes.len());
    match failed.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(found),
    }
}
