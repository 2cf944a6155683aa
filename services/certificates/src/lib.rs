//! Makes authorities, certificates, revocation lists and token-signing keys for tests. Certificates and revocation
//! lists are written to files, from which nodes read them.
//!
//! Every function panics if it fails, as a test would.

mod tokens;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};

pub use tokens::{RSA_PUBLIC_PEM, TokenSigner, key_set};

/// An authority that signs certificates and lists of revoked certificates.
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
        self.issue_until(&[name], SystemTime::now() + lasts)
    }

    /// Issues a certificate for DNS names and URIs. Its files are named after the first name, and replaced if they
    /// exist.
    pub fn issue_until(&self, names: &[&str], until: SystemTime) -> Pair {
        self.certify(names, KeyPair::generate().unwrap(), until)
    }

    /// Issues another certificate for these names, with the key of the latest one.
    pub fn renew(&self, names: &[&str], until: SystemTime) -> Pair {
        let key = std::fs::read_to_string(self.file(names[0], "key")).unwrap();
        self.certify(names, KeyPair::from_pem(&key).unwrap(), until)
    }

    fn certify(&self, names: &[&str], key: KeyPair, until: SystemTime) -> Pair {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new([]).unwrap();
        let name = |name: &&str| match name.contains("://") {
            true => SanType::URI((*name).try_into().unwrap()),
            false => SanType::DnsName((*name).try_into().unwrap()),
        };
        params.subject_alt_names = names.iter().map(name).collect();
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_after = until.into();
        let (cert, file) = (self.file(names[0], "crt"), self.file(names[0], "key"));
        std::fs::write(&cert, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&file, key.serialize_pem()).unwrap();
        Pair { cert, key: file, serial }
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    /// Writes a list that revokes these certificates, and no others. Returns the list's file, which is the same each
    /// time.
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
