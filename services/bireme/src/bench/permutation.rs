//! Numbers in random order, each once: a keyed bijection, so that no list has to be stored.
//!
//! A Feistel network of four rounds over the next power of two, applied again until its output is in range (Black and
//! Rogaway, "Ciphers with arbitrary finite domains", 2002). The network is not cryptographically secure.

/// The number of rounds. Four suffice if the function of each round is random (Luby and Rackoff, 1988).
const ROUNDS: usize = 4;

/// A random order of the numbers `0..len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    /// The number of bits of a number's low part; the high part has as many, or one fewer.
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    /// One key for each round.
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Returns the order of `0..len` that belongs to `key`; `len` is at least 1.
    pub fn new(len: u64, key: u64) -> Self {
        let bits = u64::BITS - (len - 1).leading_zeros();
        let low_bits = bits.div_ceil(2);
        let mask = |bits: u32| (1u64 << bits) - 1;
        let keys = std::array::from_fn(|round| mix(key.wrapping_add(round as u64)));
        Self { len, low_bits, low_mask: mask(low_bits), high_mask: mask(bits - low_bits), keys }
    }

    /// Returns the number at `place`. `place` must be less than the length.
    pub fn at(&self, place: u64) -> u64 {
        let mut number = place;
        loop {
            number = self.shuffle(number);
            if number < self.len {
                return number;
            }
        }
    }

    fn shuffle(&self, number: u64) -> u64 {
        let (mut high, mut low) = (number >> self.low_bits, number & self.low_mask);
        for keys in self.keys.chunks_exact(2) {
            high ^= mix(low ^ keys[0]) & self.high_mask;
            low ^= mix(high ^ keys[1]) & self.low_mask;
        }
        high << self.low_bits | low
    }
}

/// The finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_comes_once() {
        for len in [1, 2, 3, 4, 5, 1000, 4096, 4097] {
            for key in 0..3 {
                let order = Permutation::new(len, key);
                let all: BTreeSet<u64> = (0..len).map(|place| order.at(place)).collect();
                assert_eq!(all, (0..len).collect(), "{len} {key}");
            }
        }
    }

    #[test]
    fn keys_give_orders_that_are_not_alike_and_not_in_order() {
        let order = |key| {
            let order = Permutation::new(10_000, key);
            (0..10_000).map(|place| order.at(place)).collect::<Vec<_>>()
        };
        let same = |a: &[u64], b: &[u64]| a.iter().zip(b).filter(|(x, y)| x == y).count();
        assert!(same(&order(1), &order(2)) < 20);
        let neighbours = order(1).windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 20, "{neighbours}");
    }
}
