//! The rows that a look-up of all rows fetches beyond one for each key, and their charge to a grant's limit.
//!
//! A row is charged for each key before it is looked up. How many more there are is known only when the index has
//! answered, and they are charged before they are fetched. If the batches of a group are then answered one by one,
//! because the group as a whole failed, rows that the group was charged for are not charged again.

use address::RowAddr;

/// The rows beyond one for each key that a group of batches was charged for.
#[derive(Debug, Default)]
pub struct ExtraRows {
    /// The rows that were charged, and that are in no answer.
    charged: usize,
    /// The rows of the attempt in progress.
    of_attempt: usize,
}

impl ExtraRows {
    /// Charges the `rows` extra rows of an attempt, less those that failed attempts were charged for. `take` charges
    /// rows to the grant.
    ///
    /// # Errors
    /// The error of `take`. Then nothing was charged.
    pub fn charge<E>(
        &mut self,
        rows: usize,
        take: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(more) = rows.checked_sub(self.charged).filter(|&more| more > 0) {
            take(more)?;
            self.charged = rows;
        }
        self.of_attempt = rows;
        Ok(())
    }

    /// Notes that the attempt has succeeded: its rows are in an answer.
    pub fn answered(&mut self) {
        let rows = std::mem::take(&mut self.of_attempt);
        self.charged = self.charged.checked_sub(rows).expect("the attempt's rows were charged");
    }
}

/// Returns the number of candidates beyond the first one of each key. `candidates` are in the order of the keys. Thus
/// the extra rows of batches add up to those of their group, and a key without a row does not pay for those of another.
pub fn extra_rows(candidates: &[(u32, RowAddr)]) -> usize {
    candidates.windows(2).filter(|pair| pair[0].0 == pair[1].0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_failed_attempt_are_not_charged_again() {
        let mut taken = Vec::new();
        let mut extra = ExtraRows::default();
        let mut attempt = |rows, is_answered| {
            let take = |rows| {
                taken.push(rows);
                Ok::<_, ()>(())
            };
            extra.charge(rows, take).unwrap();
            if is_answered {
                extra.answered();
            }
        };
        // A group with three batches fails, and then the second batch fails too.
        attempt(100, false);
        for (rows, is_answered) in [(30, true), (50, false), (20, true)] {
            attempt(rows, is_answered);
        }
        // The charge for the second batch, which failed, is left. It pays for these rows.
        attempt(50, true);
        attempt(7, true);
        assert_eq!(taken, [100, 7]);
    }

    #[test]
    fn a_refused_charge_charges_nothing() {
        let mut extra = ExtraRows::default();
        extra.charge(10, |_| Err("too many")).unwrap_err();
        let mut taken = 0;
        let take = |rows| {
            taken = rows;
            Ok::<_, ()>(())
        };
        extra.charge(4, take).unwrap();
        extra.answered();
        assert_eq!(taken, 4);
        // An answer without extra rows, such as one with a row for each key, takes none.
        extra.answered();
    }

    #[test]
    fn keys_without_a_row_do_not_pay_for_others() {
        let rows = |keys: &[u32]| -> Vec<_> {
            (0..).zip(keys).map(|(row, &key)| (key, RowAddr::new(0, row))).collect()
        };
        for (keys, extra) in [(&[][..], 0), (&[5], 0), (&[1, 4], 0), (&[1, 1, 4, 9, 9, 9], 3)] {
            assert_eq!(extra_rows(&rows(keys)), extra);
        }
    }
}
