//! A value that is made from files, and made again when the files change.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates are files, which no simulated node has"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;

use super::files::TlsError;

/// The minimum time between two checks of the files. A check happens when a connection is made, when the certificates'
/// expiry is requested, and regularly: always on the accepting side, and while there are connections on the other. A
/// check asks the file system for the time of each file, so not every new connection makes one.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The TLS configuration of one side, made from files.
pub struct LoadedConfig<C, V> {
    /// The configuration for rustls.
    pub config: Arc<C>,
    /// Verifies certificates of the other side.
    pub verifier: V,
    /// The certificate that this side presents, followed by its chain. Empty if it presents none.
    pub presents: Arc<[CertificateDer<'static>]>,
    /// The earliest expiry of the presented certificate and its chain, in seconds since 1970. `None` if no certificate
    /// is presented, or if the expiry can't be read.
    pub expires: Option<u64>,
}

/// A value that is made from files.
pub struct Reloaded<T> {
    now: ArcSwap<T>,
    /// The number of values that were made after the first one.
    generation: AtomicU64,
    make: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    files: Vec<PathBuf>,
    checked: Mutex<FileCheck>,
}

/// The last check of the files.
struct FileCheck {
    at: Instant,
    /// The files' modification times. `None` for a file without one.
    modified: Vec<Option<SystemTime>>,
}

impl<T> Reloaded<T> {
    /// Makes the value for the first time.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Take the times before the files are read, so that a change in between is noticed.
        let checked = Mutex::new(FileCheck { at: Instant::now(), modified: times(&files) });
        let now = ArcSwap::from_pointee(make()?);
        Ok(Self { now, generation: AtomicU64::new(0), make: Box::new(make), files, checked })
    }

    /// Returns the current value. Checks the files at most once in `CHECK_INTERVAL`, and makes the value again if they
    /// have changed; if they can't be used, the old value stays.
    pub fn current(&self) -> Arc<T> {
        self.check_if_due();
        self.now.load_full()
    }

    /// Returns the current value without a check of the files.
    pub fn loaded(&self) -> Arc<T> {
        self.now.load_full()
    }

    /// Returns the number of times that the value has changed. A value that is loaded after this has at least this
    /// generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Checks the files on another thread, unless they were checked less than [`CHECK_INTERVAL`] ago.
    pub fn check_in_background(self: &Arc<Self>)
    where
        T: Send + Sync + 'static,
    {
        if self.checked.try_lock().is_ok_and(|checked| checked.at.elapsed() >= CHECK_INTERVAL) {
            let this = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || this.check_if_due()));
        }
    }

    /// Checks the files, unless they were checked less than [`CHECK_INTERVAL`] ago.
    pub fn check_if_due(&self) {
        // One thread checks the files while the others use the old value.
        if let Ok(mut checked) = self.checked.try_lock()
            && checked.at.elapsed() >= CHECK_INTERVAL
        {
            checked.at = Instant::now();
            self.check(&mut checked);
        }
    }

    /// Checks the files regardless of the last check.
    #[cfg(test)]
    pub fn check_now(&self) {
        self.check(&mut self.checked.lock().unwrap());
    }

    fn check(&self, checked: &mut FileCheck) {
        let modified = times(&self.files);
        if modified == checked.modified {
            return;
        }
        match (self.make)() {
            Ok(made) => {
                // Record the times only now, so that files which can't be used yet are tried again.
                checked.modified = modified;
                self.now.store(Arc::new(made));
                self.generation.fetch_add(1, Ordering::Release);
                tracing::info!("new certificates are in use");
            }
            Err(error) => {
                tracing::error!(%error, "new certificates are not used; the old ones stay")
            }
        }
    }
}

fn times(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let modified = |file: &PathBuf| std::fs::metadata(file).and_then(|it| it.modified()).ok();
    files.iter().map(modified).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_read_again_and_unusable_ones_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let read = {
            let file = file.clone();
            move || {
                let text = std::fs::read_to_string(&file).unwrap();
                text.parse::<u32>().map_err(|error| TlsError::Certificates(error.to_string()))
            }
        };
        let reloaded = Reloaded::new(vec![file.clone()], read).unwrap();
        let reload = |text: &str, second: u64| {
            std::fs::write(&file, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            std::fs::File::open(&file).unwrap().set_modified(time).unwrap();
            reloaded.check_now();
            *reloaded.current()
        };
        assert_eq!(*reloaded.current(), 1);
        assert_eq!(reload("2", 10), 2);
        assert_eq!(reload("nonsense", 20), 2);
        assert_eq!(reload("3", 30), 3);
        // The modification time is the same, so the file is not read.
        assert_eq!(reload("4", 30), 3);
    }
}
