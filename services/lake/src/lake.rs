//! The way in: opens tables, one shared session for all of them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::session::Session;
use lance_core::cache::CacheStats;
use lance_io::object_store::{ObjectStoreParams, StorageOptionsAccessor};
use tables::{CacheUse, StorePrices};
use wire::fetch::StoreUse;

use crate::diagnose::diagnose_opening;
use crate::error::{LakeError, Result};
use crate::options::LakeOptions;
use crate::stop::Stop;
use crate::store::{Guard, StoreUsage};
use crate::table::Table;

/// A way to tables in folders (`/data/t`, `file:///data/t`) and object stores (`s3://bucket/t`,
/// `gs://bucket/t`, `az://container/t`). Cheap to clone; clones share caches and connections.
#[derive(Clone)]
pub struct Lake {
    inner: Arc<Inner>,
}

struct Inner {
    session: Arc<Session>,
    store_options: HashMap<String, String>,
    open_timeout: Duration,
    stop: Stop,
    /// One for all, by which Lance knows stores that it has from ones that it hasn't.
    guard: Arc<Guard>,
    usage: Arc<StoreUsage>,
    prices: StorePrices,
    index_cache_bytes: u64,
    metadata_cache_bytes: u64,
}

impl std::fmt::Debug for Lake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the store options: they hold secrets.
        f.debug_struct("Lake").field("session", &self.inner.session).finish_non_exhaustive()
    }
}

impl Lake {
    /// Touches neither disk nor network.
    pub fn new(options: LakeOptions) -> Self {
        let session =
            Session::new(options.index_cache_bytes, options.metadata_cache_bytes, Arc::default());
        let usage = Arc::new(StoreUsage::default());
        Self {
            inner: Arc::new(Inner {
                session: Arc::new(session),
                store_options: options.store_options(),
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
        let dataset = self.dataset(uri).await?;
        Table::new(self.clone(), dataset).await
    }

    /// Opens one version of the table at `uri`. Errors: those of [`open`](Self::open), and
    /// `VersionNotFound`.
    pub async fn open_version(&self, uri: &str, version: u64) -> Result<Table> {
        let uri = normal_uri(uri)?;
        match self.within(&uri, self.builder(&uri).with_version(version).load()).await {
            Ok(dataset) => Table::new(self.clone(), dataset).await,
            // A missing version is reported in several ways; the table itself tells them apart
            // from a missing table or a store that doesn't answer.
            Err(
                error @ (LakeError::StoreUnreachable { .. } | LakeError::CredentialsRefused { .. }),
            ) => Err(error),
            Err(error) => match self.latest_version(&uri).await? {
                latest if latest == version => Err(error),
                latest => Err(LakeError::VersionNotFound { uri, version, latest }),
            },
        }
    }

    /// The number of the latest version of the table at `uri`. For a table that is open already,
    /// [`Table::latest_version`] is cheaper. Errors: those of [`open`](Self::open).
    pub async fn latest_version(&self, uri: &str) -> Result<u64> {
        Ok(self.dataset(uri).await?.version_id())
    }

    /// The latest version as Lance sees it.
    pub(crate) async fn dataset(&self, uri: &str) -> Result<Dataset> {
        let uri = normal_uri(uri)?;
        self.within(&uri, self.builder(&uri).load()).await
    }

    /// `work` on the table at `uri`, given up after the time that opening may take.
    pub(crate) async fn within<T>(
        &self,
        uri: &str,
        work: impl Future<Output = lance::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.inner.open_timeout, work).await {
            Ok(done) => done.map_err(|error| diagnose_opening(uri, error)),
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

    /// What object stores were asked for since the start.
    pub fn store_use(&self) -> StoreUse {
        self.inner.usage.at(&self.inner.prices)
    }

    /// How Lance's caches are used.
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

    /// How Lance reaches the store.
    pub(crate) fn store_params(&self) -> ObjectStoreParams {
        let accessor =
            StorageOptionsAccessor::with_static_options(self.inner.store_options.clone());
        ObjectStoreParams {
            storage_options_accessor: Some(Arc::new(accessor)),
            object_store_wrapper: Some(self.inner.guard.clone()),
            ..Default::default()
        }
    }

    fn builder(&self, uri: &str) -> DatasetBuilder {
        DatasetBuilder::from_uri(uri)
            .with_session(self.inner.session.clone())
            .with_store_params(self.store_params())
    }
}

/// One spelling for each table. Errors: `BadUri`.
pub fn normal_uri(uri: &str) -> Result<String> {
    tables::normal_uri(uri)
        .map_err(|error| LakeError::BadUri { uri: uri.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_one_spelling() {
        assert_eq!(normal_uri("/data/t/").unwrap(), "/data/t");
        assert_eq!(normal_uri("file:///data/t").unwrap(), "/data/t");
        assert_eq!(normal_uri("s3://b/t/").unwrap(), "s3://b/t");
        assert!(normal_uri("t").unwrap().starts_with('/'));
        assert!(normal_uri("  ").is_err());
        assert!(normal_uri("/").is_err());
    }
}
