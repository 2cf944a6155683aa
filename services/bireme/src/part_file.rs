//! Files that appear only when they are complete.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::CliError;

/// Creates a file beside `path`, with the permissions of any new file. It is removed on drop unless it was renamed to
/// `path`.
///
/// # Errors
/// The operating system's, without the name of the temporary file.
pub fn part_file(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let permissions = Permissions::from_mode(0o666);
    let created = tempfile::Builder::new().permissions(permissions).tempfile_in(folder);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("there is no folder {}", folder.display()))
        }
        // The error's text has the name of the temporary file.
        kind => kind.into(),
    })
}

/// Returns the error for an output file that the operating system refuses.
pub fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::os(&format!("{} can't be written", path.display()), error, "choose another --output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_name_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = part_file(&folder.path().join("no/x")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let shown = folder.path().join("no");
        assert_eq!(missing.to_string(), format!("there is no folder {}", shown.display()));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let in_a_file = part_file(&file.join("x")).unwrap_err();
        assert_eq!(in_a_file.kind(), io::ErrorKind::NotADirectory);
        assert!(!in_a_file.to_string().contains("file/"), "{in_a_file}");
    }
}
