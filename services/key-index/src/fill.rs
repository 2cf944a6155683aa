//! Writes buckets from entries that come in the order of their hashes.

use std::marker::PhantomData;

use crate::body::{Body, reserve};
use crate::geometry::{Geometry, Spot, page_and_line};
use crate::line::{Form, Line, LineHead, PAGE_LINES};
use crate::spill::{Spill, Spilled};

/// Writes the pages of a run one after the other.
pub struct Fill<F> {
    geometry: Geometry,
    lines: Vec<Line>,
    spilled: Vec<Spilled>,
    /// The entries of the page that is being filled.
    page: Vec<(Spot, u32)>,
    form: PhantomData<F>,
}

impl<F: Form> Fill<F> {
    /// Reserves the memory of all pages.
    pub fn new(geometry: Geometry) -> Self {
        let lines = reserve(geometry.pages());
        let page = Vec::with_capacity(2 * F::KEYS_A_PAGE);
        Self { geometry, lines, spilled: Vec::new(), page, form: PhantomData }
    }

    /// Adds an entry. Its hash must not be lower than that of the entry before, as far as the run keeps their bits.
    #[inline]
    pub fn push(&mut self, hash: u64, rank: u32) {
        let spot = self.geometry.spot::<F>(hash);
        let (page, _) = page_and_line::<F>(spot.bucket);
        while page > self.pages_written() {
            self.write_page();
        }
        debug_assert_eq!(page, self.pages_written(), "entries come in the order of their hashes");
        self.page.push((spot, rank));
    }

    /// Writes the remaining pages and returns the buckets.
    pub fn finish(mut self) -> Body {
        while self.lines.len() < self.geometry.pages() as usize * PAGE_LINES {
            self.write_page();
        }
        let spill = Spill::new(self.spilled, self.geometry.pages(), F::HOME_LINES as u32);
        Body { geometry: self.geometry, lines: self.lines, spill }
    }

    fn pages_written(&self) -> usize {
        self.lines.len() / PAGE_LINES
    }

    fn write_page(&mut self) {
        // Hashes that become equal in a merge, because the new run keeps fewer bits, come with their ranks in any
        // order.
        if !self.page.is_sorted() {
            self.page.sort_unstable();
        }
        let start = self.lines.len();
        self.lines.resize(start + PAGE_LINES, F::empty());
        let lines = &mut self.lines[start..];
        let mut slots = 0;
        for bucket in self.page.chunk_by(|a, b| a.0.bucket == b.0.bucket) {
            let (_, home) = page_and_line::<F>(bucket[0].0.bucket);
            let (entries, others) = bucket.split_at(bucket.len().min(F::WAYS));
            let room = others.len().min(F::OVERFLOW_SLOTS - slots);
            let (overflow, spilled) = others.split_at(room);
            for (way, (spot, rank)) in entries.iter().enumerate() {
                F::put(&mut lines[home], way, spot.tag, *rank);
            }
            let head = LineHead {
                entries: entries.len() as u8,
                overflow_start: if overflow.is_empty() { 0 } else { slots as u8 },
                overflow_entries: overflow.len() as u8,
                is_spilled: !spilled.is_empty(),
            };
            F::set_head(&mut lines[home], head);
            for (spot, rank) in overflow {
                let line = &mut lines[F::HOME_LINES + slots / F::WAYS];
                F::put(line, slots % F::WAYS, spot.tag, *rank);
                slots += 1;
            }
            let spilled = spilled.iter();
            self.spilled.extend(spilled.map(|&(Spot { bucket, tag }, rank)| Spilled {
                bucket,
                tag,
                rank,
            }));
        }
        self.page.clear();
    }
}
