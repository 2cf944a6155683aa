//! Lists folders of tables.
//!
//! Only the folder itself is looked at, and its manifest of namespaces if it has one (`folder/namespaces.rs`), not the
//! contents of its tables, so a name is listed even before its table's first version is complete. Symbolic links in a
//! folder are skipped, because they may lead anywhere. So a table of the manifest is listed if its own folder was found
//! directly in this one.

pub(crate) mod namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path as FilesystemPath;
use std::sync::Arc;

use futures::TryFutureExt;
use lance::Error as LanceError;
use lance_io::object_store::{ObjectStore as LanceStore, ReadDirOptions};
use tables::{TableFolder, TableUri, is_table_id, is_table_name, table_of_folder};

use self::namespaces::Namespaces;
use crate::canonical::resolved;
use crate::diagnose::caught::caught;
use crate::diagnose::diagnose_opening;
use crate::error::{LakeError, Result};
use crate::opener::Opener;

/// The maximum number of tables of a folder. A node keeps about 1 KiB for each table. Listing so many takes ten
/// requests to an object store.
const TABLES_MAX: usize = 10_000;

/// The maximum number of pages that are read to list a folder in an object store. Each page is a request and has about
/// 1,000 entries. In all they have ten times [`TABLES_MAX`] entries, because not every entry of a folder is a table.
const PAGES_MAX: usize = 100;

/// The maximum length of a refused name in messages. A manifest may have ids of any length.
const REFUSED_CHARS_MAX: usize = 200;

/// The tables of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderListing {
    /// The folder, without symbolic links in its path.
    pub folder: TableFolder,
    /// The URIs of its tables, by their names. A table in a namespace has its id as its name.
    pub tables: BTreeMap<String, TableUri>,
    /// The folder's manifest of namespaces; `None` if it has none.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Names that are not allowed as names of tables.
    pub refused: Vec<String>,
    /// Whether the folder has more tables, or so many other entries that not all were looked at.
    pub is_cut: bool,
}

/// The folders that were found in a folder.
struct Subfolders {
    /// The folder, without symbolic links in its path.
    folder: TableFolder,
    names: BTreeSet<String>,
    /// Whether there are more.
    is_cut: bool,
}

impl FolderListing {
    /// Names the tables that were found, and keeps at most `tables_max` of them.
    fn new(
        Subfolders { folder, names, is_cut }: Subfolders,
        namespaces: Option<Arc<Namespaces>>,
        tables_max: usize,
    ) -> Self {
        let (mut tables, mut refused) = (BTreeMap::new(), Vec::new());
        let mut add = |name: &str, is_allowed: bool, location: &str| match folder.below(location) {
            Some(uri) if is_allowed => drop(tables.insert(name.to_owned(), uri)),
            _ => refused.push(name.chars().take(REFUSED_CHARS_MAX).collect()),
        };
        let none = Namespaces::NONE;
        let recorded = namespaces.as_deref().unwrap_or(&none);
        for (id, location) in recorded.tables.iter().filter(|(_, it)| names.contains(*it)) {
            add(id, is_table_id(id), location);
        }
        for location in &names {
            // A name that the manifest has stands for the manifest's table, also while its folder is not there.
            if let Some(name) = table_of_folder(location).filter(|name| !recorded.may_have(name)) {
                add(name, is_table_name(name), location);
            }
        }
        let has_more_entries = recorded.has_more_tables || recorded.has_more_namespaces;
        let is_cut = is_cut || has_more_entries || tables.len() > tables_max;
        while tables.len() > tables_max {
            tables.pop_last();
        }
        refused.sort_unstable();
        refused.truncate(tables_max);
        Self { folder, tables, namespaces, refused, is_cut }
    }
}

/// Lists the tables of a folder. `before` is the manifest of namespaces that was read last, if the folder had one.
///
/// Errors: `FolderNotFound`, `BadUri` if the path is that of a file, `Unsupported` for a manifest that cannot be read,
/// and errors of the store.
pub(crate) async fn list(
    opener: &Opener,
    folder: &TableFolder,
    before: Option<&Arc<Namespaces>>,
) -> Result<FolderListing> {
    let found = match folder.uri().filter(|uri| uri.folder().is_some()) {
        Some(uri) => opener.in_open_time(uri.as_str(), list_path(&uri)).await?,
        None => list_store(opener, folder).await?,
    };
    let namespaces = match found.names.contains(namespaces::FOLDER) {
        true => namespaces::read(opener, &found.folder, before, TABLES_MAX).await?,
        false => None,
    };
    Ok(FolderListing::new(found, namespaces, TABLES_MAX))
}

