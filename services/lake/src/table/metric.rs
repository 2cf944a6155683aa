//! Metrics: measures of the distance between two vectors.

use std::fmt;
use std::str::FromStr;

use lance_linalg::distance::DistanceType;

/// A measure of distance. With every metric, a smaller distance is nearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    #[default]
    L2,
    /// 1 − cosine of the angle.
    Cosine,
    /// 1 − dot product.
    Dot,
    /// Number of differing bits; for vectors of bytes.
    Hamming,
}

impl Metric {
    pub(crate) const fn to_lance(self) -> DistanceType {
        match self {
            Self::L2 => DistanceType::L2,
            Self::Cosine => DistanceType::Cosine,
            Self::Dot => DistanceType::Dot,
            Self::Hamming => DistanceType::Hamming,
        }
    }

    pub(crate) const fn from_lance(metric: DistanceType) -> Self {
        match metric {
            DistanceType::L2 => Self::L2,
            DistanceType::Cosine => Self::Cosine,
            DistanceType::Dot => Self::Dot,
            DistanceType::Hamming => Self::Hamming,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L2 => "l2",
            Self::Cosine => "cosine",
            Self::Dot => "dot",
            Self::Hamming => "hamming",
        })
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "l2" | "euclidean" => Ok(Self::L2),
            "cosine" => Ok(Self::Cosine),
            "dot" => Ok(Self::Dot),
            "hamming" => Ok(Self::Hamming),
            _ => Err(format!("{text:?} is no metric: choose l2, cosine, dot or hamming")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_to_the_same_metric() {
        for metric in [Metric::L2, Metric::Cosine, Metric::Dot, Metric::Hamming] {
            assert_eq!(metric.to_string().parse(), Ok(metric));
            assert_eq!(Metric::from_lance(metric.to_lance()), metric);
        }
        assert!("l3".parse::<Metric>().is_err());
    }
}
