//! Replaces certificates, authorities, token-signing keys, API keys and the policy under load. No request may fail, and
//! afterwards the replaced credentials must be refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use certificates::{Authority, Pair, TokenSigner, key_set};
use client::fetch::{FetchClient, FetchOptions, Instant};
use client::query::{QueryClient, TakeRequest};
use client::{ClientTls, ClientTlsConfig, Network};
use connections::tls::ServerTlsConfig;
use query_node::AccessConfig;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::{Fault, Reason};

use crate::cluster::{Cluster, endpoint, folder, soon};
use crate::members::{ROWS, write};

const DAY: Duration = Duration::from_secs(86_400);

/// The maximum time until nodes use changed TLS files for new connections: two check intervals of 5 s, and a second.
const CHECKED: Duration = Duration::from_secs(11);

/// All clients of connections with an earlier certificate reconnect within 25 s of the change (docs/operating/tls.md).
/// The rest is for a busy machine.
const RENEWED: Duration = Duration::from_secs(30);

/// The files that nodes and callers read.
struct Live {
    folder: PathBuf,
}

impl Live {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Replaces a file atomically, as a kubelet does.
    fn replace(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let next = self.file("next");
        std::fs::write(&next, bytes).unwrap();
        std::fs::rename(next, self.file(name)).unwrap();
    }

    fn replace_pair(&self, name: &str, pair: &Pair) {
        self.replace(&format!("{name}.key"), std::fs::read(&pair.key).unwrap());
        self.replace(&format!("{name}.crt"), std::fs::read(&pair.cert).unwrap());
    }

    /// Replaces all certificates: the query node's two (for its callers and for I/O nodes), the I/O nodes' and a
    /// caller's.
    fn replace_certificates(&self, callers: &Authority, tiers: &Authority) {
        self.replace_pair("query", &callers.issue("query.example", DAY));
        self.replace_pair("caller", &callers.issue("caller.example", DAY));
        self.replace_pair("io", &tiers.issue("io.example", DAY));
        self.replace_pair("peer", &tiers.issue("peer.example", DAY));
    }

    /// Replaces the lists of trusted authorities.
    fn trust(&self, callers: &[&Authority], tiers: &[&Authority]) {
        for (name, authorities) in [("callers.pem", callers), ("tiers.pem", tiers)] {
            let pem = authorities.iter().map(|it| std::fs::read_to_string(&it.ca).unwrap());
            self.replace(name, pem.collect::<String>());
        }
    }

    fn server(&self, name: &str, trusts: &str) -> ServerTlsConfig {
        ServerTlsConfig {
            cert: self.file(&format!("{name}.crt")),
            key: self.file(&format!("{name}.key")),
            client_ca: Some(self.file(trusts)),
            crl: None,
        }
    }

    /// Returns the settings of a client, with the certificate `name` if it has one.
    fn client(&self, name: Option<&str>, trusts: &str, server_name: &str) -> ClientTlsConfig {
        ClientTlsConfig {
            ca: Some(self.file(trusts)),
            cert: name.map(|name| self.file(&format!("{name}.crt"))),
            key: name.map(|name| self.file(&format!("{name}.key"))),
            server_name: Some(server_name.into()),
            crl: None,
        }
    }

    /// Copies the current files of a client. Returns settings that use the copies.
    fn kept(&self, client: &ClientTlsConfig) -> ClientTlsConfig {
        let kept = |file: &Option<PathBuf>| {
            file.as_ref().map(|file| {
                let copy = self.file(&format!("old-{}", file.file_name().unwrap().display()));
                std::fs::copy(file, &copy).unwrap();
                copy
            })
        };
        let (ca, cert, key) = (kept(&client.ca), kept(&client.cert), kept(&client.key));
        ClientTlsConfig { ca, cert, key, ..client.clone() }
    }
}

/// The credentials that callers without a certificate currently send.
struct Credentials {
    token: String,
    api_key: String,
}

const API_KEYS: [&str; 2] = ["the first key, which nobody guesses", "the second key of the caller"];

fn token(signer: &TokenSigner) -> String {
    signer.sign(&json!({
        "iss": "https://idp", "sub": "caller", "aud": "bireme", "exp": 4_000_000_000_u64,
    }))
}

