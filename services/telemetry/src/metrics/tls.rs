//! Metrics of TLS certificates.

use super::samples::Samples;

crate::metrics! {
    pub static TLS_METRICS;
    EXPIRATION = Gauge "bireme.tls.certificate.expiration.timestamp" "s" ["role"] "Expiry of the certificate in use or of an intermediate certificate, whichever is first, in seconds since 1970. `server` is the node's own certificate, `client` the one that a query node presents to I/O nodes. Absent without a certificate";
}

/// Adds the expiry of the certificates that are in use, in seconds since 1970.
pub fn tls_samples(samples: &mut Samples, server: Option<u64>, client: Option<u64>) {
    for (role, expires) in [("server", server), ("client", client)] {
        if let Some(expires) = expires {
            samples.add(&EXPIRATION, &[&role], expires);
        }
    }
}
