//! The queue depth of the device under a file, as sysfs reports it.
//!
//! The search starts at `/sys/dev/block/MAJOR:MINOR` of the device that holds the file. If the device is a partition,
//! its disk is one folder up. If it is made of other devices (md, or LVM and everything else that uses device mapper),
//! the depths of its components are added up. If it is a loop device, the search goes on at the device that holds its
//! file, and the smaller depth counts, because the loop device has a queue of its own too.

#![expect(clippy::disallowed_methods, reason = "sysfs is read once, when a drive is opened")]

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Minimum depth: with fewer operations at a time, any drive is partly idle.
pub const QUEUE_DEPTH_MIN: u32 = 16;
/// Maximum depth: on any of today's drives, more operations at a time only add latency.
pub const QUEUE_DEPTH_MAX: u32 = 2048;
/// The depth that is assumed if no block device reports one: Linux's own default of `nr_requests`.
pub const QUEUE_DEPTH_DEFAULT: u32 = 128;

/// Maximum number of nested devices that are followed. Thin LVM, RAID and encryption together are nested less deeply.
const NESTING_MAX: u32 = 8;

/// A queue depth and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Maximum number of operations in flight at a time, over all cores.
    pub depth: u32,
    /// The origin of the depth.
    pub source: DepthSource,
    /// The disks under the drive, sorted: their names in `/sys/block`, or a substitute name where there is no
    /// block device. Drives that have a disk in common share its queue.
    pub disks: Vec<String>,
}

/// The origin of a queue depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DepthSource {
    /// The sum of `queue/nr_requests` of these devices, clamped to the minimum and maximum.
    Devices {
        /// Names as in `/sys/block`, each with its `nr_requests`.
        devices: Vec<(String, u32)>,
    },
    /// There is no block device (tmpfs, overlay, a network filesystem), or it does not report a depth.
    Default {
        /// The reason, for the log.
        reason: String,
    },
}

impl QueueDepth {
    /// Returns the depth that the system reports, clamped, or `None` if it reports none.
    pub fn reported(&self) -> Option<u32> {
        match self.source {
            DepthSource::Devices { .. } => Some(self.depth),
            DepthSource::Default { .. } => None,
        }
    }

    /// Returns the sum of the depths that the devices report, not clamped, or `depth` if they report none.
    pub(crate) fn requests(&self) -> u32 {
        match &self.source {
            DepthSource::Devices { devices } => sum(devices),
            DepthSource::Default { .. } => self.depth,
        }
    }
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

/// Returns the queue depth of the drive that holds `file`, or of `file` itself if it is a block device.
pub(crate) fn queue_depth(file: &Metadata) -> QueueDepth {
    let (major, minor) = device_of(file);
    Sysfs { root: Path::new("/sys"), device_at: &device_at }.depth(major, minor)
}

fn device_of(file: &Metadata) -> (u32, u32) {
    let is_device = file.file_type().is_block_device();
    let device = if is_device { file.rdev() } else { file.dev() };
    (libc::major(device), libc::minor(device))
}

/// Returns the major and minor number of the device that holds the file at `path`, or `None` if the file does not exist
/// or is not visible in this process's mount namespace.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    fs::metadata(path).ok().map(|file| device_of(&file))
}

/// A sysfs tree, real or made by a test, and a way to find the device that holds a file.
struct Sysfs<'a> {
    root: &'a Path,
    device_at: &'a dyn Fn(&Path) -> Option<(u32, u32)>,
}

/// The devices found below a device.
#[derive(Default)]
struct Underlying {
    /// The queues that limit the device: for each, the name of the device that has the queue, and the queue's depth.
    queues: Vec<(String, u32)>,
    /// The disks at the bottom of the nesting.
    disks: Vec<String>,
}

impl Underlying {
    /// Adds another component's devices. Two partitions of a disk share its queue, so each queue counts once.
    fn add(&mut self, other: Self) {
        self.queues.extend(other.queues);
        self.queues.sort();
        self.queues.dedup();
        self.disks.extend(other.disks);
        self.disks.sort();
        self.disks.dedup();
    }

