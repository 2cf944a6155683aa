//! The keys of a load of look-ups: drawn from the table once, and then chosen for each request by a distribution.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, FixedSizeBinaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray, UInt32Array, UInt64Array};
use arrow_cast::cast;
use arrow_ord::sort::sort;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use arrow_select::take::take;
use clap::ValueEnum;
use client::query::without_nulls;
use rand::Rng;
use rand::distr::Distribution;
use rand_distr::Zipf;

use super::target::Target;
use super::workload::random;
use crate::error::{CliError, Result};

/// The maximum number of keys that are drawn from the table. With fewer keys, more reads would find their sectors in
/// RAM.
const KEYS: usize = 200_000;

/// The exponent of the Zipf distribution, as in YCSB.
const ZIPF_EXPONENT: f64 = 0.99;

type ArrowResult = std::result::Result<ArrayRef, ArrowError>;

/// The distribution by which requests choose their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyDistribution {
    /// Each key with the same probability.
    Uniform,
    /// A few keys very often (Zipf, exponent 0.99).
    Zipfian,
    /// One key after the other, in ascending order.
    Sequential,
    /// Keys that no row has.
    Missing,
}

impl KeyDistribution {
    /// Returns the name in reports.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Keys of one column, and the distribution by which requests choose among them.
pub struct BenchKeys {
    keys: ArrayRef,
    distribution: KeyDistribution,
    zipf: Zipf<f64>,
    seed: u64,
}

impl BenchKeys {
    /// Draws keys of `column` from the table.
    ///
    /// # Errors
    /// If no key was drawn, or if keys of the column's type can't be sorted, or absent ones can't be made, as
    /// `distribution` requires. Also the query node's fault if it can't read the sample.
    pub async fn draw(
        target: &Target,
        column: &str,
        distribution: KeyDistribution,
        seed: u64,
    ) -> Result<Self> {
        let batches = target.sample(column, seed, KEYS).await?;
        let arrays: Vec<&dyn Array> =
            batches.iter().filter_map(|batch| batch.columns().first()).map(AsRef::as_ref).collect();
        let nothing = || CliError::usage(format!("no key was drawn from column `{column}`"));
        if arrays.is_empty() {
            return Err(nothing());
        }
        let unusable = |error: ArrowError| CliError::usage(error.to_string());
        let keys = concat(&arrays).and_then(|keys| without_nulls(&keys)).map_err(unusable)?;
        if keys.is_empty() {
            return Err(nothing());
        }
        Self::of(keys, distribution, seed).map_err(unusable)
    }

    fn of(
        keys: ArrayRef,
        distribution: KeyDistribution,
        seed: u64,
    ) -> std::result::Result<Self, ArrowError> {
        // The sample is in random order. Sequential keys are sorted, because the rows of many tables are in the order
        // of their keys.
        let keys = match distribution {
            KeyDistribution::Missing => absent(&keys)?,
            KeyDistribution::Sequential => sort(&keys, None)?,
            KeyDistribution::Uniform | KeyDistribution::Zipfian => keys,
        };
        let zipf = Zipf::new(keys.len() as f64, ZIPF_EXPONENT);
        let zipf = zipf.map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
        Ok(Self { keys, distribution, zipf, seed })
    }

