//! JSON Web Tokens: verifies a token against the issuers of the policy.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Algorithm, Validation, decode_header};
use serde::Deserialize;

use crate::digest::Digest;
use crate::error::Denied;
use crate::key_set::KeySet;

/// The maximum size of a token, in bytes. Longer ones are refused before anything is parsed. Over HTTP/2, all headers
/// of a request together have at most 16 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// An issuer whose tokens are accepted.
pub struct Issuer {
    /// Its name in the policy.
    pub name: String,
    /// The `iss` of its tokens.
    pub issuer: String,
    /// The accepted audiences: a token has to name one of them.
    pub audiences: Vec<String>,
    /// The algorithms that are accepted. None of them uses a shared secret.
    pub algorithms: Vec<Algorithm>,
    /// The maximum difference between the issuer's clock and this one.
    pub clock_skew: Duration,
    /// Its public keys.
    pub keys: Arc<KeySet>,
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The issuer's name in the policy.
    pub issuer: String,
    /// The token's `sub`.
    pub subject: String,
    /// The token's `iss`.
    issued_by: String,
    /// The token's `aud`.
    audiences: Vec<String>,
    algorithm: Algorithm,
    /// The digest of the key that signed it.
    key: Digest,
    /// The time, since 1970, at which the token expires.
    expires: Duration,
    /// The issuer's clock skew, for which the token is accepted beyond its expiry.
    clock_skew: Duration,
}

impl VerifiedToken {
    /// Returns whether the token is no longer accepted at `now`, the time since 1970.
    pub fn has_expired(&self, now: Duration) -> bool {
        now >= self.expires.saturating_add(self.clock_skew)
    }
}

impl Issuer {
    /// Returns a token that was verified earlier, with the clock skew that the issuer has in the current policy. `None`
    /// if the issuer no longer accepts the token. The caller checks whether it has expired.
    pub fn renewed(&self, token: &VerifiedToken) -> Option<VerifiedToken> {
        let is_accepted = self.issuer == token.issued_by
            && token.audiences.iter().any(|audience| self.audiences.contains(audience))
            && self.algorithms.contains(&token.algorithm)
            && self.keys.has(&token.key);
        is_accepted.then(|| VerifiedToken { clock_skew: self.clock_skew, ..token.clone() })
    }
}

/// The outcome of a token that is not accepted.
pub enum Refused<'a> {
    /// The token is refused.
    Denied(Denied),
    /// The keys of the token's issuer have to be fetched first.
    NeedsKeys(&'a Issuer),
}

impl From<Denied> for Refused<'_> {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// The claims that are checked. Issuers write times as integers or with a fraction.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(default)]
    aud: Audience,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl From<Audience> for Vec<String> {
    fn from(audience: Audience) -> Self {
        match audience {
            Audience::One(audience) => vec![audience],
            Audience::Several(audiences) => audiences,
        }
    }
}

/// Returns whether a credential looks like a token: three parts, separated by dots.
pub fn is_token(credential: &[u8]) -> bool {
    credential.iter().filter(|&&byte| byte == b'.').count() == 2
}

/// Verifies a token. `now` is the time since 1970.
///
/// # Errors
/// [`Refused`].
pub fn verify<'a>(
    issuers: &'a [Issuer],
    token: &[u8],
    now: Duration,
) -> Result<VerifiedToken, Refused<'a>> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Denied::Malformed.into());
    }
    // The library does not know the algorithm `none`, so a header with it is an error.
    let header = decode_header(token).map_err(|_| header_fault(token))?;
    // A header may demand extensions (RFC 7515, 4.1.11). None are known here.
    if header.crit.as_ref().is_some_and(|names| !names.is_empty()) {
        return Err(Denied::Malformed.into());
    }
    // Not verified yet: the claims name the issuer, whose keys verify them.
    let unverified: Claims =
        jsonwebtoken::dangerous::insecure_decode(token).map_err(|_| Denied::Malformed)?.claims;
    let mut of_issuer = issuers.iter().filter(|it| it.issuer == unverified.iss).peekable();
    if of_issuer.peek().is_none() {
        return Err(Denied::UnknownIssuer.into());
    }
    let audiences: Vec<String> = unverified.aud.into();
    let issuer =
        of_issuer.find(|it| audiences.iter().any(|audience| it.audiences.contains(audience)));
    let issuer = issuer.ok_or(Denied::Audience)?;
    if !issuer.algorithms.contains(&header.alg) {
        return Err(Denied::Algorithm.into());
    }
    let mut validation = Validation::new(header.alg);
    // Turn off the library's checks of times and audiences. This function does both checks, with `now` as the time, so
    // that it can return the cause for the log.
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation.required_spec_claims.clear();
    let verified = issuer.keys.with_key(header.kid.as_deref(), header.alg, |key| {
        let verified = jsonwebtoken::decode::<Claims>(token, &key.key, &validation);
        verified.map(|token| (token.claims, key.digest))
    });
    let (claims, key) = match verified {
        Some(Ok(verified)) => verified,
        Some(Err(_)) => return Err(Denied::BadSignature.into()),
        None if issuer.keys.can_fetch() => return Err(Refused::NeedsKeys(issuer)),
        None if issuer.keys.has_failed() => return Err(Denied::Unavailable.into()),
        None => return Err(Denied::UnknownKey.into()),
    };
    let expires = check_times(&claims, issuer.clock_skew, now)?;
    Ok(VerifiedToken {
        issuer: issuer.name.clone(),
        subject: claims.sub,
        issued_by: claims.iss,
        audiences,
        algorithm: header.alg,
        key,
        expires,
        clock_skew: issuer.clock_skew,
    })
}

/// Checks the token's times. Returns the time at which the token expires.
fn check_times(claims: &Claims, skew: Duration, now: Duration) -> Result<Duration, Denied> {
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|_| Denied::Malformed);
    let expires = time(claims.exp.ok_or(Denied::Malformed)?)?;
    if now >= expires.saturating_add(skew) {
        return Err(Denied::Expired);
    }
    for begins in [claims.nbf, claims.iat].into_iter().flatten() {
        if time(begins)? > now.saturating_add(skew) {
            return Err(Denied::NotYetValid);
        }
    }
    Ok(expires)
}

/// Returns why a header can't be read: its algorithm is `none` or unknown, or it is no header at all.
fn header_fault(token: &[u8]) -> Denied {
    use base64::Engine;

    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "alg")]
        _alg: String,
    }

    let first = token.split(|&byte| byte == b'.').next().unwrap_or_default();
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(first);
    match text.ok().and_then(|text| serde_json::from_slice::<Named>(&text).ok()) {
        Some(_) => Denied::Algorithm,
        None => Denied::Malformed,
    }
}