    /// Replaces the queues by `queue` if `queue` is shallower than their sum.
    fn narrow(&mut self, queue: Option<(String, u32)>) {
        self.queues = match queue {
            Some(queue) if queue.1 < sum(&self.queues) => vec![queue],
            _ => return,
        };
    }
}

impl Sysfs<'_> {
    fn depth(&self, major: u32, minor: u32) -> QueueDepth {
        let number = format!("{major}:{minor}");
        match self.folder(major, minor) {
            Some(folder) => {
                let reason = format!("no queue/nr_requests of device {number}");
                clamped(self.underlying(&folder, NESTING_MAX), reason)
            }
            None => {
                let reason = format!("device {number} is not a block device");
                clamped(Underlying { queues: Vec::new(), disks: vec![number] }, reason)
            }
        }
    }

    fn folder(&self, major: u32, minor: u32) -> Option<PathBuf> {
        fs::canonicalize(self.root.join(format!("dev/block/{major}:{minor}"))).ok()
    }

    fn underlying(&self, folder: &Path, nesting: u32) -> Underlying {
        let disk = match (folder.join("partition").exists(), folder.parent()) {
            (true, Some(parent)) => parent,
            _ => folder,
        };
        let mut found = Underlying::default();
        if let Some(nesting) = nesting.checked_sub(1) {
            for component in components_of(disk) {
                found.add(self.underlying(&component, nesting));
            }
            if let Some(folder) = self.loop_backing_device(disk) {
                found.add(self.underlying(&folder, nesting));
                found.narrow(queue_of(disk));
            }
        }
        if found.queues.is_empty() {
            found.queues.extend(queue_of(disk));
        }
        if found.disks.is_empty() {
            found.disks.push(name_of(disk));
        }
        found
    }

    /// Returns the sysfs folder of the device that holds a loop device's file. Returns `None` if `disk` is not a loop
    /// device, if no block device holds the file, or if the file was deleted or is not visible in this process's mount
    /// namespace.
    fn loop_backing_device(&self, disk: &Path) -> Option<PathBuf> {
        let text = fs::read(disk.join("loop/backing_file")).ok()?;
        let path = text.strip_suffix(b"\n").unwrap_or(&text);
        let (major, minor) = (self.device_at)(Path::new(OsStr::from_bytes(path)))?;
        self.folder(major, minor)
    }
}

/// Adds up and clamps the depths that the devices report.
fn clamped(found: Underlying, reason: String) -> QueueDepth {
    let Underlying { queues, disks } = found;
    if queues.is_empty() {
        let source = DepthSource::Default { reason };
        return QueueDepth { depth: QUEUE_DEPTH_DEFAULT, source, disks };
    }
    QueueDepth {
        depth: sum(&queues).clamp(QUEUE_DEPTH_MIN, QUEUE_DEPTH_MAX),
        source: DepthSource::Devices { devices: queues },
        disks,
    }
}

fn sum(queues: &[(String, u32)]) -> u32 {
    queues.iter().fold(0u32, |sum, (_, depth)| sum.saturating_add(*depth))
}

