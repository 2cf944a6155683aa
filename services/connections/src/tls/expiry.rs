//! When certificates expire, which rustls checks and doesn't tell.
//!
//! ```text
//! Certificate SEQUENCE ─► TBSCertificate SEQUENCE ─► version? serial signature issuer  Validity SEQUENCE
//!                                                                                      └─► notBefore notAfter
//! ```
//!
//! Nothing else of them is read (RFC 5280, 4.1).

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, Result, SliceReader, Tag};
use rustls::pki_types::CertificateDer;

/// Before the validity: serial number, signature algorithm, issuer.
const FIELDS_BEFORE: usize = 3;

/// When the first of a chain expires, in seconds since 1970; one that can't be read, though rustls takes it, is passed
/// over.
pub fn expires(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let expires = |certificate: &CertificateDer<'_>| {
        let expires = not_after(certificate);
        expires
            .inspect_err(|error| tracing::warn!(%error, "can't tell when a certificate expires"))
            .ok()
    };
    chain.iter().filter_map(expires).min()
}

fn not_after(certificate: &[u8]) -> Result<u64> {
    let mut certificate = inside(AnyRef::from_der(certificate)?)?;
    let mut signed = inside(AnyRef::decode(&mut certificate)?)?;
    // Versions after the first say which they are.
    if signed.peek_tag()?.is_context_specific() {
        AnyRef::decode(&mut signed)?;
    }
    for _ in 0..FIELDS_BEFORE {
        AnyRef::decode(&mut signed)?;
    }
    let mut validity = inside(AnyRef::decode(&mut signed)?)?;
    let _not_before = AnyRef::decode(&mut validity)?;
    // The one until 2049, the other from 2050 on.
    let not_after = match validity.peek_tag()? {
        Tag::UtcTime => UtcTime::decode(&mut validity)?.to_unix_duration(),
        _ => GeneralizedTime::decode(&mut validity)?.to_unix_duration(),
    };
    Ok(not_after.as_secs())
}

/// What a sequence has in it.
fn inside(sequence: AnyRef<'_>) -> Result<SliceReader<'_>> {
    der::Tagged::tag(&sequence).assert_eq(Tag::Sequence)?;
    SliceReader::new(sequence.value())
}
