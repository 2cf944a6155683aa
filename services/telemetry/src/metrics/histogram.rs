//! Exponential histograms with eight buckets for each doubling. The bounds of a bucket differ by 9 %, so a quantile
//! that is estimated as the middle of its bucket is accurate to 5 %.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The binary logarithm of the number of buckets for each doubling. OpenTelemetry calls it the scale, and Prometheus
/// the schema.
pub const SCALE: i32 = 3;

const PER_DOUBLING: i32 = 1 << SCALE;

/// The number of doublings that a histogram covers. Values outside of the range count in the first or last bucket.
const DOUBLINGS: i32 = 32;

const BUCKETS: usize = (DOUBLINGS * PER_DOUBLING) as usize;

/// The unit and range of a histogram's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Durations from 60 ns to 235 s, which is 2^(63/8) s. They are recorded in nanoseconds and exported in seconds.
    Seconds,
    /// Counts or bytes from 1 to 2^(255/8), about 3.9 billion.
    Whole,
}

impl Scale {
    /// Returns the factor from recorded to exported values.
    fn unit(self) -> f64 {
        match self {
            Self::Seconds => 1e-9,
            Self::Whole => 1.0,
        }
    }

    /// Returns the index of the first bucket.
    fn first(self) -> i32 {
        match self {
            Self::Seconds => -24 * PER_DOUBLING,
            Self::Whole => 0,
        }
    }
}

/// A value and its bucket, for callers that record the same value many times: finding the bucket takes most of the time
/// of recording a value.
#[derive(Clone, Copy, Debug)]
pub struct InBucket {
    /// The value, in the recorded unit.
    value: u64,
    /// The position of the bucket; `None` for a value of 0.
    bucket: Option<u16>,
}

impl InBucket {
    /// Finds the bucket of a duration. The scale of the histogram must be [`Scale::Seconds`].
    pub fn time(time: Duration) -> Self {
        Self::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Scale::Seconds)
    }

    fn new(value: u64, scale: Scale) -> Self {
        let at = || index(value as f64 * scale.unit()) - scale.first();
        Self { value, bucket: (value > 0).then(|| at().clamp(0, BUCKETS as i32 - 1) as u16) }
    }
}

/// A histogram that can be read while values are recorded.
///
/// Each core has its own, so that no two cores write to the same cache line.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    counts: Box<[AtomicU64]>,
    zeros: AtomicU64,
    /// The sum of the values, in the recorded unit.
    sum: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new(scale: Scale) -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { scale, counts, zeros: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Records a duration. The scale must be [`Scale::Seconds`].
    pub fn record_time(&self, time: Duration) {
        self.record_in_bucket(InBucket::time(time));
    }

    /// Records a value, in nanoseconds if the scale is [`Scale::Seconds`].
    pub fn record(&self, value: u64) {
        self.record_in_bucket(InBucket::new(value, self.scale));
    }

    /// Records a value whose bucket is known. The bucket must be that of this histogram's scale.
    #[inline]
    pub fn record_in_bucket(&self, InBucket { value, bucket }: InBucket) {
        self.sum.fetch_add(value, Ordering::Relaxed);
        let count = bucket.map_or(&self.zeros, |at| &self.counts[usize::from(at)]);
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub fn buckets(&self) -> Buckets {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Buckets {
            first: self.scale.first(),
            counts: self.counts.iter().map(load).collect(),
            zeros: load(&self.zeros),
            sum: load(&self.sum) as f64 * self.scale.unit(),
        }
    }
}

/// A snapshot of a histogram's counts, or the sum of several snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// The index of the first bucket. Bucket `i` holds values above `2^((i - 1) / 8)` and up to `2^(i / 8)`.
    pub first: i32,
    /// The number of values in each bucket.
    pub counts: Vec<u64>,
    /// The number of values that are 0.
    pub zeros: u64,
    /// The sum of the values, in the exported unit.
    pub sum: f64,
}

impl Buckets {
    /// Returns the counts of an empty histogram of this scale.
    pub fn none(scale: Scale) -> Self {
        Self { first: scale.first(), counts: vec![0; BUCKETS], zeros: 0, sum: 0.0 }
    }

