//! The certificates with which a connection was accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use tokio::time::Instant;

use super::expiry::{earliest, expires, instant_of};
use super::names::names;
use super::reload::{LoadedConfig, Reloaded};

/// Verifies clients' certificates. `None` if clients are not asked for a certificate.
pub type ClientVerifier = Option<Arc<dyn ClientCertVerifier>>;

/// The settings of the accepting side, made from files.
pub type ServerFiles = Reloaded<LoadedConfig<ServerConfig, ClientVerifier>>;

/// The certificates with which a connection was accepted. The client's certificate is verified again when the TLS files
/// have changed, because it may have been revoked, or its authority removed. The node's own certificate is kept to
/// notice when the node presents another one.
pub struct Presented {
    files: Arc<ServerFiles>,
    /// The node's certificate chain at the handshake.
    own: Arc<[CertificateDer<'static>]>,
    /// The client's certificate, followed by the intermediate ones. Empty if the client presented none.
    chain: Vec<CertificateDer<'static>>,
    /// The generation of the files with which the chain was last verified.
    verified: AtomicU64,
    /// The earliest expiry of both sides' certificates.
    expires: Option<Instant>,
}

impl Presented {
    /// Records the certificates of a connection after its handshake. `chain` is the client's certificate chain.
    /// `loaded` is the configuration that the handshake used, and `generation` the generation of its files.
    pub(super) fn new(
        files: Arc<ServerFiles>,
        chain: Option<&[CertificateDer<'static>]>,
        loaded: &LoadedConfig<ServerConfig, ClientVerifier>,
        generation: u64,
    ) -> Self {
        let chain = chain.unwrap_or_default().to_vec();
        let expires = earliest(loaded.expires, expires(&chain)).map(instant_of);
        let own = Arc::clone(&loaded.presents);
        Self { files, own, chain, verified: generation.into(), expires }
    }

    /// Returns the DNS names and URIs in the client's certificate.
    pub fn names(&self) -> Vec<String> {
        self.chain.first().map(names).unwrap_or_default()
    }

    /// Returns the earliest expiry of both sides' certificates.
    pub fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Returns whether the node now presents a different certificate from the one in this connection's handshake.
    pub fn is_replaced(&self) -> bool {
        self.own != self.files.loaded().presents
    }

    /// Returns whether the TLS files have changed since the handshake, or since the last call of
    /// [`verify`](Self::verify).
    pub fn is_stale(&self) -> bool {
        self.verified.load(Ordering::Relaxed) != self.files.generation()
    }

    /// Verifies the client's certificate with the current files.
    ///
    /// # Errors
    /// The reason why the certificate is no longer trusted.
    pub fn verify(&self) -> Result<(), rustls::Error> {
        // The generation is read first: if the files change meanwhile, the certificate is verified once more.
        self.verified.store(self.files.generation(), Ordering::Relaxed);
        match (&*self.chain, &self.files.loaded().verifier) {
            ([own, between @ ..], Some(verifier)) => {
                verifier.verify_client_cert(own, between, UnixTime::now()).map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Presented").field("names", &self.names()).finish_non_exhaustive()
    }
}
