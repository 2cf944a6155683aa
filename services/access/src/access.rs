//! A node's access control: its policy, and the callers that it has identified.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use moka::sync::Cache;
use scheduler::Flow;

use crate::api_key;
use crate::caller::{Caller, Proof};
use crate::digest::{Digest, digest};
use crate::error::{AccessError, Denied};
use crate::grant::{Grant, Limits, Permission};
use crate::identity::{Identity, Who};
use crate::key_set::{self, KeySet};
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::token::{self, Refused};

/// The maximum number of callers that are remembered. Others are identified again with each request. A caller takes a
/// few hundred bytes, so all of them take some megabytes.
const CALLERS_MAX: u64 = 10_000;

/// The maximum time that a check of the policy waits for the keys of issuers, which a key server that can't be reached
/// would delay. It delays the next check too.
const KEYS_PATIENCE: Duration = Duration::from_secs(1);

/// The credentials of a request's caller.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The DNS names and URIs of the connection's verified client certificate.
    pub names: &'a [String],
    /// The header `authorization`.
    pub authorization: Option<&'a [u8]>,
    /// The header `x-api-key`.
    pub api_key: Option<&'a [u8]>,
}

impl fmt::Debug for Credentials<'_> {
    /// Shows only the names, because the headers are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("names", &self.names).finish_non_exhaustive()
    }
}

/// A node's access control.
pub struct Access {
    /// `None` if access is open.
    policy: Option<FollowedPolicy>,
    /// The caller of every request if access is open.
    everybody: Arc<Caller>,
}

struct FollowedPolicy {
    path: PathBuf,
    current: ArcSwap<Policy>,
    /// The digest of the file's contents when it was last read, whether or not the policy in it is used; `None` if it
    /// could not be read. The lock is held while the files are checked.
    seen: tokio::sync::Mutex<Option<Digest>>,
    /// The callers that were identified, by the digest of their credential or, without one, of their certificate's
    /// names.
    callers: Cache<Digest, Arc<Caller>>,
    /// Returns the time since 1970.
    now: fn() -> Duration,
}

impl Access {
    /// Creates open access control: everybody may do everything.
    pub fn open() -> Self {
        Self { policy: None, everybody: Arc::new(everybody()) }
    }

    /// Reads a policy and the keys of its issuers. It is no error if an issuer's keys can't be read: tokens of that
    /// issuer are refused until the keys can be read. `certificates` says whether the node verifies certificates of
    /// callers; if not, a policy with grants for certificates is faulty, now and when it is read again.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn load(path: &Path, certificates: bool) -> Result<Self, AccessError> {
        Self::load_at(path, certificates, unix_time).await
    }

    /// Like [`load`](Self::load), with the clock that tokens are checked against: `now` returns the time since 1970.
    /// For tests and simulations.
    ///
    /// # Errors
    /// [`AccessError`].
    pub async fn load_at(
        path: &Path,
        certificates: bool,
        now: fn() -> Duration,
    ) -> Result<Self, AccessError> {
        let text = read(path).await?;
        let policy = Policy::parse(&text, path, certificates, None)?;
        refresh(policy.issuers.iter().map(|it| &it.keys), key_set::TIMEOUT).await;
        let followed = FollowedPolicy {
            path: path.to_owned(),
            current: ArcSwap::from_pointee(policy),
            seen: tokio::sync::Mutex::new(Some(digest(text.as_bytes()))),
            callers: Cache::new(CALLERS_MAX),
            now,
        };
        Ok(Self { policy: Some(followed), everybody: Arc::new(everybody()) })
    }

    /// Returns whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.policy.is_none()
    }

    /// Returns the grants of the current policy.
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        self.policy.as_ref().map_or_else(Vec::new, |policy| policy.current.load().grants.clone())
    }

    /// Reads the policy and the issuers' keys again if they have changed. A node calls this every few seconds. If the
    /// new policy is faulty, the old one stays in use and the fault is logged.
    pub async fn reload_if_changed(&self) {
        if let Some(policy) = &self.policy {
            policy.reload_if_changed().await;
        }
    }

    /// Identifies a caller, and fetches the keys of its token's issuer if necessary.
    ///
    /// # Errors
    /// [`Denied`].
    pub async fn caller(&self, credentials: &Credentials<'_>) -> Result<Arc<Caller>, Denied> {
        let Some(policy) = &self.policy else { return Ok(Arc::clone(&self.everybody)) };
        match policy.identify(credentials) {
            Ok(caller) => return Ok(caller),
            Err(NotIdentified::Denied(denied)) => return Err(denied),
            Err(NotIdentified::NeedsKeys(keys)) => keys.fetch_again().await,
        }
        policy.identify(credentials).map_err(|not| match not {
            NotIdentified::Denied(denied) => denied,
            NotIdentified::NeedsKeys(_) => Denied::UnknownKey,
        })
    }

    /// Returns `caller` with its grants under the current policy. Long-lived streams call this from time to time. It
    /// costs next to nothing if nothing has changed.
    ///
    /// # Errors
    /// [`Denied::Expired`] once the caller's token has expired; [`Denied::Withdrawn`] once its API key is gone from the
    /// policy, or the policy and the issuer's keys would no longer accept its token; [`Denied::NoCredentials`] for a
    /// caller without credentials, once no grant is for `anyone`.
    pub fn renewed(&self, caller: &Arc<Caller>) -> Result<Arc<Caller>, Denied> {
        let Some(policy) = &self.policy else { return Ok(Arc::clone(caller)) };
        let current = policy.current.load();
        let generation = current.generation();
        let renewed = match caller.generation == generation {
            true => Arc::clone(caller),
            false => {
                let (identity, proof) = accepted(&current, caller).ok_or(Denied::Withdrawn)?;
                Arc::new(named(&current, identity, proof, generation)?)
            }
        };
        renewed.is_valid_at((policy.now)()).then_some(renewed).ok_or(Denied::Expired)
    }
}

