//! Counts of TLS handshakes that failed, by cause.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::CertificateError;

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// The cause of a failed handshake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Cause { $($(#[$doc])* $variant,)* }

        /// The names of all causes, for metrics.
        const NAMES: &[&str] = &[$($text,)*];
    };
}

causes! {
    /// The client shows no certificate, and needs one.
    NoCertificate = "no_certificate",
    /// No authority that the node knows has issued the client's certificate.
    UnknownIssuer = "unknown_issuer",
    /// The client's certificate has expired, or is not valid yet.
    OutOfDate = "out_of_date",
    /// The client's certificate is revoked.
    Revoked = "revoked",
    /// Something else is wrong with the client's certificate.
    BadCertificate = "bad_certificate",
    /// The client ended the handshake: usually it does not accept the node's certificate.
    ByClient = "by_client",
    /// The client was too slow.
    TimedOut = "timed_out",
    /// The client does not speak TLS, or supports no version or algorithm that the node accepts.
    Protocol = "protocol",
}

impl Cause {
    fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (inner, error.kind()) {
            (Some(rustls::Error::NoCertificatesPresented), _) => Self::NoCertificate,
            (Some(rustls::Error::InvalidCertificate(error)), _) => Self::of_certificate(error),
            (Some(rustls::Error::AlertReceived(_)), _) => Self::ByClient,
            (Some(_), _) => Self::Protocol,
            (None, io::ErrorKind::TimedOut) => Self::TimedOut,
            (None, _) => Self::ByClient,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::OutOfDate,
            CertificateError::Revoked => Self::Revoked,
            _ => Self::BadCertificate,
        }
    }
}

/// The number of failed handshakes by cause.
#[derive(Default)]
pub struct Refusals([AtomicU64; NAMES.len()]);

impl Refusals {
    /// Counts a handshake that failed with `error`.
    pub fn count(&self, error: &io::Error) {
        self.0[Cause::of(error) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns each cause, as metrics name it, and the number of handshakes that failed because of it.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().zip(&self.0).map(|(&name, count)| (name, count.load(Ordering::Relaxed)))
    }
}
