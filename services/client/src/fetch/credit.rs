//! The credit of a stream: the number of rows that may be outstanding.

/// The maximum number of outstanding rows of a stream, and their present number.
#[derive(Debug)]
pub(super) struct Credits {
    limit_rows: usize,
    used_rows: usize,
}

impl Credits {
    pub fn new(limit_rows: usize) -> Self {
        Self { limit_rows, used_rows: 0 }
    }

    /// Takes credit for `rows` rows if there is enough. Returns whether it did.
    #[must_use]
    pub fn take(&mut self, rows: usize) -> bool {
        let fits = self.fits(rows);
        if fits {
            self.used_rows += rows;
        }
        fits
    }

    /// Returns whether there is credit for `rows` rows.
    pub fn fits(&self, rows: usize) -> bool {
        rows <= self.limit_rows - self.used_rows
    }

    /// Gives back the credit of an answered batch of `rows` rows.
    pub fn give_back(&mut self, rows: usize) {
        self.used_rows -= rows;
    }

    /// Returns the number of outstanding rows.
    pub fn used_rows(&self) -> usize {
        self.used_rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_taken_whole_or_not_at_all() {
        let mut credits = Credits::new(10);
        assert!(credits.take(6));
        assert!(!credits.take(5));
        assert_eq!(credits.used_rows(), 6);
        assert!(credits.take(4));
        assert!(!credits.fits(1));
        credits.give_back(6);
        assert!(credits.fits(6));
        assert!(!credits.fits(7));
    }
}
