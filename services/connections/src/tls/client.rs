//! The side that connects.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ALPN;
use super::expiry::expires;
use super::files::{TlsError, authorities, certificates, key, provider, unusable};
use super::reload::{Reloaded, Spoken};
use crate::Carrier;

/// How to connect with TLS. Files are PEM, and read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsConfig {
    /// The authorities of servers' certificates; left out, those that the system trusts.
    pub ca: Option<PathBuf>,
    /// A certificate of one's own, for servers that ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name that servers' certificates are to have; left out, the host that is connected to. Needed where nodes
    /// are found by address.
    pub server_name: Option<String>,
}

impl ClientTlsConfig {
    /// What contradicts itself: the field, and what is wrong with it.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        match (&self.cert, &self.key) {
            (Some(_), None) => Some(("key", "is missing, and `cert` needs it".into())),
            (None, Some(_)) => Some(("cert", "is missing, and `key` needs it".into())),
            _ => None,
        }
    }
}

/// Makes TLS connections.
pub struct ClientTls {
    pub(super) config: Reloaded<Spoken<ClientConfig>>,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Files that can't be read or used, a name that is none.
    pub fn load(config: &ClientTlsConfig) -> Result<Arc<Self>, TlsError> {
        let files = [&config.ca, &config.cert, &config.key];
        let files = files.into_iter().flatten().cloned().collect();
        let server_name = config.server_name.clone().map(name_of).transpose()?;
        let of = config.clone();
        let config = Reloaded::new(files, move || make(&of))?;
        Ok(Arc::new(Self { config, server_name }))
    }

    /// Shakes hands with `host`, a name or an address.
    ///
    /// # Errors
    /// A certificate that is not that of the server, or one that the server doesn't take; [`NoTls`] within.
    pub async fn connect<C: Carrier>(&self, stream: C, host: &str) -> io::Result<TlsStream<C>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(host.to_owned()).map_err(io::Error::other)?,
        };
        let config = Arc::clone(&self.config.current().config);
        let connected = TlsConnector::from(config).connect(name, stream).await;
        connected.map_err(|error| match fault_of(&error) {
            Some(rustls::Error::InvalidMessage(_)) => io::Error::new(error.kind(), NoTls),
            _ => error,
        })
    }

    /// As [`ServerTls::expires`](super::ServerTls::expires); nothing without a certificate of one's own.
    pub fn expires(&self) -> Option<u64> {
        self.config.current().expires
    }
}

/// What is connected to doesn't speak TLS. What can be done about it depends on who said that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it speaks no TLS")]
pub struct NoTls;

/// Whether TLS is spoken on the other side of `stream`, whoever it is: for who spoke to `host` in the clear, in vain.
pub async fn is_tls<C: Carrier>(stream: C, host: &str) -> bool {
    let (Ok(builder), Ok(name)) = (builder(), name_of(host.to_owned())) else { return false };
    // Trusts nobody: a certificate that is refused was shown.
    let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(_) => true,
        Err(error) => match fault_of(&error) {
            None | Some(rustls::Error::InvalidMessage(_)) => false,
            Some(_) => true,
        },
    }
}

/// What rustls found wrong, if it was no fault of the connection.
fn fault_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn name_of(name: String) -> Result<ServerName<'static>, TlsError> {
    let shown = name.clone();
    let bad = |_| unusable(format!("`{shown}` is no name that a certificate has"));
    ServerName::try_from(name).map_err(bad)
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

fn make(config: &ClientTlsConfig) -> Result<Spoken<ClientConfig>, TlsError> {
    let builder = builder().map_err(unusable)?;
    let roots = match &config.ca {
        Some(file) => authorities(file)?,
        None => {
            let mut roots = RootCertStore::empty();
            // One that can't be read is as good as none.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    let builder = builder.with_root_certificates(roots);
    let (mut made, expires) = match (&config.cert, &config.key) {
        (Some(cert), Some(file)) => {
            let chain = certificates(cert)?;
            let expires = expires(&chain);
            (builder.with_client_auth_cert(chain, key(file)?).map_err(unusable)?, expires)
        }
        _ => (builder.with_no_client_auth(), None),
    };
    made.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Spoken { config: Arc::new(made), expires })
}
