//! Reads the names in certificates: the DNS names and URIs of the extension `subjectAltName` (RFC 5280, 4.2.1.6).

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Returns the DNS names and URIs of a certificate that rustls has verified, as written there. Returns no names for a
/// certificate that can't be read here although rustls accepts it.
pub fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    match EndEntityCert::try_from(certificate) {
        Ok(read) => {
            let names = read.valid_dns_names().chain(read.valid_uri_names());
            names.map(str::to_owned).collect()
        }
        Err(error) => {
            tracing::warn!(%error, "the names in a client's certificate can't be read");
            Vec::new()
        }
    }
}