    /// Returns the values recorded since `before`, an earlier snapshot of the same histogram. Returns all values if the
    /// histogram was reset since, because its process restarted.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = || self.counts.iter().zip(&before.counts);
        let was_reset = self.zeros < before.zeros || pairs().any(|(now, before)| now < before);
        if before.counts.len() != self.counts.len() || was_reset {
            return self.clone();
        }
        Self {
            first: self.first,
            counts: pairs().map(|(now, before)| now - before).collect(),
            zeros: self.zeros - before.zeros,
            sum: self.sum - before.sum,
        }
    }

    /// Adds the counts of another histogram of the same scale. A default [`Buckets`] has no scale and can be added to
    /// any.
    pub fn add(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            *self = other.clone();
            return;
        }
        debug_assert_eq!(self.first, other.first, "histograms of one scale");
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.zeros += other.zeros;
        self.sum += other.sum;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.zeros + self.counts.iter().sum::<u64>()
    }

    /// Returns the upper bound of bucket `index`, inclusive.
    pub fn bound(index: i32) -> f64 {
        (f64::from(index) / f64::from(PER_DOUBLING)).exp2()
    }

    /// Returns the buckets from the first to the last non-empty one: the index of the first, and the counts.
    pub fn filled(&self) -> (i32, &[u64]) {
        let is_filled = |count: &u64| *count > 0;
        let Some(from) = self.counts.iter().position(is_filled) else { return (0, &[]) };
        let to = self.counts.iter().rposition(is_filled).unwrap_or(from);
        (self.first + from as i32, &self.counts[from..=to])
    }

    /// Returns an upper bound of the quantile `quantile` (0 to 1), or 0 if there are no values.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let rank = (self.count() as f64 * quantile).ceil() as u64;
        let mut seen = self.zeros;
        if seen >= rank {
            return 0.0;
        }
        for (index, count) in (self.first..).zip(&self.counts) {
            seen += count;
            if seen >= rank {
                return Self::bound(index);
            }
        }
        0.0
    }
}

/// Returns the bucket of a value above 0: the smallest `i` with `value <= 2^(i / 8)`.
fn index(value: f64) -> i32 {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const ONE: u64 = 1.0f64.to_bits();
    let bits = value.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as i32 - (ONE >> MANTISSA_BITS) as i32;
    let mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | ONE);
    let within = BOUNDS.iter().filter(|&&bound| mantissa > bound).count() as i32;
    exponent * PER_DOUBLING + within
}

/// `2^(i / 8)` for each i below 8.
const BOUNDS: [f64; PER_DOUBLING as usize] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn powers_of_two_are_upper_bounds_of_buckets() {
        let indexes = [0.5, 1.0, 1.000_001, 2.0, 3.0, 4.0, 1024.0].map(index);
        assert_eq!(indexes, [-8, 0, 1, 8, 13, 16, 80]);
        for (at, bound) in (0..).zip(BOUNDS) {
            assert_eq!(Buckets::bound(at), bound);
        }
    }

    #[test]
    fn values_out_of_range_count_in_the_outermost_buckets() {
        let times = Histogram::new(Scale::Seconds);
        times.record(0);
        times.record(1);
        times.record_time(Duration::from_secs(3600));
        let buckets = times.buckets();
        assert_eq!((buckets.count(), buckets.zeros), (3, 1));
        let (first, counts) = buckets.filled();
        assert_eq!((first, counts.len()), (-24 * 8, BUCKETS));
        assert_eq!(buckets.quantile(0.1), 0.0);
    }

    #[test]
    fn a_sum_of_histograms_equals_one_histogram() {
        let [one, other, both] = [(); 3].map(|()| Histogram::new(Scale::Whole));
        for value in 1..100 {
            if value % 3 == 0 { &one } else { &other }.record(value);
            both.record(value);
        }
        let mut sum = Buckets::default();
        sum.add(&one.buckets());
        sum.add(&other.buckets());
        assert_eq!(sum, both.buckets());
        assert_eq!((sum.count(), sum.sum), (99, 4950.0));
        assert_eq!(sum.since(&one.buckets()), other.buckets());
        // The process restarted between the snapshots.
        assert_eq!(one.buckets().since(&sum), one.buckets());
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in 1e-7f64..1e9) {
            let at = index(value);
            prop_assert!(value <= Buckets::bound(at) * (1.0 + f64::EPSILON));
            prop_assert!(value > Buckets::bound(at - 1) * (1.0 - f64::EPSILON));
        }

        #[test]
        fn a_quantile_is_accurate_to_one_bucket(mut values in prop::collection::vec(1u64..1 << 31, 1..200)) {
            let histogram = Histogram::new(Scale::Whole);
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            for share in [0.01, 0.5, 0.99, 1.0] {
                let exact = values[((values.len() as f64 * share).ceil() as usize).max(1) - 1] as f64;
                let bound = histogram.buckets().quantile(share);
                prop_assert!((exact..exact * 1.0906).contains(&bound), "{exact} {bound}");
            }
        }
    }
}
