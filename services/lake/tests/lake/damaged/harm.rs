//! Damages a table's files: corrupts bytes, cuts off ends, replaces numbers in footers and messages, and swaps, empties
//! and removes files.
//!
//! Lance's files end in a footer with the positions of their messages:
//!
//! ```text
//! manifest   … | index section | transaction | u32 length, Manifest | u64 offset, u16 u16, "LANC"
//! data,index pages | global buffers | column metadata … | (u64, u64) of each | (u64, u64) of each global buffer
//!            | u64 u64 u64 offsets of the last three, u32 global buffers, u32 columns, u16 u16, "LANC"
//! ```

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fuzz::damage;
use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;

use super::{corpus, proto};

const MAGIC: &[u8] = b"LANC";
const FOOTER_LEN: usize = 40;

/// Damages one file of `table`, sometimes two or three. Returns their paths, each with a description of the damage.
pub fn harm(rng: &mut StdRng, corpus: &Path, table: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut done = Vec::new();
    let count = if rng.random_bool(0.8) { 1 } else { rng.random_range(2..=3) };
    for _ in 0..count {
        let mut files = corpus::files(table);
        // Sort the files by the time of writing: their names differ in each run, and cases have to be repeatable.
        let original = corpus.join(table.file_name().unwrap());
        let written = |file: &PathBuf| {
            let file = original.join(file.strip_prefix(table).unwrap());
            file.metadata().unwrap().modified().unwrap()
        };
        files.sort_by_key(written);
        // Every kind of file is equally likely, however many files of the kind there are.
        let kinds: BTreeSet<_> = files.iter().map(|file| file_kind(file, table)).collect();
        let which = rng.random_range(0..kinds.len());
        let kind = kinds.into_iter().nth(which).unwrap();
        files.retain(|file| file_kind(file, table) == kind);
        let file = files.swap_remove(rng.random_range(0..files.len()));
        let how = harm_file(rng, corpus, &file);
        done.push((file, how));
    }
    done
}

fn file_kind(file: &Path, table: &Path) -> String {
    let inner = file.strip_prefix(table).unwrap();
    let folder = inner.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    match folder.as_str() {
        // Each file name of an index is a kind.
        "_indices" => format!("_indices {}", inner.file_name().unwrap().to_string_lossy()),
        _ => folder,
    }
}

fn harm_file(rng: &mut StdRng, corpus: &Path, file: &Path) -> &'static str {
    let mut bytes = std::fs::read(file).unwrap();
    let how = match rng.random_range(0..40) {
        0 => {
            bytes.clear();
            "emptied"
        }
        1 => {
            std::fs::remove_file(file).unwrap();
            return "removed";
        }
        2 => {
            bytes.truncate(rng.random_range(0..=bytes.len()));
            "cut off"
        }
        3 => {
            let others: Vec<_> = corpus::files(corpus)
                .into_iter()
                .filter(|other| other.extension() == file.extension())
                .collect();
            bytes = std::fs::read(&others[rng.random_range(0..others.len())]).unwrap();
            "replaced by another file"
        }
        4..8 => {
            damage(rng, &mut bytes);
            "damaged"
        }
        8..12 => {
            let is_changed = digits(rng, &mut bytes);
            if is_changed { "a number in text replaced" } else { "unchanged" }
        }
        _ if bytes.ends_with(MAGIC) && is_manifest(file) => manifest(rng, &mut bytes),
        _ if bytes.ends_with(MAGIC) => lance_file(rng, &mut bytes),
        _ if file.extension().is_some_and(|it| it == "txn") => {
            bytes = proto::change(rng, &bytes);
            "message changed"
        }
        _ => {
            damage(rng, &mut bytes);
            "damaged"
        }
    };
    std::fs::write(file, bytes).unwrap();
    how
}

fn is_manifest(file: &Path) -> bool {
    file.extension().is_some_and(|it| it == "manifest")
}

/// Replaces a number that is written in digits, as in the settings of indexes, which are JSON. Returns whether there is
/// one.
fn digits(rng: &mut StdRng, bytes: &mut [u8]) -> bool {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut from = None;
    for at in 0..=bytes.len() {
        match (from, bytes.get(at).is_some_and(u8::is_ascii_digit)) {
            (None, true) => from = Some(at),
            (Some(start), false) => {
                // JSON numbers follow `:`, `[`, `,` or a blank.
                if start > 0 && b": [,".contains(&bytes[start - 1]) {
                    runs.push(start..at);
                }
                from = None;
            }
            _ => {}
        }
    }
    if runs.is_empty() {
        return false;
    }
    let run = runs.swap_remove(rng.random_range(0..runs.len()));
    let digit = b'0' + rng.random_range(0..=9);
    bytes[run].fill(digit);
    true
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().unwrap()))
}

fn manifest(rng: &mut StdRng, bytes: &mut Vec<u8>) -> &'static str {
    let len = bytes.len();
    if rng.random_range(0..10) == 0 {
        let now = u64_at(bytes, len - 16).unwrap();
        bytes[len - 16..len - 8].copy_from_slice(&proto::number(rng, now).to_le_bytes());
        return "footer";
    }
    let at = u64_at(bytes, len - 16).unwrap() as usize;
    let (before, message) = (bytes[..at].to_vec(), bytes[at + 4..len - 16].to_vec());
    let tail = bytes[len - 8..].to_vec();
    // Changes either the manifest, or one of the messages before it: the index section or the transaction.
    let (before, message) = match rng.random_bool(0.3) && before.len() > 4 {
        true => (sections(rng, &before), message),
        false => (before, proto::change(rng, &message)),
    };
    *bytes = before;
    let at = bytes.len() as u64;
    bytes.extend((message.len() as u32).to_le_bytes());
    bytes.extend(message);
    bytes.extend(at.to_le_bytes());
    bytes.extend(tail);
    "manifest's message changed"
}

