//! Opens tables, which share one Lance session.

use std::sync::Arc;

use lance::Dataset;
use tables::{BlockReads, BranchName, CacheUse, StoreUse, TableFolder, TableUri};

use crate::canonical::resolved;
use crate::diagnose::caught::caught;
use crate::error::{LakeError, Result};
use crate::folder::namespaces::Namespaces;
use crate::folder::{self, FolderListing};
use crate::opener::{FoundBranch, Opener};
use crate::options::LakeOptions;
use crate::stop::Stop;
use crate::store::FileCache;
use crate::table::Table;

/// Opens tables in folders (`/data/t`, `file:///data/t`) and object stores (`s3://bucket/t`, `gs://bucket/t`,
/// `az://container/t`). Cheap to clone; clones share caches and connections.
#[derive(Clone)]
pub struct Lake {
    opener: Arc<Opener>,
    stop: Stop,
    block_reads: BlockReads,
}

impl std::fmt::Debug for Lake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lake").field("opener", &self.opener).finish_non_exhaustive()
    }
}

impl Lake {
    /// Creates a lake. Uses neither disk nor network.
    pub fn new(options: LakeOptions) -> Self {
        let stop = options.stop.clone();
        let block_reads = BlockReads::new(options.recent_block_bytes as u64);
        Self { opener: Arc::new(Opener::new(options)), stop, block_reads }
    }

    /// Opens the latest version of the table at `uri`.
    ///
    /// Errors: `TableNotFound`, `BadUri`, `Corrupt`, `Unsupported`, `UnsupportedType`, `OutsideTable`, and those of the
    /// store: `StoreUnreachable` (within `open_timeout`), `StoreRefuses`, `CredentialsMissing`, `CredentialsRefused`.
    pub async fn open(&self, uri: &str) -> Result<Table> {
        let uri = self.canonical(uri).await?;
        // Boxed because the future is large, and callers would hold it within theirs.
        Box::pin(self.open_canonical(&uri)).await
    }

    /// Opens the latest version of the table at a canonical URI. No symbolic link is followed. Errors: those of
    /// [`open`](Self::open).
    pub async fn open_canonical(&self, uri: &TableUri) -> Result<Table> {
        self.open_branch(uri, None).await
    }

    /// Opens the latest version of a branch of the table at a canonical URI; of the main one if `branch` is `None`. No
    /// symbolic link is followed. Errors: those of [`open`](Self::open), and `BranchNotFound`.
    pub async fn open_branch(&self, uri: &TableUri, branch: Option<&BranchName>) -> Result<Table> {
        let (dataset, branch) = self.opener.dataset(uri, branch).await?;
        self.opened(uri, branch, dataset).await
    }

    async fn opened(
        &self,
        uri: &TableUri,
        branch: Option<FoundBranch>,
        dataset: Dataset,
    ) -> Result<Table> {
        let opened = Table::new(Arc::clone(&self.opener), uri.clone(), branch, dataset, None);
        caught(uri.as_str(), opened).await
    }

    /// Returns a table's URI in its canonical form. For a folder, this is its absolute path without symbolic links.
    /// Relative paths start at the working directory.
    ///
    /// Errors: `BadUri`, `StoreRefuses` for a path that can't be looked up.
    pub async fn canonical(&self, uri: &str) -> Result<TableUri> {
        let named = TableUri::of_config(uri).map_err(|error| LakeError::BadUri {
            uri: tables::shown(uri),
            why: error.to_string(),
        })?;
        resolved(&named).await
    }

    /// Opens one version of the table at `uri`. Errors: those of [`open`](Self::open), and
    /// `VersionNotFound`.
    pub async fn open_version(&self, uri: &str, version: u64) -> Result<Table> {
        let uri = self.canonical(uri).await?;
        Box::pin(self.open_branch_version(&uri, None, version)).await
    }

    /// Opens one version of a branch of the table at a canonical URI; of the main one if `branch` is `None`. No
    /// symbolic link is followed. Errors: those of [`open_version`](Self::open_version), and `BranchNotFound`.
    pub async fn open_branch_version(
        &self,
        uri: &TableUri,
        branch: Option<&BranchName>,
        version: u64,
    ) -> Result<Table> {
        let load = self.opener.builder(uri, branch).await?.with_version(version).load();
        let opened = self.opener.with_open_timeout(uri.as_str(), load).await;
        match self.opener.of_branch(uri, branch, opened).await {
            Ok((dataset, branch)) => self.opened(uri, branch, dataset).await,
            Err(
                error @ (LakeError::StoreUnreachable { .. } | LakeError::CredentialsRefused { .. }),
            ) => Err(error),
            // Lance reports a missing version in several ways. If the latest version can be opened, the table and the
            // branch exist, and only the version is missing.
            Err(error) => match self.opener.dataset(uri, branch).await?.0.version_id() {
                latest if latest == version => Err(error),
                latest => Err(LakeError::VersionNotFound { uri: uri.to_string(), version, latest }),
            },
        }
    }

    /// Lists the tables of a folder. In an object store, this takes a request for each 1,000 entries of the folder. If
    /// the folder has a manifest of namespaces, its version is looked up too, and it is read unless `before`, which was
    /// read earlier, has that version.
    ///
    /// Errors: `FolderNotFound` for a folder or bucket that does not exist, `BadUri` for the path of a file,
    /// `Unsupported` for a manifest of namespaces that cannot be read, and errors of the store. A prefix of a bucket that
    /// has no objects is an empty folder.
    pub async fn list_folder(
        &self,
        folder: &TableFolder,
        before: Option<&Arc<Namespaces>>,
    ) -> Result<FolderListing> {
        folder::list(&self.opener, folder, before).await
    }

    /// Returns the number of the latest version of the table at `uri`. For a table that is open already,
    /// [`Table::latest_version`] is cheaper. Errors: those of [`open`](Self::open).
    pub async fn latest_version(&self, uri: &str) -> Result<u64> {
        Ok(self.opener.dataset(&self.canonical(uri).await?, None).await?.0.version_id())
    }

    /// The opener of this lake's datasets.
    pub(crate) fn opener(&self) -> &Arc<Opener> {
        &self.opener
    }

    /// Reads index and deletion files of tables in object stores through `cache` from now on. Only the first call has
    /// an effect.
    pub fn read_files_through(&self, cache: Arc<dyn FileCache>) {
        self.opener.read_files_through(cache);
    }

    /// The reader of blocks of files, which keeps the blocks that were read recently.
    pub(crate) fn block_reads(&self) -> &BlockReads {
        &self.block_reads
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns the use of object stores since the lake was created.
    pub fn store_use(&self) -> StoreUse {
        self.opener.store_use()
    }

    /// Returns the use of the caches.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        self.opener.cache_use().await
    }
}