/// Returns a policy under which the three callers may read and observe all tables. `number` changes details that do not
/// affect them.
fn policy(jwks: &Path, api_keys: &[&str], number: u32) -> String {
    let digests: Vec<_> =
        api_keys.iter().map(|key| access::digest_of_key(key.as_bytes())).collect();
    let jwks = jwks.display();
    let limit = 1_000_000 + number;
    format!(
        "[issuers.idp]\nissuer = \"https://idp\"\njwks = \"{jwks}\"\naudiences = [\"bireme\"]\n\
         algorithms = [\"ES256\"]\n[keys.caller]\nsha256 = {digests:?}\n\
         [[grants]]\nname = \"other-{number}\"\nwho = [\"san:other.example\"]\ntables = [\"*\"]\nmay = [\"read\"]\n\
         [[grants]]\nname = \"callers-{number}\"\nwho = [\"san:caller.example\", \"jwt:idp:caller\", \"key:caller\"]\n\
         tables = [\"*\"]\nmay = [\"read\", \"observe\"]\nrows_per_second = {limit}\n"
    )
}

/// Sends one round of the requests that every caller repeats.
async fn ask(client: &QueryClient, number: i64) -> Result<(), Fault> {
    let ids: Vec<i64> = (0..20).map(|id| (id * 7919 + number) % ROWS).collect();
    let row_addrs = ids.iter().map(|id| ((id / 20_000) as u64) << 32 | (id % 20_000) as u64);
    let take =
        TakeRequest { table: "t".into(), row_addrs: row_addrs.collect(), ..Default::default() };
    let taken = client.take(take).await?.collect().await?;
    assert_eq!(taken.batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), ids.len());
    client.describe("t", 0).await?;
    client.tables().await?;
    client.status().await.map(drop)
}

