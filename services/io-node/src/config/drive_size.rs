//! The minimum size of a drive.

use std::path::Path;

use address::SECTOR_BYTES;
use bytesize::ByteSize;

use crate::error::NodeError;
use crate::extent::HEAD_SECTORS;

/// Checks that a slab of `bytes` bytes has space for a segment.
///
/// # Errors
/// [`NodeError::Config`] with the number of bytes needed.
pub fn check_size(path: &Path, bytes: u64, segment: ByteSize) -> Result<(), NodeError> {
    let least = HEAD_SECTORS * SECTOR_BYTES as u64 + segment.as_u64();
    if bytes >= least {
        return Ok(());
    }
    let (path, too_little) = (path.display(), too_little(bytes, least));
    let problem = format!("{path} has {too_little}: a segment of {segment}, and a MiB before it");
    Err(NodeError::Config { field: "drives", problem })
}

/// Returns `<there>, less than <wanted>`, for a message about a size that is too small. Both sizes are rounded, unless
/// they would then look the same.
pub fn too_little(there: u64, wanted: u64) -> String {
    let [has, needs] = [there, wanted].map(|bytes| ByteSize::b(bytes).to_string());
    match has == needs {
        true => format!("{there} bytes, less than {wanted}"),
        false => format!("{has}, less than {needs}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_differ_are_written_differently() {
        assert_eq!(too_little(1 << 20, 64 << 20), "1.0 MiB, less than 64.0 MiB");
        let nearly = (3 << 40) + (1 << 30);
        let expected = "3299608625151 bytes, less than 3299608625152";
        assert_eq!(too_little(nearly - 1, nearly), expected);
        let error = check_size(Path::new("/x"), nearly, ByteSize::b(nearly)).unwrap_err();
        let expected =
            "/x has 3299608625152 bytes, less than 3299609673728: a segment of 3.0 TiB, and";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
