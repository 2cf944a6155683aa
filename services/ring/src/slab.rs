//! The file or block device that holds a drive's extents.
//!
//! Opening a slab detects most problems that would otherwise appear later. It allocates the file's full size if one is
//! configured, tests O_DIRECT by reading the first sector and, unless the slab is read-only, writing it back, and takes
//! an exclusive lock (flock), which keeps other processes away as long as any clone exists. It also finds out the queue
//! depth of the drive.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use address::{ByteOffset, DriveNo, SECTOR_BYTES};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::fstatvfs;

use crate::device::{DepthSource, QueueDepth, queue_depth};
use crate::sim::SimDisk;
use crate::{AlignedBuf, SlabError};

/// The mode of a slab's file. The file holds rows of tables, which other users of the machine may not be allowed to
/// read.
const FILE_MODE: u32 = 0o600;

/// The behaviour if the filesystem lacks O_DIRECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Fail to open the slab.
    #[default]
    Require,
    /// Use the page cache. [`SlabFile::is_direct`] then returns false.
    Prefer,
}

/// Options for opening a slab.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Size in bytes, a multiple of 4,096. A file is created if it does not exist, and its whole size is allocated. A
    /// longer file is used only up to this size. A block device must be at least this large. `None` uses the existing
    /// file or device as it is, in whole sectors.
    pub size: Option<u64>,
    /// Whether to fail if the filesystem lacks O_DIRECT.
    pub direct: Direct,
    /// Whether the slab is neither created nor written.
    pub read_only: bool,
}

/// An open slab. Clones share it, also across threads.
#[derive(Clone, Debug)]
pub struct SlabFile(Arc<Slab>);

#[derive(Debug)]
struct Slab {
    path: PathBuf,
    len: u64,
    is_direct: bool,
    is_read_only: bool,
    is_memory: bool,
    is_new: bool,
    narrowed_from: Option<u32>,
    queue_depth: QueueDepth,
    medium: Medium,
}

#[derive(Debug)]
enum Medium {
    File(File),
    Simulated(SimDisk, DriveNo),
}

