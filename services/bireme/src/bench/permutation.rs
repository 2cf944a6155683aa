//! Numbers in random order, each once: a keyed bijection, so that nothing has to be remembered.
//!
//! A Feistel network of four rounds over the next power of four, walked until it lands in range (Black
//! and Rogaway, "Ciphers with arbitrary finite domains", 2002). Not meant to keep secrets.

const ROUNDS: u64 = 4;

/// An order of `0..len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    /// The order of `0..len` that belongs to `key`; `len` is at least 1.
    pub fn new(len: u64, key: u64) -> Self {
        let bits = u64::BITS - (len - 1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), key }
    }

    /// The number at `place`, which is less than the length.
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
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let mixed = mix(right ^ mix(self.key.wrapping_add(round)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << self.half_bits | right
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
