//! Tables in folders, read without following symbolic links.
//!
//! Anyone who can write to a table's folder can put symbolic links into it. None is followed: the folder's own path has
//! none, since it was resolved when the table was named, and each part of a path is opened without following links. So
//! there is no moment between a check and a read in which a part could be exchanged. Only regular files are read:
//! opening a FIFO would wait for its writer.
//!
//! Writes check the path first and then use the inner store, so they would follow a link that is created in between.
//! This is acceptable because nodes don't write.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, open, openat, openat2,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::checked::damaged;
use super::fence::{Fence, ForbiddenPath};

/// The longest range that is copied from the page cache on the caller's thread: about 0.1 ms.
const CACHED_READ_MAX: usize = 1 << 20;

/// The local filesystems, by the numbers that `statfs` returns (statfs(2)): ext4, XFS, Btrfs, tmpfs, overlayfs and F2FS.
/// On others, such as NFS and FUSE, opening a file may wait for a server.
const LOCAL_FILESYSTEMS: [u64; 6] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010];

/// A store of the folders that one table may read.
#[derive(Debug)]
pub struct FolderStore {
    inner: Arc<dyn ObjectStore>,
    fence: Fence,
    /// The device of the files, if it has a local filesystem: that of the file that was read first.
    local_device: Arc<OnceLock<Option<u64>>>,
}

impl FolderStore {
    /// Restricts `inner`, a store of the whole filesystem, to `fence`.
    pub fn new(inner: Arc<dyn ObjectStore>, fence: Fence) -> Self {
        Self { inner, fence, local_device: Arc::default() }
    }

    /// Checks that a path may be written: it is inside the fence, and the part of it that exists has no links.
    async fn check(&self, location: &Path) -> Result<()> {
        let path = absolute(location);
        self.fence.check(&path)?;
        let location = location.clone();
        blocking(move || match open_nofollow(&location, OFlags::PATH) {
            Ok(_) => Ok(()),
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        })
        .await
    }
}

