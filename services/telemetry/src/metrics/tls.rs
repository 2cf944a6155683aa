//! What TLS is spoken with.

use super::samples::Samples;

crate::metrics! {
    pub static TLS_METRICS;
    EXPIRATION = Gauge "bireme.tls.certificate.expiration.timestamp" "s" ["role"] "When the certificate in use expires, or the first of those between it and its authority, in seconds since 1970: `server`, that the node serves with; `client`, that a query node shows to I/O nodes. Absent where there is none";
}

/// Adds when the certificates expire, in seconds since 1970, of those that there are.
pub fn tls_samples(samples: &mut Samples, server: Option<u64>, client: Option<u64>) {
    for (role, expires) in [("server", server), ("client", client)] {
        if let Some(expires) = expires {
            samples.add(&EXPIRATION, &[&role], expires);
        }
    }
}