fn components_of(disk: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(disk.join("slaves")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect()
}

fn name_of(disk: &Path) -> String {
    disk.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn queue_of(disk: &Path) -> Option<(String, u32)> {
    let text = fs::read_to_string(disk.join("queue/nr_requests")).ok()?;
    let depth = text.trim().parse().ok().filter(|&depth| depth > 0)?;
    Some((name_of(disk), depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::os::unix::fs::symlink;

    struct FakeSysfs {
        folder: tempfile::TempDir,
        files: HashMap<PathBuf, (u32, u32)>,
    }

    impl FakeSysfs {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("dev/block")).unwrap();
            Self { folder, files: HashMap::new() }
        }

        fn device(&self, numbers: &str, place: &str, nr_requests: Option<&str>) -> PathBuf {
            let folder = self.folder.path().join("devices").join(place);
            fs::create_dir_all(folder.join("queue")).unwrap();
            if let Some(text) = nr_requests {
                fs::write(folder.join("queue/nr_requests"), text).unwrap();
            }
            symlink(&folder, self.folder.path().join("dev/block").join(numbers)).unwrap();
            folder
        }

        fn partition(&self, numbers: &str, place: &str) -> PathBuf {
            let folder = self.device(numbers, place, None);
            fs::write(folder.join("partition"), "1\n").unwrap();
            folder
        }

        /// Adds a device that consists of `parts`. Like the devices that device mapper makes, it has no `nr_requests`.
        fn mapped(&self, numbers: &str, name: &str, parts: &[&Path]) -> PathBuf {
            let folder = self.device(numbers, &format!("virtual/block/{name}"), None);
            fs::create_dir(folder.join("slaves")).unwrap();
            for part in parts {
                symlink(part, folder.join("slaves").join(part.file_name().unwrap())).unwrap();
            }
            folder
        }

        fn loop_device(
            &self,
            numbers: &str,
            name: &str,
            depth: &str,
            backing_file: &str,
        ) -> PathBuf {
            let folder = self.device(numbers, &format!("virtual/block/{name}"), Some(depth));
            fs::create_dir(folder.join("loop")).unwrap();
            fs::write(folder.join("loop/backing_file"), format!("{backing_file}\n")).unwrap();
            folder
        }

        fn depth(&self, major: u32, minor: u32) -> QueueDepth {
            let device_at = |path: &Path| self.files.get(path).copied();
            Sysfs { root: self.folder.path(), device_at: &device_at }.depth(major, minor)
        }
    }

    fn devices(depth: u32, devices: &[(&str, u32)]) -> QueueDepth {
        on(depth, devices, &devices.iter().map(|(name, _)| *name).collect::<Vec<_>>())
    }

    fn on(depth: u32, devices: &[(&str, u32)], disks: &[&str]) -> QueueDepth {
        let devices = devices.iter().map(|(name, depth)| (name.to_string(), *depth)).collect();
        let disks = disks.iter().map(ToString::to_string).collect();
        QueueDepth { depth, source: DepthSource::Devices { devices }, disks }
    }

    #[test]
    fn depths_of_disks_and_partitions_are_clamped() {
        let sysfs = FakeSysfs::new();
        sysfs.device("259:0", "pci/nvme0n1", Some("1023\n"));
        sysfs.partition("259:1", "pci/nvme0n1/nvme0n1p1");
        sysfs.device("8:0", "usb/sda", Some("2"));
        sysfs.device("9:9", "odd", Some("many"));
        assert_eq!(sysfs.depth(259, 0), devices(1023, &[("nvme0n1", 1023)]));
        assert_eq!(sysfs.depth(259, 1), devices(1023, &[("nvme0n1", 1023)]));
        let shallow = sysfs.depth(8, 0);
        assert_eq!(shallow, devices(QUEUE_DEPTH_MIN, &[("sda", 2)]));
        assert_eq!((shallow.reported(), shallow.requests()), (Some(QUEUE_DEPTH_MIN), 2));
        assert_eq!(sysfs.depth(259, 1).to_string(), "1023 (nr_requests nvme0n1=1023)");
        for (major, minor, disk) in [(9, 9, "odd"), (0, 27, "0:27")] {
            let depth = sysfs.depth(major, minor);
            assert!(matches!(depth.source, DepthSource::Default { .. }), "{depth}");
            assert_eq!((depth.depth, depth.reported()), (QUEUE_DEPTH_DEFAULT, None));
            assert_eq!(depth.disks, [disk]);
        }
    }

    #[test]
    fn the_depths_of_a_stripes_disks_add_up() {
        let sysfs = FakeSysfs::new();
        let disks = ["nvme0n1", "nvme1n1"]
            .map(|disk| sysfs.device(&format!("{disk}:0"), disk, Some("600")));
        let stripe = sysfs.mapped("9:0", "md0", &[&disks[0], &disks[1]]);
        fs::write(stripe.join("queue/nr_requests"), "128").unwrap();
        assert_eq!(sysfs.depth(9, 0), devices(1200, &[("nvme0n1", 600), ("nvme1n1", 600)]));
    }

    #[test]
    fn a_logical_volume_is_followed_down_to_its_disks() {
        let sysfs = FakeSysfs::new();
        sysfs.device("259:0", "pci/nvme0n1", Some("1023"));
        let first = sysfs.partition("259:1", "pci/nvme0n1/nvme0n1p1");
        let second = sysfs.partition("259:2", "pci/nvme0n1/nvme0n1p2");
        let sda = sysfs.device("8:0", "sda", Some("64"));
        let nvme = on(1023, &[("nvme0n1", 1023)], &["nvme0n1"]);

        sysfs.mapped("253:0", "dm-0", &[&first]);
        assert_eq!(sysfs.depth(253, 0), nvme);
        sysfs.mapped("253:1", "dm-1", &[&first, &second]);
        assert_eq!(sysfs.depth(253, 1), nvme, "two partitions of a disk are one queue");
        let data = sysfs.mapped("253:2", "dm-2", &[&second, &sda]);
        let both = devices(1087, &[("nvme0n1", 1023), ("sda", 64)]);
        assert_eq!(sysfs.depth(253, 2), both);

        // An encrypted thin volume over its pool, which has a data and a metadata device.
        let metadata = sysfs.mapped("253:3", "dm-3", &[&first]);
        let pool = sysfs.mapped("253:4", "dm-4", &[&data, &metadata]);
        let thin = sysfs.mapped("253:5", "dm-5", &[&pool]);
        sysfs.mapped("253:6", "dm-6", &[&thin]);
        assert_eq!(sysfs.depth(253, 6), both);
    }

    #[test]
    fn a_loop_device_is_followed_to_the_device_of_its_file() {
        let mut sysfs = FakeSysfs::new();
        sysfs.device("259:0", "pci/nvme0n1", Some("1023"));
        let partition = sysfs.partition("259:1", "pci/nvme0n1/nvme0n1p1");
        sysfs.device("8:0", "sda", Some("32"));
        sysfs.mapped("253:0", "dm-0", &[&partition]);
        sysfs.files.insert("/srv/on nvme".into(), (253, 0));
        sysfs.files.insert("/dev/sda".into(), (8, 0));
        sysfs.files.insert("/tmp/in memory".into(), (0, 27));

        sysfs.loop_device("7:0", "loop0", "128", "/dev/sda");
        assert_eq!(sysfs.depth(7, 0), devices(32, &[("sda", 32)]), "the disk below is shallower");
        let looped = sysfs.loop_device("7:1", "loop1", "128", "/srv/on nvme");
        let narrowed = on(128, &[("loop1", 128)], &["nvme0n1"]);
        assert_eq!(sysfs.depth(7, 1), narrowed, "its own queue is shallower");
        sysfs.partition("259:9", "virtual/block/loop1/loop1p1");
        assert_eq!(sysfs.depth(259, 9), narrowed);
        sysfs.mapped("253:7", "dm-7", &[&looped]);
        assert_eq!(sysfs.depth(253, 7), narrowed);

        for (minor, file) in [(2, "/tmp/in memory"), (3, "/srv/on nvme (deleted)")] {
            let name = format!("loop{minor}");
            sysfs.loop_device(&format!("7:{minor}"), &name, "96", file);
            assert_eq!(sysfs.depth(7, minor), devices(96, &[(&name, 96)]), "{file}");
        }
        // The search ends even for a loop device over itself, which no kernel allows.
        sysfs.files.insert("/dev/loop4".into(), (7, 4));
        sysfs.loop_device("7:4", "loop4", "64", "/dev/loop4");
        assert_eq!(sysfs.depth(7, 4), devices(64, &[("loop4", 64)]));
    }

    #[test]
    fn this_machine_reports_a_depth() {
        let depth = queue_depth(&fs::metadata("/var/tmp").unwrap());
        assert!((QUEUE_DEPTH_MIN..=QUEUE_DEPTH_MAX).contains(&depth.depth), "{depth}");
        assert!(!depth.disks.is_empty(), "{depth}");
    }
}
