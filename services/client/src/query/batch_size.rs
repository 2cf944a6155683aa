//! The number of rows that are looked up as one batch.

/// The number of batches that must fit at one size before a larger size is tried, once a batch was too large. So if
/// batches of the larger size never fit, few look-ups are in vain.
const FITTING_BEFORE_GROWTH: u32 = 16;

/// The number of rows that are looked up as one batch. It is doubled with the first batch of its size that fits, until
/// a batch is too large. It is halved then, and doubled again when the answers have fitted for a while.
#[derive(Debug)]
pub struct BatchSize {
    rows: usize,
    max: usize,
    /// The number of batches of this size or more whose answers have fitted.
    fitted: u32,
    /// The number of them with which the size is doubled.
    before_growth: u32,
}

impl BatchSize {
    /// Begins with `rows` rows.
    pub fn new(rows: usize, max: usize) -> Self {
        Self { rows, max, fitted: 0, before_growth: 1 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Notes that a batch of `rows` rows was too large.
    pub fn too_large(&mut self, rows: usize) {
        self.rows = self.rows.min(rows / 2).max(1);
        self.fitted = 0;
        self.before_growth = FITTING_BEFORE_GROWTH;
    }

    /// Notes that a batch of `rows` rows was not too large.
    pub fn fitted(&mut self, rows: usize) {
        self.fitted += u32::from(rows >= self.rows);
        if self.fitted == self.before_growth {
            self.rows = (self.rows * 2).min(self.max);
            self.fitted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_fits_is_kept_and_larger_ones_are_tried_rarely() {
        let (mut size, mut failed) = (BatchSize::new(1024, 1024), Vec::new());
        // Batches of up to 100 rows fit, and later of up to 300.
        for (fits, batches) in [(100, 30), (300, 60)] {
            for _ in 0..batches {
                match size.rows() {
                    rows if rows <= fits => size.fitted(rows),
                    rows => {
                        failed.push(rows);
                        size.too_large(rows);
                    }
                }
            }
        }
        assert_eq!(failed, [1024, 512, 256, 128, 128, 512, 512]);
        assert_eq!(size.rows(), 256);
    }

    #[test]
    fn small_batches_do_not_let_the_size_grow_and_late_answers_count() {
        let mut size = BatchSize::new(1024, 1024);
        // These batches were looked up at the same time.
        (0..4).for_each(|_| size.too_large(1024));
        assert_eq!(size.rows(), 512);
        (0..100).for_each(|_| size.fitted(511));
        assert_eq!(size.rows(), 512);
        (0..16).for_each(|_| size.fitted(1024));
        assert_eq!(size.rows(), 1024);
        (0..100).for_each(|_| size.fitted(1024));
        assert_eq!(size.rows(), 1024);
        size.too_large(1);
        assert_eq!(size.rows(), 1);
    }

    #[test]
    fn the_size_grows_with_each_batch_that_fits_until_one_is_too_large() {
        let mut size = BatchSize::new(32, 1024);
        let mut tried = Vec::new();
        while tried.len() < 5 {
            tried.push(size.rows());
            // Other batches of an earlier size, which were looked up at the same time, don't count.
            (0..3).for_each(|_| size.fitted(*tried.last().unwrap()));
        }
        assert_eq!(tried, [32, 64, 128, 256, 512]);
        size.too_large(512);
        (0..15).for_each(|_| size.fitted(256));
        assert_eq!(size.rows(), 256);
    }
}
