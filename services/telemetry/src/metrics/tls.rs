//! Metrics of TLS: certificates and handshakes.

use super::samples::Samples;

crate::metrics! {
    pub static TLS_METRICS;
    EXPIRATION = Gauge "bireme.tls.certificate.expiration.timestamp" "s" ["role"] "Expiry of the certificate in use or of an intermediate certificate, whichever is first, in seconds since 1970. `server` is the node's own certificate, `client` the one that a query node presents to I/O nodes. Absent without a certificate";
    REFUSED = Counter "bireme.tls.handshakes.refused" "{handshake}" ["error.type"] "Handshakes of callers that failed, by cause: what is wrong with the client's certificate (`no_certificate`, `unknown_issuer`, `out_of_date`, `revoked`, `bad_certificate`), `by_client` if the client ended it, for example because it does not trust the node's certificate, `timed_out`, or `protocol`. Absent without TLS";
}

/// Adds the expiry of the certificates that are in use, in seconds since 1970.
pub fn tls_samples(samples: &mut Samples, server: Option<u64>, client: Option<u64>) {
    for (role, expires) in [("server", server), ("client", client)] {
        if let Some(expires) = expires {
            samples.add(&EXPIRATION, &[&role], expires);
        }
    }
}

/// Adds the number of failed handshakes since the start, by cause.
pub fn handshake_samples(
    samples: &mut Samples,
    refusals: impl Iterator<Item = (&'static str, u64)>,
) {
    for (cause, count) in refusals {
        samples.add(&REFUSED, &[&cause], count);
    }
}
