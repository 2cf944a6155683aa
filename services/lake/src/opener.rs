//! Opens Lance's datasets, all with one session, and each behind its table's fence (`store/fence.rs`).

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryFutureExt;
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::refs::branch_contents_path;
use lance::session::{CacheSpec, Session};
use lance_core::cache::{
    CacheBackend, CacheStats, LanceCache, QuickCacheBackend, QuickCacheShardPolicy,
};
use lance_io::object_store::{ObjectStoreParams, StorageOptionsAccessor};
use lance_table::io::commit::ManifestLocation;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};
use tables::{BranchName, CacheUse, StoreUse, TableFolder, TableUri};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::canonical::{resolved, resolved_prefix};
use crate::diagnose::caught::caught;
use crate::diagnose::diagnose_opening;
use crate::error::{LakeError, Result};
use crate::options::{AlsoReads, LakeOptions};
use crate::search::AllowLists;
use crate::store::{
    FENCE_OPTION, Fence, FileCache, Guard, StoreUsage, TableGuard, count, registry,
};
use crate::table::deleted::LoadedDeletions;

/// The cache of allow-lists gets `index_cache_bytes` divided by this number. The list of a filter takes up to a quarter
/// of a byte for each row of its table. Of the default of 1 GiB, the lists get 128 MiB, which holds those of five
/// filters for tables of 100 million rows.
const ALLOW_LISTS_PART: usize = 8;

/// The maximum number of base paths that are resolved at the same time. Each occupies a thread, also after its caller
/// has given up, if a network filesystem doesn't answer.
const BASES_RESOLVED_MAX: usize = 4;

/// Opens the datasets of one [`Lake`](crate::Lake), which share caches and connections.
pub(crate) struct Opener {
    session: Arc<Session>,
    /// The session's cache of indexes, for data of this crate that searches of indexes need.
    index_cache: LanceCache,
    /// The session's cache of metadata.
    metadata_cache: LanceCache,
    /// The version of each table and branch that was opened last.
    latest: Mutex<HashMap<(TableUri, Option<BranchName>), Latest>>,
    store_options: HashMap<String, String>,
    also_reads: Vec<AlsoReads>,
    block_bytes: Option<usize>,
    open_timeout: Duration,
    guard: Arc<Guard>,
    usage: Arc<StoreUsage>,
    index_cache_bytes: u64,
    metadata_cache_bytes: u64,
    allow_lists: AllowLists,
    loaded_deletions: LoadedDeletions,
    /// The base paths that may be resolved at the same time.
    base_permits: Arc<Semaphore>,
    /// The number of [`Table`](crate::Table)s that have been made, which is the next one's `open_id`.
    opened: AtomicU64,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the store options: they hold secrets.
        f.debug_struct("Opener").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Opener {
    /// Creates an opener. Uses neither disk nor network.
    pub(crate) fn new(options: LakeOptions) -> Self {
        let registry = registry(options.storage_secrets.as_ref());
        let allow_list_bytes = options.index_cache_bytes / ALLOW_LISTS_PART;
        let index_cache_bytes = options.index_cache_bytes - allow_list_bytes;
        // The backends and their policies are those of `Session::new`.
        let backend =
            QuickCacheBackend::with_shard_policy(index_cache_bytes, QuickCacheShardPolicy::Single);
        let backend: Arc<dyn CacheBackend> = Arc::new(backend);
        let of_metadata: Arc<dyn CacheBackend> = Arc::new(QuickCacheBackend::with_shard_policy(
            options.metadata_cache_bytes,
            QuickCacheShardPolicy::Recommended,
        ));
        let session = Session::with_cache_backends(
            CacheSpec::Backend(Arc::clone(&backend)),
            CacheSpec::Backend(Arc::clone(&of_metadata)),
            registry,
        );
        let usage = Arc::new(StoreUsage::default());
        Self {
            session: Arc::new(session),
            index_cache: LanceCache::with_backend(backend).with_key_prefix("bireme"),
            metadata_cache: LanceCache::with_backend(of_metadata),
            latest: Mutex::default(),
            block_bytes: options.block_bytes,
            store_options: options.store_options(),
            also_reads: options.also_reads,
            open_timeout: options.open_timeout,
            guard: Arc::new(Guard::new(options.store, Arc::clone(&usage))),
            usage,
            index_cache_bytes: index_cache_bytes as u64,
            metadata_cache_bytes: options.metadata_cache_bytes as u64,
            allow_lists: AllowLists::new(allow_list_bytes as u64),
            loaded_deletions: LoadedDeletions::default(),
            base_permits: Arc::new(Semaphore::new(BASES_RESOLVED_MAX)),
            opened: AtomicU64::new(0),
        }
    }

    /// Opens the latest version of a branch of the table at `uri`, as Lance's `Dataset`.
    pub(crate) async fn dataset(
        &self,
        uri: &TableUri,
        branch: Option<&BranchName>,
    ) -> Result<(Dataset, Option<FoundBranch>)> {
        let load = self.builder(uri, branch).await?.load();
        let opened = self.with_open_timeout(uri.as_str(), load).await;
        let (dataset, found) = self.of_branch(uri, branch, opened).await?;
        if self.is_recreated(uri, branch, dataset.manifest_location()) {
            self.forget_metadata().await;
        }
        Ok((dataset, found))
    }

    /// Notes the latest version of a branch. Returns whether the branch was created anew since it was opened before, so
    /// that it has other versions with the same numbers.
    fn is_recreated(
        &self,
        uri: &TableUri,
        branch: Option<&BranchName>,
        manifest: &ManifestLocation,
    ) -> bool {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, now) = ((uri.clone(), branch.cloned()), Latest::of(manifest));
        let is_recreated = latest.get(&key).is_some_and(|before| before.is_replaced_by(&now));
        latest.insert(key, now);
        is_recreated
    }

