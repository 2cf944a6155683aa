//! Certificates and keys in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why TLS can't be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or has something else in it.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The certificates don't go together.
    #[error("the certificates can't be used: {0}")]
    Certificates(String),
}

/// Never the process' default: others in it may have chosen another one.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A chain of certificates, that of the node first.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |problem: String| TlsError::File { path: path.to_owned(), problem };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
    let certificates =
        read.collect::<Result<Vec<_>, _>>().map_err(|error| bad(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(bad("has no certificate; it has to be PEM".into())),
        false => Ok(certificates),
    }
}

/// A private key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| TlsError::File { path: path.to_owned(), problem: error.to_string() })
}

/// Those who may vouch for others.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
    }
    Ok(roots)
}
