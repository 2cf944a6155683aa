//! The audit log: one JSON line for each request.
//!
//! Lines are never dropped and never rate-limited. A request reserves the place of its line before it begins
//! ([`Audit::reserve`]), so that its end never waits. If the file can't be written, the lines wait in memory, at most
//! [`LINES_MAX`] of them; then new requests wait for a place, until their deadlines.
//!
//! ```text
//! request ─► reserve ─► … ─► record ─► channel ─► thread `bireme-audit` ─► file
//! ```

mod record;
mod sink;

use std::io;
use std::path::Path;

use tokio::sync::mpsc::{self, OwnedPermit};

pub use record::{Record, Verdict};

/// The maximum number of lines that wait for the file. A line has a few hundred bytes.
const LINES_MAX: usize = 16_384;

/// A node's audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audit {
    lines: mpsc::Sender<String>,
}

/// The place of a request's line.
#[derive(Debug)]
pub struct Reserved(OwnedPermit<String>);

impl Audit {
    /// Opens the log for appending, and starts the thread that writes it. The thread ends once all clones of the log
    /// and all reserved places are dropped and their lines are written.
    ///
    /// If the file is renamed or removed, such as by `logrotate`, lines go to a new one after a second at most.
    ///
    /// # Errors
    /// An I/O error if the file can't be opened, or the thread not started.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (lines, waiting) = mpsc::channel(LINES_MAX);
        sink::start(path, waiting)?;
        Ok(Self { lines })
    }

    /// Reserves the place of a line. Waits while [`LINES_MAX`] lines wait for the file. Returns `None` if the thread
    /// that writes has ended, which is a defect.
    pub async fn reserve(&self) -> Option<Reserved> {
        self.lines.clone().reserve_owned().await.ok().map(Reserved)
    }
}

impl Reserved {
    /// Passes the line to the thread that writes. Never waits.
    pub fn record(self, record: &Record<'_>) {
        self.0.send(record.line());
    }
}
