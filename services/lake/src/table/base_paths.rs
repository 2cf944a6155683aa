//! Where the files of a dataset are: in its own folder, or below a base path that its manifest names.
//!
//! A branch of a table is a dataset in the table's folder. It refers to the files that it shares with its parent by a
//! base path:
//!
//! ```text
//! table/                          the table's folder, which is that of the main branch
//!   data/1.lance                  a file of the main branch
//!   tree/exp/                     the folder of the branch `exp`
//!     data/2.lance                a file of the branch
//!     _versions/3.manifest        names `1.lance` with the base path 1, which is `table/`, and `2.lance` without one
//! ```
//!
//! A file that lies in the table's folder is named by its path there, whichever branch refers to it. So branches share
//! what is cached of it.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use lance::Dataset;
use object_store::path::Path;
use tables::TableUri;

use crate::opener::Opener;

/// The maximum number of a manifest's paths that are resolved. The writers of a table rarely spell its path in more
/// ways.
const BASES_MAX: usize = 8;

/// Replaces base paths of `dataset` that lead into the folder of the table at `uri` by their canonical form. Manifests
/// have base paths as the writer spelled them, for example with symbolic links, which the fence refuses. A path that
/// can't be resolved in time stays as it is: the first read below it reports the error.
pub(crate) async fn with_canonical_bases(
    opener: &Opener,
    uri: &TableUri,
    mut dataset: Dataset,
) -> Dataset {
    let real = real_bases(opener, uri, &dataset).await;
    if !real.is_empty() {
        let mut manifest = dataset.manifest.as_ref().clone();
        for base in manifest.base_paths.values_mut() {
            if let Some(real) = real.get(&base.path) {
                base.path = real.to_string();
            }
        }
        dataset.manifest = Arc::new(manifest);
    }
    dataset
}

/// Returns the canonical forms of the base paths that lead into the table's folder and are spelled in another way. The
/// writer of a manifest chooses its paths, so at most [`BASES_MAX`] of them are resolved, and none for a table in an
/// object store.
async fn real_bases(
    opener: &Opener,
    uri: &TableUri,
    dataset: &Dataset,
) -> HashMap<String, TableUri> {
    let bases = dataset.manifest.base_paths.values().map(|base| &base.path);
    let mut foreign: Vec<_> = bases.filter(|path| path_in(uri, path).is_none()).collect();
    foreign.sort_unstable();
    foreign.dedup();
    let named = foreign.into_iter().filter_map(|path| Some((path, TableUri::parse(path).ok()?)));
    let mut local: Vec<_> = named.filter(|(_, named)| named.folder().is_some()).collect();
    local.truncate(if uri.folder().is_some() { BASES_MAX } else { 0 });
    let resolve = local.into_iter().map(async |(path, named)| {
        let found = opener.in_open_time(uri.as_str(), opener.resolved_base(named)).await.ok()?;
        path_in(uri, found.as_str()).is_some().then(|| (path.clone(), found))
    });
    join_all(resolve).await.into_iter().flatten().collect()
}

/// Returns the folder of the files with `base_id` as a path in the folder of the table at `uri`: empty, or ending with
/// a slash. `None` if the files are elsewhere.
pub(crate) fn folder_in_table(
    uri: &TableUri,
    dataset: &Dataset,
    base_id: Option<u32>,
) -> Option<String> {
    let folder = match base_id {
        // A dataset that is no branch is opened at the table's own URI.
        None => path_in(uri, dataset.uri()).unwrap_or_default(),
        Some(id) => {
            let base = dataset.manifest.base_paths.get(&id).filter(|base| base.is_dataset_root)?;
            path_in(uri, &base.path)?
        }
    };
    Some(if folder.is_empty() { String::new() } else { format!("{folder}/") })
}

/// Returns the folder of data files with `base_id`, as a path in their store.
pub(crate) fn data_folder(dataset: &Dataset, base_id: Option<u32>) -> Option<Path> {
    let Some(id) = base_id else { return Some(dataset.data_dir()) };
    let base = dataset.manifest.base_paths.get(&id)?;
    let path = base.extract_path(dataset.session().store_registry()).ok()?;
    Some(if base.is_dataset_root { path.join("data") } else { path })
}

/// Returns a name for the place of the data or deletion file that the manifest names by `base_id` and `path`. In all
/// versions of all branches of the table at `uri`, equal names mean the same file.
pub(crate) fn place_of(
    uri: &TableUri,
    dataset: &Dataset,
    base_id: Option<u32>,
    path: &str,
) -> String {
    if let Some(folder) = folder_in_table(uri, dataset, base_id) {
        return format!("{folder}{path}");
    }
    let id = base_id.unwrap_or_default();
    // A branch may use the same number as the main branch for another base path.
    let base = dataset.manifest.branch.as_ref().and_then(|_| dataset.manifest.base_paths.get(&id));
    match base {
        Some(base) => format!("{}/{path}", base.path),
        None => format!("{id}/{path}"),
    }
}

/// Returns the path of `place` in the folder of the table at `uri`; `None` if `place` is elsewhere.
fn path_in<'a>(uri: &TableUri, place: &'a str) -> Option<&'a str> {
    let rest = place.strip_prefix(uri.as_str())?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}
