//! Tests the exact bytes of a small persisted run, and that each damaged byte of it is detected.

use crate::build::KeyHashes;
use crate::files::DataFile;
use crate::fuzz_tests::correct;
use crate::line::PAGE_BYTES;
use crate::run::Run;
use crate::{KeyIndexError, KeyType, Loading};

/// A run of five rows: one has no key, and two have the same key.
fn run() -> Run {
    let mut hashes = KeyHashes::default();
    let half = 1 << 63;
    // Bucket 28 of 56 begins in the middle of the range of hashes.
    for hash in [Some(half | 7 << 40), None, Some(half), Some(u64::MAX), Some(half)] {
        hashes.push(hash);
    }
    let file = |fragment, rows| DataFile { path: format!("data/{fragment}.lance"), fragment, rows };
    let files = vec![file(9, 3), file(4, 2)];
    Run::build(0x0102, KeyType::Decimal { scale: -2 }, files, &hashes).unwrap()
}

#[test]
fn the_bytes_match_the_drawings() {
    let bytes = run().to_bytes();
    assert_eq!(bytes.len(), 2 * PAGE_BYTES);
    assert_eq!(&bytes[..16], b"BIREMEKX\x01\0\0\0\0\x10\0\0");
    assert_eq!(bytes[16..24], [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..32], [4, 0xfe, 2, 37, 1, 0, 0, 0]);
    assert_eq!(bytes[32..52], [4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(&bytes[56..78], b"\x09\0\0\0\x03\0\0\0\x0c\0data/9.lance");
    assert_eq!(&bytes[78..100], b"\x04\0\0\0\x02\0\0\0\x0c\0data/4.lance");
    assert!(bytes[104..PAGE_BYTES].iter().all(|&byte| byte == 0));
    let line = |number: usize| &bytes[PAGE_BYTES + 64 * number..][..64];
    // Tags are the upper 32 bits of the rest of hash × 56: 0 for the two rows whose hash is 2^63, and 7 × 2^40 × 56 /
    // 2^32 for the row whose hash is higher by 7 × 2^40.
    let tag = (7u32 << 8) * 56;
    assert_eq!(line(28)[..12], [[0; 4], [0; 4], tag.to_le_bytes()].concat());
    assert_eq!(line(28)[12..28], [0xff; 16]);
    assert_eq!(line(28)[28..32], [3, 0, 0, 0]);
    assert_eq!(line(28)[32..48], [2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(line(28)[48..], [0; 16]);
    assert_eq!(line(55)[28..36], [1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(line(0), [vec![0xff; 28], vec![0; 36]].concat());
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let good = run().to_bytes();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(Run::from_bytes(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn a_run_is_loaded_piece_by_piece() {
    let run = run();
    let bytes = run.to_bytes();
    assert_eq!(run.to_pieces().flatten().collect::<Vec<_>>(), bytes);
    let head_len = Loading::head_len(&bytes[..16]).unwrap();
    let new = |len| Loading::new(&bytes[..head_len], len);
    let mut loading = new(bytes.len() as u64).unwrap();
    loading.push(&bytes[head_len..]).unwrap();
    assert_eq!(loading.finish().unwrap().to_bytes(), bytes);

    let head = |reason| KeyIndexError::CorruptHead { reason };
    let len = bytes.len() as u64;
    assert_eq!(new(len).unwrap().finish().unwrap_err(), head("it is truncated"));
    let wrong = new(len + 1).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "not a usable key index: it is truncated, or has bytes after its end"
    );
    let mut loading = new(len).unwrap();
    assert_eq!(
        loading.push(&bytes[..100]).unwrap_err(),
        head("a part of a page was given to load")
    );
    let damaged = loading.push(&[0; PAGE_BYTES]).unwrap_err();
    assert_eq!(damaged.to_string(), "damaged key index: page 0: wrong checksum");
    assert_eq!(Run::from_bytes(b"parquet").unwrap_err(), head("its head is truncated"));
    assert_eq!(Run::from_bytes(&[7; 16]).unwrap_err(), head("the file is none"));
    let mut newer = bytes.clone();
    newer[8] = 2;
    let unknown = KeyIndexError::UnknownVersion { found: 2, known: 1 };
    assert_eq!(Run::from_bytes(&newer).unwrap_err(), unknown);
}

#[test]
fn a_spilled_entry_before_those_of_its_buckets_page_is_refused() {
    let mut hashes = KeyHashes::default();
    (0..100).for_each(|_| hashes.push(Some(u64::MAX)));
    let file = DataFile { path: "data/0.lance".into(), fragment: 0, rows: 100 };
    let run = Run::build(1, KeyType::Decimal { scale: -2 }, vec![file], &hashes).unwrap();
    let mut bytes = run.to_bytes();
    // A line and all overflow slots of the page hold 63 entries; the others are spilled.
    assert_eq!(run.spilled_entries(), 37);
    let tag = bytes.len() - PAGE_BYTES + 4;
    bytes[tag..tag + 4].fill(0);
    let head = Loading::head_len(&bytes).unwrap();
    correct(&mut bytes, head);
    let reason = "a spilled entry belongs before an entry in its bucket's page";
    let refused = Run::from_bytes(&bytes).unwrap_err();
    assert_eq!(refused, KeyIndexError::CorruptHead { reason });
}
