//! The versions of a table, and the tags and branches that name some of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::{FutureExt, StreamExt, TryStreamExt, future, stream};
use lance::dataset::Version;
use lance::dataset::refs::{BranchContents, TagContents};
use lance_table::io::commit::ManifestNamingScheme;
use lance_table::io::manifest::read_manifest;
use object_store::Error as StoreError;
use object_store::path::Path;

use crate::error::Result;
use crate::table::Table;

/// The number of manifests that are read at the same time. A manifest of a large table has many MiB.
const MANIFESTS_AT_ONCE: usize = 8;

/// A version of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionInfo {
    /// Its number.
    pub version: u64,
    /// When it was committed.
    pub time: SystemTime,
    /// Numbers that its manifest has, such as `total_rows`, by their names.
    pub metadata: BTreeMap<String, String>,
    /// The path of its manifest within the table.
    pub manifest_path: String,
}

/// A name for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagInfo {
    /// The version.
    pub version: u64,
    /// The branch that the version belongs to; `None` for the main one.
    pub branch: Option<String>,
    /// Size in bytes of the version's manifest.
    pub manifest_bytes: usize,
}

/// A branch of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// The branch that it began from; `None` for the main one.
    pub parent: Option<String>,
    /// The version that it began from.
    pub parent_version: u64,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// Size in bytes of the manifest of the version that it began from.
    pub manifest_bytes: usize,
}

impl Table {
    /// Describes versions of the branch, in this order. Reads the manifest of each. Versions that have been removed are
    /// left out. A table's manifests may be named by two schemes: a writer may have renamed only some of them. Errors:
    /// those of the store.
    pub async fn version_infos(&self, versions: Vec<u64>) -> Result<Vec<VersionInfo>> {
        let info = self.info_of()?;
        let dataset = self.dataset();
        let base = dataset.branch_location().path;
        let naming = dataset.manifest_location().naming_scheme;
        let read = async {
            let store = dataset.object_store(None).await?;
            let manifest = |version| {
                let schemes = [naming, other_scheme(naming)];
                let paths = schemes.map(|it| (it, it.manifest_path(&base, version)));
                let store = Arc::clone(&store);
                async move {
                    for (naming, path) in paths {
                        match read_manifest(&store, &path, None).await {
                            Ok(manifest) => return Ok(Some((Version::from(&manifest), naming))),
                            Err(lance::Error::NotFound { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(None)
                }
            };
            let manifests = stream::iter(versions).map(manifest).buffered(MANIFESTS_AT_ONCE);
            manifests.try_filter_map(|it| future::ready(Ok(it))).try_collect::<Vec<_>>().await
        };
        let read = self.caught(read.boxed()).await?;
        Ok(read.into_iter().map(|(version, naming)| info(version, naming)).collect())
    }

    /// Returns the version that is open. Errors: `Corrupt` if the branch's folder is not a path.
    pub fn version_info(&self) -> Result<VersionInfo> {
        let info = self.info_of()?;
        Ok(info(self.dataset().version(), self.dataset().manifest_location().naming_scheme))
    }

    /// Returns a function that converts Lance's description of a version whose manifest is named by this scheme.
    fn info_of(&self) -> Result<impl Fn(Version, ManifestNamingScheme) -> VersionInfo> {
        // `Path::from` would encode letters outside ASCII.
        let folder = self.branch().map(|branch| Path::parse(branch.folder())).transpose();
        let folder = folder.map_err(|error| self.blame(StoreError::from(error).into()))?;
        let folder = folder.unwrap_or_default();
        Ok(move |it: Version, naming: ManifestNamingScheme| VersionInfo {
            manifest_path: naming.manifest_path(&folder, it.version).to_string(),
            version: it.version,
            time: time_of(it.timestamp.timestamp_micros()),
            metadata: it.metadata,
        })
    }

    /// Returns the table's tags, by their names. Errors: those of the store.
    pub async fn tags(&self) -> Result<BTreeMap<String, TagInfo>> {
        let tags = self.caught(async { self.dataset().tags().list().await }).await?;
        Ok(tags.into_iter().map(|(name, contents)| (name, tag_info(contents))).collect())
    }

    /// Returns the tag with this name; `None` if the table has no such tag. Reads no other tag. Errors: those of the
    /// store.
    pub async fn tag(&self, name: &str) -> Result<Option<TagInfo>> {
        let read = async {
            match self.dataset().tags().get(name).await {
                Ok(contents) => Ok(Some(tag_info(contents))),
                // Lance refuses names that no tag can have.
                Err(lance::Error::RefNotFound { .. } | lance::Error::InvalidRef { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.caught(read).await
    }

    /// Returns the table's branches other than the main one, by their names. Errors: those of the store.
    pub async fn branches(&self) -> Result<BTreeMap<String, BranchInfo>> {
        let branches = self.caught(async { self.dataset().branches().list().await }).await?;
        let info = |it: BranchContents| BranchInfo {
            parent: it.parent_branch,
            parent_version: it.parent_version,
            created: it.create_at,
            manifest_bytes: it.manifest_size,
        };
        Ok(branches.into_iter().map(|(name, contents)| (name, info(contents))).collect())
    }
}

fn tag_info(it: TagContents) -> TagInfo {
    TagInfo { version: it.version, branch: it.branch, manifest_bytes: it.manifest_size }
}

fn other_scheme(naming: ManifestNamingScheme) -> ManifestNamingScheme {
    match naming {
        ManifestNamingScheme::V1 => ManifestNamingScheme::V2,
        ManifestNamingScheme::V2 => ManifestNamingScheme::V1,
    }
}

/// The last second of the year 9999, in seconds since 1970.
const LAST_SECOND: u64 = 253_402_300_799;

/// Returns a time between 1970 and 9999, which every format can write.
fn time_of(micros: i64) -> SystemTime {
    let since = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    SystemTime::UNIX_EPOCH + since.min(Duration::from_secs(LAST_SECOND))
}