impl SlabFile {
    /// Opens, creates, locks, allocates and tests a slab.
    ///
    /// # Errors
    ///
    /// See [`SlabError`]. A file that this call created is removed again, unless another process has locked it by then.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, SlabError> {
        let path = path.as_ref();
        if let Some(bytes) = options.size
            && (bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES as u64) || bytes > i64::MAX as u64)
        {
            return Err(SlabError::BadSize { path: path.into(), bytes });
        }
        let made = make(path, options);
        let opened = Self::open_made(path, options, made.is_some());
        // If the lock can't be taken, another process uses the file by now.
        if let (Some(made), Err(_)) = (&made, &opened)
            && made.try_lock().is_ok()
        {
            remove(path, made);
        }
        opened
    }

    fn open_made(path: &Path, options: OpenOptions, is_new: bool) -> Result<Self, SlabError> {
        let (file, is_direct) = match open_file(path, options, true) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                without_direct(path, options, "open: EINVAL")?
            }
            Err(error) => return Err(SlabError::of(path, "open", 0, error)),
        };
        let len = prepare(path, &file, options)?;
        // Narrow the mode only after locking, so that the slab of another node is left as it is.
        let narrowed_from = match options.read_only {
            true => None,
            false => narrow(&file)
                .map_err(|error| SlabError::of(path, "narrowing its mode", 0, error))?,
        };
        let (file, is_direct) = match try_sector(&file, options.read_only) {
            Ok(()) => (file, is_direct),
            Err(error) if is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                drop(file); // releases its lock
                let (file, _) = without_direct(path, options, "reading a sector: EINVAL")?;
                prepare(path, &file, options)?;
                try_sector(&file, options.read_only)
                    .map_err(|error| SlabError::of(path, "trying a sector", len, error))?;
                (file, false)
            }
            Err(error) => return Err(SlabError::of(path, "trying a sector", len, error)),
        };
        Ok(Self(Arc::new(Slab {
            path: path.into(),
            len,
            is_direct,
            is_read_only: options.read_only,
            is_memory: is_memory(&file),
            is_new,
            narrowed_from,
            queue_depth: file
                .metadata()
                .map(|metadata| queue_depth(&metadata))
                .map_err(|error| SlabError::of(path, "stat", len, error))?,
            medium: Medium::File(file),
        })))
    }

    pub(crate) fn simulated(disk: &SimDisk, drive: DriveNo, len: u64, depth: u32) -> Self {
        let name = format!("simulated:{}", drive.0);
        let source = DepthSource::Default { reason: "it is simulated".into() };
        Self(Arc::new(Slab {
            path: name.clone().into(),
            len,
            is_direct: true,
            is_read_only: false,
            is_memory: false,
            is_new: false,
            narrowed_from: None,
            queue_depth: QueueDepth { depth, source, disks: vec![name] },
            medium: Medium::Simulated(disk.clone(), drive),
        }))
    }

    /// Returns the number of usable bytes, a multiple of 4,096.
    #[expect(clippy::len_without_is_empty, reason = "a slab is never empty")]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Returns the path that the slab was opened with.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    /// Returns whether the slab was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }

    /// Returns the permissions that the slab's file had before it was opened, if they exceeded mode 0600; opening the
    /// slab removed the excess. Returns `None` for a slab opened read-only, and for a block device, whose mode is left
    /// to its administrator.
    pub fn narrowed_from(&self) -> Option<u32> {
        self.0.narrowed_from
    }

    /// Returns whether the slab lies in a filesystem that is in memory.
    pub fn is_memory(&self) -> bool {
        self.0.is_memory
    }

    /// Closes the slab, and removes its file if opening the slab created it. Meant for a caller that cannot use the
    /// slab after all. Clones stay usable.
    pub fn discard(self) {
        if let Medium::File(file) = &self.0.medium
            && self.0.is_new
        {
            remove(&self.0.path, file);
        }
    }

    /// Returns the queue depth of the drive, as it was when the slab was opened.
    pub fn queue_depth(&self) -> &QueueDepth {
        &self.0.queue_depth
    }

    /// Writes the slab's first sectors durably, before a ring is started on the slab.
    ///
    /// # Errors
    /// See [`SlabError`].
    pub fn write_head(&self, head: &AlignedBuf) -> Result<(), SlabError> {
        let written = match &self.0.medium {
            Medium::File(file) => file.write_all_at(head, 0).and_then(|()| file.sync_data()),
            Medium::Simulated(disk, drive) => {
                disk.put(*drive, ByteOffset(0), head);
                Ok(())
            }
        };
        written.map_err(|error| SlabError::of(&self.0.path, "writing its head", self.0.len, error))
    }

    /// Fills `buf` from `offset`, on the calling thread. Meant for reading a slab before a ring is started on it.
    ///
    /// # Errors
    /// The error of the drive, or `UnexpectedEof` if the range extends past the end of the file or device.
    pub fn read_at(&self, offset: ByteOffset, buf: &mut AlignedBuf) -> io::Result<()> {
        match &self.0.medium {
            Medium::File(file) => file.read_exact_at(buf, offset.0),
            Medium::Simulated(disk, drive) => disk.read_at(*drive, offset, buf),
        }
    }

    pub(crate) fn file(&self) -> Option<&File> {
        match &self.0.medium {
            Medium::File(file) => Some(file),
            Medium::Simulated(..) => None,
        }
    }

    pub(crate) fn simulation(&self) -> Option<(&SimDisk, DriveNo)> {
        match &self.0.medium {
            Medium::File(_) => None,
            Medium::Simulated(disk, drive) => Some((disk, *drive)),
        }
    }
}

fn is_memory(file: &File) -> bool {
    const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
    fstatfs(file).is_ok_and(|fs| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&fs.filesystem_type()))
}

/// Creates an empty file if a slab of a given size is wanted and nothing exists at `path`. The file is
/// created without O_DIRECT: some filesystems refuse that flag only after they have created the file. Errors
/// are ignored here, because opening the file reports them.
fn make(path: &Path, options: OpenOptions) -> Option<File> {
    let is_wanted = options.size.is_some() && !options.read_only;
    if !is_wanted {
        return None;
    }
    File::options().write(true).create_new(true).mode(FILE_MODE).open(path).ok()
}

/// Removes a file that `make` created, and that this process has locked, if `path` still refers to it. A failure is
/// ignored, because it only leaves an unused file behind.
fn remove(path: &Path, made: &File) {
    let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
    if let (Ok(made), Ok(named)) = (made.metadata(), path.symlink_metadata())
        && id(made) == id(named)
    {
        let _ = std::fs::remove_file(path);
    }
}

fn open_file(path: &Path, options: OpenOptions, direct: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(!options.read_only)
        .create(!options.read_only && options.size.is_some())
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags(if direct { libc::O_DIRECT } else { 0 })
        .open(path)
}

/// Removes the permissions of a file that exceed `FILE_MODE`. Returns the previous permissions if any were removed.
fn narrow(file: &File) -> io::Result<Option<u32>> {
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() || mode & !FILE_MODE == 0 {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(mode & FILE_MODE))?;
    Ok(Some(mode))
}

fn without_direct(path: &Path, options: OpenOptions, why: &str) -> Result<(File, bool), SlabError> {
    match options.direct {
        Direct::Require => {
            Err(SlabError::NoDirect { path: path.to_path_buf(), why: why.to_string() })
        }
        Direct::Prefer => open_file(path, options, false)
            .map(|file| (file, false))
            .map_err(|error| SlabError::of(path, "open", 0, error)),
    }
}

