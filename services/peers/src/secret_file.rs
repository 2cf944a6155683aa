//! The file of the secrets, which is read again when it changes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::Secret;
use crate::secret::parse;

/// The error for a file of secrets that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file's text is not one or two valid secrets.
    #[error("{} {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// A description of the problem, without any part of a secret.
        problem: String,
    },
}

/// The secrets in a file, at least one.
#[derive(Debug)]
pub struct Secrets {
    first: Arc<Secret>,
    all: Vec<Arc<Secret>>,
}

impl Secrets {
    fn parse(text: &str, path: &Path, before: &[Arc<Secret>]) -> Result<Self, SecretError> {
        let unusable = |problem: String| SecretError::Unusable { path: path.to_owned(), problem };
        let all = parse(text, before).map_err(unusable)?;
        let first = all.first().map(Arc::clone).ok_or_else(|| unusable("is empty".into()))?;
        Ok(Self { first, all })
    }

    /// Returns the secret that this node uses for its proofs.
    pub fn first(&self) -> &Arc<Secret> {
        &self.first
    }

    /// Iterates over all secrets, each of which is accepted.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Secret>> {
        self.all.iter()
    }
}

/// The interval at which the file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The file of the secrets.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    current: ArcSwap<Secrets>,
    /// The digest of the file when it was last read, whether or not its secrets are in use; `None` if it could not be
    /// read. Locked while the file is checked.
    seen: Mutex<Option<blake3::Hash>>,
}

impl SecretFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn load(path: &Path) -> Result<Arc<Self>, SecretError> {
        let text = read(path)?;
        let current = Secrets::parse(&text, path, &[])?;
        let seen = Mutex::new(Some(blake3::hash(text.as_bytes())));
        Ok(Arc::new(Self { path: path.to_owned(), current: ArcSwap::from_pointee(current), seen }))
    }

    /// Returns the current secrets.
    pub fn current(&self) -> Arc<Secrets> {
        self.current.load_full()
    }

    /// Checks the file for changes every few seconds. Never returns.
    pub async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let this = Arc::clone(&self);
            // Use another thread, because the file may be on a filesystem that hangs.
            let _ = tokio::task::spawn_blocking(move || this.reload_if_changed()).await;
        }
    }

    /// Reads the file again, and uses its secrets if they have changed. May block. Secrets that are no longer in the
    /// file are withdrawn. If the file is faulty, that is logged, and the old secrets stay in use.
    pub fn reload_if_changed(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let text = read(&self.path);
        // The contents are compared, not the time of the last change, because two changes may be closer together than
        // the resolution of that time.
        let now = text.as_ref().ok().map(|text| blake3::hash(text.as_bytes()));
        if *seen == now {
            return;
        }
        *seen = now;
        let before = self.current();
        match text.and_then(|text| Secrets::parse(&text, &self.path, &before.all)) {
            Ok(secrets) => {
                let kept = |secret: &&Arc<Secret>| secrets.iter().any(|it| Arc::ptr_eq(it, secret));
                let gone: Vec<_> = before.iter().filter(|secret| !kept(secret)).collect();
                let (count, withdrawn) = (secrets.all.len(), gone.len());
                tracing::info!(path = %self.path.display(), secrets = count, withdrawn, "new secrets are in use");
                // Replace the secrets first, so that no call begins with a secret that is withdrawn.
                self.current.store(Arc::new(secrets));
                gone.iter().for_each(|secret| secret.withdraw());
            }
            Err(error) => {
                tracing::error!(%error, "the new secrets are not used; the old ones stay")
            }
        }
    }

    /// Creates the secrets of a file with this text.
    #[cfg(test)]
    pub fn of_text(text: &str) -> Arc<Self> {
        let current =
            ArcSwap::from_pointee(Secrets::parse(text, Path::new("/secret"), &[]).unwrap());
        Arc::new(Self { path: "/secret".into(), current, seen: Mutex::default() })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a node reads its secrets at the start and on threads that may block"
)]
fn read(path: &Path) -> Result<String, SecretError> {
    std::fs::read_to_string(path)
        .map_err(|source| SecretError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "old-old-old-old-old-old-old-old-";
    const NEW: &str = "new-new-new-new-new-new-new-new-";

    #[test]
    fn a_changed_file_is_used_and_what_it_no_longer_has_is_withdrawn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(OLD);
        let file = SecretFile::load(&path).unwrap();
        let old = Arc::clone(file.current().first());
        write(&format!("{NEW}\n{OLD}\n"));
        file.reload_if_changed();
        let new = Arc::clone(file.current().first());
        assert!(!Arc::ptr_eq(&old, &new));
        assert!(file.current().iter().any(|it| Arc::ptr_eq(it, &old)), "both are accepted");
        assert!(!old.is_withdrawn());

        for faulty in ["", "short"] {
            write(faulty);
            file.reload_if_changed();
            assert!(Arc::ptr_eq(file.current().first(), &new));
        }
        std::fs::remove_file(&path).unwrap();
        file.reload_if_changed();
        assert!(Arc::ptr_eq(file.current().first(), &new) && !old.is_withdrawn());

        write(NEW);
        file.reload_if_changed();
        assert!(Arc::ptr_eq(file.current().first(), &new));
        assert_eq!(file.current().iter().count(), 1);
        assert!(old.is_withdrawn() && !new.is_withdrawn());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let said = SecretFile::load(&path).unwrap_err().to_string();
        assert!(said.contains(&format!("{} can't be read: ", path.display())), "{said}");
        std::fs::write(&path, "short").unwrap();
        let said = SecretFile::load(&path).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("{} has a secret of 5 characters", path.display())),
            "{said}"
        );
    }
}
