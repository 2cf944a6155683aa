//! A file on the drive that is measured, and a node on it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use bytesize::ByteSize;
use io_node::{DriveConfig, IoConfig};
use lake::UriPrefix;

use crate::error::{CliError, Result};

/// A file that was not there before, and is removed when this is dropped, whatever came of it.
pub struct TrialFile<'a>(&'a Path);

impl<'a> TrialFile<'a> {
    /// Makes nothing yet.
    pub fn new(path: &'a Path) -> Result<Self> {
        if path.exists() {
            let path = path.display();
            let message = format!("{path} is there already; name a file that is not");
            return Err(CliError::usage(message));
        }
        Ok(Self(path))
    }

    /// A node whose one drive it is, without a RAM tier, on a port of its own.
    pub fn node(&self, size: Option<ByteSize>) -> IoConfig {
        IoConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            // Which nobody asks it for.
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
