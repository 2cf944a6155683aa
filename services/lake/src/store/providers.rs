//! The object stores that Lance may make: folders, and those of the three clouds.
//!
//! Lance's own registry knows a dozen schemes, among them some that read memory, other services, or files without the
//! object store API. Here each store is made for one table, after the URI has passed the table's [`Fence`]. A table
//! that names a bucket outside its fence causes no request to that bucket, not even the one that finds out the bucket's
//! region. The clients are shared: one for each bucket of the configured tables and prefixes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lance::Error as LanceError;
use lance::Result as LanceResult;
use lance_io::object_store::providers::aws::AwsStoreProvider;
use lance_io::object_store::providers::azure::AzureBlobStoreProvider;
use lance_io::object_store::providers::gcp::GcsStoreProvider;
use lance_io::object_store::providers::local::FileStoreProvider;
use lance_io::object_store::{
    ObjectStore, ObjectStoreParams, ObjectStoreProvider, ObjectStoreRegistry,
    StorageOptionsAccessor,
};
use object_store::path::Path;
use tokio::sync::OnceCell;
use url::Url;

use super::fence::{Fence, ForbiddenPath};
use crate::options::secrets::SecretOptions;

/// The storage option that carries a table's [`Fence`]. No store has an option of this name.
pub const FENCE_OPTION: &str = "bireme_fence";

/// Lance's name of the store of all folders. It must not be `file`: with that name Lance opens files itself and
/// bypasses the wrapped store.
pub const FOLDERS: &str = "file$fenced";

/// A registry of the stores that tables may be in. Those of the clouds use `secrets`.
pub fn registry(secrets: Option<&SecretOptions>) -> Arc<ObjectStoreRegistry> {
    let registry = ObjectStoreRegistry::empty();
    registry.insert("file", Arc::new(Fenced::new(FileStoreProvider, None)));
    registry.insert("s3", Arc::new(Fenced::new(AwsStoreProvider, secrets)));
    registry.insert("gs", Arc::new(Fenced::new(GcsStoreProvider, secrets)));
    registry.insert("az", Arc::new(Fenced::new(AzureBlobStoreProvider, secrets)));
    Arc::new(registry)
}

/// Makes the stores of one scheme.
#[derive(Debug)]
struct Fenced<P> {
    inner: P,
    secrets: Option<SecretOptions>,
    /// The stores by Lance's names for them. There is at most one for each bucket that some table may read.
    stores: Mutex<HashMap<String, Arc<OnceCell<ObjectStore>>>>,
}

impl<P: ObjectStoreProvider> Fenced<P> {
    fn new(inner: P, secrets: Option<&SecretOptions>) -> Self {
        Self { inner, secrets: secrets.cloned(), stores: Mutex::default() }
    }

    fn check(&self, url: &Url, options: Option<&HashMap<String, String>>) -> LanceResult<()> {
        let forbidden = |outside: ForbiddenPath| LanceError::io_source(Box::new(outside));
        let fence = options.and_then(|options| options.get(FENCE_OPTION));
        let fence = fence.ok_or_else(|| forbidden(ForbiddenPath::outside(url.as_str())))?;
        let host = url.host_str().unwrap_or_default();
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.port().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            && (url.scheme() == "file") == host.is_empty();
        if !is_plain {
            return Err(forbidden(ForbiddenPath::outside(url.as_str())));
        }
        let path = self.inner.extract_path(url)?;
        let place = match url.scheme() {
            "file" => format!("/{path}"),
            scheme => format!("{scheme}://{host}/{path}"),
        };
        Fence::of_option(fence).check(place.trim_end_matches('/')).map_err(forbidden)
    }

    fn prefix(&self, url: &Url, options: Option<&HashMap<String, String>>) -> LanceResult<String> {
        match url.scheme() {
            "file" => Ok(FOLDERS.to_owned()),
            _ => self.inner.calculate_object_store_prefix(url, options),
        }
    }
}

#[async_trait]
impl<P: ObjectStoreProvider> ObjectStoreProvider for Fenced<P> {
    async fn new_store(&self, url: Url, params: &ObjectStoreParams) -> LanceResult<ObjectStore> {
        self.check(&url, params.storage_options())?;
        let prefix = self.prefix(&url, params.storage_options())?;
        let cell = {
            let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(stores.entry(prefix.clone()).or_default())
        };
        let make = || async {
            let mut options = params.storage_options().cloned().unwrap_or_default();
            options.remove(FENCE_OPTION);
            let accessor = match &self.secrets {
                Some(secrets) => secrets.accessor(options),
                None => StorageOptionsAccessor::with_static_options(options),
            };
            let accessor = Some(Arc::new(accessor));
            let params = ObjectStoreParams { storage_options_accessor: accessor, ..params.clone() };
            let mut store = self.inner.new_store(url, &params).await?;
            store.store_prefix = prefix;
            Ok::<_, LanceError>(store)
        };
        cell.get_or_try_init(make).await.cloned()
    }

    fn extract_path(&self, url: &Url) -> LanceResult<Path> {
        self.inner.extract_path(url)
    }

    /// Lance calls this whenever it needs a store, even one that it has already. The check here keeps Lance from giving
    /// one table the store of another table.
    fn calculate_object_store_prefix(
        &self,
        url: &Url,
        options: Option<&HashMap<String, String>>,
    ) -> LanceResult<String> {
        self.check(url, options)?;
        self.prefix(url, options)
    }
}