    /// Returns the `count` keys of request `number`.
    ///
    /// # Errors
    /// The error of Arrow's `take`, which only a defect causes.
    pub fn of_request(&self, number: u64, count: usize) -> ArrowResult {
        let len = self.keys.len() as u64;
        let mut random = random(self.seed, number);
        let place = |at: u64| match self.distribution {
            KeyDistribution::Uniform | KeyDistribution::Missing => random.random_range(0..len),
            KeyDistribution::Zipfian => self.zipf.sample(&mut random) as u64 - 1,
            KeyDistribution::Sequential => (number * count as u64 + at) % len,
        };
        let places = (0..count as u64).map(place).map(|place| place.min(len - 1) as u32);
        take(&self.keys, &UInt32Array::from_iter_values(places), None)
    }
}

/// Returns as many keys as `keys` has, of the same type, chosen so that a row is very unlikely to have one of them.
fn absent(keys: &ArrayRef) -> ArrowResult {
    let len = keys.len();
    let absent: ArrayRef = match keys.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => {
            let texts = cast(keys, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>().iter().flatten().map(|key| format!("{key}~"));
            Arc::new(StringArray::from_iter_values(texts))
        }
        DataType::Binary | DataType::LargeBinary => {
            let keys = cast(keys, &DataType::Binary)?;
            let mut absent = BinaryBuilder::new();
            keys.as_binary::<i32>().iter().flatten().for_each(|key| {
                absent.append_value([key, &b"~"[..]].concat());
            });
            Arc::new(absent.finish())
        }
        DataType::FixedSizeBinary(size) => {
            let mut absent = FixedSizeBinaryBuilder::new(*size);
            for key in keys.as_fixed_size_binary().iter().flatten() {
                let other: Vec<u8> = key.iter().map(|byte| byte ^ 0xa5).collect();
                absent.append_value(other)?;
            }
            Arc::new(absent.finish())
        }
        // The largest values of the type are rarely keys.
        DataType::UInt64 => {
            Arc::new(UInt64Array::from_iter_values((0..len as u64).map(|at| u64::MAX - at)))
        }
        it if it.is_integer() => {
            let width = it.primitive_width().unwrap_or(size_of::<i64>());
            let bits = 8 * width as u32 - u32::from(it.is_signed_integer());
            let max = i64::MAX >> (63 - bits.min(63));
            Arc::new(Int64Array::from_iter_values((0..len as i64).map(|at| max - at % 100)))
        }
        other => {
            let message = format!("absent keys of type {other} can't be made");
            return Err(ArrowError::InvalidArgumentError(message));
        }
    };
    cast(&absent, keys.data_type())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::types::Int16Type;
    use arrow_array::{FixedSizeBinaryArray, Int16Array};

    use super::*;

    fn numbers() -> ArrayRef {
        Arc::new(Int16Array::from_iter_values((0..1000).rev()))
    }

    fn drawn(distribution: KeyDistribution) -> Vec<i16> {
        let keys = BenchKeys::of(numbers(), distribution, 3).unwrap();
        let of_request = |number| keys.of_request(number, 10).unwrap();
        let values = |keys: ArrayRef| keys.as_primitive::<Int16Type>().values().to_vec();
        assert_eq!(&of_request(7), &of_request(7), "a request is the same each time");
        (0..500).flat_map(|number| values(of_request(number))).collect()
    }

    #[test]
    fn each_distribution_has_its_shape() {
        let most = |keys: &[i16]| {
            let mut counts: HashMap<i16, usize> = HashMap::new();
            keys.iter().for_each(|&key| *counts.entry(key).or_default() += 1);
            (counts.len(), counts.into_values().max().unwrap())
        };
        let (different, most_often) = most(&drawn(KeyDistribution::Uniform));
        assert!(different > 950 && most_often < 25, "{different}, {most_often}");
        let (_, most_often) = most(&drawn(KeyDistribution::Zipfian));
        // The first of 1,000 keys is chosen in 13 % of the cases.
        assert!((450..900).contains(&most_often), "{most_often}");
        let sequential = drawn(KeyDistribution::Sequential);
        assert_eq!(sequential[..1000], (0..1000).collect::<Vec<_>>());
        assert_eq!(sequential[1000], 0);
        assert!(drawn(KeyDistribution::Missing).iter().all(|&key| key > i16::MAX - 100));
    }

    #[test]
    fn absent_keys_have_the_columns_type_and_are_none_of_its_keys() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        assert_eq!(&*absent(&texts).unwrap(), &StringArray::from(vec!["a~", "b~"]));
        let bytes = FixedSizeBinaryArray::try_from_iter([[1u8, 2]].into_iter()).unwrap();
        let bytes: ArrayRef = Arc::new(bytes);
        assert_eq!(absent(&bytes).unwrap().as_fixed_size_binary().value(0), [0xa4, 0xa7]);
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1]));
        assert_eq!(&*absent(&large).unwrap(), &UInt64Array::from(vec![u64::MAX]));
        let flags: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![true]));
        assert!(absent(&flags).is_err());
    }
}