/// Locks the file. If a size is configured, gives it to a regular file that is not read-only, and checks that any other
/// file or device has it. Returns the number of usable bytes.
fn prepare(path: &Path, mut file: &File, options: OpenOptions) -> Result<u64, SlabError> {
    let wanted = options.size.unwrap_or(0);
    let failed = |doing| move |error| SlabError::of(path, doing, wanted, error);
    lock(file).map_err(|error| match error {
        TryLockError::WouldBlock => SlabError::InUse { path: path.into() },
        TryLockError::Error(error) => failed("lock")(error),
    })?;
    let kind = file.metadata().map_err(failed("stat"))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(SlabError::WrongType { path: path.into() });
    }
    // Seeking also finds the length of a block device, which `stat` does not report.
    let actual = file.seek(SeekFrom::End(0)).map_err(failed("seek"))?;
    let whole = actual - actual % SECTOR_BYTES as u64;
    let too_small =
        |bytes| Err(SlabError::TooSmall { path: path.into(), actual_bytes: actual, bytes });
    match options.size {
        None if whole == 0 => too_small(SECTOR_BYTES as u64),
        None => Ok(whole),
        Some(size) if kind.is_block_device() || options.read_only => {
            if whole < size {
                too_small(size)
            } else {
                Ok(size)
            }
        }
        // Check the space before allocating, because allocating would fill the filesystem before it fails.
        Some(size) if !has_room(file, size).map_err(failed("stat"))? => {
            Err(failed("allocate")(io::Error::from_raw_os_error(libc::ENOSPC)))
        }
        Some(size) => match fallocate(file, FallocateFlags::empty(), 0, size as i64) {
            Ok(()) => Ok(size),
            Err(nix::Error::EOPNOTSUPP | nix::Error::ENOSYS) => {
                file.set_len(size.max(actual)).map_err(failed("grow"))?;
                Ok(size)
            }
            Err(errno) => {
                // Undo a partial allocation. If this fails too, the first error is still the one to report.
                let _ = file.set_len(actual);
                Err(failed("allocate")(errno.into()))
            }
        },
    }
}

/// Returns whether the filesystem has space for the part of the `size` bytes that is not allocated yet.
fn has_room(file: &File, size: u64) -> io::Result<bool> {
    const BLOCK_BYTES: u64 = 512;
    let allocated = file.metadata()?.blocks().saturating_mul(BLOCK_BYTES);
    let filesystem = fstatvfs(file)?;
    let free = filesystem.blocks_available().saturating_mul(filesystem.fragment_size());
    Ok(size.saturating_sub(allocated) <= free)
}

/// Waits up to a second for the lock. After a process was killed, the kernel holds the locks of files in its
/// io_uring until it has cleaned up the ring, which can be some time after the process has ended.
#[expect(clippy::disallowed_methods, reason = "slabs are opened before a node serves")]
fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..50 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
    file.try_lock()
}

/// Reads the first sector and, unless `read_only` is set, writes the same bytes back.
fn try_sector(file: &File, read_only: bool) -> io::Result<()> {
    let mut sector = AlignedBuf::for_sectors(1);
    file.read_exact_at(&mut sector, 0)?;
    if !read_only {
        file.write_all_at(&sector, 0)?;
    }
    Ok(())
}

impl SimDisk {
    /// Returns the drives, to be passed to [`Ring::start`](crate::Ring::start).
    pub fn slabs(&self) -> Vec<SlabFile> {
        let slab = |(number, len)| {
            SlabFile::simulated(self, DriveNo(number as u16), len, self.queue_depth())
        };
        self.drive_lens().into_iter().enumerate().map(slab).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/tmp").unwrap()
    }

    fn sized(size: u64) -> OpenOptions {
        OpenOptions { size: Some(size), direct: Direct::Prefer, ..Default::default() }
    }

