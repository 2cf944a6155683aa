//! Computes the bucket and the tag of a hash, and the hash of a bucket and a tag.
//!
//! Only the first `hash_bits` bits of a hash count; the others are taken as 0. With `buckets` buckets,
//!
//! ```text
//! hash × buckets = bucket × 2^64 + rest          tag = the first TAG_BITS bits of rest
//! ```
//!
//! So buckets are ordered by hash for any number of buckets, not only for powers of two. If `hash_bits` is at most
//! log2(buckets) + TAG_BITS, different hashes differ in bucket or tag: neighbouring ones differ by at least
//! 2^(64 - TAG_BITS) in the product. Then bucket and tag give the hash back ([`Geometry::hash_of`]), and runs can be
//! merged without their keys. This is quotienting, with any number of buckets.

use crate::line::{Form, Narrow, PAGE_LINES, Wide};

/// The minimum number of buckets for tags of 16 bits: a run of 2.4 million keys. Narrow runs keep at least 34 bits of
/// each hash. If they are merged into a run of 100 million keys, one look-up in 172 gets a candidate that is not its row.
const NARROW_BUCKETS_MIN: u64 = 1 << 18;

/// The form of a run's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormName {
    /// [`Narrow`].
    Narrow,
    /// [`Wide`].
    Wide,
}

/// Evaluates an expression that uses, as a type, the form of the lines of a run with this [`Geometry`].
macro_rules! with_form {
    ($geometry:expr, $form:ident => $call:expr) => {
        match $geometry.form() {
            $crate::geometry::FormName::Narrow => {
                type $form = $crate::line::Narrow;
                $call
            }
            $crate::geometry::FormName::Wide => {
                type $form = $crate::line::Wide;
                $call
            }
        }
    };
}

pub(crate) use with_form;

/// The shape of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    form: FormName,
    pages: u32,
    hash_bits: u32,
}

/// The bucket and the tag of a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub bucket: u32,
    pub tag: u32,
}

impl Geometry {
    /// Returns the shape of a run of `keys` keys. The first `hash_bits_max` bits of their hashes are known.
    pub fn for_keys(keys: u64, hash_bits_max: u32) -> Self {
        let narrow = Self::with_form(FormName::Narrow, keys, hash_bits_max);
        if narrow.buckets() >= NARROW_BUCKETS_MIN {
            return narrow;
        }
        Self::with_form(FormName::Wide, keys, hash_bits_max)
    }

    /// Returns the shape with a given form of lines.
    pub fn with_form(form: FormName, keys: u64, hash_bits_max: u32) -> Self {
        let pages = keys.div_ceil(form.keys_a_page() as u64).max(1);
        // Ranks have 32 bits, so this holds for all runs.
        let pages = u32::try_from(pages).expect("2^32 keys need fewer than 2^32 pages");
        let full = Self { form, pages, hash_bits: 0 };
        Self { hash_bits: full.hash_bits_limit().min(hash_bits_max), ..full }
    }

    /// Returns the shape if the parts fit each other.
    pub fn from_parts(form: FormName, pages: u32, hash_bits: u32) -> Option<Self> {
        let it = Self { form, pages, hash_bits };
        let fits = pages > 0
            && it.buckets() <= u64::from(u32::MAX)
            && (1..=it.hash_bits_limit()).contains(&hash_bits);
        fits.then_some(it)
    }

    pub fn form(self) -> FormName {
        self.form
    }

    pub fn pages(self) -> u32 {
        self.pages
    }

    /// Returns how many bits of each hash the run keeps.
    pub fn hash_bits(self) -> u32 {
        self.hash_bits
    }

    pub fn buckets(self) -> u64 {
        u64::from(self.pages) * self.form.home_lines() as u64
    }

    fn hash_bits_limit(self) -> u32 {
        self.buckets().ilog2() + self.form.tag_bits()
    }

    /// Returns the number of bits that distinguish the keys of a bucket.
    pub fn effective_tag_bits(self) -> u32 {
        self.hash_bits.saturating_sub(self.buckets().ilog2())
    }

    /// Returns the mask of the bits of a hash that the run keeps.
    pub fn mask(self) -> u64 {
        u64::MAX << (64 - self.hash_bits)
    }

