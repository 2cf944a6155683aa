//! The audit log: one JSON line for each request, and for each TLS handshake that was refused.
//!
//! Lines are never dropped and never rate-limited. A request reserves the place of its line before it begins
//! ([`Audit::reserve`]), so that its end never waits. If the file can't be written, up to [`LINES_MAX`] lines wait in
//! memory. After that, new requests wait for a place until their deadlines.
//!
//! ```text
//! request ─► reserve ─► … ─► record ─► channel ─► thread `bireme-audit` ─► file
//! ```

mod handshake;
mod record;
mod sink;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

pub use handshake::{Handshake, HandshakeAudit};
pub use record::{Record, Verdict, cut_name};

/// The maximum number of lines that wait for the file. A line has a few hundred bytes, so all of them take some
/// megabytes. Requests beyond them wait.
const LINES_MAX: usize = 16_384;

/// A node's audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audit {
    lines: mpsc::UnboundedSender<Entry>,
    /// The places that are left. Each line holds one from its reservation until it is written, except for a line that
    /// is reserved [for long](Reserved::for_long).
    places: Arc<Semaphore>,
}

/// A message to the thread that writes the log.
#[derive(Debug)]
enum Entry {
    Line {
        text: String,
        _place: Option<OwnedSemaphorePermit>,
    },
    /// A request to report when all lines before it are written.
    Flush(std::sync::mpsc::Sender<()>),
}

/// The place of a request's line.
#[derive(Debug)]
pub struct Reserved {
    audit: Audit,
    place: Option<OwnedSemaphorePermit>,
}

impl Audit {
    /// Opens the log for appending, and starts the thread that writes it. The thread ends once all clones of the log
    /// and all reserved places are dropped and their lines are written.
    ///
    /// If the file is renamed or removed, for example by `logrotate`, lines go to a new file after a second at most.
    ///
    /// # Errors
    /// An I/O error if the file can't be opened or the thread can't be started.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, LINES_MAX)
    }

    /// Like [`open`](Self::open), with another number of lines that may wait for the file. For tests.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(path: &Path, lines_max: usize) -> io::Result<Self> {
        let (lines, waiting) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(lines_max));
        sink::start(path, waiting, Arc::clone(&places))?;
        Ok(Self { lines, places })
    }

    /// Reserves the place of a line. Waits while all places are taken. Returns `None` if the thread that writes has
    /// ended, which is a defect.
    pub async fn reserve(&self) -> Option<Reserved> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(Reserved { audit: self.clone(), place: Some(place) })
    }

    /// Waits until all lines so far are written, but for at most `limit`. Blocks the thread.
    pub fn flush(&self, limit: Duration) {
        let (done, is_done) = std::sync::mpsc::channel();
        if self.lines.send(Entry::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(limit);
        }
    }
}

impl Reserved {
    /// Turns this into a reservation for a line that may be written much later, such as at the end of a stream. It
    /// occupies none of the [`LINES_MAX`] places; once recorded, the line takes a place only if one is free. The caller
    /// bounds the number of such lines, because they may wait for the file in addition to all others.
    pub fn for_long(self) -> Self {
        Self { place: None, ..self }
    }

    /// Passes the line to the thread that writes. Never waits.
    pub fn record(self, record: &Record<'_>) {
        self.write(record::line(record));
    }

    fn write(self, text: String) {
        let Self { audit, place } = self;
        let _place = place.or_else(|| Arc::clone(&audit.places).try_acquire_owned().ok());
        // Sending fails only if the thread has ended, which is a defect.
        let _ = audit.lines.send(Entry::Line { text, _place });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::SystemTime;

    use super::*;

    fn record(rpc: &str) -> Record<'_> {
        Record {
            time: SystemTime::UNIX_EPOCH,
            node: "n",
            caller: None,
            peer: None,
            rpc,
            table: None,
            branch: None,
            version: None,
            grant: None,
            verdict: Verdict::Allowed,
            code: "OK",
            reason: None,
            rows: 0,
            bytes: 0,
            duration_us: 0,
        }
    }

    /// Creates a log whose file is a pipe that nobody reads yet. Returns the log and the reading side.
    fn unread_log(folder: &Path, lines_max: usize) -> (Audit, std::fs::File) {
        let path = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // Open both sides, because opening one side of a pipe waits for the other.
        let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        (Audit::open_with(&path, lines_max).unwrap(), reader)
    }

    /// Reads `count` lines.
    fn read_lines(reader: &mut std::fs::File, count: usize) -> Vec<String> {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while text.iter().filter(|&&byte| byte == b'\n').count() < count {
            let read = reader.read(&mut buffer).unwrap();
            text.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn lines_wait_for_a_file_that_cannot_be_written_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (audit, mut reader) = unread_log(folder.path(), 8);
        let long = "x".repeat(100_000);
        let mut written = 0;
        // The pipe takes 64 KiB, which is less than a line, so no line gives back its place.
        let mut place = None;
        while written < 1000 {
            let reserved = tokio::time::timeout(Duration::from_millis(500), audit.reserve()).await;
            let Ok(reserved) = reserved else { break };
            reserved.unwrap().record(&record(&long));
            written += 1;
            place = Some(());
        }
        assert!(place.is_some() && written < 1000, "{written} lines wait for the file");
        // Once the pipe is read, all lines are written, and a place becomes free for another.
        let reading = std::thread::spawn(move || read_lines(&mut reader, written + 1));
        audit.reserve().await.unwrap().record(&record("last"));
        let lines = tokio::task::spawn_blocking(|| reading.join().unwrap()).await.unwrap();
        assert_eq!(lines.len(), written + 1);
        assert!(lines.last().unwrap().contains("\"rpc\":\"last\""));
    }

    #[tokio::test]
    async fn lines_of_long_requests_take_no_place_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::open_with(&path, 2).unwrap();
        let mut long = Vec::new();
        for _ in 0..100 {
            long.push(audit.reserve().await.unwrap().for_long());
        }
        let [one, other] = [audit.reserve().await.unwrap(), audit.reserve().await.unwrap()];
        // There is no place left, and the long requests' lines need none.
        long.into_iter().for_each(|place| place.record(&record("long")));
        one.record(&record("short"));
        drop(other);
        audit.flush(Duration::from_secs(60));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("\"rpc\":\"long\"").count(), 100);
        assert_eq!(text.matches("\"rpc\":\"short\"").count(), 1);
    }
}
