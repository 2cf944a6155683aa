//! The public keys of an issuer of tokens: a JSON Web Key Set from a file or a URL.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::time::Instant;
use url::Url;

use crate::digest::{Digest, digest};

/// The maximum size of a key set, in bytes. It bounds the memory that a wrong URL can take.
const BYTES_MAX: usize = 1 << 20;

/// The maximum time of a request for keys. Requests whose tokens name a key that is not known yet wait for it.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which keys are fetched from a URL. A key that its issuer removes is accepted until the next fetch
/// succeeds. An issuer gets 288 such requests a day from each node.
const FETCH_INTERVAL: Duration = Duration::from_secs(300);

/// The minimum time between two requests, however many tokens name unknown keys.
const FETCH_PAUSE: Duration = Duration::from_secs(30);

/// The source of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A URL, with `ca` and `token_file` if its server needs them.
    Url {
        /// The address.
        url: Url,
        /// The PEM file of the authorities that sign the server's certificate, instead of those that the system trusts.
        ca: Option<PathBuf>,
        /// The file of a bearer token to send, such as a service account's.
        token_file: Option<PathBuf>,
    },
}

impl KeySource {
    /// Parses the setting `jwks`: a path, or a URL.
    ///
    /// # Errors
    /// The problem, and how to fix it.
    pub fn parse(
        text: &str,
        ca: Option<PathBuf>,
        token_file: Option<PathBuf>,
    ) -> Result<Self, String> {
        if !text.contains("://") {
            return match ca.or(token_file) {
                None if text.is_empty() => Err("is empty; give a file or a URL".into()),
                None => Ok(Self::File(text.into())),
                Some(_) => Err("is a file, which needs no `ca` and no `token_file`".into()),
            };
        }
        let url: Url = text.parse().map_err(|error| format!("is `{text}`: {error}"))?;
        let is_local = url.host_str().is_some_and(|host| {
            host == "localhost"
                || host
                    .trim_matches(['[', ']'])
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        });
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "has credentials, which logs would show; give a token in `token_file`".into()
            );
        }
        match url.scheme() {
            "https" => Ok(Self::Url { url, ca, token_file }),
            "http" if is_local => Ok(Self::Url { url, ca, token_file }),
            _ => Err(format!(
                "is `{text}`; keys come over https:// (http:// only from this machine) or from a file"
            )),
        }
    }
}

/// A key that verifies tokens.
pub struct VerifyingKey {
    id: Option<String>,
    /// The digest of the key's entry in the set.
    pub(crate) digest: Digest,
    /// The algorithms that fit the key.
    algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

/// An issuer's keys.
pub struct KeySet {
    source: KeySource,
    keys: ArcSwap<Vec<VerifyingKey>>,
    /// Grows whenever the keys have changed.
    generation: AtomicU64,
    refresh: Mutex<Refresh>,
    /// Held while keys are fetched, so that callers that wait for the same keys make one request.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Refresh {
    /// The digest of the set in use.
    digest: Option<Digest>,
    /// The ends of the last attempt, and of the last one that succeeded.
    tried: Option<Instant>,
    succeeded: Option<Instant>,
    /// Whether the last attempt failed.
    has_failed: bool,
}

impl KeySet {
    /// Creates an empty set.
    pub fn new(source: KeySource) -> Self {
        let (keys, generation, refresh, fetching) = Default::default();
        Self { source, keys, generation, refresh, fetching }
    }

    /// Returns whether keys come from this source.
    pub fn is_from(&self, source: &KeySource) -> bool {
        self.source == *source
    }

