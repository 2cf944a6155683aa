//! A file on the drive that is measured, and the configuration of a node on it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use bytesize::ByteSize;
use io_node::{DriveConfig, IoConfig};
use lake::UriPrefix;

use crate::error::{CliError, Result};

/// A file that did not exist before. It is removed on drop, whether or not the trial succeeded.
pub struct TrialFile<'a>(&'a Path);

impl<'a> TrialFile<'a> {
    /// Checks that the path is free. The file is not created yet.
    pub fn new(path: &'a Path) -> Result<Self> {
        // A link counts, even if nothing is where it leads: it would be removed on drop.
        if path.symlink_metadata().is_ok() {
            let path = path.display();
            let message = format!("{path} exists already; name a new file");
            return Err(CliError::usage(message));
        }
        Ok(Self(path))
    }

    /// Returns the configuration of a node with this file as its only drive, without a RAM tier, on a free port.
    pub fn node(&self, size: Option<ByteSize>) -> IoConfig {
        IoConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            // A node must serve something; nobody requests this table.
            serve: UriPrefix::of_config("/no-table").into_iter().collect(),
            drives: vec![DriveConfig { path: self.0.to_owned(), size }],
            ram_tier: ByteSize::b(0),
            ..IoConfig::default()
        }
    }
}

impl Drop for TrialFile<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nothing"), &link).unwrap();
        assert!(TrialFile::new(&link).is_err());
        assert!(link.is_symlink());
    }
}
