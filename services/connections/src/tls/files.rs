//! Reads certificates and keys from files.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// The error for TLS settings that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file does not contain valid certificates, keys or revocation lists.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// rustls refuses the certificates, the key or the server name, or the settings name no authority where one is
    /// needed.
    #[error("the certificates can't be used: {0}")]
    Certificates(String),
}

/// Returns the cryptography provider. The process's default is not used, because other code in the process may have set
/// another one.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns the error for certificates or names that can't be used.
pub fn unusable(why: impl Display) -> TlsError {
    TlsError::Certificates(why.to_string())
}

fn in_file<E: Display>(path: &Path) -> impl Fn(E) -> TlsError {
    move |problem| TlsError::File { path: path.to_owned(), problem: problem.to_string() }
}

fn pem_error(path: &Path) -> impl Fn(pem::Error) -> TlsError {
    move |error| match error {
        pem::Error::Io(source) => TlsError::Unreadable { path: path.to_owned(), source },
        problem => in_file(path)(problem),
    }
}

/// Reads the certificates in a file, at least one. A node's chain begins with the node's own certificate.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(pem_error(path))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(pem_error(path))?;
    match certificates.is_empty() {
        true => Err(in_file(path)("has no certificate; it has to be PEM")),
        false => Ok(certificates),
    }
}

/// Reads a private key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(pem_error(path))
}

/// Reads the certificates of authorities.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(in_file(path))?;
    }
    Ok(roots)
}

/// Reads the lists of revoked certificates in a file, at least one. Without a file there are none.
pub fn revocations(
    path: Option<&PathBuf>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let read = CertificateRevocationListDer::pem_file_iter(path).map_err(pem_error(path))?;
    let lists = read.collect::<Result<Vec<_>, _>>().map_err(pem_error(path))?;
    match lists.is_empty() {
        true => Err(in_file(path)("has no list of revoked certificates; it has to be PEM")),
        false => Ok(lists),
    }
}
