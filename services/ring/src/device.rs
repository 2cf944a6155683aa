//! How many operations at a time the drive under a file takes: read from sysfs, never guessed.
//!
//! `/sys/dev/block/MAJOR:MINOR` of the device that holds the file; from a partition one folder up
//! to the disk; from a device made of others (md, LVM and all else of dm) down to these, whose depths
//! add up; from a loop device to what holds its file. A loop device has a queue of its own: the
//! narrower of the two counts.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Fewer at a time leave any drive idle.
pub const QUEUE_DEPTH_MIN: u32 = 16;
/// More at a time only add latency, on any drive of today.
pub const QUEUE_DEPTH_MAX: u32 = 2048;
/// Where there is no device to ask.
pub const QUEUE_DEPTH_DEFAULT: u32 = 128;

/// Devices below devices that are followed: more than thin LVM, RAID and encryption make.
const NESTING_MAX: u32 = 8;

/// A depth, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Operations in flight at a time, over all cores.
    pub depth: u32,
    /// Why.
    pub source: DepthSource,
    /// What the drive lies on, ascending: disks by their names in `/sys/block`, or what stands in for
    /// them where there is no block device. Drives with one in common share its queue.
    pub disks: Vec<String>,
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

impl QueueDepth {
    /// What the system reports, clamped; `None` where it says nothing.
    pub fn reported(&self) -> Option<u32> {
        match self.source {
            DepthSource::Devices { .. } => Some(self.depth),
            DepthSource::Default { .. } => None,
        }
    }

    /// What the devices say, added up and not clamped, or the default.
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

/// The depth of the drive that holds a file, or that it is.
pub(crate) fn queue_depth(file: &Metadata) -> QueueDepth {
    let (major, minor) = device_of(file);
    Sysfs { root: Path::new("/sys"), device_at: &device_at }.depth(major, minor)
}

fn device_of(file: &Metadata) -> (u32, u32) {
    let is_device = file.file_type().is_block_device();
    let device = if is_device { file.rdev() } else { file.dev() };
    (libc::major(device), libc::minor(device))
}

/// `None` for a file that isn't there, or not as this process sees the filesystem.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    fs::metadata(path).ok().map(|file| device_of(&file))
}

/// Any sysfs, with the numbers of the device that a file is on.
struct Sysfs<'a> {
    root: &'a Path,
    device_at: &'a dyn Fn(&Path) -> Option<(u32, u32)>,
}

/// What was found below a device.
#[derive(Default)]
struct Found {
    /// Whose queues count, with what each says.
    queues: Vec<(String, u32)>,
    /// What all of it lies on.
    disks: Vec<String>,
}

impl Found {
    /// Two partitions of a disk share its queue.
    fn add(&mut self, other: Self) {
        self.queues.extend(other.queues);
        self.queues.sort();
        self.queues.dedup();
        self.disks.extend(other.disks);
        self.disks.sort();
        self.disks.dedup();
    }

