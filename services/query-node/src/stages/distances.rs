//! The distances that a search wants, compared as answers show them. Pure.

/// Maximum amount by which rounding can lower the distance of a vector to itself below 0.
const ROUNDING: f32 = 16.0 * f32::EPSILON;

/// The distances that a search wants: at least `lower`, and less than `upper`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distances {
    pub lower: Option<f32>,
    pub upper: Option<f32>,
}

impl Distances {
    /// Returns whether `distance` is wanted.
    pub fn contains(self, distance: f32) -> bool {
        let distance = at_least_0(distance);
        self.lower.is_none_or(|lower| distance >= lower)
            && self.upper.is_none_or(|upper| distance < upper)
    }

    /// Returns the lower and the upper bound of the distances as Lance computes them. They contain each distance that
    /// is wanted.
    pub fn computed(self) -> (Option<f32>, Option<f32>) {
        let is_0 = |lower: f32| (-ROUNDING..=0.0).contains(&lower);
        let lower = self.lower.map(|lower| if is_0(lower) { -ROUNDING } else { lower });
        (lower, self.upper)
    }
}

/// Replaces a distance that only rounding has made negative by 0. Distances further below 0 (dot products, or an
/// index's estimates) stay.
pub fn at_least_0(distance: f32) -> f32 {
    if (-ROUNDING..=0.0).contains(&distance) { 0.0 } else { distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounding_errors_are_removed() {
        let shown = [-1.19e-7, -0.0, 1e-7, -0.5, f32::MIN_POSITIVE].map(at_least_0);
        assert_eq!(shown, [0.0, 0.0, 1e-7, -0.5, f32::MIN_POSITIVE]);
        assert!(shown[1].is_sign_positive());
        assert!(at_least_0(f32::NAN).is_nan());
    }

    #[test]
    fn bounds_are_compared_with_the_distances_that_are_shown() {
        let (below_0, from) = (-1.19e-7, |lower| Distances { lower: Some(lower), upper: None });
        for (lower, contains) in [(-0.1, true), (below_0, true), (0.0, true), (1e-7, false)] {
            assert_eq!(from(lower).contains(below_0), contains, "{lower}");
            let (computed, _) = from(lower).computed();
            assert!(!contains || computed.unwrap() <= below_0, "{lower}");
        }
        assert!(!from(0.0).contains(-0.1));
        assert_eq!(from(0.5).computed(), (Some(0.5), None));
        let up_to_0 = Distances { lower: None, upper: Some(0.0) };
        assert!(up_to_0.contains(-0.1) && !up_to_0.contains(below_0));
    }
}
