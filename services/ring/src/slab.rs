//! The file or block device that holds a drive's extents.
//!
//! Opening finds out everything that could fail later: the size is allocated, O_DIRECT is tried with
//! a real read and write of the first sector, and an exclusive lock (flock) keeps a second process
//! away for as long as any clone lives. It also finds what the drive below takes at a time.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
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

/// What to do where the filesystem lacks O_DIRECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Fail.
    #[default]
    Require,
    /// Go through the page cache; [`SlabFile::is_direct`] tells.
    Prefer,
}

/// How to open a slab.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Bytes, a multiple of 4,096. A file is created and allocated to it, and used up to it if it's
    /// longer; a block device must hold it. `None`: what exists, as long as it is, in whole sectors.
    pub size: Option<u64>,
    /// What to do without O_DIRECT.
    pub direct: Direct,
    /// Neither create nor write.
    pub read_only: bool,
}

/// An open slab; clones share it, also between threads.
#[derive(Clone, Debug)]
pub struct SlabFile(Arc<Slab>);

#[derive(Debug)]
struct Slab {
    path: PathBuf,
    len: u64,
    is_direct: bool,
    is_preallocated: bool,
    is_read_only: bool,
    is_memory: bool,
    is_new: bool,
    queue_depth: QueueDepth,
    medium: Medium,
}

#[derive(Debug)]
enum Medium {
    File(File),
    Simulated(SimDisk, DriveNo),
}

impl SlabFile {
    /// Opens, creates, locks, allocates and tries a slab.
    ///
    /// # Errors
    ///
    /// See [`SlabError`]; nothing is left behind.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, SlabError> {
        let path = path.as_ref();
        if let Some(bytes) = options.size
            && (bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES as u64) || bytes > i64::MAX as u64)
        {
            return Err(SlabError::BadSize { path: path.into(), bytes });
        }
        let made = make(path, options);
        let opened = Self::open_made(path, options, made.is_some());
        // Who has locked it meanwhile uses it.
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
        let (len, is_preallocated) = prepare(path, &file, options)?;
        let (file, is_direct) = match try_sector(&file, options.read_only) {
            Ok(()) => (file, is_direct),
            Err(error) if is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                drop(file); // and with it its lock
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
            is_preallocated,
            is_read_only: options.read_only,
            is_memory: is_memory(&file),
            is_new,
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
            is_preallocated: true,
            is_read_only: false,
            is_memory: false,
            is_new: false,
            queue_depth: QueueDepth { depth, source, disks: vec![name] },
            medium: Medium::Simulated(disk.clone(), drive),
        }))
    }

    /// Usable bytes: a multiple of 4,096.
    #[expect(clippy::len_without_is_empty, reason = "a slab is never empty")]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// As it was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether reads and writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    /// Whether all bytes are allocated, so that a write can't find the filesystem full. False where
    /// the filesystem can't allocate ahead.
    pub fn is_preallocated(&self) -> bool {
        self.0.is_preallocated
    }

    /// Whether it's never written.
    pub fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }

    /// Whether it lies in a filesystem that is memory.
    pub fn is_memory(&self) -> bool {
        self.0.is_memory
    }

    /// Closes it, and removes its file if opening it made that: for who can't use it after all. Clones keep what they
    /// have of it.
    pub fn discard(self) {
        if let Medium::File(file) = &self.0.medium
            && self.0.is_new
        {
            remove(&self.0.path, file);
        }
    }

    /// How many operations at a time its drive takes, as it was when the slab was opened.
    pub fn queue_depth(&self) -> &QueueDepth {
        &self.0.queue_depth
    }

    /// Writes the slab's first sectors, to stay: for who marks a slab before a ring is started on it.
    ///
    /// # Errors
    /// [`SlabError`].
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

    /// Fills `buf` from `offset`, whole sectors, on the calling thread: for who reads a slab before a ring
    /// is started on it.
    ///
    /// # Errors
    /// Those of the drive, and an end before the buffer's.
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

/// An empty file where there is nothing yet and a slab is to be. Without O_DIRECT, for lack of which some filesystems
/// refuse a file that they have made. What else is in the way opening tells.
fn make(path: &Path, options: OpenOptions) -> Option<File> {
    let is_wanted = options.size.is_some() && !options.read_only;
    is_wanted.then(|| File::options().write(true).create_new(true).open(path).ok()).flatten()
}

/// Removes a file that was made here, and is locked, if it's still what `path` names. Where it can't be removed, what
/// went wrong before counts.
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
        .custom_flags(if direct { libc::O_DIRECT } else { 0 })
        .open(path)
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