/// Sends requests until `stop`. Before each request, `with` returns the client with its current credentials.
async fn load(
    name: &'static str,
    client: QueryClient,
    with: impl Fn(&QueryClient) -> QueryClient,
    stop: CancellationToken,
) -> u64 {
    let (began, mut answered) = (Instant::now(), 0);
    while !stop.is_cancelled() {
        if let Err(fault) = ask(&with(&client), answered as i64).await {
            panic!("{name}: request {answered}, after {:?}: {fault:?}", began.elapsed());
        }
        answered += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    answered
}

/// Waits for `time`, during which it replaces the policy every 200 ms.
async fn wait(cluster: &Cluster, live: &Live, api_keys: &[&str], number: &mut u32, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        *number += 1;
        live.replace("access.toml", policy(&live.file("jwks.json"), api_keys, *number));
        cluster.query.reload_policy().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_rotated_under_load_and_no_request_fails() {
    let folder = folder();
    let uri = folder.path().join("table");
    write(&uri).await;
    let made = |name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        (Authority::new(&folder, "callers"), Authority::new(&folder, "tiers"))
    };
    let ((callers, tiers), (next_callers, next_tiers)) = (made("old"), made("new"));
    let live = Live { folder: folder.path().join("live") };
    std::fs::create_dir(&live.folder).unwrap();
    let (signer, next_signer) = (TokenSigner::new("k1"), TokenSigner::new("k2"));
    live.replace_certificates(&callers, &tiers);
    live.trust(&[&callers], &[&tiers]);
    live.replace("jwks.json", key_set(&[&signer]));
    live.replace("access.toml", policy(&live.file("jwks.json"), &API_KEYS[..1], 0));

    let certified = live.client(Some("caller"), "callers.pem", "query.example");
    let peer = live.client(Some("peer"), "tiers.pem", "io.example");
    let cluster = Cluster::start_secured(2, &[("t", &uri)], &certified, |io, query| {
        io.tls = Some(live.server("io", "tiers.pem"));
        io.peers = vec!["peer.example".into()];
        query.tls = Some(live.server("query", "callers.pem"));
        query.io_tls = Some(peer.clone());
        query.access = Some(AccessConfig::Policy(live.file("access.toml")));
    })
    .await;
    let query = format!("https://{}", cluster.query.local_addr()).parse().unwrap();
    let uncertified = live.client(None, "callers.pem", "query.example");
    let now = Credentials { token: token(&signer), api_key: API_KEYS[0].into() };
    let credentials = Arc::new(Mutex::new(now));
    let (stop, mut loads) = (CancellationToken::new(), JoinSet::new());
    loads.spawn(load("certificate", cluster.client.clone(), Clone::clone, stop.clone()));
    let client = QueryClient::connect_with(&query, &uncertified).await.unwrap();
    let shared = Arc::clone(&credentials);
    let with = move |client: &QueryClient| {
        client.clone().with_token(&shared.lock().unwrap().token).unwrap()
    };
    loads.spawn(load("token", client, with, stop.clone()));
    let client = QueryClient::connect_with(&query, &uncertified).await.unwrap();
    let shared = Arc::clone(&credentials);
    let with = move |client: &QueryClient| {
        client.clone().with_token(&shared.lock().unwrap().api_key).unwrap()
    };
    loads.spawn(load("key", client, with, stop.clone()));
    let old_certified = live.kept(&certified);
    let (old_uncertified, old_peer) = (live.kept(&uncertified), live.kept(&peer));

    let mut number = 0;
    wait(&cluster, &live, &API_KEYS[..1], &mut number, Duration::from_secs(1)).await;
    // All certificates are renewed by the authorities that signed the old ones. Tokens may be signed with either key.
    live.replace_certificates(&callers, &tiers);
    live.replace("jwks.json", key_set(&[&signer, &next_signer]));
    wait(&cluster, &live, &API_KEYS, &mut number, CHECKED).await;
    // Old and new authorities are trusted. Callers use the new keys.
    live.trust(&[&callers, &next_callers], &[&tiers, &next_tiers]);
    *credentials.lock().unwrap() =
        Credentials { token: token(&next_signer), api_key: API_KEYS[1].into() };
    wait(&cluster, &live, &API_KEYS, &mut number, CHECKED).await;
    // A caller that trusts both authorities keeps the certificate of the old one.
    let both = std::fs::read(live.file("callers.pem")).unwrap();
    live.replace("both.pem", both);
    let late = ClientTlsConfig { ca: Some(live.file("both.pem")), ..old_certified.clone() };
    let late = QueryClient::connect_with(&query, &late).await.unwrap();
    ask(&late, 0).await.unwrap();
    // The new authorities issue all certificates.
    live.replace_certificates(&next_callers, &next_tiers);
    wait(&cluster, &live, &API_KEYS, &mut number, RENEWED).await;
    ask(&late, 0).await.unwrap();
    // The old authorities and keys are removed.
    live.trust(&[&next_callers], &[&next_tiers]);
    live.replace("jwks.json", key_set(&[&next_signer]));
    wait(&cluster, &live, &API_KEYS[1..], &mut number, CHECKED).await;
    stop.cancel();
    while let Some(answered) = loads.join_next().await {
        assert!(answered.unwrap() > 20);
    }
    let status = cluster.client.status().await.unwrap();
    assert_eq!((status.errors, status.fallback_rows), (0, 0), "{status:?}");

    // The replaced credentials are refused, even on a connection that has been open since before the replacement.
    let client = QueryClient::connect_with(&query, &uncertified).await.unwrap();
    for old in [token(&signer), API_KEYS[0].to_owned()] {
        let fault = ask(&client.clone().with_token(&old).unwrap(), 0).await.unwrap_err();
        assert_eq!(fault.reason, Reason::Unauthenticated, "{fault}");
    }
    let until = soon();
    let fault = loop {
        match ask(&late, 0).await {
            Ok(()) => assert!(Instant::now() < until, "an old certificate is still accepted"),
            Err(fault) => break fault,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    for refused in [ClientTlsConfig { ca: certified.ca.clone(), ..old_certified }, old_uncertified]
    {
        let fault = match QueryClient::connect_with(&query, &refused).await {
            Ok(client) => ask(&client, 0).await.unwrap_err(),
            Err(fault) => fault,
        };
        assert_eq!(fault.reason, Reason::NodeUnavailable, "{fault}");
    }
    for refused in [ClientTlsConfig { ca: peer.ca.clone(), ..old_peer.clone() }, old_peer] {
        let network = Network::Tls(ClientTls::load(&refused).unwrap());
        let options = FetchOptions { network, ..Default::default() };
        let io = FetchClient::new(endpoint(cluster.io[0].node.local_addr()), options).unwrap();
        assert!(io.ready(soon()).await.is_err());
    }
    cluster.stop().await;
}
