//! A node's drives, opened and claimed before its cores' rings start on them.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use address::{DriveNo, SECTOR_BYTES};
use ring::sim::SimDisk;
use ring::{Direct, Engine, OpenOptions, SlabFile};

use super::slab::{Claim, owner};
use super::superblock::Superblock;
use crate::config::{DriveConfig, EngineChoice, IoConfig, check_size};
use crate::error::NodeError;

/// The length of a slab file that does not exist yet and has no `size`.
const SLAB_BYTES_DEFAULT: u64 = 4 << 30;

/// All drives of a node.
pub struct Drives {
    /// The slabs, open and locked.
    pub slabs: Vec<SlabFile>,
    /// The claim of each slab.
    pub claims: Vec<Claim>,
    /// The engine of the rings that read and write the drives.
    pub engine: Engine,
}

impl Drives {
    /// Opens the configured drives. All drives are checked before the first file is given its length: unless
    /// `overwrite` is set, each must be empty or hold a slab. Only [`claim_and_recover`](super::claim_and_recover)
    /// changes what the drives hold.
    ///
    /// # Errors
    /// A drive can't be used, is too small, or holds something else and `overwrite` is not set. Files that were created
    /// are removed again.
    pub fn open(config: &IoConfig) -> Result<Self, NodeError> {
        let owners = config.drives.iter().map(|drive| owner(&drive.path, config.overwrite));
        let owners = owners.collect::<Result<Vec<_>, _>>()?;
        let slabs = open_all(config)?;
        let engine = match config.engine {
            EngineChoice::Auto => Engine::Auto,
            EngineChoice::IoUring => Engine::IoUring,
            EngineChoice::Pread => Engine::Pread,
        };
        Ok(Self::claim(config, slabs, owners, engine))
    }

    /// Claims a simulated disk's drives.
    ///
    /// # Errors
    /// A drive is too small.
    pub fn simulated(config: &IoConfig, disk: &SimDisk) -> Result<Self, NodeError> {
        let slabs = disk.slabs();
        slabs.iter().try_for_each(|slab| check_size(slab.path(), slab.len(), config.segment))?;
        let owners = slabs.iter().map(Superblock::read_from).collect();
        Ok(Self::claim(config, slabs, owners, Engine::Simulated(disk.clone())))
    }

    /// Returns the drives in the form in which a configuration lists them.
    pub fn configured(&self) -> Vec<DriveConfig> {
        let drive = |slab: &SlabFile| DriveConfig { path: slab.path().into(), size: None };
        self.slabs.iter().map(drive).collect()
    }

    fn claim(
        config: &IoConfig,
        slabs: Vec<SlabFile>,
        owners: Vec<Option<Superblock>>,
        engine: Engine,
    ) -> Self {
        let segment_sectors = config.segment.as_u64() / SECTOR_BYTES as u64;
        let claims = slabs.iter().zip(owners);
        let claims = claims.map(|(slab, found)| Claim::new(slab, found, segment_sectors)).collect();
        Self { slabs, claims, engine }
    }
}

/// A drive's name in answers and metrics: its number and its file's name, as in `0:slab`. Its path is not shown to
/// clients; the operator finds it in the configuration and in the node's log.
pub fn drive_name(number: DriveNo, path: &Path) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    format!("{}:{file}", number.0)
}

/// Opens all drives or none: if one can't be used, all files that were created are removed.
fn open_all(config: &IoConfig) -> Result<Vec<SlabFile>, NodeError> {
    let mut slabs: Vec<SlabFile> = Vec::with_capacity(config.drives.len());
    for drive in &config.drives {
        let opened = open(drive, config).and_then(|slab| {
            let (path, bytes) = (slab.path().to_owned(), slab.len());
            slabs.push(slab);
            check_size(&path, bytes, config.segment)
        });
        if let Err(error) = opened {
            slabs.into_iter().for_each(SlabFile::discard);
            return Err(error);
        }
    }
    Ok(slabs)
}

fn open(drive: &DriveConfig, config: &IoConfig) -> Result<SlabFile, NodeError> {
    // A file would take the device's place, in memory.
    if is_device_path(&drive.path) && !is_block_device(&drive.path) {
        let path = drive.path.display();
        let problem = format!(
            "names {path}, which is no block device; attach it (remove a file of that name), or name another path"
        );
        return Err(NodeError::Config { field: "drives", problem });
    }
    let direct = if config.allow_buffered { Direct::Prefer } else { Direct::Require };
    let size = match drive.size {
        Some(size) => Some(size.as_u64() / SECTOR_BYTES as u64 * SECTOR_BYTES as u64),
        None if drive.path.exists() => None,
        None => Some(SLAB_BYTES_DEFAULT),
    };
    let options = OpenOptions { size, direct, ..OpenOptions::default() };
    let slab = SlabFile::open(&drive.path, options)?;
    if let Some(mode) = slab.narrowed_from() {
        let (path, mode) = (slab.path().display(), format!("{mode:04o}"));
        tracing::warn!(%path, mode, "the slab's file was open to other users; it has mode 0600 now");
    }
    Ok(slab)
}

/// Returns whether the path is in the folder of devices, which the kernel keeps in memory.
fn is_device_path(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytesize::ByteSize;

    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_not_replaced_by_a_file() {
        let path = PathBuf::from("/dev/bireme-nowhere");
        let drives = vec![DriveConfig { path: path.clone(), size: Some(ByteSize::mib(4)) }];
        let config = IoConfig { drives, allow_buffered: true, ..IoConfig::default() };
        let error = Drives::open(&config).err().unwrap().to_string();
        assert!(error.contains("names /dev/bireme-nowhere, which is no block device"), "{error}");
        assert!(!path.exists());
        assert!(!is_device_path(Path::new("/dev/shm/slab")));
    }

    #[test]
    fn a_drive_that_is_refused_leaves_no_file_of_the_others() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let [there, new, small] = ["there", "new", "small"].map(|name| folder.path().join(name));
        std::fs::File::create(&there).unwrap();
        let size =
            |path: &Path, mib| DriveConfig { path: path.into(), size: Some(ByteSize::mib(mib)) };
        let config = IoConfig {
            drives: vec![size(&there, 4), size(&new, 4), size(&small, 1)],
            segment: ByteSize::mib(1),
            allow_buffered: true,
            ..IoConfig::default()
        };
        assert!(matches!(Drives::open(&config), Err(NodeError::Config { field: "drives", .. })));
        assert!(there.exists() && !new.exists() && !small.exists());

        let nowhere =
            DriveConfig { path: folder.path().join("no/slab"), size: Some(ByteSize::mib(4)) };
        let config = IoConfig { drives: vec![size(&new, 4), nowhere], ..config };
        assert!(matches!(Drives::open(&config), Err(NodeError::Slab(_))));
        assert!(!new.exists());
    }
}