/// Changes one of the messages in `bytes`. Each message is preceded by its length. The messages after the changed one
/// may move.
fn sections(rng: &mut StdRng, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(len) = u32_at(bytes, at) {
        let Some(message) = bytes.get(at + 4..at + 4 + len as usize) else { break };
        all.push(message.to_vec());
        at += 4 + len as usize;
    }
    if all.is_empty() {
        let mut bytes = bytes.to_vec();
        damage(rng, &mut bytes);
        return bytes;
    }
    let which = rng.random_range(0..all.len());
    all[which] = proto::change(rng, &all[which]);
    let mut bytes = Vec::new();
    for message in all {
        bytes.extend((message.len() as u32).to_le_bytes());
        bytes.extend(message);
    }
    bytes
}

/// The parts of a Lance file of version 2.
struct LanceFileParts {
    /// Pages and global buffers.
    front: Vec<u8>,
    columns: Vec<Vec<u8>>,
    globals: Vec<(u64, u64)>,
    versions: Vec<u8>,
}

impl LanceFileParts {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let footer = bytes.len().checked_sub(FOOTER_LEN)?;
        let offsets = u64_at(bytes, footer + 8)? as usize;
        let global_offsets = u64_at(bytes, footer + 16)? as usize;
        let globals = u32_at(bytes, footer + 24)? as usize;
        let columns = u32_at(bytes, footer + 28)? as usize;
        if columns > 10_000 || globals > 10_000 || u64_at(bytes, footer)? as usize > bytes.len() {
            return None;
        }
        let pair = |at: usize| Some((u64_at(bytes, at)?, u64_at(bytes, at + 8)?));
        let column = |index: usize| {
            let (at, len) = pair(offsets + 16 * index)?;
            Some(bytes.get(at as usize..(at + len) as usize)?.to_vec())
        };
        Some(Self {
            front: bytes[..u64_at(bytes, footer)? as usize].to_vec(),
            columns: (0..columns).map(column).collect::<Option<_>>()?,
            globals: (0..globals)
                .map(|index| pair(global_offsets + 16 * index))
                .collect::<Option<_>>()?,
            versions: bytes[footer + 32..].to_vec(),
        })
    }

    fn encode(self) -> Vec<u8> {
        let Self { front: mut bytes, columns, globals, versions } = self;
        let begin = bytes.len() as u64;
        let mut places = Vec::new();
        for column in &columns {
            places.push((bytes.len() as u64, column.len() as u64));
            bytes.extend(column);
        }
        let offsets = bytes.len() as u64;
        let mut pairs = |pairs: &[(u64, u64)]| {
            for (at, len) in pairs {
                bytes.extend(at.to_le_bytes());
                bytes.extend(len.to_le_bytes());
            }
            bytes.len() as u64
        };
        let global_offsets = pairs(&places);
        pairs(&globals);
        for number in [begin, offsets, global_offsets] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend((globals.len() as u32).to_le_bytes());
        bytes.extend((columns.len() as u32).to_le_bytes());
        bytes.extend(versions);
        bytes
    }
}

fn lance_file(rng: &mut StdRng, bytes: &mut Vec<u8>) -> &'static str {
    let Some(mut parts) = LanceFileParts::parse(bytes) else {
        damage(rng, bytes);
        return "damaged (a file of the first format)";
    };
    let len = bytes.len();
    match rng.random_range(0..20) {
        0..2 => {
            let at = len - FOOTER_LEN + 8 * rng.random_range(0..4);
            let now = u64_at(bytes, at).unwrap();
            let new = proto::number(rng, now).to_le_bytes();
            let width = if at == len - 16 { 4 } else { 8 };
            bytes[at..at + width].copy_from_slice(&new[..width]);
            "footer"
        }
        2 if !parts.globals.is_empty() => {
            let which = rng.random_range(0..parts.globals.len());
            let (at, len) = parts.globals[which];
            parts.globals[which] = match rng.random_bool(0.5) {
                true => (proto::number(rng, at), len),
                false => (at, proto::number(rng, len)),
            };
            *bytes = parts.encode();
            "place of a global buffer"
        }
        3..8 if !parts.globals.is_empty() => {
            let which = rng.random_range(0..parts.globals.len());
            let (at, len) = parts.globals[which];
            let Some(old) = parts.front.get(at as usize..(at + len) as usize) else {
                return "unchanged";
            };
            let new = proto::change(rng, old);
            parts.globals[which] = (parts.front.len() as u64, new.len() as u64);
            parts.front.extend(new);
            *bytes = parts.encode();
            "global buffer changed"
        }
        8..14 if !parts.columns.is_empty() => {
            let which = rng.random_range(0..parts.columns.len());
            parts.columns[which] = proto::change(rng, &parts.columns[which]);
            *bytes = parts.encode();
            "column metadata changed"
        }
        14 if parts.columns.len() > 1 => {
            let (a, b) = (
                rng.random_range(0..parts.columns.len()),
                rng.random_range(0..parts.columns.len()),
            );
            parts.columns[a] = parts.columns[b].clone();
            *bytes = parts.encode();
            "a column's metadata for another's"
        }
        _ => {
            // Pages begin at multiples of 64 or 4,096 bytes, and numbers near their beginning are lengths.
            let front = parts.front.len();
            if front == 0 {
                return "unchanged";
            }
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..front.div_ceil(64)) * 64 + rng.random_range(0..16);
                let width = [1, 2, 4, 8][rng.random_range(0..4)];
                if at + width <= front {
                    let new = proto::number(rng, 7).to_le_bytes();
                    bytes[at..at + width].copy_from_slice(&new[..width]);
                }
            }
            "numbers in pages"
        }
    }
}