impl fmt::Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fenced {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check(location).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check(location).await?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.fence.check(&absolute(location))?;
        if let Some(&Some(device)) = self.local_device.get()
            && let Some(found) = read_cached(location, &options, device)
        {
            return Ok(found);
        }
        let (location, local_device) = (location.clone(), Arc::clone(&self.local_device));
        blocking(move || read(location, options, &local_device)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let fence = self.fence.clone();
        let checked = locations.map(move |location| {
            let location = location?;
            fence.check(&absolute(&location))?;
            if let Some((folder, _)) = location.as_ref().rsplit_once('/') {
                open_nofollow(&Path::parse(folder)?, OFlags::PATH)?;
            }
            Ok(location)
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.cloned().unwrap_or_default();
        if let Err(outside) = self.fence.check(&absolute(&folder)) {
            return stream::once(async { Err(outside.into()) }).boxed();
        }
        let listed = blocking(move || {
            let (mut files, mut folders) = (Vec::new(), vec![folder]);
            while let Some(folder) = folders.pop() {
                folders.extend(entries(&folder, &mut files)?);
            }
            Ok(files)
        });
        stream::once(listed).map_ok(|files| stream::iter(files).map(Ok)).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let folder = prefix.cloned().unwrap_or_default();
        self.fence.check(&absolute(&folder))?;
        blocking(move || {
            let mut objects = Vec::new();
            let common_prefixes = entries(&folder, &mut objects)?;
            Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check(from).await?;
        self.check(to).await?;
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.check(from).await?;
        self.check(to).await?;
        self.inner.rename_opts(from, to, options).await
    }
}

/// The absolute path of a location.
fn absolute(location: &Path) -> String {
    format!("/{location}")
}

/// Runs work that may wait for a disk on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?
}

/// Opens a location without following a link in any part of its path.
fn open_nofollow(location: &Path, flags: OFlags) -> Result<OwnedFd> {
    let opened = match open_resolved(location, flags, ResolveFlags::empty()) {
        // Some container runtimes do not allow openat2, and kernels before 5.6 lack it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_parts(location, flags),
        opened => opened,
    };
    opened.map_err(|error| errno_error(location, error))
}

/// Opens a location with one call, without following links.
fn open_resolved(location: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let (flags, resolve) = (flags | OFlags::CLOEXEC, resolve | ResolveFlags::NO_SYMLINKS);
    openat2(CWD, absolute(location), flags, Mode::empty(), resolve)
}

/// Opens a location part by part, without following links.
fn open_by_parts(location: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let always = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let folder = always | OFlags::PATH | OFlags::DIRECTORY;
    let mut at = openat(CWD, "/", folder, Mode::empty())?;
    let mut parts = location.as_ref().split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { folder } else { always | flags };
        at = openat(&at, part, flags, Mode::empty()).map_err(|error| {
            // For a link in place of a folder, Linux reports ENOTDIR.
            let is_link = error == Errno::NOTDIR
                && openat(&at, part, always | OFlags::PATH, Mode::empty())
                    .is_ok_and(|fd| File::from(fd).metadata().is_ok_and(|it| it.is_symlink()));
            if is_link { Errno::LOOP } else { error }
        })?;
    }
    // With `PATH`, the link itself was opened.
    match FileType::from_raw_mode(fstat(&at)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP),
        _ => Ok(at),
    }
}

/// Returns a path to an open file or folder, even if its original path leads to another one by now.
fn in_proc(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn errno_error(location: &Path, error: Errno) -> Error {
    let source = io::Error::from(error);
    match error {
        Errno::LOOP => ForbiddenPath::link(&absolute(location)).into(),
        Errno::NOENT => Error::NotFound { path: absolute(location), source: source.into() },
        _ => io_error(location, source),
    }
}

fn io_error(location: &Path, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied => {
            Error::PermissionDenied { path: absolute(location), source: source.into() }
        }
        _ => Error::Generic { store: "folder", source: source.into() },
    }
}

/// Reads a range of a file on `device`, which has a local filesystem, if nothing of it has to wait for a disk: another
/// thread for such a read would cost several times as much as the read. Otherwise, and for any error, returns `None`; then
/// [`read`] is to be called.
fn read_cached(location: &Path, options: &GetOptions, device: u64) -> Option<GetResult> {
    let range = options.range.as_ref().filter(|_| !options.head)?;
    let found = File::from(open_resolved(location, OFlags::PATH, ResolveFlags::CACHED).ok()?);
    let metadata = found.metadata().ok().filter(|it| it.dev() == device)?;
    let (file, meta) = open_file(location, &found, &metadata, OFlags::NONBLOCK).ok()?;
    options.check_preconditions(&meta).ok()?;
    let range = range.as_range(meta.size).ok()?;
    let bytes_wanted = usize::try_from(range.end - range.start).ok()?;
    if bytes_wanted > CACHED_READ_MAX {
        return None;
    }
    let mut bytes = vec![0; bytes_wanted];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let read = preadv2(&file, into, range.start, ReadWriteFlags::NOWAIT).ok()?;
    (read == bytes_wanted).then(|| found_bytes(bytes, meta, range))
}

fn read(
    location: Path,
    options: GetOptions,
    local_device: &OnceLock<Option<u64>>,
) -> Result<GetResult> {
    let found = File::from(open_nofollow(&location, OFlags::PATH)?);
    let metadata = found.metadata().map_err(|error| io_error(&location, error))?;
    local_device.get_or_init(|| {
        let is_local = LOCAL_FILESYSTEMS.contains(&(fstatfs(&found).ok()?.f_type as u64));
        is_local.then(|| metadata.dev())
    });
    let (file, meta) = open_file(&location, &found, &metadata, OFlags::empty())?;
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        // Lance reads behind the end of a file that is shorter than the table says.
        Some(range) => {
            range.as_range(meta.size).map_err(|error| damaged(&meta.location, error.to_string()))?
        }
        None => 0..meta.size,
    };
    if options.head || options.range.is_none() {
        let payload = GetResultPayload::File(file, absolute(&meta.location).into());
        return Ok(found_range(payload, meta, range));
    }
    // The range is read here, because this thread may block. A later read would need another such thread.
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(|error| io_error(&meta.location, error))?;
    Ok(found_bytes(bytes, meta, range))
}

