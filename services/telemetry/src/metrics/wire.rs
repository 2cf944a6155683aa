//! Converts histograms to and from the messages of Status and Describe.

use wire::fetch::Histogram;

use super::histogram::{Buckets, Scale};

impl From<&Buckets> for Histogram {
    fn from(buckets: &Buckets) -> Self {
        let (first, counts) = buckets.filled();
        Self { first, counts: counts.to_vec(), zeros: buckets.zeros, sum: buckets.sum }
    }
}

impl Buckets {
    /// Converts a node's message of a histogram that has this `scale`.
    pub fn from_wire(scale: Scale, message: &Histogram) -> Self {
        let mut buckets = Self::none(scale);
        let ahead = i64::from(message.first) - i64::from(buckets.first);
        for (at, &count) in (ahead..).zip(&message.counts) {
            // Another version may send buckets that this version does not have. They are ignored.
            let at = usize::try_from(at).ok();
            if let Some(bucket) = at.and_then(|at| buckets.counts.get_mut(at)) {
                *bucket = count;
            }
        }
        Self { zeros: message.zeros, sum: message.sum, ..buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Histogram as Recorded;

    #[test]
    fn a_histogram_round_trips() {
        let recorded = Recorded::new(Scale::Whole);
        [0, 1, 3, 3, 1 << 20].into_iter().for_each(|value| recorded.record(value));
        let buckets = recorded.buckets();
        assert_eq!(Buckets::from_wire(Scale::Whole, &Histogram::from(&buckets)), buckets);
        let none = Buckets::from_wire(Scale::Seconds, &Histogram::default());
        assert_eq!(none, Recorded::new(Scale::Seconds).buckets());
        let far = Histogram { first: i32::MAX, counts: vec![1, 2], ..Default::default() };
        assert_eq!(Buckets::from_wire(Scale::Whole, &far).count(), 0);
        let low = Histogram { first: i32::MIN, counts: vec![1], ..Default::default() };
        assert_eq!(Buckets::from_wire(Scale::Whole, &low).count(), 0);
    }
}
