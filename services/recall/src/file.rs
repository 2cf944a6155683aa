//! The file of a curve: a line with the format and a checksum, then JSON.
//!
//! ```text
//! bireme recall curve 1 8a1c03f2↵      format 1; CRC32C of all that follows the line
//! {"table": …, "of_k": […]}↵
//! ```

use crc_fast::{CrcAlgorithm, checksum};
use thiserror::Error;

use crate::curve::{Curve, CurveOfK, Point};
use crate::grid::{CANDIDATES_MAX, K_MAX};

/// Maximum size of a file, in bytes. A curve has a few hundred points of about 100 bytes.
pub const CURVE_BYTES_MAX: usize = 4 << 20;

/// The start of a file, before its checksum.
const START: &[u8] = b"bireme recall curve 1 ";

/// The length of the checksum, in hexadecimal digits.
const DIGITS: usize = 8;

/// The reason why bytes are refused as a curve's file.
#[derive(Debug, Error)]
pub enum CurveError {
    /// The bytes do not begin as a curve's file does.
    #[error("it is not a recall curve of a known format")]
    Format,
    /// There are too many bytes.
    #[error("it has {bytes} bytes, and a recall curve has at most {CURVE_BYTES_MAX}")]
    Size {
        /// The number of bytes.
        bytes: usize,
    },
    /// The checksum is wrong.
    #[error("its checksum is wrong: it is damaged")]
    Checksum,
    /// The body is not the JSON of a curve.
    #[error("it is not a recall curve: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is out of its bounds.
    #[error("its {field} is out of bounds")]
    Value {
        /// The name of the value.
        field: &'static str,
    },
}

/// Returns the bytes of a curve's file.
pub fn encode(curve: &Curve) -> Result<Vec<u8>, CurveError> {
    let mut body = serde_json::to_vec(curve)?;
    body.push(b'\n');
    let mut bytes = START.to_vec();
    bytes.extend(format!("{:08x}\n", crc(&body)).bytes());
    bytes.extend(body);
    Ok(bytes)
}

/// Reads a curve from the bytes of its file.
///
/// # Errors
/// [`CurveError`].
pub fn decode(bytes: &[u8]) -> Result<Curve, CurveError> {
    if bytes.len() > CURVE_BYTES_MAX {
        return Err(CurveError::Size { bytes: bytes.len() });
    }
    let rest = bytes.strip_prefix(START).ok_or(CurveError::Format)?;
    let (digits, rest) = rest.split_at_checked(DIGITS).ok_or(CurveError::Format)?;
    let body = rest.strip_prefix(b"\n").ok_or(CurveError::Format)?;
    if format!("{:08x}", crc(body)).as_bytes() != digits {
        return Err(CurveError::Checksum);
    }
    let curve: Curve = serde_json::from_slice(body)?;
    check(&curve)?;
    Ok(curve)
}

fn crc(bytes: &[u8]) -> u32 {
    // A CRC32C has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn check(curve: &Curve) -> Result<(), CurveError> {
    let ensure = |is_right: bool, field| is_right.then_some(()).ok_or(CurveError::Value { field });
    ensure(!curve.of_k.is_empty(), "list of k")?;
    ensure(curve.of_k.is_sorted_by(|a, b| a.k < b.k), "list of k")?;
    ensure(curve.of_k.iter().all(|of_k| (1..=K_MAX).contains(&of_k.k)), "list of k")?;
    ensure(curve.question_count > 0, "number of questions")?;
    ensure(!curve.index.segments.is_empty(), "list of segments")?;
    curve.of_k.iter().try_for_each(|of_k| {
        let CurveOfK { points, default, default_refine_best, .. } = of_k;
        ensure(!points.is_empty(), "list of points")?;
        ensure(points.is_sorted_by(|a, b| a.cost <= b.cost), "order of points")?;
        ensure((0.0..=1.0).contains(default_refine_best), "default refine's best recall")?;
        points.iter().chain([default]).try_for_each(|point| {
            let Point { nprobes, candidates, recall, low, cost } = point;
            ensure(*nprobes > 0, "nprobes")?;
            ensure((1..=CANDIDATES_MAX).contains(candidates), "number of candidates")?;
            ensure((0.0..=1.0).contains(recall), "recall")?;
            ensure((0.0..=*recall).contains(low), "lower bound")?;
            ensure(cost.is_finite() && *cost > 0.0, "cost")
        })
    })
}

