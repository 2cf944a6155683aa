//! TLS of the side that accepts connections.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ALPN;
use super::expiry::expires;
use super::files::{TlsError, authorities, certificates, key, provider, unusable};
use super::reload::{LoadedConfig, Reloaded};
use crate::Carrier;

/// The time that a client has for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// The `tls` section of a node's configuration. With it, the node accepts only TLS connections. The files are PEM, and
/// are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTlsConfig {
    /// The node's certificate, with those between it and its authority.
    #[schemars(extend("format" = "path"))]
    pub cert: PathBuf,
    /// The private key of `cert`.
    #[schemars(extend("format" = "path"))]
    pub key: PathBuf,
    /// The authorities of clients' certificates. A client without a certificate of theirs is refused. If left out, any
    /// client may connect.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    pub client_ca: Option<PathBuf>,
}

/// Accepts TLS connections.
pub struct ServerTls(pub(super) Reloaded<LoadedConfig<ServerConfig>>);

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] if a file can't be read or used.
    pub fn load(config: &ServerTlsConfig) -> Result<Arc<Self>, TlsError> {
        let mut files = vec![config.cert.clone(), config.key.clone()];
        files.extend(config.client_ca.clone());
        let config = config.clone();
        Ok(Arc::new(Self(Reloaded::new(files, move || make(&config))?)))
    }

    /// Does the handshake.
    ///
    /// # Errors
    /// An I/O error if the client's handshake is invalid, or takes longer than 3 s.
    pub async fn accept<C: Carrier>(&self, stream: C) -> io::Result<TlsStream<C>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.current().config));
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Returns the earliest expiry of the certificate in use and of those between it and its authority, in seconds
    /// since 1970. Returns `None` if it can't be read. Checks whether the files have changed, as a new connection does.
    pub fn expires(&self) -> Option<u64> {
        self.0.current().expires
    }
}

fn make(config: &ServerTlsConfig) -> Result<LoadedConfig<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(authorities(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
        }
    };
    let chain = certificates(&config.cert)?;
    let expires = expires(&chain);
    let mut made = builder.with_single_cert(chain, key(&config.key)?).map_err(unusable)?;
    made.alpn_protocols = vec![ALPN.to_vec()];
    Ok(LoadedConfig { config: Arc::new(made), expires })
}