    /// Calls `with` with the key that may have signed a token with this `kid` (`id`) and algorithm. Returns `None`
    /// unless exactly one key fits. Keys of every id fit a token without `kid`.
    pub fn with_key<T>(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        with: impl FnOnce(&VerifyingKey) -> T,
    ) -> Option<T> {
        let keys = self.keys.load();
        let mut fitting = keys.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        });
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Some(with(key)),
            _ => None,
        }
    }

    /// Returns whether the set still has the key with this digest.
    pub fn has(&self, key: &Digest) -> bool {
        self.keys.load().iter().any(|it| it.digest == *key)
    }

    /// Returns a number that grows whenever the keys have changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether a token that names an unknown key is worth a call of [`fetch_again`](Self::fetch_again): the keys
    /// are being fetched, or may be fetched again.
    pub fn can_fetch(&self) -> bool {
        matches!(self.source, KeySource::Url { .. })
            && self.locked().tried.is_none_or(|at| at.elapsed() >= FETCH_PAUSE)
    }

    /// Returns whether the last attempt to read the keys failed.
    pub fn has_failed(&self) -> bool {
        self.locked().has_failed
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Refresh> {
        self.refresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Fetches the keys for a token that names an unknown one, unless that was tried a moment ago. If they are being
    /// fetched already, waits for them. The request continues if the caller leaves meanwhile: otherwise callers that
    /// leave at once could prevent the keys from ever being fetched.
    pub async fn fetch_again(self: Arc<Self>) {
        let one = Arc::clone(&self.fetching).lock_owned().await;
        if self.can_fetch() {
            let fetch = async move {
                let _one = one;
                self.read().await;
            };
            // If the task panics, the old keys stay in use.
            let _ = tokio::spawn(fetch).await;
        }
    }

    /// Reads the file, or fetches the keys from their URL if the last successful fetch is older than [`FETCH_INTERVAL`]
    /// and the last attempt is older than [`FETCH_PAUSE`]. Does nothing while the keys are being read.
    pub async fn refresh(&self) {
        let is_due = match &self.source {
            KeySource::File(_) => true,
            KeySource::Url { .. } => {
                let refresh = self.locked();
                let is_older = |at: Option<Instant>, age| at.is_none_or(|at| at.elapsed() >= age);
                is_older(refresh.succeeded, FETCH_INTERVAL) && is_older(refresh.tried, FETCH_PAUSE)
            }
        };
        if is_due {
            let Ok(_one) = self.fetching.try_lock() else { return };
            self.read().await;
        }
    }

    /// Reads the keys. If that fails, the old ones stay.
    async fn read(&self) {
        let read = match &self.source {
            KeySource::File(path) => tokio::fs::read(path).await.map_err(|error| error.to_string()),
            KeySource::Url { url, ca, token_file } => {
                fetch(url, ca.as_deref(), token_file.as_deref()).await
            }
        };
        let seen = read.as_ref().ok().map(|bytes| digest(bytes));
        let is_same = seen.is_some() && seen == self.locked().digest;
        let keys = match is_same {
            true => Ok(None),
            false => read.and_then(|bytes| parse(&bytes)).map(Some),
        };
        let mut refresh = self.locked();
        // Not before: until then, callers with new keys wait for this attempt (`can_fetch`) and are not refused.
        refresh.tried = Some(Instant::now());
        let had_failed = std::mem::replace(&mut refresh.has_failed, keys.is_err());
        match keys {
            Ok(keys) => {
                refresh.succeeded = Some(Instant::now());
                if had_failed {
                    tracing::info!(source = %self.source, "the issuer's keys can be read again");
                }
                if let Some(keys) = keys {
                    refresh.digest = seen;
                    self.keys.store(keys.into());
                    self.generation.fetch_add(1, Ordering::AcqRel);
                }
            }
            Err(error) => {
                if !had_failed {
                    tracing::error!(source = %self.source, %error, "the issuer's keys can't be read; the old ones stay");
                }
            }
        }
    }
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url { url, .. } => url.fmt(f),
        }
    }
}

async fn fetch(url: &Url, ca: Option<&Path>, token: Option<&Path>) -> Result<Vec<u8>, String> {
    // Follow no redirects, because one could lead away from https.
    let mut client =
        reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    if url.scheme() == "http" {
        // A URL with `http` is always on this machine, so that no proxy is needed.
        client = client.no_proxy();
    }
    if let Some(path) = ca {
        let pem =
            tokio::fs::read(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
        let authorities = reqwest::Certificate::from_pem_bundle(&pem).map_err(text)?;
        client = client.tls_certs_only(authorities);
    }
    let mut request = client.build().map_err(text)?.get(url.clone());
    if let Some(path) = token {
        let token = tokio::fs::read_to_string(path).await;
        let token = token.map_err(|error| format!("{}: {error}", path.display()))?;
        request = request.bearer_auth(token.trim());
    }
    let mut response = request.send().await.map_err(text)?;
    if !response.status().is_success() {
        return Err(format!("it answers {}", response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(text)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > BYTES_MAX {
            return Err(format!("it has more than {BYTES_MAX} bytes"));
        }
    }
    Ok(bytes)
}

/// Describes an error by its innermost cause, which says what is wrong.
fn text(error: reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Parses a key set. Keys that are not for verifying signatures, and keys of unknown kinds, are left out.
fn parse(bytes: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    if bytes.len() > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    let set: Vec<serde_json::Value> = match serde_json::from_slice(bytes) {
        Ok(serde_json::Value::Object(mut set)) => match set.remove("keys") {
            Some(serde_json::Value::Array(keys)) => keys,
            _ => return Err("it is no JSON Web Key Set: it has no list `keys`".into()),
        },
        Ok(_) => return Err("it is no JSON Web Key Set: it is no object".into()),
        Err(error) => return Err(format!("it is no JSON: {error}")),
    };
    let readable = set.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    let keys: Vec<_> =
        JwkSet { keys: readable.collect() }.keys.iter().filter_map(verifying).collect();
    match keys.is_empty() {
        true => Err("it has no public key that verifies signatures".into()),
        false => Ok(keys),
    }
}

fn verifying(jwk: &Jwk) -> Option<VerifyingKey> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    if jwk.common.public_key_use.as_ref().is_some_and(|it| *it != PublicKeyUse::Signature) {
        return None;
    }
    let fitting: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(_) => &[EdDSA],
        // A signature with a shared secret does not prove who signed.
        AlgorithmParameters::OctetKey(_) => &[],
    };
    let operations = jwk.common.key_operations.as_ref();
    if operations.is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
        return None;
    }
    let mut algorithms = fitting.to_vec();
    if let Some(stated) = jwk.common.key_algorithm {
        algorithms.retain(|algorithm| format!("{algorithm:?}") == stated.to_string());
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let digest = digest(&serde_json::to_vec(jwk).ok()?);
    let id = jwk.common.key_id.clone();
    (!algorithms.is_empty()).then_some(VerifyingKey { id, digest, algorithms, key })
}
