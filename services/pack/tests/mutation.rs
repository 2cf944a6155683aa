//! Bytes that nobody wrote: flipped, overwritten, cut and grown. Whatever they are, the answer is an
//! error or a valid value, never a panic. The seed is fixed and printed; `PACK_FUZZ_SEED` and
//! `PACK_FUZZ_ROUNDS` run others and more.

mod arbitrary;

use arrow_array::ArrayRef;
use pack::{Assembler, Extent, ExtentIndex, PackLayout, to_logical, wire_field};
use rand::Rng;
use rand::rngs::StdRng;

fn setup(default_rounds: usize) -> (StdRng, usize) {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let seed = number("PACK_FUZZ_SEED").unwrap_or(0xb1_4e_3e);
    let rounds = number("PACK_FUZZ_ROUNDS").map_or(default_rounds, |rounds| rounds as usize);
    println!("PACK_FUZZ_SEED={seed} PACK_FUZZ_ROUNDS={rounds}");
    (arbitrary::rng(seed), rounds)
}

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

fn mutate(rng: &mut StdRng, bytes: &mut [u8]) {
    for _ in 0..rng.random_range(1..6) {
        if bytes.is_empty() {
            return;
        }
        // Heads, bitmaps and ends are at the front.
        let reach = if rng.random_bool(0.5) { bytes.len().min(48) } else { bytes.len() };
        let at = rng.random_range(0..reach);
        match rng.random_range(0..4) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            _ => {
                let end = bytes.len().min(at + 4);
                let word = [0u32, 1, 0xffff_ffff, 0x7fff_ffff, 0x8000_0001, 0x4000_0001]
                    [rng.random_range(0..6)];
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
        }
    }
}

#[test]
fn row_decoder() {
    let (mut rng, rounds) = setup(60_000);
    let (mut refused, mut accepted) = (0, 0);
    let (mut layout, mut extent) = subject(&mut rng);
    for round in 0..rounds {
        if round % 40 == 0 {
            (layout, extent) = subject(&mut rng);
        }
        let projection: Vec<usize> = (0..layout.fields().len()).collect();
        let rows: Vec<u32> = (0..3).map(|_| rng.random_range(0..extent.index.rows())).collect();
        let wanted = rows.iter().map(|&row| (&extent.index, row));
        let mut assembler = Assembler::new(&layout, &projection, wanted).unwrap();
        let put = rows.iter().enumerate().try_for_each(|(position, &row)| {
            let span = extent.index.span(row).unwrap();
            let mut bytes = extent.bytes[span.offset as usize..][..span.len as usize].to_vec();
            mutate(&mut rng, &mut bytes);
            let cut = rng.random_range(0..=bytes.len());
            assembler.put_piece(position, 0, &bytes[..cut])?;
            assembler.put_piece(position, cut, &bytes[cut..])
        });
        let Ok(arrays) = put.and_then(|()| assembler.finish()) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        for (array, field) in arrays.into_iter().zip(layout.fields()) {
            array.validate_full().unwrap();
            // Text may be anything now.
            let _ = to_logical(array, &wire_field(field));
        }
    }
    assert!(refused > rounds / 20 && accepted > rounds / 20, "{refused} {accepted}");
}

#[test]
fn index_decoder() {
    let (mut rng, rounds) = setup(60_000);
    let (mut refused, mut accepted) = (0, 0);
    let mut good = Vec::new();
    for round in 0..rounds {
        if round % 40 == 0 {
            good = subject(&mut rng).1.index.to_bytes();
        }
        let mut bytes = good.clone();
        bytes.truncate(bytes.len() - 4);
        match rng.random_range(0..4) {
            0 => bytes.truncate(rng.random_range(0..=bytes.len())),
            1 => bytes.extend((0..rng.random_range(0..9)).map(|_| rng.random::<u8>())),
            _ => mutate(&mut rng, &mut bytes),
        }
        // With a right checksum, else nothing behind it would be tried.
        bytes.extend(crc32c(&bytes).to_le_bytes());
        let Ok(index) = ExtentIndex::from_bytes(&bytes) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        check(&index, &mut rng);
        assert_eq!(index.to_bytes(), bytes);
    }
    assert!(refused > rounds / 20 && accepted > rounds / 20, "{refused} {accepted}");
}

/// All that an index promises.
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
        index.value_span(row);
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
