//! Random bytes, and random corruption of valid bytes.

use rand::Rng;
use rand::rngs::StdRng;

/// Boundary values that tend to break the handling of lengths and counts.
const WORDS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x4000_0000_0000_0001,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Returns up to `len_max` random bytes.
pub fn noise(rng: &mut StdRng, len_max: usize) -> Vec<u8> {
    let len = rng.random_range(0..=len_max);
    (0..len).map(|_| rng.random()).collect()
}

/// Corrupts `bytes` in one to five places. Each corruption flips a bit, overwrites a byte or a word, truncates the
/// bytes, or removes, inserts, duplicates or overwrites a range of them. On average, at least half of the places are
/// within the first 64 bytes, where headers and lengths are. Ranges that are removed or overwritten may be anywhere.
pub fn damage(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=5) {
        if bytes.is_empty() {
            *bytes = noise(rng, 16);
            continue;
        }
        let reach = if rng.random_bool(0.5) { bytes.len().min(64) } else { bytes.len() };
        let at = rng.random_range(0..reach);
        match rng.random_range(0..16) {
            0..=5 => bytes[at] ^= 1 << rng.random_range(0..8),
            6..=7 => bytes[at] = rng.random(),
            8..=10 => {
                let word = WORDS[rng.random_range(0..WORDS.len())].to_le_bytes();
                let len = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&word[..len]);
            }
            11 => bytes.truncate(at),
            12 => drop(bytes.drain(short_range(rng, bytes.len()))),
            13 => {
                let again = bytes[short_range(rng, bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
            14 => {
                let from = short_range(rng, bytes.len());
                let to = rng.random_range(0..=bytes.len() - from.len());
                bytes.copy_within(from, to);
            }
            _ => {
                let new = noise(rng, 12);
                bytes.splice(at..at, new);
            }
        }
    }
}

/// Returns a random range within `0..len`. Most ranges are short, so that most bytes survive a corruption.
fn short_range(rng: &mut StdRng, len: usize) -> std::ops::Range<usize> {
    let from = rng.random_range(0..len);
    let len_max = if rng.random_bool(0.8) { (len - from).min(16) } else { len - from };
    from..from + rng.random_range(0..=len_max)
}