#[cfg(test)]
mod tests {
    use fuzz::{cases, damage, noise};
    use rand::Rng;

    use super::*;
    use crate::tally::tests::curve;

    /// Returns a file with this body and the right checksum.
    fn signed(body: &[u8]) -> Vec<u8> {
        let head = format!("{}{:08x}\n", std::str::from_utf8(START).unwrap(), crc(body));
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn a_curve_comes_back_unchanged() {
        let curve = curve();
        let bytes = encode(&curve).unwrap();
        assert_eq!(decode(&bytes).unwrap(), curve);
        assert!(bytes.starts_with(b"bireme recall curve 1 "));
    }

    #[test]
    fn damaged_and_foreign_files_are_refused_with_the_reason() {
        let curve = curve();
        let bytes = encode(&curve).unwrap();
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            decode(&damaged).unwrap_err();
        }
        assert!(refused(b"{}").contains("known format"));
        assert!(refused(&bytes[..bytes.len() - 1]).contains("checksum"));
        assert!(refused(&signed(b"{}")).contains("missing field"));
        assert!(refused(&vec![b' '; CURVE_BYTES_MAX + 1]).contains("at most"));
        let changed = |change: fn(&mut Curve)| {
            let mut curve = curve.clone();
            change(&mut curve);
            refused(&encode(&curve).unwrap())
        };
        for (problem, field) in [
            (changed(|it| it.of_k.clear()), "list of k"),
            (changed(|it| it.of_k.push(it.of_k[0].clone())), "list of k"),
            (changed(|it| it.of_k[0].k = 0), "list of k"),
            (changed(|it| it.of_k[0].k = 1001), "list of k"),
            (changed(|it| it.question_count = 0), "questions"),
            (changed(|it| it.index.segments.clear()), "segments"),
            (changed(|it| it.of_k[0].points.clear()), "points"),
            (changed(|it| it.of_k[0].points.reverse()), "order"),
            (changed(|it| it.of_k[0].points[0].recall = 1.5), "recall"),
            (changed(|it| it.of_k[0].points[0].low = 0.99), "lower bound"),
            (changed(|it| it.of_k[0].points[0].cost = 0.0), "cost"),
            (changed(|it| it.of_k[0].default.nprobes = 0), "nprobes"),
            (changed(|it| it.of_k[0].default.candidates = 0), "candidates"),
            (changed(|it| it.of_k[0].points[0].candidates = 10_001), "candidates"),
            (changed(|it| it.of_k[0].default.candidates = u32::MAX), "candidates"),
        ] {
            assert!(problem.contains(field), "{problem}: {field}");
        }
    }

    #[test]
    fn fuzz_bytes_of_curves() {
        let valid = encode(&curve()).unwrap();
        let body = &valid[START.len() + DIGITS + 1..];
        cases("bytes of curves", 3_000, |rng| {
            let bytes = match rng.random_range(0..3) {
                0 => noise(rng, 200),
                1 => {
                    let mut bytes = valid.clone();
                    damage(rng, &mut bytes);
                    bytes
                }
                _ => {
                    let mut body = body.to_vec();
                    damage(rng, &mut body);
                    signed(&body)
                }
            };
            match decode(&bytes) {
                // A curve that is accepted can be used.
                Ok(curve) => {
                    let k = rng.random_range(1..2000);
                    if let Ok(it) = curve.choose(k, rng.random_range(0.01..0.99)) {
                        assert!(it.nprobes > 0 && it.refine_factor > 0);
                        assert!(k * it.refine_factor < CANDIDATES_MAX + k);
                    }
                    encode(&curve).unwrap();
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        });
    }
}
