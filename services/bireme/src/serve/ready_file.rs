//! The file that says that a process serves, so that scripts needn't poll its ports.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{CliError, Result};

/// Written once the process serves, removed when it no longer does.
pub struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Removes what an earlier process left, so that it can't be taken for this one's.
    pub fn prepare(path: &Path) -> Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault(path, &error)),
            _ => Ok(Self(path.to_owned())),
        }
    }

    /// Whoever sees the file sees all of it.
    pub fn write(&self, state: &Value) -> Result<()> {
        let mut unfinished = self.0.clone().into_os_string();
        unfinished.push(".new");
        std::fs::write(&unfinished, format!("{state}\n"))
            .and_then(|()| std::fs::rename(&unfinished, &self.0))
            .map_err(|error| fault(&self.0, &error))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
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
        let nowhere = ReadyFile::prepare(Path::new("/nonexistent/ready")).unwrap();
        let error = nowhere.write(&Value::Null).unwrap_err();
        assert!(error.message().contains("--ready-file"), "{error:?}");
    }
}
