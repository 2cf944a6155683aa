//! Files that appear only when they are complete.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a file beside `path`, with the permissions of any new file. It is removed on drop unless it was renamed to
/// `path`.
pub fn part_file(path: &Path) -> std::io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().permissions(permissions).tempfile_in(folder.unwrap_or(Path::new(".")))
}
