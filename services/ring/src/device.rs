//! How many operations at a time the drive under a file takes: read from sysfs, never guessed.
//!
//! `/sys/dev/block/MAJOR:MINOR` of the device that holds the file; from a partition one folder up
//! to the disk; from a device made of others (md, dm) down to these, whose depths add up.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Fewer at a time leave any drive idle.
pub const QUEUE_DEPTH_MIN: u32 = 16;
/// More at a time only add latency, on any drive of today.
pub const QUEUE_DEPTH_MAX: u32 = 2048;
/// Where there is no device to ask.
pub const QUEUE_DEPTH_DEFAULT: u32 = 128;

/// Devices below devices that are followed.
const NESTING_MAX: u32 = 4;

/// A depth, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Operations in flight at a time, over all cores.
    pub depth: u32,
    /// Why.
    pub source: DepthSource,
}

/// Where a depth comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DepthSource {
    /// `queue/nr_requests` of these devices, added up and clamped.
    Devices {
        /// Names as in `/sys/block`, with what each says.
        devices: Vec<(String, u32)>,
    },
    /// There's no block device (tmpfs, overlay, a network), or it says nothing.
    Default {
        /// What was found instead.
        reason: String,
    },
}

impl fmt::Display for QueueDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            DepthSource::Devices { devices } => {
                write!(f, "{} (nr_requests", self.depth)?;
                for (name, depth) in devices {
                    write!(f, " {name}={depth}")?;
                }
                f.write_str(")")
            }
            DepthSource::Default { reason } => write!(f, "{} by default: {reason}", self.depth),
        }
    }
}

/// The depth of the drive that holds `path`, or that `path` is.
///
/// # Errors
///
/// If the path can't be looked at; that sysfs says nothing isn't an error.
pub fn queue_depth(path: impl AsRef<Path>) -> io::Result<QueueDepth> {
    let metadata = fs::metadata(path)?;
    let is_device = metadata.file_type().is_block_device();
    let device = if is_device { metadata.rdev() } else { metadata.dev() };
    Ok(depth_of(Path::new("/sys"), libc::major(device), libc::minor(device)))
}

/// The same, from any sysfs.
fn depth_of(sysfs: &Path, major: u32, minor: u32) -> QueueDepth {
    let link = sysfs.join(format!("dev/block/{major}:{minor}"));
    let found = match fs::canonicalize(&link) {
        Ok(folder) => disks_under(&folder, NESTING_MAX),
        Err(_) => return judge(&[], format!("device {major}:{minor} is no block device")),
    };
    judge(&found, format!("no queue/nr_requests under {}", link.display()))
}

/// Clamps what the devices say.
fn judge(devices: &[(String, u32)], reason: String) -> QueueDepth {
    if devices.is_empty() {
        let source = DepthSource::Default { reason };
        return QueueDepth { depth: QUEUE_DEPTH_DEFAULT, source };
    }
    let sum = devices.iter().fold(0u32, |sum, (_, depth)| sum.saturating_add(*depth));
    QueueDepth {
        depth: sum.clamp(QUEUE_DEPTH_MIN, QUEUE_DEPTH_MAX),
        source: DepthSource::Devices { devices: devices.to_vec() },
    }
}

fn disks_under(folder: &Path, nesting: u32) -> Vec<(String, u32)> {
    let disk = match (folder.join("partition").exists(), folder.parent()) {
        (true, Some(parent)) => parent,
        _ => folder,
    };
    let below = parts_of(disk);
    if !below.is_empty() && nesting > 0 {
        let mut devices: Vec<_> =
            below.iter().flat_map(|part| disks_under(part, nesting - 1)).collect();
        devices.sort();
        // Two partitions of a disk share its queue.
        devices.dedup();
        if !devices.is_empty() {
            return devices;
        }
    }
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(disk.join("queue/nr_requests")).unwrap_or_default();
    parse(&text).map(|depth| (name, depth)).into_iter().collect()
}

fn parts_of(disk: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(disk.join("slaves")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect()
}

fn parse(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|&depth| depth > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct FakeSysfs(tempfile::TempDir);

    impl FakeSysfs {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("dev/block")).unwrap();
            Self(folder)
        }

        fn device(&self, numbers: &str, place: &str, nr_requests: Option<&str>) -> PathBuf {
            let folder = self.0.path().join("devices").join(place);
            fs::create_dir_all(folder.join("queue")).unwrap();
            match nr_requests {
                Some(text) => fs::write(folder.join("queue/nr_requests"), text).unwrap(),
                None => fs::write(folder.join("partition"), "1\n").unwrap(),
            }
            symlink(&folder, self.0.path().join("dev/block").join(numbers)).unwrap();
            folder
        }

        fn depth(&self, major: u32, minor: u32) -> QueueDepth {
            depth_of(self.0.path(), major, minor)
        }
    }

    fn devices(depth: u32, devices: &[(&str, u32)]) -> QueueDepth {
        let devices = devices.iter().map(|(name, depth)| (name.to_string(), *depth)).collect();
        QueueDepth { depth, source: DepthSource::Devices { devices } }
    }

    #[test]
    fn a_disk_its_partition_and_the_clamps() {
        let sysfs = FakeSysfs::new();
        sysfs.device("259:0", "pci/nvme0n1", Some("1023\n"));
        sysfs.device("259:1", "pci/nvme0n1/nvme0n1p1", None);
        sysfs.device("8:0", "usb/sda", Some("2"));
        sysfs.device("9:9", "odd", Some("many"));
        assert_eq!(sysfs.depth(259, 0), devices(1023, &[("nvme0n1", 1023)]));
        assert_eq!(sysfs.depth(259, 1), devices(1023, &[("nvme0n1", 1023)]));
        assert_eq!(sysfs.depth(8, 0), devices(QUEUE_DEPTH_MIN, &[("sda", 2)]));
        assert_eq!(sysfs.depth(259, 1).to_string(), "1023 (nr_requests nvme0n1=1023)");
        for (major, minor) in [(9, 9), (0, 27)] {
            let depth = sysfs.depth(major, minor);
            assert_eq!(depth.depth, QUEUE_DEPTH_DEFAULT);
            assert!(matches!(depth.source, DepthSource::Default { .. }), "{depth}");
        }
    }

    #[test]
    fn a_stripe_adds_its_disks_up() {
        let sysfs = FakeSysfs::new();
        let stripe = sysfs.device("9:0", "virtual/md0", Some("128"));
        fs::create_dir(stripe.join("slaves")).unwrap();
        for disk in ["nvme0n1", "nvme1n1"] {
            let folder = sysfs.device(&format!("{disk}:0"), disk, Some("600"));
            symlink(folder, stripe.join("slaves").join(disk)).unwrap();
        }
        assert_eq!(sysfs.depth(9, 0), devices(1200, &[("nvme0n1", 600), ("nvme1n1", 600)]));
    }

    #[test]
    fn this_machine_answers() {
        let depth = queue_depth("/var/tmp").unwrap();
        assert!((QUEUE_DEPTH_MIN..=QUEUE_DEPTH_MAX).contains(&depth.depth), "{depth}");
        assert!(queue_depth("/nowhere/at/all").is_err());
    }
}
