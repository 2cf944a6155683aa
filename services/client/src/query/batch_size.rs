//! The number of rows that are looked up as one batch.

/// The number of batches that must fit at one size before a larger size is tried. So if batches of the larger size never
/// fit, few look-ups are in vain.
const FITTING_BEFORE_GROWTH: u32 = 16;

/// The number of rows that are looked up as one batch. It is halved when an answer is too large for one message, and
/// doubled when the answers have fitted for a while.
#[derive(Debug)]
pub struct BatchSize {
    rows: usize,
    max: usize,
    /// The number of batches of this size or more whose answers have fitted.
    fitted: u32,
}

impl BatchSize {
    /// Begins with the maximum.
    pub fn new(max: usize) -> Self {
        Self { rows: max, max, fitted: 0 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Notes that the answer to a batch of `rows` rows was too large.
    pub fn too_large(&mut self, rows: usize) {
        self.rows = self.rows.min(rows / 2).max(1);
        self.fitted = 0;
    }

    /// Notes that the answer to a batch of `rows` rows has fitted.
    pub fn fitted(&mut self, rows: usize) {
        self.fitted += u32::from(rows >= self.rows);
        if self.fitted == FITTING_BEFORE_GROWTH {
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
        let (mut size, mut failed) = (BatchSize::new(1024), Vec::new());
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
        let mut size = BatchSize::new(1024);
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
}
