//! Fuzz tests of the decoders of rows and extent indexes. Any bytes give an error or a valid value, but never a panic.
//! No memory is allocated for a length whose bytes are missing.

mod arbitrary;

use arrow_array::ArrayRef;
use fuzz::{cases, damage, noise, within};
use pack::{Assembler, Extent, ExtentIndex, PackError, PackLayout, to_logical, wire_field};
use rand::Rng;
use rand::rngs::StdRng;

fn subject(rng: &mut StdRng) -> (PackLayout, Extent) {
    let columns = rng.random_range(1..5);
    let fields = arbitrary::fields(rng, columns);
    let layout = PackLayout::new(&fields).unwrap();
    let rows = rng.random_range(1..20);
    let columns: Vec<ArrayRef> =
        fields.iter().map(|field| arbitrary::array(rng, field, rows)).collect();
    let extent = layout.encode(&columns).unwrap();
    (layout, extent)
}

#[test]
fn fuzz_rows() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_rows", 1_500, |rng| {
        let (layout, extent) = subject(rng);
        let projection: Vec<usize> = (0..layout.fields().len()).collect();
        for _ in 0..40 {
            let rows: Vec<u32> = (0..3).map(|_| rng.random_range(0..extent.index.rows())).collect();
            let wanted = rows.iter().map(|&row| (&extent.index, row));
            let mut assembler = Assembler::new(&layout, &projection, wanted).unwrap();
            let put = rows.iter().enumerate().try_for_each(|(position, &row)| {
                let span = extent.index.span(row).unwrap();
                let mut bytes = extent.bytes[span.offset as usize..][..span.len as usize].to_vec();
                if rng.random_bool(0.6) {
                    damage(rng, &mut bytes);
                    bytes.resize(span.len as usize, 0);
                }
                let cut = rng.random_range(0..=bytes.len());
                assembler.put_piece(position, 0, &bytes[..cut])?;
                assembler.put_piece(position, cut, &bytes[cut..])
            });
            // Only `finish` is measured: the pieces have been put already.
            let limit = extent.bytes.len() * 64 + (64 << 10);
            let Ok(arrays) = within(limit, || put.and_then(|()| assembler.finish())) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            for (array, field) in arrays.into_iter().zip(layout.fields()) {
                array.validate_full().unwrap();
                // Damaged text may be invalid UTF-8, so this may fail. It must not panic.
                let _ = to_logical(array, &wire_field(field));
            }
        }
    });
    assert!(refused > accepted / 20 && accepted > refused / 20, "{refused} {accepted}");
}

#[test]
fn fuzz_extent_indexes() {
    let (mut refused, mut accepted) = (0, 0);
    cases("fuzz_extent_indexes", 1_500, |rng| {
        let index = subject(rng).1.index;
        let good = index.to_bytes();
        assert_eq!(ExtentIndex::from_bytes(&good).unwrap(), index);
        for _ in 0..40 {
            let mut bytes = good.clone();
            bytes.truncate(bytes.len() - 4);
            match rng.random_bool(0.05) {
                true => bytes = noise(rng, 200),
                false => damage(rng, &mut bytes),
            }
            // Correct the checksum, so that the checks after it are tested too.
            bytes.extend(crc32c(&bytes).to_le_bytes());
            let read = within(bytes.len() * 16 + (16 << 10), || ExtentIndex::from_bytes(&bytes));
            match read {
                Ok(index) => {
                    accepted += 1;
                    check(&index, rng);
                    assert_eq!(index.to_bytes(), bytes);
                }
                Err(error) => {
                    refused += 1;
                    assert!(
                        matches!(error, PackError::CorruptIndex { reason } if !reason.is_empty())
                    );
                }
            }
        }
    });
    assert!(refused > accepted / 20 && accepted > refused / 20, "{refused} {accepted}");
}

/// Checks the invariants of an index.
fn check(index: &ExtentIndex, rng: &mut StdRng) {
    let (rows, bytes) = (index.rows(), u64::from(index.sectors()) * 4096);
    for row in [0, rows / 2, rows.saturating_sub(1), rng.random_range(0..=rows)] {
        let Some(span) = index.span(row) else {
            assert!(row >= rows);
            continue;
        };
        assert!(row < rows && span.len > 0);
        assert!(u64::from(span.offset) + u64::from(span.len) <= bytes);
        let sectors = index.sectors_of(row).unwrap();
        assert!(sectors.count > 0 && sectors.first + sectors.count <= index.sectors());
        index.is_null(row);
    }
    for row in [rows, u32::MAX] {
        assert!(index.span(row).is_none() && !index.is_null(row));
    }
    assert!(index.ram_bytes() > 0);
    assert!(index.check(index.sectors(), &[0; 4096]).is_err());
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