/// Locks the file and gives it its size: usable bytes, and whether all of them are allocated.
fn prepare(path: &Path, mut file: &File, options: OpenOptions) -> Result<(u64, bool), SlabError> {
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
    // Also the length of a block device, of which `stat` knows nothing.
    let actual = file.seek(SeekFrom::End(0)).map_err(failed("seek"))?;
    let whole = actual - actual % SECTOR_BYTES as u64;
    let too_small =
        |bytes| Err(SlabError::TooSmall { path: path.into(), actual_bytes: actual, bytes });
    match options.size {
        None if whole == 0 => too_small(SECTOR_BYTES as u64),
        None => Ok((whole, kind.is_block_device())),
        Some(size) if kind.is_block_device() || options.read_only => {
            if whole < size {
                too_small(size)
            } else {
                Ok((size, kind.is_block_device()))
            }
        }
        // Before allocating, which would fill the filesystem up before it fails.
        Some(size) if !has_room(file, size).map_err(failed("stat"))? => {
            Err(failed("allocate")(io::Error::from_raw_os_error(libc::ENOSPC)))
        }
        Some(size) => match fallocate(file, FallocateFlags::empty(), 0, size as i64) {
            Ok(()) => Ok((size, true)),
            Err(nix::Error::EOPNOTSUPP | nix::Error::ENOSYS) => {
                file.set_len(size.max(actual)).map_err(failed("grow"))?;
                Ok((size, false))
            }
            Err(errno) => {
                // What was allocated before it failed. If that can't be undone, the first error counts.
                let _ = file.set_len(actual);
                Err(failed("allocate")(errno.into()))
            }
        },
    }
}

/// Whether the filesystem has room for what isn't allocated yet of `size` bytes.
fn has_room(file: &File, size: u64) -> io::Result<bool> {
    const BLOCK_BYTES: u64 = 512;
    let allocated = file.metadata()?.blocks().saturating_mul(BLOCK_BYTES);
    let filesystem = fstatvfs(file)?;
    let free = filesystem.blocks_available().saturating_mul(filesystem.fragment_size());
    Ok(size.saturating_sub(allocated) <= free)
}

/// Waits a second for the lock: the kernel clears up after the io_uring of a killed process only some
/// time after its end, and so long the lock is held.
fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..50 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
    file.try_lock()
}

/// Reads the first sector and writes it back as it was.
fn try_sector(file: &File, read_only: bool) -> io::Result<()> {
    let mut sector = AlignedBuf::for_sectors(1);
    file.read_exact_at(&mut sector, 0)?;
    if !read_only {
        file.write_all_at(&sector, 0)?;
    }
    Ok(())
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
    fn creates_keeps_and_reopens() {
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
        assert_eq!(read.as_slice(), sector.as_slice(), "the trial write keeps what is there");
    }

    #[test]
    fn a_second_opening_is_refused() {
        let folder = folder();
        let path = folder.path().join("slab");
        let slab = SlabFile::open(&path, sized(4096)).unwrap();
        let clone = slab.clone();
        drop(slab);
        assert!(matches!(SlabFile::open(&path, sized(4096)), Err(SlabError::InUse { .. })));
        assert!(path.exists(), "it stays to who has it");
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
        // More than there is, and no more than a filesystem would try to allocate.
        let free = fstatvfs(File::open(&path).unwrap()).unwrap();
        let free = free.blocks_available() * free.fragment_size();
        let more = (free + (1 << 30)).next_multiple_of(4096);
        assert!(matches!(is(SlabFile::open(&path, sized(more))), SlabError::NoSpace { .. }));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing stays allocated");
        let existing = OpenOptions { direct: Direct::Prefer, ..Default::default() };
        assert!(matches!(is(SlabFile::open(&path, existing)), SlabError::TooSmall { .. }));
        assert!(path.exists(), "what was there before stays");
    }

    #[test]
    fn what_this_call_did_not_make_is_never_removed() {
        let folder = folder();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = SlabFile::open(&link, sized(1 << 60)).unwrap_err();
        assert!(matches!(error, SlabError::NoSpace { .. }), "{error}");
        assert!(link.symlink_metadata().is_ok(), "a link to nothing is something");

        let path = folder.path().join("slab");
        let made = make(&path, sized(4096)).unwrap();
        assert!(make(&path, sized(4096)).is_none(), "it is made once");
        std::fs::rename(&path, &target).unwrap();
        std::fs::write(&path, "somebody else's").unwrap();
        remove(&path, &made);
        assert!(path.exists(), "another file has that name now");
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
    fn a_slab_that_is_discarded_leaves_a_file_only_where_one_was() {
        let folder = folder();
        let path = folder.path().join("slab");
        SlabFile::open(&path, sized(4096)).unwrap().discard();
        assert!(!path.exists());
        drop(SlabFile::open(&path, sized(4096)).unwrap());
        SlabFile::open(&path, sized(4096)).unwrap().discard();
        assert!(path.exists());
    }
}
