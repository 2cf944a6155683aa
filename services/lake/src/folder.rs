//! Lists folders of tables.
//!
//! Only the folder itself is looked at, not the contents of its tables, so a name is listed even before its table's
//! first version is complete. Symbolic links in a folder are skipped, because they may lead anywhere.

use std::io::ErrorKind;
use std::path::Path as FilesystemPath;

use futures::TryFutureExt;
use lance::Error as LanceError;
use lance_io::object_store::{ObjectStore as LanceStore, ReadDirOptions};
use tables::{TableFolder, TableUri, is_table_name, table_of_folder};

use crate::canonical::resolved;
use crate::caught::caught;
use crate::diagnose::diagnose_opening;
use crate::error::{LakeError, Result};
use crate::opener::Opener;

/// The maximum number of tables of a folder. A node keeps about 1 KiB for each table. Listing so many takes ten
/// requests to an object store.
const TABLES_MAX: usize = 10_000;

/// The maximum number of pages that are read to list a folder in an object store. Each page is a request and has about
/// 1,000 entries. In all they have ten times [`TABLES_MAX`] entries, because not every entry of a folder is a table.
const PAGES_MAX: usize = 100;

/// The tables of a folder, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderListing {
    /// The folder, without symbolic links in its path.
    pub folder: TableFolder,
    /// The names of its tables.
    pub tables: Vec<String>,
    /// Names that are not allowed as names of tables.
    pub refused: Vec<String>,
    /// Whether the folder has more tables, or so many other entries that not all were looked at.
    pub is_cut: bool,
}

impl FolderListing {
    /// Sorts the names that were found, and keeps at most `tables_max` of them.
    fn new(folder: TableFolder, found: Vec<String>, is_cut: bool, tables_max: usize) -> Self {
        let (mut tables, mut refused): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|name| is_table_name(name));
        let is_cut = is_cut || tables.len() > tables_max;
        for names in [&mut tables, &mut refused] {
            names.sort_unstable();
            names.truncate(tables_max);
        }
        Self { folder, tables, refused, is_cut }
    }
}

/// Lists the tables of a folder.
///
/// Errors: `FolderNotFound`, `BadUri` if the path is that of a file, and errors of the store.
pub(crate) async fn list(opener: &Opener, folder: &TableFolder) -> Result<FolderListing> {
    match folder.uri().filter(|uri| uri.folder().is_some()) {
        Some(uri) => opener.in_open_time(uri.as_str(), list_path(&uri)).await,
        None => list_store(opener, folder).await,
    }
}

async fn list_path(uri: &TableUri) -> Result<FolderListing> {
    let uri = resolved(uri).await?;
    let folder = TableFolder::at(&uri);
    let read = move || names_in(folder.as_str().as_ref()).map(|names| (folder, names));
    // This runs on a thread that may block, because a network filesystem may not answer.
    let read = tokio::task::spawn_blocking(read).await.unwrap_or_else(|end| Err(end.into()));
    match read {
        Ok((folder, names)) => Ok(FolderListing::new(folder, names, false, TABLES_MAX)),
        Err(error) => {
            let (uri, why) = (uri.to_string(), error.to_string());
            Err(match error.kind() {
                ErrorKind::NotFound => LakeError::FolderNotFound { uri },
                ErrorKind::NotADirectory => LakeError::BadUri { uri, why },
                _ => LakeError::StoreRefuses { uri, why },
            })
        }
    }
}

/// Returns the names of the tables in a folder of the filesystem, in any order.
fn names_in(folder: &FilesystemPath) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(name) = table_of_folder(&name.to_string_lossy())
            && entry.file_type()?.is_dir()
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

async fn list_store(opener: &Opener, folder: &TableFolder) -> Result<FolderListing> {
    let uri = folder.as_str().trim_end_matches('/');
    // For a bucket that does not exist, `diagnose_opening` returns `TableNotFound`, as when a table is opened.
    let blame = |error: LanceError| match diagnose_opening(uri, error) {
        LakeError::TableNotFound { uri, .. } => LakeError::FolderNotFound { uri },
        error => error,
    };
    let params = opener.folder_params(folder);
    let registry = opener.session().store_registry();
    let opened = LanceStore::from_uri_and_params(registry, uri, &params).map_err(blame);
    let (store, path) = opener.in_open_time(uri, caught(uri, opened)).await?;
    let (mut names, mut page_token) = (Vec::new(), None);
    // The time limit applies to each page, because a folder may have many pages.
    for _ in 0..PAGES_MAX {
        let options = ReadDirOptions { page_token, limit: None };
        let page = store.read_dir_page(path.clone(), options).map_err(blame);
        let page = opener.in_open_time(uri, caught(uri, page)).await?;
        let folders = page.result.common_prefixes.iter().filter_map(|path| path.filename());
        names.extend(folders.filter_map(table_of_folder).map(str::to_owned));
        page_token = page.page_token;
        if page_token.is_none() || names.len() > TABLES_MAX {
            break;
        }
    }
    Ok(FolderListing::new(folder.clone(), names, page_token.is_some(), TABLES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lake, LakeOptions};

    fn listing(found: &[&str], is_cut: bool) -> FolderListing {
        let folder = TableFolder::of_config("s3://bucket/tables").unwrap();
        FolderListing::new(folder, found.iter().map(|&it| it.into()).collect(), is_cut, 3)
    }

    #[test]
    fn names_are_sorted_checked_and_bounded() {
        let all = listing(&["c", "a$b", "a", "b", ""], false);
        assert_eq!((all.tables, all.refused, all.is_cut), names(&["a", "b", "c"], &["", "a$b"]));
        let more = listing(&["d", "c", "b", "a"], false);
        assert_eq!(more.tables, ["a", "b", "c"]);
        assert!(more.is_cut && listing(&["a"], true).is_cut);
    }

    fn names(tables: &[&str], refused: &[&str]) -> (Vec<String>, Vec<String>, bool) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        (owned(tables), owned(refused), false)
    }

    #[tokio::test]
    async fn folders_are_listed_without_following_links() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let link = root.join("link");
        let folder = root.join("folder");
        for name in ["b.lance/data", "a.lance", "bad name.lance", "other"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        std::fs::write(folder.join("file.lance"), "x").unwrap();
        std::os::unix::fs::symlink(folder.join("other"), folder.join("planted.lance")).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let lake = Lake::new(LakeOptions::default());
        let list = async |path: &std::path::Path| {
            let folder = TableFolder::of_config(path.to_str().unwrap()).unwrap();
            lake.list_folder(&folder).await
        };
        let listed = list(&link).await.unwrap();
        assert_eq!(listed.folder.as_str(), format!("{}/", folder.display()));
        let found = (listed.tables, listed.refused, listed.is_cut);
        assert_eq!(found, names(&["a", "b"], &["bad name"]));
        let absent = list(&root.join("absent")).await.unwrap_err();
        assert!(matches!(absent, LakeError::FolderNotFound { .. }), "{absent}");
        let file = list(&folder.join("file.lance")).await.unwrap_err();
        assert!(matches!(file, LakeError::BadUri { .. }), "{file}");
    }
}
