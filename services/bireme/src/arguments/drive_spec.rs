//! `PATH[:SIZE]`: a drive of an I/O node.

use std::path::PathBuf;
use std::str::FromStr;

use bytesize::ByteSize;

/// A file or block device, and how much of it to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSpec {
    /// Where it is.
    pub path: PathBuf,
    /// The slab's size; what is there if not given.
    pub size: Option<ByteSize>,
}

impl FromStr for DriveSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = || Self { path: text.into(), size: None };
        let spec = match text.rsplit_once(':') {
            // A path may have a colon in it; what looks like a size is one.
            Some((path, size)) if size.starts_with(|c: char| c.is_ascii_digit()) => {
                match size.parse() {
                    Ok(size) => Self { path: path.into(), size: Some(size) },
                    Err(_) if size.contains('/') => whole(),
                    Err(error) => {
                        return Err(format!("`{size}` is no size ({error}); write it like 64GiB"));
                    }
                }
            }
            Some((_, "")) => return Err("there is no size after `:`; write it like 64GiB".into()),
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
        for (bad, why) in
            [("/m/slab:5XB", "no size"), ("/m/slab:", "no size"), (":5GiB", "empty"), ("", "empty")]
        {
            assert!(bad.parse::<DriveSpec>().unwrap_err().contains(why), "{bad}");
        }
    }
}
