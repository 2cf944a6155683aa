//! Makes URIs canonical: a folder is named by its absolute path, with symbolic links resolved.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tables::{TableUri, UriPrefix};

use crate::error::{LakeError, Result};

/// Resolves the symbolic links in a table's URI. If the folder doesn't exist yet, the part of its path that exists is
/// resolved. URIs of object stores are returned unchanged.
///
/// Errors: `StoreRefuses` for a path that can't be looked up; `BadUri` if a part of the path is a file, or if the links
/// lead to a path that can't be a table's.
pub(crate) async fn resolved(uri: &TableUri) -> Result<TableUri> {
    let Some(folder) = uri.folder() else { return Ok(uri.clone()) };
    let real = real_path(folder.to_owned()).await.map_err(|error| {
        let (uri, why) = (uri.to_string(), error.to_string());
        match error.kind() {
            ErrorKind::NotADirectory => {
                LakeError::BadUri { uri, why: "a part of the path is a file, not a folder".into() }
            }
            _ => LakeError::StoreRefuses { uri, why },
        }
    })?;
    let bad = |why: String| LakeError::BadUri { uri: uri.to_string(), why };
    let text =
        real.to_str().ok_or_else(|| bad("its links lead to a path that isn't UTF-8".into()))?;
    TableUri::parse(text).map_err(|error| bad(format!("its links lead to a bad path: {error}")))
}

/// Resolves the symbolic links in a prefix.
pub(crate) async fn resolved_prefix(prefix: &UriPrefix) -> Result<UriPrefix> {
    match prefix {
        UriPrefix::Table(uri) => resolved(uri).await.map(UriPrefix::Table),
        UriPrefix::Below(text) => match TableUri::parse(text) {
            Ok(uri) => Ok(UriPrefix::below(&resolved(&uri).await?)),
            // The prefix is a whole bucket.
            Err(_) => Ok(prefix.clone()),
        },
    }
}

async fn real_path(path: PathBuf) -> std::io::Result<PathBuf> {
    // This runs on a thread that may block, because a network filesystem may not answer.
    tokio::task::spawn_blocking(move || longest_real(&path)).await.map_err(std::io::Error::other)?
}

/// Resolves the longest part of a path that exists, and appends the rest.
fn longest_real(path: &Path) -> std::io::Result<PathBuf> {
    let mut missing = Vec::new();
    for part in path.ancestors() {
        match part.canonicalize() {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |real, name| real.join(name))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                missing.extend(part.file_name());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn links_are_resolved_even_if_the_folder_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let of = async |path: PathBuf| {
            let uri = TableUri::parse(path.to_str().unwrap()).unwrap();
            resolved(&uri).await.map(|uri| uri.folder().unwrap().to_owned())
        };
        assert_eq!(of(link.clone()).await.unwrap(), real);
        assert_eq!(of(link.join("new/table")).await.unwrap(), real.join("new/table"));
        assert_eq!(of(real.clone()).await.unwrap(), real);
        std::fs::write(real.join("file"), "x").unwrap();
        let error = of(link.join("file/table")).await.unwrap_err();
        assert!(matches!(error, LakeError::BadUri { .. }), "{error:?}");
        let prefix = UriPrefix::of_config(&format!("{}/", link.display())).unwrap();
        let real = format!("{}/", real.display());
        assert_eq!(resolved_prefix(&prefix).await.unwrap().as_str(), real);
        for kept in ["s3://b/", "s3://b/t"] {
            let prefix = UriPrefix::of_config(kept).unwrap();
            assert_eq!(resolved_prefix(&prefix).await.unwrap(), prefix);
        }
    }
}
