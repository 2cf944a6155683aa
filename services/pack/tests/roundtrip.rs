//! Round trips of arbitrary columns: encoding them, and assembling rows in any order, gives the same columns as Arrow's
//! `take`.

mod arbitrary;

use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_buffer::MutableBuffer;
use arrow_cast::cast;
use arrow_schema::{Field, FieldRef};
use arrow_select::concat::concat;
use arrow_select::take::take;
use pack::{
    Assembler, Extent, ExtentIndex, PackLayout, physical_type, restore, to_logical, wire_field,
};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngCore};

/// Checks a round trip of arbitrary rows from two extents of one pack, in any order and repeated.
fn check(seed: u64, columns: usize, rows: [usize; 2]) {
    check_arrivals(seed, columns, rows, 0.0);
}

/// Like [`check`]. The share `in_order` of the rows arrives first, in ascending order of positions.
fn check_arrivals(seed: u64, columns: usize, rows: [usize; 2], in_order: f64) {
    let mut rng = arbitrary::rng(seed);
    let fields = arbitrary::fields(&mut rng, columns);
    let layout = PackLayout::new(&fields).unwrap();
    let chunks = rows.map(|rows| -> Vec<ArrayRef> {
        fields.iter().map(|field| arbitrary::array(&mut rng, field, rows)).collect()
    });
    let extents = chunks.each_ref().map(|columns| encode(&layout, columns));

    let mut wanted: Vec<(usize, u32)> = Vec::new();
    let present: Vec<usize> = (0..2).filter(|&e| rows[e] > 0).collect();
    for _ in 0..if present.is_empty() { 0 } else { rng.random_range(0..60) } {
        let extent = present[rng.random_range(0..present.len())];
        wanted.push((extent, rng.random_range(0..rows[extent] as u32)));
    }
    let mut projection: Vec<usize> = (0..columns).collect();
    projection.shuffle(&mut rng);
    projection.truncate(rng.random_range(0..=columns));

    let found = assemble(&mut rng, &layout, &extents, &projection, &wanted, in_order);
    assert_eq!(found.len(), projection.len());
    let indices = wanted.iter().map(|&(extent, row)| row + (extent * rows[0]) as u32);
    let indices: UInt32Array = indices.collect();
    for (found, &column) in found.iter().zip(&projection) {
        let expected = expected(&fields[column], &chunks, column, &indices);
        assert_eq!(found, &expected, "{:?}", fields[column]);
        let restored = restore(found, &fields[column]).unwrap();
        assert_eq!(restored.data_type(), fields[column].data_type());
        assert_eq!(&cast(&restored, found.data_type()).unwrap(), found);
    }
}

fn encode(layout: &PackLayout, columns: &[ArrayRef]) -> Extent {
    let extent = layout.encode(columns).unwrap();
    assert_eq!(extent, layout.encode(columns).unwrap());
    assert_eq!(extent.bytes.len(), extent.index.sectors() as usize * 4096);
    assert_eq!(extent.index.rows() as usize, columns[0].len());
    assert_eq!(ExtentIndex::from_bytes(&extent.index.to_bytes()).unwrap(), extent.index);
    for (sector, bytes) in extent.bytes.chunks(4096).enumerate() {
        extent.index.check(sector as u32, bytes).unwrap();
    }
    extent
}

fn expected(
    field: &FieldRef,
    chunks: &[Vec<ArrayRef>; 2],
    column: usize,
    indices: &UInt32Array,
) -> ArrayRef {
    let wire = wire_field(field);
    let chunks = chunks.each_ref().map(|chunk| cast(&chunk[column], wire.data_type()).unwrap());
    take(&concat(&[&chunks[0], &chunks[1]]).unwrap(), indices, None).unwrap()
}

fn assemble(
    rng: &mut StdRng,
    layout: &PackLayout,
    extents: &[Extent; 2],
    projection: &[usize],
    wanted: &[(usize, u32)],
    in_order: f64,
) -> Vec<ArrayRef> {
    let rows = wanted.iter().map(|&(extent, row)| (&extents[extent].index, row));
    // Previous contents of the memory must not show up in the result.
    let mut used_memory = |len| {
        let mut buffer = MutableBuffer::from_len_zeroed(len);
        buffer.as_slice_mut().fill(0xab);
        buffer
    };
    let mut assembler = Assembler::in_memory(layout, projection, rows, &mut used_memory).unwrap();
    let (first, mut last): (Vec<usize>, Vec<usize>) =
        (0..wanted.len()).partition(|_| rng.random_bool(in_order));
    last.shuffle(rng);
    for position in first.into_iter().chain(last) {
        let (extent, row) = wanted[position];
        let Extent { index, bytes } = &extents[extent];
        if index.is_null(row) && rng.random_bool(0.5) {
            continue;
        }
        let span = index.span(row).unwrap();
        let bytes = &bytes[span.offset as usize..(span.offset + span.len) as usize];
        if rng.random_bool(0.6_f64.max(in_order)) {
            assembler.put(position, bytes).unwrap();
            continue;
        }
        let mut cuts: Vec<usize> = (0..2).map(|_| rng.random_range(0..=bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<_> =
            cuts.windows(2).map(|cut| (cut[0], &bytes[cut[0]..cut[1]])).collect();
        pieces.shuffle(rng);
        for (offset, piece) in pieces {
            assembler.put_piece(position, offset, piece).unwrap();
        }
    }
    let arrays = assembler.finish().unwrap().into_iter().zip(projection);
    arrays
        .map(|(data, &column)| {
            let wire: Field = wire_field(&layout.fields()[column]);
            assert_eq!(data.data_type(), &physical_type(wire.data_type()));
            let array = make_array(data.clone());
            assert_eq!(array.len(), wanted.len());
            to_logical(data, &wire).unwrap()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn several_columns(seed: u64, columns in 2..6usize, rows in [0..40usize, 0..40usize]) {
        check(seed, columns, rows);
    }

    #[test]
    fn rows_partly_in_order(
        seed: u64,
        columns in 2..6usize,
        rows in [0..40usize, 0..40usize],
        in_order in 0.5..=1.0f64,
    ) {
        check_arrivals(seed, columns, rows, in_order);
    }

    #[test]
    fn solo_columns(seed: u64, rows in [0..40usize, 0..40usize]) {
        check(seed, 1, rows);
    }

    #[test]
    fn no_row_or_one(seed: u64, columns in 1..4usize, rows in [0..2usize, 0..2usize]) {
        check(seed, columns, rows);
    }
}

/// Checks chunks with more rows than one block, group or sector holds.
#[test]
fn long_chunks() {
    for seed in 0..12 {
        let columns = if seed % 3 == 0 { 1 } else { 3 };
        check(arbitrary::rng(seed).next_u64(), columns, [900, 400]);
    }
}
