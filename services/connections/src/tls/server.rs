//! TLS of the side that accepts connections.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::expiry::expires;
use super::files::{TlsError, authorities, certificates, key, provider, revocations, unusable};
use super::presented::{ClientVerifier, Presented, ServerFiles};
use super::refusals::Refusals;
use super::reload::{LoadedConfig, Reloaded};
use super::{ALPN, ALPN_HTTP1};
use crate::Carrier;

/// The time that a client has for its handshake. Of the 5 s in which a connection has to be established (`Lifetimes`),
/// this leaves 2 s for HTTP/2's preface.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// The `tls` section of a node's configuration. With it, the node accepts only TLS connections. The files are PEM, and
/// are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTlsConfig {
    /// The node's certificate, followed by the intermediate certificates between it and its authority.
    #[schemars(extend("format" = "path"))]
    pub cert: PathBuf,
    /// The private key of `cert`.
    #[schemars(extend("format" = "path"))]
    pub key: PathBuf,
    /// The authorities of clients' certificates. A client without a certificate of theirs is refused; only a query node
    /// with an access policy accepts clients without any certificate. If left out, any client may connect.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    pub client_ca: Option<PathBuf>,
    /// Certificate revocation lists (CRLs), issued by `client_ca` or by an intermediate authority below it.
    /// Certificates of an authority without a list here count as not revoked. A list whose next update is overdue is
    /// still used.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    pub crl: Option<PathBuf>,
}

/// Whether clients of a node with `client_ca` need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// A client without a certificate is refused.
    Required,
    /// A client may come without a certificate. One with an invalid certificate is refused.
    Optional,
}

/// Accepts TLS connections.
pub struct ServerTls {
    files: Arc<ServerFiles>,
    refusals: Refusals,
}

impl ServerTls {
    /// Reads the files. Clients may speak HTTP/2 only.
    ///
    /// # Errors
    /// [`TlsError`] if a file can't be read or used.
    pub fn load(
        config: &ServerTlsConfig,
        clients: ClientCertificates,
    ) -> Result<Arc<Self>, TlsError> {
        Self::load_for(config, clients, &[ALPN])
    }

    /// Like [`load`](Self::load), but clients may speak HTTP/1.1 too.
    ///
    /// # Errors
    /// As `load`.
    pub fn load_with_http1(
        config: &ServerTlsConfig,
        clients: ClientCertificates,
    ) -> Result<Arc<Self>, TlsError> {
        Self::load_for(config, clients, &[ALPN, ALPN_HTTP1])
    }

    fn load_for(
        config: &ServerTlsConfig,
        clients: ClientCertificates,
        protocols: &'static [&'static [u8]],
    ) -> Result<Arc<Self>, TlsError> {
        let mut files = vec![config.cert.clone(), config.key.clone()];
        files.extend(config.client_ca.clone());
        files.extend(config.crl.clone());
        let config = config.clone();
        let loaded = Reloaded::new(files, move || make(&config, clients, protocols))?;
        Ok(Arc::new(Self { files: Arc::new(loaded), refusals: Refusals::default() }))
    }

    /// Performs the handshake. Returns the stream and the certificates of both sides. Counts a failure.
    ///
    /// # Errors
    /// An I/O error if the client's handshake is invalid, or takes longer than 3 s.
    pub async fn accept<C: Carrier>(&self, stream: C) -> io::Result<(TlsStream<C>, Presented)> {
        let shaken = self.shake_hands(stream).await;
        shaken.inspect_err(|error| self.refusals.count(error))
    }

    async fn shake_hands<C: Carrier>(&self, stream: C) -> io::Result<(TlsStream<C>, Presented)> {
        let generation = self.files.generation();
        let current = self.files.current();
        let acceptor = TlsAcceptor::from(Arc::clone(&current.config));
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let chain = stream.get_ref().1.peer_certificates();
        let presented = Presented::new(Arc::clone(&self.files), chain, &current, generation);
        Ok((stream, presented))
    }

    /// Returns the causes of failed handshakes, and how many failed for each since the start.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refusals.counts()
    }

    /// Reads the files again if they have changed. Does nothing if they were checked a few seconds ago.
    pub fn check(&self) {
        self.files.check_if_due();
    }

    /// Reads the files again if they have changed.
    #[cfg(test)]
    pub fn check_now(&self) {
        self.files.check_now();
    }

    /// Returns the earliest expiry of the certificate in use and of the intermediate certificates that are sent with
    /// it, in seconds since 1970. Returns `None` if it can't be read. Checks whether the files have changed, as a new
    /// connection does.
    pub fn expires(&self) -> Option<u64> {
        self.files.current().expires
    }
}

fn make(
    config: &ServerTlsConfig,
    clients: ClientCertificates,
    protocols: &[&[u8]],
) -> Result<LoadedConfig<ServerConfig, ClientVerifier>, TlsError> {
    let verifier = verifier(config, clients)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = match &verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let chain = certificates(&config.cert)?;
    let (expires, presents) = (expires(&chain), chain.as_slice().into());
    let mut made = builder.with_single_cert(chain, key(&config.key)?).map_err(unusable)?;
    made.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    if verifier.is_some() {
        // Disable resumption: a client that resumes a session is not verified again.
        made.session_storage = Arc::new(NoServerSessionStorage {});
        made.send_tls13_tickets = 0;
    }
    Ok(LoadedConfig { config: Arc::new(made), verifier, presents, expires })
}

fn verifier(
    config: &ServerTlsConfig,
    clients: ClientCertificates,
) -> Result<ClientVerifier, TlsError> {
    let revocations = revocations(config.crl.as_ref())?;
    let Some(file) = &config.client_ca else {
        return match revocations.is_empty() {
            true => Ok(None),
            false => Err(unusable("`crl` needs `client_ca`; without it clients show none")),
        };
    };
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(file)?), provider())
            .with_crls(revocations)
            .allow_unknown_revocation_status();
    let builder = match clients {
        ClientCertificates::Required => builder,
        ClientCertificates::Optional => builder.allow_unauthenticated(),
    };
    Ok(Some(builder.build().map_err(unusable)?))
}