    /// Checks that a dataset, which was opened in the folder of `branch`, is that branch of the table.
    pub(crate) async fn of_branch(
        &self,
        uri: &TableUri,
        branch: Option<&BranchName>,
        opened: Result<Dataset>,
    ) -> Result<(Dataset, Option<FoundBranch>)> {
        let Some(branch) = branch else { return opened.map(|dataset| (dataset, None)) };
        match opened {
            Ok(dataset) if dataset.manifest().branch.as_deref() == Some(branch.as_str()) => {
                let found = self.find_branch(uri, branch, &dataset).await?;
                Ok((dataset, Some(found)))
            }
            Ok(_) | Err(LakeError::TableNotFound { .. }) => Err(no_branch(uri, branch)),
            Err(error) => Err(error),
        }
    }

    /// Finds a branch that the table still has, with one request. The branch's folder does not show this: it may remain
    /// when the branch is deleted, and it exists before the branch does.
    ///
    /// Errors: `BranchNotFound`, and those of the store.
    pub(crate) async fn find_branch(
        &self,
        uri: &TableUri,
        branch: &BranchName,
        dataset: &Dataset,
    ) -> Result<FoundBranch> {
        let find = async {
            let table = dataset.branch_location().find_main()?;
            let contents = branch_contents_path(&table.path, branch.as_str());
            head(dataset, &contents).await
        };
        let file = self.with_open_timeout(uri.as_str(), find).await?;
        let file = file.ok_or_else(|| no_branch(uri, branch))?;
        let creation = format!("{:?} {} {}", file.e_tag, file.last_modified, file.size);
        Ok(FoundBranch { name: branch.clone(), creation })
    }

    /// Returns whether the manifest of an earlier version was replaced since it was found, with one request. Manifests
    /// are never overwritten, so the table or branch was then created anew. A manifest that is missing shows nothing,
    /// because a clean-up may have deleted it.
    ///
    /// Errors: those of the store.
    pub(crate) async fn is_overwritten(
        &self,
        uri: &TableUri,
        dataset: &Dataset,
        manifest: &ManifestLocation,
    ) -> Result<bool> {
        let file = self.with_open_timeout(uri.as_str(), head(dataset, &manifest.path)).await?;
        let (before, now) = (manifest.e_tag.as_deref(), file.and_then(|file| file.e_tag));
        // Listings of folders and of Azure have e-tags without quotes.
        let plain = |e_tag: &str| e_tag.trim_matches('"').to_owned();
        Ok(before.zip(now).is_some_and(|(before, now)| plain(before) != plain(&now)))
    }