/// Opens a file for reading that was opened with `O_PATH` and has this metadata. With `NONBLOCK` in `flags`, this does not
/// wait for another process that holds a lease on the file.
///
/// # Errors
/// It is not a regular file. The type is checked before the file is opened for reading: opening a FIFO would wait for
/// its writer, and opening a device may have side effects.
fn open_file(
    location: &Path,
    found: &File,
    metadata: &Metadata,
    flags: OFlags,
) -> Result<(File, ObjectMeta)> {
    if !metadata.is_file() {
        return match metadata.is_dir() {
            // Object stores have no folders.
            true => Err(errno_error(location, Errno::NOENT)),
            false => Err(ForbiddenPath::not_a_file(&absolute(location)).into()),
        };
    }
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(in_proc(found), flags, Mode::empty())
        .map_err(|error| io_error(location, error.into()))?;
    let file = File::from(file);
    Ok((file, meta_of(location.clone(), metadata)))
}

fn found_bytes(bytes: Vec<u8>, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    let bytes = stream::once(async { Ok(Bytes::from(bytes)) });
    found_range(GetResultPayload::Stream(bytes.boxed()), meta, range)
}

fn found_range(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    let (attributes, extensions) = Default::default();
    GetResult { payload, meta, range, attributes, extensions }
}

/// Adds the files of a folder to `files` and returns its folders. Skips links and entries that have been removed
/// meanwhile. A folder that doesn't exist is empty.
fn entries(folder: &Path, files: &mut Vec<ObjectMeta>) -> Result<Vec<Path>> {
    let fd = match open_nofollow(folder, OFlags::PATH | OFlags::DIRECTORY) {
        Err(Error::NotFound { .. }) => return Ok(Vec::new()),
        fd => fd?,
    };
    let open = std::fs::read_dir(in_proc(&fd));
    let mut folders = Vec::new();
    for entry in open.map_err(|error| io_error(folder, error))? {
        let entry = entry.map_err(|error| io_error(folder, error))?;
        let name = entry.file_name();
        // The names of a table's files are UTF-8.
        let Some(name) = name.to_str() else { continue };
        let Ok(location) = Path::parse(format!("{folder}/{name}").trim_start_matches('/')) else {
            continue;
        };
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folders.push(location),
            Ok(metadata) if metadata.is_file() => files.push(meta_of(location, &metadata)),
            _ => {}
        }
    }
    Ok(folders)
}

/// The metadata of a file, with the same e-tag as `object_store` computes.
fn meta_of(location: Path, metadata: &Metadata) -> ObjectMeta {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let micros = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    ObjectMeta {
        location,
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: Some(format!("\"{:x}-{micros:x}-{:x}\"", metadata.ino(), metadata.len())),
        version: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_opened_alike_by_one_call_and_part_by_part() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        std::fs::write(root.join("a/file"), "x").unwrap();
        symlink(root.join("a"), root.join("link")).unwrap();
        symlink(root.join("a/file"), root.join("a/linked")).unwrap();
        for (path, expected) in [
            ("a", None),
            ("a/file", None),
            ("a/gone", Some(Errno::NOENT)),
            ("gone/file", Some(Errno::NOENT)),
            ("link/file", Some(Errno::LOOP)),
            ("a/file/x", Some(Errno::NOTDIR)),
            ("a/linked", Some(Errno::LOOP)),
            ("link", Some(Errno::LOOP)),
        ] {
            let location = Path::from_absolute_path(root.join(path)).unwrap();
            let at_once = open_resolved(&location, OFlags::PATH, ResolveFlags::empty()).err();
            let by_parts = open_by_parts(&location, OFlags::PATH).err();
            assert_eq!((at_once, by_parts), (expected, expected), "{path}");
        }
    }
}