/// The outcome for a caller that was not identified.
enum NotIdentified {
    Denied(Denied),
    /// The keys of the token's issuer have to be fetched first.
    NeedsKeys(Arc<KeySet>),
}

impl From<Denied> for NotIdentified {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl FollowedPolicy {
    fn identify(&self, credentials: &Credentials<'_>) -> Result<Arc<Caller>, NotIdentified> {
        let credential = credential(credentials)?;
        let digest = match credential {
            Some(credential) => digest(credential),
            None => digest_of_names(credentials.names),
        };
        let policy = self.current.load();
        // The generation is read before the keys: a caller that was identified by old keys must never be remembered
        // under a new generation.
        let generation = policy.generation();
        let now = (self.now)();
        if let Some(caller) = self.callers.get(&digest)
            && caller.generation == generation
            && caller.is_valid_at(now)
        {
            return Ok(caller);
        }
        let (identity, proof) = match credential {
            Some(credential) => by_credential(&policy, credential, digest, now)?,
            None => (by_connection(credentials.names), Proof::Connection),
        };
        let caller = Arc::new(named(&policy, identity, proof, generation)?);
        self.callers.insert(digest, Arc::clone(&caller));
        Ok(caller)
    }

    async fn reload_if_changed(&self) {
        let mut seen = self.seen.lock().await;
        // The contents are compared, not the time of the last change: a file that replaces another may have the same
        // time.
        let text = read(&self.path).await;
        let read = text.as_ref().ok().map(|text| digest(text.as_bytes()));
        if *seen != read {
            *seen = read;
            let before = self.current.load_full();
            let parsed = text.and_then(|text| {
                Policy::parse(&text, &self.path, before.certificates, Some(&before))
            });
            match parsed {
                Ok(policy) => {
                    // Read the keys of new issuers first: a stream whose issuer now has its keys elsewhere would
                    // otherwise end, because its token has no key. But the policy may withdraw grants, so it does not
                    // wait for long.
                    let is_known = |keys: &&Arc<KeySet>| {
                        before.issuers.iter().any(|known| Arc::ptr_eq(&known.keys, keys))
                    };
                    let new =
                        policy.issuers.iter().map(|it| &it.keys).filter(|keys| !is_known(keys));
                    refresh(new, KEYS_PATIENCE).await;
                    tracing::info!(path = %self.path.display(), grants = policy.grants.len(), "a new access policy is in use");
                    self.current.store(Arc::new(policy));
                }
                Err(error) => {
                    tracing::error!(%error, "the new access policy is not used; the old one stays")
                }
            }
        }
        refresh(self.current.load_full().issuers.iter().map(|it| &it.keys), KEYS_PATIENCE).await;
    }
}

/// Reads the keys of issuers again, of all at the same time, and waits for at most `patience`. Keys that arrive later
/// are used then.
async fn refresh<'a>(key_sets: impl Iterator<Item = &'a Arc<KeySet>>, patience: Duration) {
    let read = |keys: &Arc<KeySet>| {
        let keys = Arc::clone(keys);
        tokio::spawn(async move { keys.refresh().await })
    };
    let reads: Vec<_> = key_sets.map(read).collect();
    let all = async {
        for read in reads {
            // If the task panics, the old keys stay in use.
            let _ = read.await;
        }
    };
    let _ = tokio::time::timeout(patience, all).await;
}