    /// A queue on the way down counts if it is shorter than what is below.
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
                judge(self.below(&folder, NESTING_MAX), reason)
            }
            None => {
                let reason = format!("device {number} is no block device");
                judge(Found { queues: Vec::new(), disks: vec![number] }, reason)
            }
        }
    }

    fn folder(&self, major: u32, minor: u32) -> Option<PathBuf> {
        fs::canonicalize(self.root.join(format!("dev/block/{major}:{minor}"))).ok()
    }

    fn below(&self, folder: &Path, nesting: u32) -> Found {
        let disk = match (folder.join("partition").exists(), folder.parent()) {
            (true, Some(parent)) => parent,
            _ => folder,
        };
        let mut found = Found::default();
        if let Some(nesting) = nesting.checked_sub(1) {
            for part in parts_of(disk) {
                found.add(self.below(&part, nesting));
            }
            if let Some(folder) = self.under_loop(disk) {
                found.add(self.below(&folder, nesting));
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

    /// The device that holds a loop device's file. A file that was deleted, or lies elsewhere as this
    /// process sees the filesystem, can't be followed.
    fn under_loop(&self, disk: &Path) -> Option<PathBuf> {
        let text = fs::read(disk.join("loop/backing_file")).ok()?;
        let path = text.strip_suffix(b"\n").unwrap_or(&text);
        let (major, minor) = (self.device_at)(Path::new(OsStr::from_bytes(path)))?;
        self.folder(major, minor)
    }
}

/// Clamps what the devices say.
fn judge(found: Found, reason: String) -> QueueDepth {
    let Found { queues, disks } = found;
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

fn parts_of(disk: &Path) -> Vec<PathBuf> {
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

        /// A device made of others: of dm, without a queue of requests.
        fn mapped(&self, numbers: &str, name: &str, parts: &[&Path]) -> PathBuf {
            let folder = self.device(numbers, &format!("virtual/block/{name}"), None);
            fs::create_dir(folder.join("slaves")).unwrap();
            for part in parts {
                symlink(part, folder.join("slaves").join(part.file_name().unwrap())).unwrap();
            }
            folder
        }

        fn looped(&self, numbers: &str, name: &str, depth: &str, backing_file: &str) -> PathBuf {
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
    fn a_disk_its_partition_and_the_clamps() {
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
    fn a_stripe_adds_its_disks_up() {
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

        // A thin volume: over its pool, over the pool's data and metadata, encrypted.
        let metadata = sysfs.mapped("253:3", "dm-3", &[&first]);
        let pool = sysfs.mapped("253:4", "dm-4", &[&data, &metadata]);
        let thin = sysfs.mapped("253:5", "dm-5", &[&pool]);
        sysfs.mapped("253:6", "dm-6", &[&thin]);
        assert_eq!(sysfs.depth(253, 6), both);
    }

    #[test]
    fn a_loop_device_is_followed_to_what_holds_its_file() {
        let mut sysfs = FakeSysfs::new();
        sysfs.device("259:0", "pci/nvme0n1", Some("1023"));
        let partition = sysfs.partition("259:1", "pci/nvme0n1/nvme0n1p1");
        sysfs.device("8:0", "sda", Some("32"));
        sysfs.mapped("253:0", "dm-0", &[&partition]);
        sysfs.files.insert("/srv/on nvme".into(), (253, 0));
        sysfs.files.insert("/dev/sda".into(), (8, 0));
        sysfs.files.insert("/tmp/in memory".into(), (0, 27));

        sysfs.looped("7:0", "loop0", "128", "/dev/sda");
        assert_eq!(sysfs.depth(7, 0), devices(32, &[("sda", 32)]), "the disk below is shallower");
        let looped = sysfs.looped("7:1", "loop1", "128", "/srv/on nvme");
        let narrowed = on(128, &[("loop1", 128)], &["nvme0n1"]);
        assert_eq!(sysfs.depth(7, 1), narrowed, "its own queue is");
        sysfs.partition("259:9", "virtual/block/loop1/loop1p1");
        assert_eq!(sysfs.depth(259, 9), narrowed);
        sysfs.mapped("253:7", "dm-7", &[&looped]);
        assert_eq!(sysfs.depth(253, 7), narrowed);

        for (minor, file) in [(2, "/tmp/in memory"), (3, "/srv/on nvme (deleted)")] {
            let name = format!("loop{minor}");
            sysfs.looped(&format!("7:{minor}"), &name, "96", file);
            assert_eq!(sysfs.depth(7, minor), devices(96, &[(&name, 96)]), "{file}");
        }
        // One that is its own file, which no kernel allows, comes to an end.
        sysfs.files.insert("/dev/loop4".into(), (7, 4));
        sysfs.looped("7:4", "loop4", "64", "/dev/loop4");
        assert_eq!(sysfs.depth(7, 4), devices(64, &[("loop4", 64)]));
    }

    #[test]
    fn this_machine_answers() {
        let depth = queue_depth(&fs::metadata("/var/tmp").unwrap());
        assert!((QUEUE_DEPTH_MIN..=QUEUE_DEPTH_MAX).contains(&depth.depth), "{depth}");
        assert!(!depth.disks.is_empty(), "{depth}");
    }
}
