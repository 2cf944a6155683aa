//! Authorities and certificates made for a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use client::ClientTlsConfig;
use connections::tls::ServerTlsConfig;
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
#[derive(Clone)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
    serial: u64,
}

impl Authority {
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = folder.join(format!("{name}-ca.pem"));
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

    /// Writes a list that revokes these certificates.
    pub fn revoke(&self, list: &Path, pairs: &[&Pair]) {
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
        std::fs::write(list, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
    }

    /// Returns the settings of a server with this certificate that asks clients for one of this authority.
    pub fn server(&self, pair: &Pair) -> ServerTlsConfig {
        let (cert, key) = (pair.cert.clone(), pair.key.clone());
        ServerTlsConfig { cert, key, client_ca: Some(self.ca.clone()), crl: None }
    }

    /// Returns the settings of a client with this certificate. Servers must have `server_name`.
    pub fn client(&self, pair: &Pair, server_name: &str) -> ClientTlsConfig {
        ClientTlsConfig {
            ca: Some(self.ca.clone()),
            cert: Some(pair.cert.clone()),
            key: Some(pair.key.clone()),
            server_name: Some(server_name.to_owned()),
            crl: None,
        }
    }
}
