//! The file that says that a process serves, so that scripts needn't poll its ports.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{CliError, Result};

/// Written once the process serves, removed when it no longer does.
pub struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Removes what an earlier process left, so that it can't be taken for this one's, and tries
    /// whether a file can be made there: a process that can't say that it serves needn't begin to.
    pub fn prepare(path: &Path) -> Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(fault(path, &error));
            }
            _ => {}
        }
        let this = Self(path.to_owned());
        std::fs::write(this.unfinished(), "").map_err(|error| fault(path, &error))?;
        Ok(this)
    }

    /// Whoever sees the file sees all of it.
    pub fn write(&self, state: &Value) -> Result<()> {
        let unfinished = self.unfinished();
        std::fs::write(&unfinished, format!("{state}\n"))
            .and_then(|()| std::fs::rename(&unfinished, &self.0))
            .map_err(|error| fault(&self.0, &error))
    }

    fn unfinished(&self) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".new");
        name.into()
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // One of them is there at most.
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.unfinished());
    }
}

fn fault(path: &Path, error: &std::io::Error) -> CliError {
    let doing = format!("the ready file {} can't be written", path.display());
    CliError::os(&doing, error, "name another with --ready-file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_while_the_process_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        std::fs::write(&path, "old").unwrap();
        let ready = ReadyFile::prepare(&path).unwrap();
        assert!(!path.exists());
        ready.write(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        drop(ready);
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(ReadyFile::prepare(&path).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "never written");
    }

    #[test]
    fn a_place_where_it_cant_be_is_told_before_the_process_serves() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let within_a_file = file.path().join("ready");
        for (path, exit) in
            [(Path::new("/nonexistent/ready"), 3), (&within_a_file, 2), (Path::new("/proc"), 2)]
        {
            let error = ReadyFile::prepare(path).err().unwrap();
            assert!(error.message().contains("--ready-file"), "{error:?}");
            assert_eq!(error.exit().number(), exit, "{error:?}");
        }
    }
}
