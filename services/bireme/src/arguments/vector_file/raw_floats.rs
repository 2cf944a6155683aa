//! Raw float32 values, without a header.

/// Decodes little-endian float32 values.
pub fn raw_floats(bytes: &[u8]) -> Result<Vec<f32>, String> {
    if !bytes.len().is_multiple_of(4) {
        return Err(format!(
            "{} bytes are not a multiple of 4, the size of a float32",
            bytes.len()
        ));
    }
    let chunks = bytes.chunks_exact(4);
    Ok(chunks.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}