async fn list_path(uri: &TableUri) -> Result<Subfolders> {
    let uri = resolved(uri).await?;
    let folder = TableFolder::at(&uri);
    let read = move || names_in(folder.as_str().as_ref()).map(|names| (folder, names));
    // This runs on a thread that may block, because a network filesystem may not answer.
    let read = tokio::task::spawn_blocking(read).await.unwrap_or_else(|end| Err(end.into()));
    match read {
        Ok((folder, names)) => Ok(Subfolders { folder, names, is_cut: false }),
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

/// Returns the names of the folders in a folder of the filesystem.
fn names_in(folder: &FilesystemPath) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

async fn list_store(opener: &Opener, folder: &TableFolder) -> Result<Subfolders> {
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
    let (mut names, mut page_token) = (BTreeSet::new(), None);
    // The time limit applies to each page, because a folder may have many pages.
    for _ in 0..PAGES_MAX {
        let options = ReadDirOptions { page_token, limit: None };
        let page = store.read_dir_page(path.clone(), options).map_err(blame);
        let page = opener.in_open_time(uri, caught(uri, page)).await?;
        let folders = page.result.common_prefixes.iter().filter_map(|path| path.filename());
        names.extend(folders.map(str::to_owned));
        page_token = page.page_token;
        if page_token.is_none() {
            break;
        }
    }
    Ok(Subfolders { folder: folder.clone(), names, is_cut: page_token.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lake, LakeOptions};

    /// Lists folders. `recorded` are ids of tables and their locations.
    fn listing(names: &[&str], recorded: &[(&str, &str)], is_cut: bool) -> FolderListing {
        let folder = TableFolder::of_config("s3://bucket/f").unwrap();
        let names = names.iter().map(|&it| it.into()).collect();
        let tables = recorded.iter().map(|&(id, location)| (id.into(), location.into()));
        let mut namespaces = Namespaces::NONE;
        namespaces.tables.extend(tables);
        FolderListing::new(Subfolders { folder, names, is_cut }, Some(namespaces.into()), 3)
    }

    /// Returns the names and URIs of tables, as `name=uri`, and the names that were refused.
    fn shown(listing: &FolderListing) -> (Vec<String>, Vec<&str>) {
        let tables = listing.tables.iter().map(|(name, uri)| format!("{name}={uri}"));
        (tables.collect(), listing.refused.iter().map(String::as_str).collect())
    }

    #[test]
    fn names_are_sorted_checked_and_bounded() {
        let all = listing(&["c.lance", "a$b.lance", "a.lance", "b", ".lance"], &[], false);
        let tables = ["a=s3://bucket/f/a.lance", "c=s3://bucket/f/c.lance"];
        assert_eq!(shown(&all), (tables.map(Into::into).to_vec(), vec!["", "a$b"]));
        assert!(!all.is_cut);
        let more = listing(&["d.lance", "c.lance", "b.lance", "a.lance"], &[], false);
        assert_eq!(more.tables.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(more.is_cut && listing(&["a.lance"], &[], true).is_cut);
    }

    #[test]
    fn tables_of_a_manifest_are_those_whose_folders_exist() {
        let folders = ["t.lance", "1_a$t", "2_t", "gone.lance"];
        let recorded = [
            ("a$t", "1_a$t"),
            ("t", "2_t"),
            ("gone", "3_gone"),
            ("a$out", "../elsewhere"),
            ("a$b c", "t.lance"),
        ];
        let tables = ["a$t=s3://bucket/f/1_a$t", "t=s3://bucket/f/2_t"];
        let found = listing(&folders, &recorded, false);
        assert_eq!(shown(&found), (tables.map(Into::into).to_vec(), vec!["a$b c"]));
        // The manifest of which not all was read may have more names.
        let mut cut = Namespaces { has_more_tables: true, ..Namespaces::NONE };
        cut.tables.insert("b".into(), "1_b".into());
        assert_eq!(["a", "b", "c"].map(|name| cut.may_have(name)), [false, true, true]);
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
            lake.list_folder(&folder, None).await
        };
        let listed = list(&link).await.unwrap();
        assert_eq!(listed.folder.as_str(), format!("{}/", folder.display()));
        let uri = |name: &str| format!("{name}={}/{name}.lance", folder.display());
        assert_eq!(shown(&listed), (["a", "b"].map(uri).to_vec(), vec!["bad name"]));
        assert!(!listed.is_cut);
        let absent = list(&root.join("absent")).await.unwrap_err();
        assert!(matches!(absent, LakeError::FolderNotFound { .. }), "{absent}");
        let file = list(&folder.join("file.lance")).await.unwrap_err();
        assert!(matches!(file, LakeError::BadUri { .. }), "{file}");
    }
}
