//! Opens tables, which share one Lance session.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::TryFutureExt;
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::session::Session;
use lance_core::cache::CacheStats;
use lance_io::object_store::{ObjectStoreParams, StorageOptionsAccessor};
use tables::{CacheUse, StorePrices, TableUri};
use wire::fetch::StoreUse;

use crate::canonical::{resolved, resolved_prefix};
use crate::caught::caught;
use crate::diagnose::diagnose_opening;
use crate::error::{LakeError, Result};
use crate::options::{AlsoReads, LakeOptions};
use crate::stop::Stop;
use crate::store::{FENCE_OPTION, Fence, Guard, StoreUsage, TableGuard, registry};
use crate::table::Table;

/// Opens tables in folders (`/data/t`, `file:///data/t`) and object stores (`s3://bucket/t`, `gs://bucket/t`,
/// `az://container/t`). Cheap to clone; clones share caches and connections.
#[derive(Clone)]
pub struct Lake {
    inner: Arc<Inner>,
}

struct Inner {
    session: Arc<Session>,
    store_options: HashMap<String, String>,
    also_reads: Vec<AlsoReads>,
    open_timeout: Duration,
    stop: Stop,
    guard: Arc<Guard>,
    usage: Arc<StoreUsage>,
    prices: StorePrices,
    index_cache_bytes: u64,
    metadata_cache_bytes: u64,
}

impl std::fmt::Debug for Lake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the store options: they hold secrets.
        f.debug_struct("Lake").field("session", &self.inner.session).finish_non_exhaustive()
    }
}

impl Lake {
    /// Creates a lake. Uses neither disk nor network.
    pub fn new(options: LakeOptions) -> Self {
        let session =
            Session::new(options.index_cache_bytes, options.metadata_cache_bytes, registry());
        let usage = Arc::new(StoreUsage::default());
        Self {
            inner: Arc::new(Inner {
                session: Arc::new(session),
                store_options: options.store_options(),
                also_reads: options.also_reads,
                open_timeout: options.open_timeout,
                guard: Arc::new(Guard::new(options.store, Arc::clone(&usage))),
                usage,
                prices: options.store.prices,
                index_cache_bytes: options.index_cache_bytes as u64,
                metadata_cache_bytes: options.metadata_cache_bytes as u64,
                stop: options.stop,
            }),
        }
    }

    /// Opens the latest version of the table at `uri`.
    ///
    /// Errors: `TableNotFound`, `StoreUnreachable` (within `open_timeout`), `CredentialsRefused`,
    /// `BadUri`, `Corrupt`, `Unsupported`.
    pub async fn open(&self, uri: &str) -> Result<Table> {
        let uri = self.canonical(uri).await?;
        let dataset = self.dataset(&uri).await?;
        let opened = Table::new(self.clone(), uri.clone(), dataset);
        caught(uri.as_str(), opened).await
    }

    /// Returns a table's URI in its canonical form: a folder's absolute path, without symbolic links. Relative paths
    /// start at the working directory.
    ///
    /// Errors: `BadUri`, `StoreRefuses` for a path that this process may not look up.
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
        let load = self.builder(&uri).await?.with_version(version).load();
        match self.with_open_timeout(uri.as_str(), load).await {
            Ok(dataset) => {
                let opened = Table::new(self.clone(), uri.clone(), dataset);
                caught(uri.as_str(), opened).await
            }
            // Lance reports a missing version in several ways. Opening the latest version tells them apart from a
            // missing table.
            Err(
                error @ (LakeError::StoreUnreachable { .. } | LakeError::CredentialsRefused { .. }),
            ) => Err(error),
            Err(error) => match self.dataset(&uri).await?.version_id() {
                latest if latest == version => Err(error),
                latest => Err(LakeError::VersionNotFound { uri: uri.to_string(), version, latest }),
            },
        }
    }

    /// Returns the number of the latest version of the table at `uri`. For a table that is open already,
    /// [`Table::latest_version`] is cheaper. Errors: those of [`open`](Self::open).
    pub async fn latest_version(&self, uri: &str) -> Result<u64> {
        Ok(self.dataset(&self.canonical(uri).await?).await?.version_id())
    }

    /// Opens the latest version, as Lance's type.
    pub(crate) async fn dataset(&self, uri: &TableUri) -> Result<Dataset> {
        let load = self.builder(uri).await?.load();
        self.with_open_timeout(uri.as_str(), load).await
    }

    /// Awaits `work` on the table at `uri` for at most `open_timeout`.
    pub(crate) async fn with_open_timeout<T>(
        &self,
        uri: &str,
        work: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        let work = caught(uri, work.map_err(|error| diagnose_opening(uri, error)));
        match tokio::time::timeout(self.inner.open_timeout, work).await {
            Ok(done) => done,
            Err(_) => Err(LakeError::StoreUnreachable {
                uri: uri.to_owned(),
                why: format!("no answer within {:?}", self.inner.open_timeout),
            }),
        }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.inner.session.clone()
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.inner.stop
    }

    /// The requests to object stores since the start.
    pub fn store_use(&self) -> StoreUse {
        self.inner.usage.at(&self.inner.prices)
    }

    /// The use of Lance's caches.
    pub async fn cache_use(&self) -> Vec<CacheUse> {
        let session = &self.inner.session;
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
            named("index", index, self.inner.index_cache_bytes),
            named("metadata", metadata, self.inner.metadata_cache_bytes),
        ]
    }

    /// The parameters with which Lance makes the stores of one table.
    pub(crate) async fn store_params(&self, uri: &TableUri) -> Result<ObjectStoreParams> {
        let fence = self.fence(uri).await?;
        let mut options = self.inner.store_options.clone();
        options.insert(FENCE_OPTION.to_owned(), fence.to_option());
        let accessor = StorageOptionsAccessor::with_static_options(options);
        let guard = TableGuard::new(Arc::clone(&self.inner.guard), fence);
        Ok(ObjectStoreParams {
            storage_options_accessor: Some(Arc::new(accessor)),
            object_store_wrapper: Some(Arc::new(guard)),
            ..Default::default()
        })
    }

    /// The fence of one table: its own folder, and what it may also read.
    async fn fence(&self, uri: &TableUri) -> Result<Fence> {
        let mut also = Vec::new();
        for AlsoReads { table, prefixes } in &self.inner.also_reads {
            if table == uri || resolved(table).await? == *uri {
                for prefix in prefixes {
                    also.push(resolved_prefix(prefix).await?);
                }
            }
        }
        Ok(Fence::new(uri, also))
    }

    async fn builder(&self, uri: &TableUri) -> Result<DatasetBuilder> {
        // Lance forgets the names of stores that are no longer used only when it lists those that are.
        self.inner.session.store_registry().active_stores();
        Ok(DatasetBuilder::from_uri(uri.as_str())
            .with_session(self.inner.session.clone())
            .with_store_params(self.store_params(uri).await?))
    }
}
