//! Certificates and keys in files.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why TLS can't be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has something else in it.
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

/// What the certificates, or names in them, are no good for.
pub fn unusable(why: impl Display) -> TlsError {
    TlsError::Certificates(why.to_string())
}

fn in_file<E: Display>(path: &Path) -> impl Fn(E) -> TlsError {
    move |problem| TlsError::File { path: path.to_owned(), problem: problem.to_string() }
}

fn of_pem(path: &Path) -> impl Fn(pem::Error) -> TlsError {
    move |error| match error {
        pem::Error::Io(source) => TlsError::Unreadable { path: path.to_owned(), source },
        problem => in_file(path)(problem),
    }
}

/// A chain of certificates, that of the node first.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(of_pem(path))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(of_pem(path))?;
    match certificates.is_empty() {
        true => Err(in_file(path)("has no certificate; it has to be PEM")),
        false => Ok(certificates),
    }
}

/// A private key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(of_pem(path))
}

/// Those who may vouch for others.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(in_file(path))?;
    }
    Ok(roots)
}