    #[test]
    fn a_slab_is_created_and_reopened_with_its_contents() {
        let folder = folder();
        let path = folder.path().join("slab");
        let slab = SlabFile::open(&path, sized(1 << 20)).unwrap();
        assert_eq!((slab.len(), slab.path()), (1 << 20, path.as_path()));
        let mut sector = AlignedBuf::for_sectors(1);
        sector.fill(9);
        slab.file().unwrap().write_all_at(&sector, 0).unwrap();
        drop(slab);

        let options = OpenOptions { direct: Direct::Prefer, read_only: true, size: None };
        let again = SlabFile::open(&path, options).unwrap();
        assert_eq!(again.len(), 1 << 20);
        let mut read = AlignedBuf::for_sectors(1);
        again.file().unwrap().read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read.as_slice(), sector.as_slice(), "the test write preserves the contents");
    }

    #[test]
    fn nobody_else_may_read_a_slab() {
        let folder = folder();
        let path = folder.path().join("slab");
        let mode = || path.metadata().unwrap().permissions().mode() & 0o7777;
        let new = SlabFile::open(&path, sized(1 << 20)).unwrap();
        assert_eq!((mode(), new.narrowed_from()), (0o600, None));
        drop(new);
        for wide in [0o644, 0o666, 0o640, 0o755] {
            std::fs::set_permissions(&path, Permissions::from_mode(wide)).unwrap();
            let read_only = OpenOptions { read_only: true, ..sized(1 << 20) };
            assert_eq!(SlabFile::open(&path, read_only).unwrap().narrowed_from(), None);
            assert_eq!(mode(), wide, "who only reads it changes nothing");
            let slab = SlabFile::open(&path, sized(1 << 20)).unwrap();
            assert_eq!((mode(), slab.narrowed_from()), (0o600, Some(wide)));
            assert!(matches!(SlabFile::open(&path, sized(1 << 20)), Err(SlabError::InUse { .. })));
        }
    }

    #[test]
    fn a_second_opening_is_refused() {
        let folder = folder();
        let path = folder.path().join("slab");
        let slab = SlabFile::open(&path, sized(4096)).unwrap();
        let clone = slab.clone();
        drop(slab);
        assert!(matches!(SlabFile::open(&path, sized(4096)), Err(SlabError::InUse { .. })));
        assert!(path.exists(), "a file in use is not removed");
        drop(clone);
        SlabFile::open(&path, sized(4096)).unwrap();
    }

    #[test]
    fn errors_name_the_path() {
        let folder = folder();
        let missing = folder.path().join("no/slab");
        let error = SlabFile::open(&missing, sized(4096)).unwrap_err();
        assert!(matches!(error, SlabError::NotFound { .. }), "{error}");
        assert!(error.to_string().contains("no/slab"));
        let is = |result: Result<SlabFile, SlabError>| result.unwrap_err();
        let path = folder.path().join("slab");
        assert!(matches!(is(SlabFile::open(&path, sized(5000))), SlabError::BadSize { .. }));
        assert!(matches!(
            is(SlabFile::open(folder.path(), sized(4096))),
            SlabError::WrongType { .. }
        ));
        assert!(matches!(is(SlabFile::open(&path, sized(1 << 60))), SlabError::NoSpace { .. }));
        assert!(!path.exists(), "no empty file is left behind");
        File::create(&path).unwrap();
        // 1 GiB more than is available.
        let free = fstatvfs(File::open(&path).unwrap()).unwrap();
        let free = free.blocks_available() * free.fragment_size();
        let more = (free + (1 << 30)).next_multiple_of(4096);
        assert!(matches!(is(SlabFile::open(&path, sized(more))), SlabError::NoSpace { .. }));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing stays allocated");
        let existing = OpenOptions { direct: Direct::Prefer, ..Default::default() };
        assert!(matches!(is(SlabFile::open(&path, existing)), SlabError::TooSmall { .. }));
        assert!(path.exists(), "a file that existed before is kept");
    }

    #[test]
    fn only_a_file_that_this_call_created_is_removed() {
        let folder = folder();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = SlabFile::open(&link, sized(1 << 60)).unwrap_err();
        assert!(matches!(error, SlabError::NoSpace { .. }), "{error}");
        assert!(link.symlink_metadata().is_ok(), "a dangling link is kept");

        let path = folder.path().join("slab");
        let made = make(&path, sized(4096)).unwrap();
        assert!(make(&path, sized(4096)).is_none(), "the file exists already");
        std::fs::rename(&path, &target).unwrap();
        std::fs::write(&path, "somebody else's").unwrap();
        remove(&path, &made);
        assert!(path.exists(), "the path refers to another file now");
        remove(&target, &made);
        assert!(!target.exists());

        let missing = folder.path().join("missing");
        let read_only = OpenOptions { read_only: true, ..sized(4096) };
        for options in [read_only, OpenOptions { size: None, ..sized(4096) }] {
            assert!(make(&missing, options).is_none());
            assert!(SlabFile::open(&missing, options).is_err() && !missing.exists());
        }
    }

    #[test]
    fn discarding_removes_only_a_file_that_opening_created() {
        let folder = folder();
        let path = folder.path().join("slab");
        SlabFile::open(&path, sized(4096)).unwrap().discard();
        assert!(!path.exists());
        drop(SlabFile::open(&path, sized(4096)).unwrap());
        SlabFile::open(&path, sized(4096)).unwrap().discard();
        assert!(path.exists());
    }
}