    /// Returns the bucket and the tag of a hash.
    #[inline]
    pub fn spot<F: Form>(self, hash: u64) -> Spot {
        debug_assert_eq!(self.form.tag_bits(), F::TAG_BITS);
        let buckets = u64::from(self.pages) * F::HOME_LINES as u64;
        let product = u128::from(hash & self.mask()) * u128::from(buckets);
        let rest = product as u64;
        Spot { bucket: (product >> 64) as u32, tag: (rest >> (64 - F::TAG_BITS)) as u32 }
    }

    /// Returns the first `hash_bits` bits of the hashes at a spot; the other bits are 0. For a spot that no hash has
    /// (in damaged bytes), returns some hash.
    pub fn hash_of<F: Form>(self, spot: Spot) -> u64 {
        let rest = u64::from(spot.tag) << (64 - F::TAG_BITS);
        let product = u128::from(spot.bucket) << 64 | u128::from(rest);
        // The lowest hash whose product with the number of buckets is at least `product`.
        let least = product.div_ceil(u128::from(self.buckets()));
        let step = 1u128 << (64 - self.hash_bits);
        u64::try_from(least.next_multiple_of(step)).unwrap_or(self.mask())
    }
}

impl FormName {
    pub fn home_lines(self) -> usize {
        match self {
            Self::Narrow => Narrow::HOME_LINES,
            Self::Wide => Wide::HOME_LINES,
        }
    }

    pub fn keys_a_page(self) -> usize {
        match self {
            Self::Narrow => Narrow::KEYS_A_PAGE,
            Self::Wide => Wide::KEYS_A_PAGE,
        }
    }

    pub fn tag_bits(self) -> u32 {
        match self {
            Self::Narrow => Narrow::TAG_BITS,
            Self::Wide => Wide::TAG_BITS,
        }
    }
}

/// Returns the index of a bucket's line among all lines of a run.
#[inline]
pub fn line_of<F: Form>(bucket: u32) -> usize {
    let (page, line) = page_and_line::<F>(bucket);
    page * PAGE_LINES + line
}

/// Returns a bucket's page, and its line within the page.
#[inline]
pub fn page_and_line<F: Form>(bucket: u32) -> (usize, usize) {
    let home = F::HOME_LINES as u32;
    ((bucket / home) as usize, (bucket % home) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comes_back<F: Form>(geometry: Geometry, hash: u64) -> Result<(), TestCaseError> {
        let spot = geometry.spot::<F>(hash);
        prop_assert!(u64::from(spot.bucket) < geometry.buckets());
        prop_assert_eq!(geometry.hash_of::<F>(spot), hash & geometry.mask());
        let next = (hash & geometry.mask()).saturating_add(1 << (64 - geometry.hash_bits()));
        prop_assert!(geometry.spot::<F>(next) >= spot);
        Ok(())
    }

    proptest! {
        #[test]
        fn spots_are_ordered_by_hash_and_give_it_back(
            keys in 0u64..=u64::from(u32::MAX),
            small in 0u64..5_000,
            bits in 8u32..=64,
            hash: u64,
        ) {
            for keys in [keys, small] {
                comes_back::<Narrow>(Geometry::with_form(FormName::Narrow, keys, bits), hash)?;
                comes_back::<Wide>(Geometry::with_form(FormName::Wide, keys, bits), hash)?;
            }
        }
    }

    #[test]
    fn large_runs_have_narrow_tags() {
        let shape = |keys| {
            let it = Geometry::for_keys(keys, 64);
            (it.form(), it.pages(), it.hash_bits())
        };
        assert_eq!(shape(0), (FormName::Wide, 1, 5 + 32));
        assert_eq!(shape(1_000_000), (FormName::Wide, 2_899, 17 + 32));
        assert_eq!(shape(2_427_744), (FormName::Wide, 7_037, 18 + 32));
        assert_eq!(shape(2_428_800), (FormName::Narrow, 4_600, 17 + 16 + 1));
        assert_eq!(shape(10_000_000), (FormName::Narrow, 18_940, 20 + 16));
        assert_eq!(shape(u64::from(u32::MAX)), (FormName::Narrow, 8_134_408, 28 + 16));
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let parts = Geometry::from_parts;
        assert!(parts(FormName::Wide, 1, 37).is_some());
        assert_eq!(parts(FormName::Wide, 1, 38), None);
        assert_eq!(parts(FormName::Wide, 1, 0), None);
        assert_eq!(parts(FormName::Wide, 0, 5), None);
        assert_eq!(parts(FormName::Narrow, u32::MAX, 5), None);
    }
}
