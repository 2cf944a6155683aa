//! Keys that sign JSON Web Tokens, and the sets of public keys that verify them.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// RSA private keys (PKCS #1) for tests only. They are stored because rcgen's `ring` backend does not
/// generate RSA keys.
const RSA_KEYS: [&[u8]; 2] =
    [include_bytes!("../keys/rsa-0.der"), include_bytes!("../keys/rsa-1.der")];

/// The public part of the first RSA key, in PEM.
pub const RSA_PUBLIC_PEM: &str = include_str!("../keys/rsa-0.pub.pem");

/// A key that signs tokens.
#[derive(Clone)]
pub struct TokenSigner {
    key: EncodingKey,
    algorithm: Algorithm,
    id: String,
}

impl TokenSigner {
    /// Generates an elliptic-curve key, which signs with ES256. `id` is the `kid` of its tokens.
    pub fn new(id: &str) -> Self {
        let pair = KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        Self { key, algorithm: Algorithm::ES256, id: id.into() }
    }

    /// Returns a signer with one of the two RSA keys, which signs with RS256.
    pub fn rsa(id: &str, number: usize) -> Self {
        let key = EncodingKey::from_rsa_der(RSA_KEYS[number]);
        Self { key, algorithm: Algorithm::RS256, id: id.into() }
    }

    /// Returns a signer with a shared secret, which signs with HS256.
    pub fn secret(id: &str, secret: &[u8]) -> Self {
        let key = EncodingKey::from_secret(secret);
        Self { key, algorithm: Algorithm::HS256, id: id.into() }
    }

    /// Returns a signer with the same key and another `kid`.
    pub fn named(&self, id: &str) -> Self {
        Self { id: id.into(), ..self.clone() }
    }

    /// Returns the public key as an entry of a JSON Web Key Set.
    pub fn public(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).unwrap()
    }

    /// Returns a signed token.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(self.algorithm, claims)
    }

    /// Returns a token that is signed with the same key and another algorithm.
    pub fn sign_as(&self, algorithm: Algorithm, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.clone()), ..Header::new(algorithm) };
        encode(&header, claims, &self.key).unwrap()
    }
}

/// Returns a JSON Web Key Set with the signers' public keys.
pub fn key_set(signers: &[&TokenSigner]) -> String {
    json!({ "keys": signers.iter().map(|it| it.public()).collect::<Vec<_>>() }).to_string()
}