    /// Resolves the symbolic links in a base path that a manifest names.
    ///
    /// Errors: those of [`resolved`].
    pub(crate) async fn resolved_base(&self, base: TableUri) -> Result<TableUri> {
        let permit = Arc::clone(&self.base_permits).acquire_owned().await;
        let text = base.to_string();
        // A task of its own holds the permit until the thread is free, even if the caller does not wait for it.
        let task = tokio::spawn(async move {
            let _permit = permit;
            resolved(&base).await
        });
        let failed = |why: JoinError| LakeError::StoreRefuses { uri: text, why: why.to_string() };
        task.await.map_err(failed)?
    }

    /// Reads index and deletion files through `cache` from now on.
    pub(crate) fn read_files_through(&self, cache: Arc<dyn FileCache>) {
        self.guard.read_files_through(cache);
    }

    /// The cache of index and deletion files; `None` if there is none.
    pub(crate) fn file_cache(&self) -> Option<&dyn FileCache> {
        self.guard.file_cache()
    }

    /// Awaits `work` on the table at `uri` for at most `open_timeout`.
    pub(crate) async fn with_open_timeout<T>(
        &self,
        uri: &str,
        work: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        let work = caught(uri, work.map_err(|error| diagnose_opening(uri, error)));
        self.in_open_time(uri, work).await
    }

    /// Awaits `work` on the table or folder at `uri` for at most `open_timeout`. The errors of `work` are this crate's,
    /// not Lance's.
    pub(crate) async fn in_open_time<T>(
        &self,
        uri: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        // Boxed, because the future of opening a dataset is large. Without the box, this function's future would hold
        // it twice, as its argument and in `timeout`, which is too much for the stacks of some threads.
        match tokio::time::timeout(self.open_timeout, Box::pin(work)).await {
            Ok(done) => done,
            Err(_) => Err(LakeError::StoreUnreachable {
                uri: uri.to_owned(),
                why: format!("no answer within {:?}", self.open_timeout),
            }),
        }
    }

    /// Forgets the metadata of all tables. A table that was created anew may have the same version numbers as before,
    /// and Lance keeps the live rows of a version with stable row ids by its number alone (`RowAddrMaskKey`).
    pub(crate) async fn forget_metadata(&self) {
        self.metadata_cache.clear().await;
    }

    /// The session that all datasets share.
    pub(crate) fn session(&self) -> Arc<Session> {
        self.session.clone()
    }

    /// The cache of indexes, for data of this crate. Lance's own entries have other keys.
    pub(crate) fn index_cache(&self) -> &LanceCache {
        &self.index_cache
    }

    /// The size of Lance's cache of indexes and their partitions, in bytes.
    pub(crate) fn index_cache_bytes(&self) -> u64 {
        self.index_cache_bytes
    }

    /// The allow-lists of all tables.
    pub(crate) fn allow_lists(&self) -> &AllowLists {
        &self.allow_lists
    }

    /// The deletion files that open versions of all tables have loaded.
    pub(crate) fn loaded_deletions(&self) -> &LoadedDeletions {
        &self.loaded_deletions
    }

    /// Returns a number that no other table of this opener has.
    pub(crate) fn next_id(&self) -> u64 {
        self.opened.fetch_add(1, Relaxed)
    }

    /// Counts an opened version of the table at `uri`, if the table is in an object store.
    pub(crate) fn count_version(&self, uri: &TableUri) {
        if uri.folder().is_none() {
            count(&self.usage.versions_opened, 1);
        }
    }

    /// Returns the use of object stores since the opener was created.
    pub(crate) fn store_use(&self) -> StoreUse {
        self.usage.now()
    }

    /// The use of Lance's caches, and of the cache of allow-lists.
    pub(crate) async fn cache_use(&self) -> Vec<CacheUse> {
        let session = &self.session;
        let (index, metadata) =
            (session.index_cache_stats().await, session.metadata_cache_stats().await);
        let named = |name, stats: CacheStats, bytes_max| CacheUse {
            name,
            bytes: stats.size_bytes as u64,
            bytes_max,
            hits: stats.hits,
            misses: stats.misses,
        };
        vec![
            named("index", index, self.index_cache_bytes),
            named("metadata", metadata, self.metadata_cache_bytes),
            self.allow_lists.cache_use(),
        ]
    }