/// Identifies a caller by the token or key that it sends.
fn by_credential(
    policy: &Policy,
    credential: &[u8],
    digest: Digest,
    now: Duration,
) -> Result<(Identity, Proof), NotIdentified> {
    if let Some(key) = api_key::find(&policy.keys, &digest) {
        return Ok((Identity::Key(key.name.clone()), Proof::Key(digest)));
    }
    if !token::is_token(credential) {
        return Err(Denied::UnknownApiKey.into());
    }
    match token::verify(&policy.issuers, credential, now) {
        Ok(token) => {
            let (issuer, subject) = (token.issuer.clone(), token.subject.clone());
            Ok((Identity::Token { issuer, subject }, Proof::Token(token)))
        }
        Err(Refused::Denied(denied)) => Err(denied.into()),
        Err(Refused::NeedsKeys(issuer)) => Err(NotIdentified::NeedsKeys(Arc::clone(&issuer.keys))),
    }
}

/// Identifies a caller that sends neither a token nor a key by the names in its certificate.
fn by_connection(names: &[String]) -> Identity {
    match names {
        [] => Identity::Anyone,
        names => Identity::Certificate(names.to_vec()),
    }
}

/// Returns a digest of the names of a certificate. It differs from the digest of any credential, because the digested
/// text contains NUL and no header does.
fn digest_of_names(names: &[String]) -> Digest {
    let mut text = b"\0names".to_vec();
    for name in names {
        text.extend_from_slice(&(name.len() as u64).to_le_bytes());
        text.extend_from_slice(name.as_bytes());
    }
    digest(&text)
}

/// Returns the token or key that a request carries.
fn credential<'a>(credentials: &Credentials<'a>) -> Result<Option<&'a [u8]>, Denied> {
    let bearer = match credentials.authorization {
        None => None,
        Some(header) => {
            let (scheme, value) = header.split_at_checked(7).ok_or(Denied::Malformed)?;
            if !scheme.eq_ignore_ascii_case(b"bearer ") {
                return Err(Denied::Malformed);
            }
            Some(value.trim_ascii())
        }
    };
    match (bearer, credentials.api_key.map(<[u8]>::trim_ascii)) {
        (Some([]), _) | (_, Some([])) => Err(Denied::Malformed),
        // A client that sends the same key in both headers is accepted; one that sends two different credentials is
        // not.
        (Some(one), Some(other)) if one != other => Err(Denied::Malformed),
        (one, other) => Ok(one.or(other)),
    }
}

/// Returns the caller's identity and proof under `policy`. `None` if the policy no longer accepts the credentials.
fn accepted(policy: &Policy, caller: &Caller) -> Option<(Identity, Proof)> {
    match &caller.proof {
        Proof::Connection => Some((caller.identity.clone(), Proof::Connection)),
        // The key may have another name now.
        Proof::Key(digest) => {
            let key = api_key::find(&policy.keys, digest)?;
            Some((Identity::Key(key.name.clone()), Proof::Key(*digest)))
        }
        Proof::Token(token) => {
            let issuer = policy.issuers.iter().find(|it| it.name == token.issuer)?;
            Some((caller.identity.clone(), Proof::Token(issuer.renewed(token)?)))
        }
    }
}

/// Returns the caller with this identity and its grants under `policy`.
///
/// # Errors
/// [`Denied::NoCredentials`] for a caller without credentials, if no grant is for `anyone`.
fn named(
    policy: &Policy,
    identity: Identity,
    proof: Proof,
    generation: u64,
) -> Result<Caller, Denied> {
    let of_caller = policy.grants.iter().filter(|grant| grant.is_for(&identity));
    let grants: Vec<_> = of_caller.cloned().collect();
    match identity == Identity::Anyone && grants.is_empty() {
        true => Err(Denied::NoCredentials),
        false => Ok(Caller { identity, proof, generation, grants }),
    }
}

/// Returns the caller of every request if access is open. Its one grant allows everything.
fn everybody() -> Caller {
    let grant = Grant {
        name: "open".into(),
        who: vec![Who::Anyone],
        tables: vec![Pattern::new("*")],
        may: Permission::ALL.to_vec(),
        part: None,
        limits: Limits::default(),
        flow: Flow::default(),
        state: Arc::default(),
    };
    let grants = vec![Arc::new(grant)];
    Caller { identity: Identity::Anyone, proof: Proof::Connection, generation: 0, grants }
}

async fn read(path: &Path) -> Result<String, AccessError> {
    let unreadable = |source| AccessError::Unreadable { path: path.to_owned(), source };
    tokio::fs::read_to_string(path).await.map_err(unreadable)
}

#[expect(clippy::disallowed_methods, reason = "tokens expire by the wall clock")]
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
