//! Reads the expiry of certificates, which rustls checks but does not return.
//!
//! ```text
//! Certificate SEQUENCE ─► TBSCertificate SEQUENCE ─► version? serial signature issuer  Validity SEQUENCE
//!                                                                                      └─► notBefore notAfter
//! ```
//!
//! Nothing else of a certificate is read (RFC 5280, 4.1).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, Result, SliceReader, Tag};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

/// The number of fields between the version and the validity: serial number, signature algorithm, issuer.
const FIELDS_BEFORE: usize = 3;

/// Returns the earliest expiry of a chain's certificates, in seconds since 1970. A certificate that can't be read here,
/// although rustls accepts it, is ignored.
pub fn expires(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let expires = |certificate: &CertificateDer<'_>| {
        let expires = not_after(certificate);
        expires
            .inspect_err(|error| tracing::warn!(%error, "the certificate's expiry can't be read"))
            .ok()
    };
    chain.iter().filter_map(expires).min()
}

/// Returns the earlier of two times, either of which may be unknown.
pub fn earliest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Converts a time in seconds since 1970 to the monotonic clock. Returns the current time for a time in the past.
#[expect(clippy::disallowed_methods, reason = "certificates expire by the wall clock")]
pub fn instant_of(seconds: u64) -> Instant {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(seconds).saturating_sub(now);
    // Adding the lifetime of a very long-lived certificate could overflow. 2^30 s are longer than any connection lasts.
    Instant::now() + left.min(Duration::from_secs(1 << 30))
}

fn not_after(certificate: &[u8]) -> Result<u64> {
    let mut certificate = inside(AnyRef::from_der(certificate)?)?;
    let mut signed = inside(AnyRef::decode(&mut certificate)?)?;
    // Version 1 has no version field.
    if signed.peek_tag()?.is_context_specific() {
        AnyRef::decode(&mut signed)?;
    }
    for _ in 0..FIELDS_BEFORE {
        AnyRef::decode(&mut signed)?;
    }
    let mut validity = inside(AnyRef::decode(&mut signed)?)?;
    let _not_before = AnyRef::decode(&mut validity)?;
    // UTCTime is used until 2049, GeneralizedTime from 2050 on.
    let not_after = match validity.peek_tag()? {
        Tag::UtcTime => UtcTime::decode(&mut validity)?.to_unix_duration(),
        _ => GeneralizedTime::decode(&mut validity)?.to_unix_duration(),
    };
    Ok(not_after.as_secs())
}

/// Returns a reader of a sequence's contents.
fn inside(sequence: AnyRef<'_>) -> Result<SliceReader<'_>> {
    der::Tagged::tag(&sequence).assert_eq(Tag::Sequence)?;
    SliceReader::new(sequence.value())
}
