//! Tables in folders, of which only what is really there is read.
//!
//! Whoever can write a table's folder can put symbolic links into it. None is followed: the folder's own path has none,
//! as it was resolved when the table was named, and a path is opened part by part, each without following. So there is
//! no moment between a check and a read in which a part could be exchanged. Only regular files are read: opening a FIFO
//! would wait for its writer.
//!
//! Writes look at the path first and go through the store that was given. A part that is exchanged in between would be
//! followed; nodes don't write.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};

use super::fence::{Fence, Outside};

/// The folders that one table may read.
#[derive(Debug)]
pub struct FolderStore {
    inner: Arc<dyn ObjectStore>,
    fence: Fence,
}

impl FolderStore {
    /// Over a store of the whole filesystem.
    pub fn new(inner: Arc<dyn ObjectStore>, fence: Fence) -> Self {
        Self { inner, fence }
    }

    /// Whether a path may be written, or listed: it is within the fence, and as much of it as there is has no links.
    async fn check(&self, location: &Path) -> Result<()> {
        let place = place(location);
        self.fence.check(&place)?;
        let location = location.clone();
        blocking(move || match opened(&location, OFlag::O_PATH) {
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
        self.fence.check(&place(location))?;
        let location = location.clone();
        blocking(move || read(location, options)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let fence = self.fence.clone();
        let checked = locations.map(move |location| {
            let location = location?;
            fence.check(&place(&location))?;
            if let Some((folder, _)) = location.as_ref().rsplit_once('/') {
                opened(&Path::parse(folder)?, OFlag::O_PATH)?;
            }
            Ok(location)
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.cloned().unwrap_or_default();
        if let Err(outside) = self.fence.check(&place(&folder)) {
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
        self.fence.check(&place(&folder))?;
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

/// The filesystem's name of a location.
fn place(location: &Path) -> String {
    format!("/{location}")
}

/// Does what may wait for a disk, on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?
}

/// Opens a location without following a link in any part of its path.
fn opened(location: &Path, flags: OFlag) -> Result<OwnedFd> {
    let always = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let folder = always | OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut at = open("/", folder, Mode::empty()).map_err(|error| fault(location, error))?;
    let mut parts = location.as_ref().split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { folder } else { always | flags };
        at = openat(at.as_fd(), part, flags, Mode::empty()).map_err(|error| {
            // Of a link where a folder is wanted, Linux says that it is no folder.
            let is_link = error == Errno::ENOTDIR
                && openat(at.as_fd(), part, always | OFlag::O_PATH, Mode::empty())
                    .is_ok_and(|fd| File::from(fd).metadata().is_ok_and(|it| it.is_symlink()));
            fault(location, if is_link { Errno::ELOOP } else { error })
        })?;
    }
    Ok(at)
}

/// A name of the very file or folder that was opened, whatever is at its path by now.
fn in_proc(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn fault(location: &Path, error: Errno) -> Error {
    let source = io::Error::from(error);
    match error {
        Errno::ELOOP => Outside::link(&place(location)).into(),
        Errno::ENOENT => Error::NotFound { path: place(location), source: source.into() },
        _ => failed(location, source),
    }
}

fn failed(location: &Path, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied => {
            Error::PermissionDenied { path: place(location), source: source.into() }
        }
        _ => Error::Generic { store: "folder", source: source.into() },
    }
}

fn read(location: Path, options: GetOptions) -> Result<GetResult> {
    // What it is, is known before it is opened for reading: a FIFO would wait for its writer, and a device may act.
    let found = File::from(opened(&location, OFlag::O_PATH)?);
    let metadata = found.metadata().map_err(|error| failed(&location, error))?;
    if !metadata.is_file() {
        return match metadata.is_dir() {
            // A store has no folders.
            true => Err(fault(&location, Errno::ENOENT)),
            false => Err(Outside::no_file(&place(&location)).into()),
        };
    }
    let file = File::open(in_proc(&found)).map_err(|error| failed(&location, error))?;
    let meta = meta_of(location, &metadata);
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        Some(range) => range.as_range(meta.size).map_err(|error| Error::Generic {
            store: "folder",
            source: format!("{}: {error}", place(&meta.location)).into(),
        })?,
        None => 0..meta.size,
    };
    let payload = if options.head || options.range.is_none() {
        GetResultPayload::File(file, place(&meta.location).into())
    } else {
        // Here, and not where its reader would have one more thread for it.
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start)
            .map_err(|error| failed(&meta.location, error))?;
        GetResultPayload::Stream(stream::once(async { Ok(Bytes::from(bytes)) }).boxed())
    };
    let (attributes, extensions) = Default::default();
    Ok(GetResult { payload, meta, range, attributes, extensions })
}

/// Adds the files of a folder to `files`, and returns its folders. Links are left out, and so is what has gone meanwhile;
/// a folder that isn't there is empty.
fn entries(folder: &Path, files: &mut Vec<ObjectMeta>) -> Result<Vec<Path>> {
    let fd = match opened(folder, OFlag::O_PATH | OFlag::O_DIRECTORY) {
        Err(Error::NotFound { .. }) => return Ok(Vec::new()),
        fd => fd?,
    };
    let open = std::fs::read_dir(in_proc(&fd));
    let mut folders = Vec::new();
    for entry in open.map_err(|error| failed(folder, error))? {
        let entry = entry.map_err(|error| failed(folder, error))?;
        let name = entry.file_name();
        // A table's files have names that are text.
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

/// The metadata of a file, its tag as `object_store` has it.
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
