//! The thread that writes the lines to their file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};

use crate::Entry;

/// The pause before a failed write is tried again, and the interval at which the thread checks whether the file was
/// renamed.
const RETRY: Duration = Duration::from_secs(1);

/// The maximum number of lines that are written together. They share one system call, and usually have less than 100
/// KB.
const BATCH_MAX: usize = 256;

/// Opens the file and starts the thread.
///
/// # Errors
/// An I/O error if the file can't be opened or the thread can't be started.
pub fn start(
    path: &Path,
    mut lines: mpsc::UnboundedReceiver<Entry>,
    places: Arc<Semaphore>,
) -> io::Result<()> {
    let mut file = LogFile::open(path.to_owned())?;
    let write = move || {
        // If this thread panics, the places are closed, so that nobody waits forever for one.
        let _end = Close(places);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut text = Vec::new();
        while lines.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            text.clear();
            for entry in &batch {
                if let Entry::Line { text: line, .. } = entry {
                    text.extend_from_slice(line.as_bytes());
                    text.push(b'\n');
                }
            }
            file.append(&text);
            // The places of the lines become free only now.
            for entry in batch.drain(..) {
                if let Entry::Flush(done) = entry {
                    let _ = done.send(());
                }
            }
        }
    };
    std::thread::Builder::new().name("bireme-audit".into()).spawn(write)?;
    Ok(())
}

/// Closes the log's places when dropped.
struct Close(Arc<Semaphore>);

impl Drop for Close {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The file, which is opened again if it was renamed or removed.
struct LogFile {
    path: PathBuf,
    file: File,
    /// Whether the path names a regular file. Pipes and `/dev/stdout` are never opened again.
    is_regular: bool,
    checked: Instant,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        let is_regular = file.metadata()?.is_file();
        Ok(Self { path, file, is_regular, checked: Instant::now() })
    }

    /// Appends `text`. Retries until it succeeds, because a line is never dropped.
    fn append(&mut self, text: &[u8]) {
        self.follow();
        let (mut written, mut has_failed) = (0, false);
        while written < text.len() {
            match self.file.write(&text[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if !has_failed {
                        let path = self.path.display();
                        tracing::error!(%path, %error, "the audit log can't be written; requests will wait for it");
                    }
                    has_failed = true;
                    std::thread::sleep(RETRY);
                    if self.follow() {
                        // The other file gets the whole line.
                        let previous = text[..written].iter().rposition(|&byte| byte == b'\n');
                        written = previous.map_or(0, |newline| newline + 1);
                    }
                }
            }
        }
        if has_failed {
            tracing::info!(path = %self.path.display(), "the audit log is written again");
        }
    }

    /// Opens the path again if it names another file now, or none. Returns whether it has opened a file.
    fn follow(&mut self) -> bool {
        if !self.is_regular || self.checked.elapsed() < RETRY {
            return false;
        }
        self.checked = Instant::now();
        let id = |it: std::fs::Metadata| (it.dev(), it.ino());
        let at_path = std::fs::metadata(&self.path).map(id).ok();
        if at_path.is_some() && at_path == self.file.metadata().map(id).ok() {
            return false;
        }
        match open(&self.path) {
            Ok(file) => {
                self.file = file;
                true
            }
            Err(error) => {
                let path = self.path.display();
                tracing::error!(%path, %error, "the audit log can't be opened again; the old file is written");
                false
            }
        }
    }
}

/// Opens a file for appending. A new file is readable only by its owner.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_renamed_file_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let mut file = LogFile::open(path.clone()).unwrap();
        file.append(b"one\n");
        std::fs::rename(&path, &renamed).unwrap();
        file.append(b"two\n");
        file.checked = Instant::now().checked_sub(RETRY).unwrap();
        file.append(b"three\n");
        assert_eq!(std::fs::read_to_string(&renamed).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    /// The first file is a socket that takes a part of a line and then fails, like a file on a drive that is full.
    #[test]
    fn a_line_is_not_split_over_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (socket, mut reader) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = File::from(OwnedFd::from(socket));
        let long = "x".repeat(4 << 20) + "\n";
        let text = format!("one\n{long}");
        let checked = Instant::now();
        let mut file = LogFile { path: path.clone(), file: socket, is_regular: true, checked };
        file.append(text.as_bytes());
        let mut before = String::new();
        reader.read_to_string(&mut before).unwrap();
        assert!(before.starts_with("one\nx") && !before.ends_with('\n'));
        let after = std::fs::read_to_string(&path).unwrap();
        assert!(after == long, "the other file has the whole line");
    }

    #[test]
    fn every_line_is_written_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (sender, lines) = mpsc::unbounded_channel();
        start(&path, lines, Arc::new(Semaphore::new(1))).unwrap();
        for n in 0..1000 {
            sender.send(Entry::Line { text: n.to_string(), _place: None }).unwrap();
        }
        drop(sender);
        let all: String = (0..1000).map(|n| format!("{n}\n")).collect();
        while std::fs::read_to_string(&path).unwrap().len() < all.len() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), all);
    }
}
