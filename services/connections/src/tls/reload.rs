//! What is made of files, and made anew when they change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;

use super::files::TlsError;

/// How often the files are looked at, at most: when a connection is made.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How TLS is spoken on one side, made of files.
pub struct Spoken<C> {
    /// It, for rustls.
    pub config: Arc<C>,
    /// When the certificate that is shown expires, in seconds since 1970; nothing where none is shown.
    pub expires: Option<u64>,
}

/// A value made of files.
pub struct Reloaded<T> {
    now: ArcSwap<T>,
    make: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    files: Vec<PathBuf>,
    looked: Mutex<Looked>,
}

struct Looked {
    at: Instant,
    changed: Vec<Option<SystemTime>>,
}

impl<T> Reloaded<T> {
    /// Makes it for the first time.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Before they are read: what changes meanwhile is read again.
        let looked = Mutex::new(Looked { at: Instant::now(), changed: times(&files) });
        let now = ArcSwap::from_pointee(make()?);
        Ok(Self { now, make: Box::new(make), files, looked })
    }

    /// It as it is to be used from now on. Files that are no good any more leave it as it was.
    pub fn current(&self) -> Arc<T> {
        // One looks; others go on with what there is.
        if let Ok(mut looked) = self.looked.try_lock()
            && looked.at.elapsed() >= LOOK_EVERY
        {
            looked.at = Instant::now();
            self.look(&mut looked);
        }
        self.now.load_full()
    }

    /// However short ago that was done before.
    #[cfg(test)]
    pub fn look_now(&self) {
        self.look(&mut self.looked.lock().unwrap());
    }

    fn look(&self, looked: &mut Looked) {
        let changed = times(&self.files);
        if changed == looked.changed {
            return;
        }
        match (self.make)() {
            Ok(made) => {
                // Only now: what can't be read yet is tried again.
                looked.changed = changed;
                self.now.store(Arc::new(made));
                tracing::info!("new certificates are in use");
            }
            Err(error) => {
                tracing::error!(%error, "new certificates are not used; the old ones stay")
            }
        }
    }
}

fn times(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let changed = |file: &PathBuf| std::fs::metadata(file).and_then(|it| it.modified()).ok();
    files.iter().map(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_read_again_and_what_is_no_good_is_not_used() {
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
        let look = |text: &str, second: u64| {
            std::fs::write(&file, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            std::fs::File::open(&file).unwrap().set_modified(time).unwrap();
            reloaded.look_now();
            *reloaded.current()
        };
        assert_eq!(*reloaded.current(), 1);
        assert_eq!(look("2", 10), 2);
        assert_eq!(look("nonsense", 20), 2);
        assert_eq!(look("3", 30), 3);
        // The same time: not read.
        assert_eq!(look("4", 30), 3);
    }
}
