//! The settings of a [`Lake`](crate::Lake): access to the stores, and memory for caches.

pub(crate) mod names;
pub(crate) mod secrets;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use lance_io::object_store::StorageOptions;
use stores::StoreLimits;
use tables::{TableUri, UriPrefix};

use crate::options::secrets::SecretOptions;
use crate::stop::Stop;

/// [`LakeOptions::block_bytes`] of a process that reads rows. Pages of a column with some of the wanted rows are often 64
/// to 128 KiB apart. At 90 MB/s, so many bytes take 1.4 ms, and a request of its own takes 30 ms. Two takes of 1,000
/// random rows of TPC-H's lineitem (SF 1), with the fills of their chunks, take 1,300 requests and 460 to 520 MB; with
/// Lance's default, 2,700 requests and 410 MB.
const ROW_BLOCK_BYTES: usize = 128 << 10;

/// The files that one table may read in addition to its own folder: base paths of shallow clones, external blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlsoReads {
    /// The table.
    pub table: TableUri,
    /// Other tables' folders, or prefixes that end in `/`.
    pub prefixes: Vec<UriPrefix>,
}

/// The settings of a [`Lake`](crate::Lake), for all its tables.
#[derive(Clone)]
pub struct LakeOptions {
    /// Options of the object stores, by the names that the `object_store` crate gives them:
    /// `aws_access_key_id`, `aws_secret_access_key`, `aws_region`, `aws_endpoint`, `allow_http`,
    /// `google_service_account`, `azure_storage_account_name` and so on. The environment (`AWS_ACCESS_KEY_ID`, ...)
    /// provides those that are omitted, as with other tools.
    pub storage: HashMap<String, String>,
    /// Further options, which are secret.
    pub storage_secrets: Option<SecretOptions>,
    /// The files that some tables may read in addition to their own folders. All other tables read only their folders.
    pub also_reads: Vec<AlsoReads>,
    /// The largest size of the cache of indexes, their partitions, texts that full-text indexes do not cover, and the
    /// rows that pass filters, in bytes, over all tables. The memory of running queries is additional.
    pub index_cache_bytes: usize,
    /// The largest size of the cache of manifests, file footers and deletion vectors, in bytes.
    pub metadata_cache_bytes: usize,
    /// The largest total size of the recently read blocks of files that are kept, in bytes. Only I/O nodes, which serve
    /// files to query nodes, keep such blocks.
    pub recent_block_bytes: usize,
    /// The largest gap between two ranges of a file in an object store that one request reads together, and the bytes
    /// that are read first at the end of a file; `None` for Lance's default, 64 KiB. The user's option `block_size` takes
    /// precedence.
    pub block_bytes: Option<usize>,
    /// Longest time that opening a table, or finding its latest version, may take before the store counts as
    /// unreachable.
    pub open_timeout: Duration,
    /// Longest time to establish one connection to the store.
    pub connect_timeout: Duration,
    /// Longest time from sending a request to the store until the body of the answer has arrived.
    pub request_timeout: Duration,
    /// The maximum number of times that the store's client retries a failed request, and that Lance resumes a body that
    /// breaks off. Lance also retries failed reads by itself: see `store/mod.rs`.
    pub retries_max: usize,
    /// The time after which the store's client no longer retries a failed request. By default it is shorter than
    /// `request_timeout`, so the client does not retry a request that times out.
    pub retry_timeout: Duration,
    /// The limits of each object store.
    pub store: StoreLimits,
    /// Interrupts ingests and index builds.
    pub stop: Stop,
}

/// Omits the values of the store options, since some are secrets.
impl fmt::Debug for LakeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.storage.keys().collect();
        names.sort();
        f.debug_struct("LakeOptions")
            .field("storage", &names)
            .field("index_cache_bytes", &self.index_cache_bytes)
            .field("metadata_cache_bytes", &self.metadata_cache_bytes)
            .field("open_timeout", &self.open_timeout)
            .finish_non_exhaustive()
    }
}

impl Default for LakeOptions {
    fn default() -> Self {
        Self {
            storage: HashMap::new(),
            storage_secrets: None,
            also_reads: Vec::new(),
            index_cache_bytes: 1 << 30,
            metadata_cache_bytes: 256 << 20,
            recent_block_bytes: 0,
            block_bytes: None,
            open_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(30),
            retries_max: 2,
            retry_timeout: Duration::from_secs(8),
            store: StoreLimits::default(),
            stop: Stop::default(),
        }
    }
}

