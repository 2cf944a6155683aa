//! Conversion of half-precision floats to f32. The code has no branches, so the compiler can vectorise it.

/// Converts the bits of an IEEE half-precision float. The result is exact, and a NaN stays a NaN.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const MAGNITUDE: u32 = 0x7fff;
    // Adjusts the exponent for the difference of the two biases: a factor of 2^(127 - 15). The multiplication
    // also normalises subnormals.
    const REBIAS: f32 = f32::from_bits((254 - 15) << 23);
    const INFINITE: f32 = 65536.0;
    const EXPONENT: u32 = 255 << 23;
    let bits = u32::from(bits);
    let rebiased = f32::from_bits((bits & MAGNITUDE) << 13) * REBIAS;
    let special = if rebiased >= INFINITE { EXPONENT } else { 0 };
    f32::from_bits(rebiased.to_bits() | special | (bits & !MAGNITUDE) << 16)
}

/// Converts the bits of a bfloat16, which is the upper half of an f32.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_values_convert_exactly() {
        for bits in 0..=u16::MAX {
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            let expected = half::f16::from_bits(bits).to_f32();
            assert!(same(f16_to_f32(bits), expected), "{bits:#x} {expected}");
            let expected = half::bf16::from_bits(bits).to_f32();
            assert!(same(bf16_to_f32(bits), expected), "{bits:#x} {expected}");
        }
    }
}
