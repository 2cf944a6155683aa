//! Makes authorities, certificates and revocation lists for tests. Everything is written to files, as nodes read it.
//!
//! It panics where it fails, as a test would.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

/// An authority that signs certificates, and their revocation.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    serials: AtomicU64,
    /// The authority's own certificate.
    pub ca: PathBuf,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    serial: u64,
}

impl Authority {
    /// Makes an authority whose files, and those of its certificates, are in `folder`.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = folder.join(format!("{name}.pem"));
        std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { issuer, folder: folder.to_owned(), serials: AtomicU64::new(1), ca }
    }

    /// Issues a certificate for a DNS name. Its files are replaced if they exist.
    pub fn issue(&self, name: &str, lasts: Duration) -> Pair {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_after = (SystemTime::now() + lasts).into();
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        let write = |kind: &str, text: String| {
            let path = self.folder.join(format!("{name}.{kind}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Pair { cert: write("crt", pem), key: write("key", key.serialize_pem()), serial }
    }

    /// Writes a list that revokes these certificates, and no others. Returns its file, the same each time.
    pub fn revoke(&self, pairs: &[&Pair]) -> PathBuf {
        let revoked = |pair: &&Pair| RevokedCertParams {
            serial_number: SerialNumber::from(pair.serial),
            revocation_time: SystemTime::now().into(),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: SystemTime::now().into(),
            next_update: (SystemTime::now() + Duration::from_secs(86_400)).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: pairs.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = self.folder.join("crl.pem");
        std::fs::write(&list, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        list
    }
}