impl LakeOptions {
    /// Options for a process that reads rows and files and searches no index, with `cache` bytes for all caches
    /// together.
    pub fn for_row_reads(
        cache: usize,
        storage: HashMap<String, String>,
        store: StoreLimits,
    ) -> Self {
        let index_cache_bytes = cache / 16;
        let recent_block_bytes = cache / 8;
        let metadata_cache_bytes = cache - index_cache_bytes - recent_block_bytes;
        Self {
            storage,
            index_cache_bytes,
            metadata_cache_bytes,
            recent_block_bytes,
            block_bytes: Some(ROW_BLOCK_BYTES),
            store,
            ..Self::default()
        }
    }

    /// The store options as Lance takes them. The user's options win over the limits set here.
    pub(crate) fn store_options(&self) -> HashMap<String, String> {
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let mut all = HashMap::from([
            ("connect_timeout".to_owned(), millis(self.connect_timeout)),
            ("timeout".to_owned(), millis(self.request_timeout)),
            ("client_max_retries".to_owned(), self.retries_max.to_string()),
            ("client_retry_timeout".to_owned(), self.retry_timeout.as_secs().max(1).to_string()),
            ("download_retry_count".to_owned(), self.retries_max.to_string()),
        ]);
        all.extend(self.storage.clone());
        all.extend(self.storage_secrets.iter().flat_map(SecretOptions::values));
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        if asks_for_plain_http(&all, environment) {
            all.insert("allow_http".into(), "true".into());
        }
        all
    }
}

/// Returns whether an endpoint is `http://`, and nothing says whether plain HTTP is allowed. Without `allow_http`, the
/// stores' clients would refuse each request to such an endpoint as malformed. S3's endpoint may be in the environment
/// instead of `options`, which take precedence, as in Lance.
fn asks_for_plain_http(
    options: &HashMap<String, String>,
    environment: HashMap<String, String>,
) -> bool {
    let mut s3 = StorageOptions(environment).as_s3_options();
    s3.extend(StorageOptions(options.clone()).as_s3_options());
    let s3: HashMap<&str, &String> = s3.iter().map(|(key, value)| (key.as_ref(), value)).collect();
    let is_set =
        s3.contains_key("allow_http") || options.keys().any(|name| name.ends_with("allow_http"));
    let configured = options.iter().filter(|(name, _)| name.ends_with("endpoint"));
    let of_s3 = s3.get("aws_endpoint_url_s3").or(s3.get("aws_endpoint")).copied();
    let mut endpoints = configured.map(|(_, value)| value).chain(of_s3);
    !is_set && endpoints.any(|endpoint| endpoint.starts_with("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_options_win() {
        let mut options = LakeOptions::default();
        options.storage.insert("timeout".into(), "1s".into());
        let store = options.store_options();
        assert!(!format!("{options:?}").contains("1s"), "values may be secrets");
        assert_eq!(store["timeout"], "1s");
        assert_eq!(store["connect_timeout"], "3000ms");
        assert_eq!(store["client_retry_timeout"], "8");
    }

    #[test]
    fn an_endpoint_without_encryption_is_allowed_if_it_is_configured() {
        let allowed = |pairs: &[(&str, &str)]| {
            let options = LakeOptions { storage: strings(pairs), ..Default::default() };
            options.store_options().get("allow_http").cloned()
        };
        assert_eq!(allowed(&[("aws_endpoint", "http://minio:9000")]).as_deref(), Some("true"));
        assert_eq!(allowed(&[("aws_endpoint", "https://minio:9000")]), None);
        let denied = [("endpoint", "http://minio:9000"), ("allow_http", "false")];
        assert_eq!(allowed(&denied).as_deref(), Some("false"));
        assert_eq!(
            allowed(&[("endpoint", "http://minio:9000"), ("aws_allow_http", "false")]),
            None
        );
    }

    #[test]
    fn an_endpoint_without_encryption_may_be_in_the_environment() {
        let asks = |options: &[(&str, &str)], environment: &[(&str, &str)]| {
            asks_for_plain_http(&strings(options), strings(environment))
        };
        let http = "http://minio:9000";
        let https = "https://minio:9000";
        for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            assert!(asks(&[], &[(name, http)]), "{name}");
            assert!(!asks(&[], &[(name, https)]), "{name}");
            assert!(!asks(&[("aws_allow_http", "false")], &[(name, http)]), "{name}");
            assert!(!asks(&[], &[(name, http), ("AWS_ALLOW_HTTP", "false")]), "{name}");
        }
        assert!(asks(&[("aws_endpoint_url", http)], &[]));
        assert!(!asks(&[("endpoint", https)], &[("AWS_ENDPOINT", http)]), "the option wins");
        let s3_first = [("AWS_ENDPOINT", http), ("AWS_ENDPOINT_URL_S3", https)];
        assert!(!asks(&[], &s3_first), "S3's own variable wins");
        assert!(!asks(&[], &[("HTTP_PROXY", http)]));
    }

    fn strings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
    }
}
