//! Tests callers of every kind, under policies and key sets that change, with keys made for the tests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use certificates::{TokenSigner, key_set};
use futures::FutureExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;

/// The test's time, in seconds since 1970.
const NOW: u64 = 1_790_000_000;

fn now() -> Duration {
    Duration::from_secs(NOW)
}

fn claims() -> Value {
    json!({ "iss": "https://idp", "sub": "system:serviceaccount:a:b", "aud": ["other", "bireme"], "exp": NOW + 600 })
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

const GRANTS: &str = r#"
    [[grants]]
    name = "tokens"
    who = ["jwt:idp:system:serviceaccount:a:*"]
    tables = ["a*"]
    may = ["read"]
    [[grants]]
    name = "keys"
    who = ["key:ci", "san:job.example"]
    tables = ["*"]
    may = ["read", "warm", "observe"]
"#;

fn policy(jwks: &str) -> String {
    let digest = crate::digest_of_key(b"the key");
    format!(
        "[issuers.idp]\nissuer = \"https://idp\"\njwks = \"{jwks}\"\naudiences = [\"bireme\"]\n\
         algorithms = [\"ES256\"]\n[keys.ci]\nsha256 = [\"{digest}\"]\n{GRANTS}"
    )
}

struct Tested {
    folder: TempDir,
    access: Access,
}

impl Tested {
    async fn new(keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let jwks = folder.path().join("jwks.json");
        std::fs::write(&jwks, keys).unwrap();
        Self::with_policy(folder, &policy(&jwks.display().to_string())).await
    }

    async fn with_policy(folder: TempDir, text: &str) -> Self {
        let path = folder.path().join("access.toml");
        std::fs::write(&path, text).unwrap();
        let access = Access::load_at(&path, true, now).await.unwrap();
        Self { folder, access }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    /// Replaces a file in the folder, and reloads what has changed.
    async fn replace(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
        self.access.reload_if_changed().await;
    }

    async fn bearer(&self, token: &str) -> Result<Arc<Caller>, Denied> {
        let header = format!("Bearer {token}");
        let authorization = Some(header.as_bytes());
        self.access.caller(&Credentials { authorization, ..Default::default() }).await
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

#[tokio::test]
async fn each_token_that_is_not_accepted_has_its_cause_and_all_have_one_text() {
    let (signer, stranger) = (TokenSigner::new("k1"), TokenSigner::new("k1"));
    let tested = Tested::new(&key_set(&[&signer])).await;
    let good = signer.sign(&claims());
    let caller = tested.bearer(&good).await.unwrap();
    assert_eq!(caller.identity().to_string(), "jwt:idp:system:serviceaccount:a:b");
    let parts: Vec<&str> = good.split('.').collect();
    let header = |text: &str| format!("{}.{}.{}", base64(text), parts[1], parts[2]);
    // A token that is signed with the public key as if it were a shared secret.
    let public = signer.public().to_string();
    let hmac = TokenSigner::secret("k1", public.as_bytes()).sign(&claims());
    let unknown = signer.named("k2");
    for (token, cause) in [
        (header(r#"{"alg":"none"}"#), Denied::Algorithm),
        (format!("{}.{}.", base64(r#"{"alg":"none"}"#), parts[1]), Denied::Algorithm),
        (hmac, Denied::Algorithm),
        (header(r#"{"alg":"ES384","kid":"k1"}"#), Denied::Algorithm),
        (header(r#"{"alg":"ES256","kid":"k1","crit":["x"]}"#), Denied::Malformed),
        (stranger.sign(&claims()), Denied::BadSignature),
        (
            format!(
                "{}.{}.{}",
                parts[0],
                base64(&with(json!({"sub": "root"})).to_string()),
                parts[2]
            ),
            Denied::BadSignature,
        ),
        (unknown.sign(&claims()), Denied::UnknownKey),
        (signer.sign(&with(json!({"iss": "https://other"}))), Denied::UnknownIssuer),
        (signer.sign(&with(json!({"aud": "other"}))), Denied::Audience),
        (signer.sign(&with(json!({"aud": null}))), Denied::Audience),
        (signer.sign(&with(json!({"exp": NOW - 30}))), Denied::Expired),
        (signer.sign(&with(json!({"exp": null}))), Denied::Malformed),
        (signer.sign(&with(json!({"nbf": NOW + 31}))), Denied::NotYetValid),
        (signer.sign(&with(json!({"iat": NOW + 31}))), Denied::NotYetValid),
        ("a.b.c".into(), Denied::Malformed),
        (format!("{good}{}", "A".repeat(20_000)), Denied::Malformed),
        ("another key".into(), Denied::UnknownApiKey),
    ] {
        let denied = tested.bearer(&token).await.unwrap_err();
        assert_eq!(denied, cause, "{token}");
        assert_eq!(denied.to_string(), Denied::Expired.to_string());
    }
    for accepted in [
        with(json!({"exp": NOW - 29})),
        with(json!({"nbf": NOW + 30, "iat": NOW as f64 + 0.5})),
        with(json!({"aud": "bireme"})),
    ] {
        tested.bearer(&signer.sign(&accepted)).await.unwrap();
    }
}

#[tokio::test]
async fn keys_certificates_and_nobody_are_told_apart() {
    let tested = Tested::new(&key_set(&[&TokenSigner::new("k")])).await;
    let names = ["JOB.example".to_owned(), "spiffe://x/y".to_owned()];
    let caller =
        |credentials: Credentials<'_>| tested.access.caller(&credentials).now_or_never().unwrap();
    let none = Credentials::default();
    let by_header = caller(Credentials { api_key: Some(b"the key"), ..none }).unwrap();
    let by_bearer = caller(Credentials { authorization: Some(b"bearer the key"), ..none }).unwrap();
    assert!(Arc::ptr_eq(&by_header, &by_bearer), "the caller is remembered");
    assert_eq!(by_header.identity(), &Identity::Key("ci".into()));
    assert_eq!(by_header.grant("anything", Permission::Warm).unwrap().name(), "keys");
    let certified = caller(Credentials { names: &names, ..none }).unwrap();
    assert_eq!(certified.identity().to_string(), "san:JOB.example");
    assert!(certified.observing_grant().is_some() && certified.sees("a"));
    let others = ["other.example".to_owned()];
    let other = caller(Credentials { names: &others, ..none }).unwrap();
    assert!(!other.sees("a"), "the caller is known, but has no grant");
    for (credentials, cause) in [
        (none, Denied::NoCredentials),
        (Credentials { authorization: Some(b"Basic dTpw"), ..none }, Denied::Malformed),
        (Credentials { authorization: Some(b"Bearer "), ..none }, Denied::Malformed),
        (Credentials { authorization: Some(b"x"), ..none }, Denied::Malformed),
        (Credentials { api_key: Some(b""), ..none }, Denied::Malformed),
        (Credentials { api_key: Some(b"the ke"), ..none }, Denied::UnknownApiKey),
        // A certificate does not make up for a key that is wrong.
        (Credentials { names: &names, api_key: Some(b"wrong"), ..none }, Denied::UnknownApiKey),
        (
            Credentials { authorization: Some(b"Bearer the key"), api_key: Some(b"x"), ..none },
            Denied::Malformed,
        ),
    ] {
        assert_eq!(caller(credentials).unwrap_err(), cause, "{credentials:?}");
    }
}

#[tokio::test]
async fn a_stream_follows_the_policy_and_the_keys() {
    let (one, two) = (TokenSigner::new("k1"), TokenSigner::new("k2"));
    let tested = Tested::new(&key_set(&[&one])).await;
    let by_token = tested.bearer(&one.sign(&claims())).await.unwrap();
    let by_key = tested.bearer("the key").await.unwrap();
    assert!(Arc::ptr_eq(&tested.access.renewed(&by_key).unwrap(), &by_key));
    let grant = Arc::clone(by_key.grant("b", Permission::Read).unwrap());
    drop(grant.begin().unwrap());
    let text = std::fs::read_to_string(tested.path()).unwrap();

    // The grants change. Their counters continue.
    tested.replace("access.toml", &text.replace("tables = [\"*\"]", "tables = [\"b\"]")).await;
    let renewed = tested.access.renewed(&by_key).unwrap();
    assert!(by_key.sees("c") && !renewed.sees("c"));
    let renewed_grant = renewed.grant("b", Permission::Read).unwrap();
    assert_eq!(renewed_grant.used().requests, 1);
    assert!(tested.access.renewed(&by_token).is_ok());

    // A faulty policy and a faulty key set change nothing.
    tested.replace("access.toml", "nonsense").await;
    tested.replace("jwks.json", "nonsense").await;
    assert!(tested.access.renewed(&by_token).is_ok() && tested.access.renewed(&by_key).is_ok());

    // The key that signed the token is gone.
    tested.replace("jwks.json", &key_set(&[&two])).await;
    assert_eq!(tested.access.renewed(&by_token).unwrap_err(), Denied::Withdrawn);
    assert_eq!(tested.bearer(&one.sign(&claims())).await.unwrap_err(), Denied::UnknownKey);
    tested.bearer(&two.sign(&claims())).await.unwrap();

    // The API key is replaced by another.
    let other = text.replace(&crate::digest_of_key(b"the key"), &crate::digest_of_key(b"new"));
    tested.replace("access.toml", &other).await;
    assert_eq!(tested.access.renewed(&by_key).unwrap_err(), Denied::Withdrawn);
    assert_eq!(tested.bearer("the key").await.unwrap_err(), Denied::UnknownApiKey);
    tested.bearer("new").await.unwrap();
}

#[tokio::test]
async fn a_stream_without_credentials_ends_when_no_grant_is_for_everyone() {
    let tested = Tested::new(&key_set(&[&TokenSigner::new("k")])).await;
    let text = std::fs::read_to_string(tested.path()).unwrap();
    let open = text.replace("\"key:ci\"", "\"key:ci\", \"anyone\"");
    tested.replace("access.toml", &open).await;
    let caller = tested.access.caller(&Credentials::default()).await.unwrap();
    assert!(tested.access.renewed(&caller).unwrap().sees("a"));
    tested.replace("access.toml", &text).await;
    assert_eq!(tested.access.renewed(&caller).unwrap_err(), Denied::NoCredentials);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_would_no_longer_be_accepted() {
    let (one, other) = (TokenSigner::new("k1"), TokenSigner::new("k1"));
    let tested = Tested::new(&key_set(&[&one])).await;
    let text = std::fs::read_to_string(tested.path()).unwrap();
    let caller = tested.bearer(&one.sign(&claims())).await.unwrap();
    for changed in [
        text.replace("[\"bireme\"]", "[\"elsewhere\"]"),
        text.replace("https://idp", "https://other"),
        text.replace("ES256", "ES384"),
    ] {
        tested.replace("access.toml", &changed).await;
        assert_eq!(tested.access.renewed(&caller).unwrap_err(), Denied::Withdrawn, "{changed}");
    }
    tested.replace("access.toml", &text).await;
    tested.access.renewed(&caller).unwrap();
    // A token that has expired is accepted for the clock skew of the current policy.
    let expired = tested.bearer(&one.sign(&with(json!({"exp": NOW - 10})))).await.unwrap();
    let changed = text.replace("algorithms", "clock_skew = \"5s\"\nalgorithms");
    tested.replace("access.toml", &changed).await;
    assert_eq!(tested.access.renewed(&expired).unwrap_err(), Denied::Expired);
    tested.access.renewed(&caller).unwrap();
    // Replace the key by another one of the same name.
    tested.replace("jwks.json", &key_set(&[&other])).await;
    assert_eq!(tested.access.renewed(&caller).unwrap_err(), Denied::Withdrawn);
    assert_eq!(tested.bearer(&one.sign(&claims())).await.unwrap_err(), Denied::BadSignature);
}

#[tokio::test]
async fn a_replaced_policy_is_noticed_even_if_its_time_is_not_newer() {
    let tested = Tested::new(&key_set(&[&TokenSigner::new("k")])).await;
    let text = std::fs::read_to_string(tested.path()).unwrap();
    let modified = std::fs::metadata(tested.path()).unwrap().modified().unwrap();
    let next = tested.folder.path().join("next");
    let digest = crate::digest_of_key;
    std::fs::write(&next, text.replace(&digest(b"the key"), &digest(b"a.b.c"))).unwrap();
    std::fs::File::options().write(true).open(&next).unwrap().set_modified(modified).unwrap();
    std::fs::rename(&next, tested.path()).unwrap();
    tested.access.reload_if_changed().await;
    // A key may look like a token.
    tested.bearer("a.b.c").await.unwrap();
    // While the file is missing, the policy that was read from it stays in use. Once there is a file again, its policy
    // is used.
    std::fs::remove_file(tested.path()).unwrap();
    tested.access.reload_if_changed().await;
    tested.bearer("a.b.c").await.unwrap();
    tested.replace("access.toml", &text).await;
    tested.bearer("the key").await.unwrap();
}

/// Serves key sets over HTTP. Returns the address, the key set that is served, and the number of requests.
/// While the key set is locked, requests wait.
async fn server(keys: String) -> (String, Arc<tokio::sync::Mutex<String>>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/jwks", listener.local_addr().unwrap());
    let (keys, count) = (Arc::new(tokio::sync::Mutex::new(keys)), Arc::new(AtomicUsize::new(0)));
    let (served, counted) = (Arc::clone(&keys), Arc::clone(&count));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (served, counted) = (Arc::clone(&served), Arc::clone(&counted));
            let answer = service_fn(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                let served = Arc::clone(&served);
                async move {
                    let keys = served.lock().await.clone().into_bytes();
                    let body = http_body_util::Full::<hyper::body::Bytes>::from(keys);
                    Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
        }
    });
    (address, keys, count)
}

/// Key servers that accept connections and never answer delay neither each other nor a policy that withdraws grants.
#[tokio::test(start_paused = true)]
async fn a_silent_key_server_does_not_delay_a_new_policy() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let issuer = |name: &str| {
        format!(
            "[issuers.{name}]\nissuer = \"https://{name}\"\njwks = \"http://{address}/{name}\"\n\
             audiences = [\"bireme\"]\nalgorithms = [\"ES256\"]\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, key_set(&[&TokenSigner::new("k")])).unwrap();
    let text = policy(&jwks.display().to_string());
    let text = format!("{}{}{text}", issuer("one"), issuer("two"));
    let began = tokio::time::Instant::now();
    let tested = Tested::with_policy(folder, &text).await;
    assert!(began.elapsed() <= key_set::TIMEOUT + TICK, "{:?}", began.elapsed());
    let caller = tested.bearer("the key").await.unwrap();
    assert!(caller.sees("c"));

    // The next fetches are due. The new policy has another issuer with a silent server.
    tokio::time::advance(Duration::from_secs(60)).await;
    let changed = text.replace("tables = [\"*\"]", "tables = [\"b\"]");
    let began = tokio::time::Instant::now();
    tested.replace("access.toml", &format!("{}{changed}", issuer("three"))).await;
    assert!(!tested.access.renewed(&caller).unwrap().sees("c"));
    assert!(began.elapsed() <= 2 * KEYS_PATIENCE + TICK, "{:?}", began.elapsed());
}

/// The resolution of tokio's timers, which paused time skips too.
const TICK: Duration = Duration::from_millis(10);

#[tokio::test]
async fn an_unknown_key_is_fetched_once_and_a_flood_of_them_not_again() {
    let (one, two, stranger) =
        (TokenSigner::new("k1"), TokenSigner::new("k2"), TokenSigner::new("k3"));
    let (address, keys, count) = server(key_set(&[&one])).await;
    let tested = Tested::with_policy(tempfile::tempdir().unwrap(), &policy(&address)).await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    tested.bearer(&one.sign(&claims())).await.unwrap();
    // The issuer has a new key. The first fetch was a moment ago.
    *keys.lock().await = key_set(&[&one, &two]);
    assert_eq!(tested.bearer(&two.sign(&claims())).await.unwrap_err(), Denied::UnknownKey);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let header = format!("Bearer {}", two.sign(&claims()));
    let authorization = Some(header.as_bytes());
    let credentials = Credentials { authorization, ..Default::default() };
    let known = tested.access.caller(&credentials).now_or_never();
    assert!(known.is_none(), "the keys have to be fetched");
    tested.bearer(&two.sign(&claims())).await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2);
    for _ in 0..10 {
        assert_eq!(tested.bearer(&stranger.sign(&claims())).await.unwrap_err(), Denied::UnknownKey);
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn callers_wait_for_keys_that_are_fetched_for_one_that_has_left() {
    let (one, two, stranger) =
        (TokenSigner::new("k1"), TokenSigner::new("k2"), TokenSigner::new("k3"));
    let (address, keys, count) = server(key_set(&[&one])).await;
    let tested = Tested::with_policy(tempfile::tempdir().unwrap(), &policy(&address)).await;
    let caller = tested.bearer(&one.sign(&claims())).await.unwrap();
    let mut served = keys.lock().await;
    *served = key_set(&[&two]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let token = stranger.sign(&claims());
    assert!(tested.bearer(&token).now_or_never().is_none());
    while count.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    let token = two.sign(&claims());
    let mut waiting = std::pin::pin!(tested.bearer(&token));
    assert!(waiting.as_mut().now_or_never().is_none(), "the keys are being fetched");
    drop(served);
    waiting.await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2);
    // The key of the first token is gone, for streams too.
    assert_eq!(tested.access.renewed(&caller).unwrap_err(), Denied::Withdrawn);
    assert_eq!(tested.bearer(&one.sign(&claims())).await.unwrap_err(), Denied::UnknownKey);
}

#[tokio::test]
async fn open_access_knows_everybody_and_refuses_nothing() {
    let access = Access::open();
    let authorization = Some(b"nonsense".as_slice());
    let caller = access
        .caller(&Credentials { authorization, ..Default::default() })
        .now_or_never()
        .unwrap()
        .unwrap();
    assert!(access.is_open() && caller.sees("anything") && caller.observing_grant().is_some());
    for permission in Permission::ALL {
        assert!(caller.grant("anything", permission).is_some());
    }
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let tested = Tested::new(&key_set(&[&TokenSigner::new("k")])).await;
    let caller = tested.bearer("the key").await.unwrap();
    let secrets =
        Credentials { api_key: Some(b"the key"), authorization: Some(b"the key"), names: &[] };
    assert!(!format!("{secrets:?}").contains("116"), "{secrets:?}");
    let shown = format!("{caller:?} {:?} {}", tested.bearer("wrong one").await, caller.identity());
    assert!(!shown.contains("the key") && !shown.contains("wrong one"), "{shown}");
}

/// Returns the name of the first grant whose tables and permissions fit, according to a plain model.
fn expected<'a>(
    grants: &'a [(String, Vec<String>, Vec<usize>)],
    table: &str,
    permission: usize,
) -> Option<&'a str> {
    let fits = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => table.starts_with(prefix),
        None => pattern == table,
    };
    let mut fitting = grants
        .iter()
        .filter(|(_, tables, may)| tables.iter().any(fits) && may.contains(&permission));
    fitting.next().map(|(name, _, _)| name.as_str())
}

proptest! {
    #[test]
    fn the_first_grant_that_fits_applies(
        grants in proptest::collection::vec(
            (proptest::collection::vec("[ab]{1,2}\\*?|\\*", 1..3), proptest::collection::vec(0..3usize, 1..3)), 1..5),
        table in "[ab]{1,3}",
        permission in 0..3usize,
    ) {
        let grants: Vec<_> = grants.into_iter().enumerate().map(|(at, (tables, may))| (format!("g{at}"), tables, may)).collect();
        let names = ["read", "warm", "observe"];
        let text: String = grants.iter().map(|(name, tables, may)| {
            let may: Vec<_> = may.iter().map(|&at| names[at]).collect();
            format!("[[grants]]\nname = \"{name}\"\nwho = [\"anyone\"]\ntables = {tables:?}\nmay = {may:?}\n")
        }).collect();
        let policy = Policy::parse(&text, Path::new("p"), true, None).unwrap();
        let caller = named(&policy, Identity::Anyone, Proof::Connection, 1).unwrap();
        let found = caller.grant(&table, Permission::ALL[permission]).map(|grant| grant.name().to_owned());
        prop_assert_eq!(found.as_deref(), expected(&grants, &table, permission));
    }

    #[test]
    fn any_header_is_an_answer(header in proptest::collection::vec(any::<u8>(), 0..200), key in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread_local!(static TESTED: std::cell::RefCell<HashMap<(), Tested>> = Default::default());
        TESTED.with_borrow_mut(|tested| {
            let tested = tested.entry(()).or_insert_with(|| {
                runtime.block_on(Tested::new(&key_set(&[&TokenSigner::new("k")])))
            });
            let header = Some(header.as_slice());
            let credentials = match key {
                true => Credentials { api_key: header, ..Default::default() },
                false => Credentials { authorization: header, ..Default::default() },
            };
            assert!(tested.access.caller(&credentials).now_or_never().unwrap().is_err());
        });
    }
}
