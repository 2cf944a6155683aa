//! TLS of the side that connects.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsConnector;

use super::ALPN;
use super::expiry::expires;
use super::files::{TlsError, authorities, certificates, key, provider, revocations, unusable};
use super::reload::{LoadedConfig, Reloaded};
use super::verified_stream::{ClientFiles, VerifiedStream};
use crate::Carrier;

/// The TLS settings for connecting. The files are PEM, and are read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsConfig {
    /// The authorities that sign servers' certificates. If left out, the authorities that the system trusts.
    #[schemars(extend("format" = "path"))]
    pub ca: Option<PathBuf>,
    /// The client certificate, for servers that ask for one.
    #[schemars(extend("format" = "path"))]
    pub cert: Option<PathBuf>,
    /// The private key of `cert`.
    #[schemars(extend("format" = "path"))]
    pub key: Option<PathBuf>,
    /// The name that servers' certificates must have. If left out, the host name of the connection. Needed where
    /// nodes are found by address.
    pub server_name: Option<String>,
    /// Certificate revocation lists (CRLs), issued by `ca` or by an intermediate authority below it. Certificates of
    /// an authority without a list here count as not revoked. A list whose next update is overdue is still used.
    #[schemars(extend("format" = "path"))]
    pub crl: Option<PathBuf>,
}

impl ClientTlsConfig {
    /// Returns the first field that contradicts another, and what is wrong with it.
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
    pub(super) config: Arc<ClientFiles>,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] if a file can't be read or used, or if the server name is invalid.
    pub fn load(config: &ClientTlsConfig) -> Result<Arc<Self>, TlsError> {
        let files = [&config.ca, &config.cert, &config.key, &config.crl];
        let files = files.into_iter().flatten().cloned().collect();
        let server_name = config.server_name.clone().map(server_name).transpose()?;
        let settings = config.clone();
        let config = Arc::new(Reloaded::new(files, move || make(&settings))?);
        Ok(Arc::new(Self { config, server_name }))
    }

    /// Does the handshake with `host`, a name or an address.
    ///
    /// # Errors
    /// An I/O error, for example if the server's certificate is not trusted, or if the server refuses the client's. The
    /// error contains [`NoTls`] if the server does not speak TLS.
    pub async fn connect<C: Carrier>(
        &self,
        stream: C,
        host: &str,
    ) -> io::Result<VerifiedStream<C>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host.to_owned()).map_err(io::Error::other)?,
        };
        let generation = self.config.generation();
        let config = Arc::clone(&self.config.current().config);
        match TlsConnector::from(config).connect(name.clone(), stream).await {
            Ok(stream) => {
                Ok(VerifiedStream::new(stream, Arc::clone(&self.config), name, generation))
            }
            Err(error) => Err(match fault_of(&error) {
                Some(rustls::Error::InvalidMessage(_)) => io::Error::new(error.kind(), NoTls),
                _ => error,
            }),
        }
    }

    /// Reads the files again if they have changed.
    #[cfg(test)]
    pub fn check_now(&self) {
        self.config.check_now();
    }

    /// Like [`ServerTls::expires`](super::ServerTls::expires). Returns `None` without a client certificate.
    pub fn expires(&self) -> Option<u64> {
        self.config.current().expires
    }
}

/// The error for a server that does not speak TLS. The remedy depends on where TLS is configured, so the caller
/// adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it speaks no TLS")]
pub struct NoTls;

/// Returns whether the other side of `stream` speaks TLS, whatever its certificate. Meant for a client that failed to
/// connect to `host` without TLS.
pub async fn is_tls<C: Carrier>(stream: C, host: &str) -> bool {
    let (Ok(builder), Ok(name)) = (builder(), server_name(host.to_owned())) else { return false };
    // Trust no authority. A refused certificate shows that the server speaks TLS.
    let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(_) => true,
        Err(error) => match fault_of(&error) {
            None | Some(rustls::Error::InvalidMessage(_)) => false,
            Some(_) => true,
        },
    }
}

/// Returns the error of rustls, unless the connection itself failed.
fn fault_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn server_name(name: String) -> Result<ServerName<'static>, TlsError> {
    let shown = name.clone();
    let bad = |_| unusable(format!("`{shown}` is not a valid server name"));
    ServerName::try_from(name).map_err(bad)
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

fn make(
    config: &ClientTlsConfig,
) -> Result<LoadedConfig<ClientConfig, Arc<WebPkiServerVerifier>>, TlsError> {
    let roots = match &config.ca {
        Some(file) => authorities(file)?,
        None => {
            let mut roots = RootCertStore::empty();
            // Authorities that can't be read are left out.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    if roots.is_empty() {
        return Err(unusable("the system trusts no authority; name one with `ca`"));
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(revocations(config.crl.as_ref())?)
        .allow_unknown_revocation_status()
        .build()
        .map_err(unusable)?;
    let builder = builder().map_err(unusable)?.with_webpki_verifier(Arc::clone(&verifier));
    let (mut made, presents, expires) = match (&config.cert, &config.key) {
        (Some(cert), Some(file)) => {
            let chain = certificates(cert)?;
            let (expires, presents) = (expires(&chain), chain.as_slice().into());
            (builder.with_client_auth_cert(chain, key(file)?).map_err(unusable)?, presents, expires)
        }
        _ => (builder.with_no_client_auth(), Arc::default(), None),
    };
    made.alpn_protocols = vec![ALPN.to_vec()];
    // Disable resumption: the server of a resumed session is not verified again.
    made.resumption = Resumption::disabled();
    Ok(LoadedConfig { config: Arc::new(made), verifier, presents, expires })
}
