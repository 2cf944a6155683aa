//! `PATH[:SIZE]`: a drive of an I/O node.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytesize::ByteSize;

use super::size::parse_size;

/// A file or block device, and how much of it to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSpec {
    /// The path of the file or device.
    pub path: PathBuf,
    /// The slab's size. `None` for the size of the existing file or device, or 4 GiB for a new file.
    pub size: Option<ByteSize>,
}

impl FromStr for DriveSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = || Self { path: text.into(), size: None };
        let spec = match text.rsplit_once(':') {
            Some((_, "")) => return Err("there is no size after `:`; write it like 64GiB".into()),
            // The name of an existing drive may have a colon, as in /dev/disk/by-path. In the name of a new file, the
            // last colon begins the size, unless a `/` follows it.
            Some((path, size)) if !size.contains('/') && !Path::new(text).exists() => {
                let size = parse_size(size).map_err(|expected| {
                    format!("`{size}` is not a size, and no drive has that name; {expected}")
                })?;
                Self { path: path.into(), size: Some(size) }
            }
            _ => whole(),
        };
        if spec.path.as_os_str().is_empty() {
            return Err("the path is empty; write it like /mnt/nvme0/slab:64GiB".into());
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_follows_the_last_colon() {
        let spec = |path: &str, size| Ok(DriveSpec { path: path.into(), size });
        assert_eq!("/dev/nvme0n1".parse(), spec("/dev/nvme0n1", None));
        assert_eq!("/m/slab:64GiB".parse(), spec("/m/slab", Some(ByteSize::gib(64))));
        assert_eq!("/m/slab:1 MiB".parse(), spec("/m/slab", Some(ByteSize::mib(1))));
        assert_eq!("/a:b/slab".parse(), spec("/a:b/slab", None));
        assert_eq!("/a:1/slab".parse(), spec("/a:1/slab", None));
        assert_eq!("/m/slab:4096".parse(), spec("/m/slab", Some(ByteSize::b(4096))));
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("pci-0000:00:1f.2");
        std::fs::write(&there, "").unwrap();
        let there = there.to_str().unwrap();
        assert_eq!(there.parse(), spec(there, None));
        for (bad, why) in [
            ("/m/slab:5XB", "not a size"),
            ("/m/slab:abc", "not a size"),
            ("/m/slab:", "no size"),
            (":5GiB", "empty"),
            ("", "empty"),
        ] {
            assert!(bad.parse::<DriveSpec>().unwrap_err().contains(why), "{bad}");
        }
    }
}