    /// The parameters with which Lance makes the stores of one table.
    pub(crate) async fn store_params(&self, uri: &TableUri) -> Result<ObjectStoreParams> {
        Ok(self.fenced_params(Some(uri), self.fence(uri).await?))
    }

    /// The parameters with which Lance makes the store in which a folder of tables is listed.
    pub(crate) fn folder_params(&self, folder: &TableFolder) -> ObjectStoreParams {
        self.fenced_params(None, Fence::around(folder))
    }

    fn fenced_params(&self, table: Option<&TableUri>, fence: Fence) -> ObjectStoreParams {
        // Lance removes unused stores from its registry only when it lists the active ones.
        self.session.store_registry().active_stores();
        let mut options = self.store_options.clone();
        let is_block_size_set = options.keys().any(|name| name.eq_ignore_ascii_case("block_size"));
        options.insert(FENCE_OPTION.to_owned(), fence.to_option());
        let accessor = StorageOptionsAccessor::with_static_options(options);
        let guard = TableGuard::new(Arc::clone(&self.guard), table.cloned(), fence);
        let is_in_store = table.is_some_and(|table| table.folder().is_none());
        ObjectStoreParams {
            block_size: self.block_bytes.filter(|_| is_in_store && !is_block_size_set),
            storage_options_accessor: Some(Arc::new(accessor)),
            object_store_wrapper: Some(Arc::new(guard)),
            ..Default::default()
        }
    }

    /// Returns the fence of one table: its own folder, and the prefixes that it may also read.
    async fn fence(&self, uri: &TableUri) -> Result<Fence> {
        let mut also = Vec::new();
        for AlsoReads { table, prefixes } in &self.also_reads {
            if table == uri || resolved(table).await? == *uri {
                for prefix in prefixes {
                    also.push(resolved_prefix(prefix).await?);
                }
            }
        }
        Ok(Fence::new(uri, also))
    }

    /// Returns Lance's builder of a branch of the dataset at `uri`. Its fence is the table's, because a branch refers
    /// to files of its parent.
    pub(crate) async fn builder(
        &self,
        uri: &TableUri,
        branch: Option<&BranchName>,
    ) -> Result<DatasetBuilder> {
        let location = match branch {
            None => uri.to_string(),
            Some(branch) => format!("{uri}/{}", branch.folder()),
        };
        Ok(DatasetBuilder::from_uri(location)
            .with_session(self.session.clone())
            .with_store_params(self.store_params(uri).await?))
    }
}

/// A branch other than the main one, as its table has it.
#[derive(Debug)]
pub(crate) struct FoundBranch {
    pub(crate) name: BranchName,
    /// The e-tag, time and size of the file that says which version of which branch the branch began from. The file
    /// holds a random id of the branch, so another branch that gets the same name later has another file.
    pub(crate) creation: String,
}

/// Returns the metadata of a file in the dataset's store; `None` if it does not exist.
async fn head(dataset: &Dataset, file: &Path) -> lance::Result<Option<ObjectMeta>> {
    match dataset.object_store(None).await?.inner.head(file).await {
        Ok(file) => Ok(Some(file)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn no_branch(uri: &TableUri, branch: &BranchName) -> LakeError {
    LakeError::BranchNotFound { uri: uri.to_string(), branch: branch.to_string() }
}

/// A version of a branch, while it was the latest one.
pub(crate) struct Latest {
    version: u64,
    /// The e-tag of its manifest.
    e_tag: Option<String>,
}

impl Latest {
    pub(crate) fn of(manifest: &ManifestLocation) -> Self {
        Self { version: manifest.version, e_tag: manifest.e_tag.clone() }
    }

    /// Returns whether the branch must have been created anew before `now` became its latest version. If it has more
    /// versions than before, it looks like the same branch ([`Opener::is_overwritten`] tells them apart).
    pub(crate) fn is_replaced_by(&self, now: &Self) -> bool {
        let is_another = self.e_tag.is_some() && now.e_tag.is_some() && self.e_tag != now.e_tag;
        now.version < self.version || (now.version == self.version && is_another)
    }
}
