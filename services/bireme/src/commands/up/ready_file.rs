//! The ready file, which exists while a process serves, so that scripts need not poll its ports.
//!
//! Other users may be able to write to the file's folder, such as `/tmp`. So the file is created under a name that
//! nobody can guess, never through a link, and then renamed; and only files that this user's processes created are
//! removed.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use serde_json::Value;

use crate::error::{CliError, Result};

/// A file that is written once the process serves, and removed when it stops.
pub struct ReadyFile {
    path: PathBuf,
    /// The file that was written. On drop, only this file is removed. It stays open, so that no other file gets its
    /// inode.
    written: Option<File>,
}

impl ReadyFile {
    /// Removes the file of an earlier process, so that it can't be taken for this process's file. Then checks that a
    /// file can be created in the folder, so that a bad path is reported before the process serves.
    ///
    /// # Errors
    /// Fails if no file can be created, or if anything but a regular file of this user is at `path`: another user's
    /// file, a link, or a folder.
    pub fn prepare(path: &Path) -> Result<Self> {
        remove_earlier(path).map_err(|error| fault(path, &error))?;
        let (file, unfinished) = create_beside(path).map_err(|error| fault(path, &error))?;
        drop(file);
        std::fs::remove_file(unfinished).map_err(|error| fault(path, &error))?;
        Ok(Self { path: path.to_owned(), written: None })
    }

    /// Writes the file. It is complete as soon as it is visible.
    pub fn write(&mut self, state: &Value) -> Result<()> {
        self.written = Some(replace(&self.path, state).map_err(|error| fault(&self.path, &error))?);
        Ok(())
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        let Some(written) = &self.written else { return };
        if let (Ok(found), Ok(written)) = (self.path.symlink_metadata(), written.metadata())
            && (found.dev(), found.ino()) == (written.dev(), written.ino())
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_earlier(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if found.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        let what = "something other than a file of this user is in its place";
        return Err(io::Error::new(ErrorKind::AlreadyExists, what));
    }
    std::fs::remove_file(path)
}

/// Writes `state` to a new file and renames it to `path`.
fn replace(path: &Path, state: &Value) -> io::Result<File> {
    let (mut file, unfinished) = create_beside(path)?;
    let written = writeln!(file, "{state}").and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written.map(|()| file)
}

/// Creates a file, which only this user can read, in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.new", rand::random::<u64>()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&name)?;
    Ok((file, name.into()))
}

fn fault(path: &Path, error: &io::Error) -> CliError {
    let doing = format!("the ready file {} can't be written", path.display());
    CliError::os(&doing, error, "name another with --ready-file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_file_exists_while_the_process_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        std::fs::write(&path, "old").unwrap();
        let mut ready = ReadyFile::prepare(&path).unwrap();
        assert!(!path.exists());
        ready.write(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        drop(ready);
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(ReadyFile::prepare(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "never written");
    }

    #[test]
    fn links_are_neither_followed_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("ready"), folder.path().join("precious"));
        std::fs::write(&target, "precious").unwrap();
        for to in [&target, &folder.path().join("nothing")] {
            symlink(to, &path).unwrap();
            let error = ReadyFile::prepare(&path).err().unwrap();
            assert!(error.message().contains("something other"), "{error:?}");
            assert!(path.symlink_metadata().unwrap().is_symlink());
            std::fs::remove_file(&path).unwrap();
        }
        // A link planted after the process began is replaced, not followed.
        let mut ready = ReadyFile::prepare(&path).unwrap();
        symlink(&target, &path).unwrap();
        ready.write(&serde_json::json!({"a": 1})).unwrap();
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        // A link planted after the file was written is not removed, because this process did not create it.
        std::fs::remove_file(&path).unwrap();
        symlink(&target, &path).unwrap();
        drop(ready);
        assert!(path.symlink_metadata().unwrap().is_symlink() && target.exists());
    }

    #[test]
    fn a_path_that_cant_be_written_is_reported_before_the_process_serves() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path_in_a_file = file.path().join("ready");
        for (path, exit) in
            [(Path::new("/nonexistent/ready"), 3), (&path_in_a_file, 2), (Path::new("/proc"), 2)]
        {
            let error = ReadyFile::prepare(path).err().unwrap();
            assert!(error.message().contains("--ready-file"), "{error:?}");
            assert_eq!(error.exit().number(), exit, "{error:?}");
        }
    }
}
