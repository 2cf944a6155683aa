//! Attempts to get past the access policy of a query node: without its credentials, with guesses of them, and with a
//! grant for another table or a grant that was withdrawn.
//!
//! The node serves two tables. `vault` is the one that the attackers are after; the policy grants it to [`OPERATOR`]
//! alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use certificates::{TokenSigner, key_set};
use client::query::{GetRequest, GottenRows, Keys, LookupOpen, QueryClient, RowFormat};
use futures::channel::mpsc;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use wire::query::query_service_client::QueryServiceClient;
use wire::query::search_request::By;
use wire::query::{
    DescribeTableRequest, ListTablesRequest, ListTagsRequest, ListVersionsRequest,
    PlacementRequest, SearchRequest, StatusRequest, Strings, TakeRequest, TuneRequest, WarmRequest,
};
use wire::{Fault, Reason};

use super::cluster::{Cluster, PATIENCE};
use super::connections::{QUERY_MEMORY_MIB, settings};
use super::good_caller::GoodCaller;
use super::report::held;
use super::strangers::wait_until;
use super::{folder, run, sample, text, words_table};

/// The key of the good caller, which may read, warm and observe every table.
const OPERATOR: &str = "the key of the operator, which nobody can guess";

/// The key of a caller that may read the table `words` and nothing else.
const READER: &str = "the key of the reader, which nobody can guess";

/// The key of a row that both `words` and `vault` have.
const KEY: &str = "n02503517";

/// The number of guesses of keys and tokens.
const GUESSES: usize = 20_000;

/// The number of guesses in flight, spread evenly over [`CONNECTIONS`] connections.
const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 8;

/// A cluster with a policy, and what the tests need to attack it.
struct Guarded {
    cluster: Cluster,
    good: GoodCaller,
    /// The key of the issuer whose tokens the policy accepts.
    issuer: TokenSigner,
    policy: PathBuf,
    runtime: Runtime,
}

/// Returns a policy that gives the caller `reader` and tokens of `team:a` the right to read `tables`.
fn policy(jwks: &str, readers_key: &str, tables: &str) -> String {
    let [operator, reader] =
        [OPERATOR, readers_key].map(|key| access::digest_of_key(key.as_bytes()));
    format!(
        r#"
        [keys.operator]
        sha256 = ["{operator}"]
        [keys.reader]
        sha256 = ["{reader}"]
        [issuers.idp]
        issuer = "https://idp"
        jwks = "{jwks}"
        audiences = ["bireme"]
        algorithms = ["ES256"]
        [[grants]]
        name = "operator"
        who = ["key:operator"]
        tables = ["*"]
        may = ["read", "warm", "observe"]
        [[grants]]
        name = "reader"
        who = ["key:reader", "jwt:idp:team:a"]
        tables = ["{tables}"]
        may = ["read"]
        "#
    )
}

impl Guarded {
    fn begin() -> Self {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let (words, vault) = (words_table(folder.path()), path("vault"));
        run(&["ingest", text(&sample()), "--table", text(&vault), "--key", "synset"]);
        let (issuer, file) = (TokenSigner::new("k1"), path("access.toml"));
        std::fs::write(path("jwks.json"), key_set(&[&issuer])).unwrap();
        std::fs::write(&file, policy(text(&path("jwks.json")), READER, "words")).unwrap();
        let mut settings = settings();
        settings.query.extend([
            ("ACCESS", text(&file).to_owned()),
            ("AUDIT", text(&path("audit.jsonl")).to_owned()),
        ]);
        settings.io_arguments = vec!["--serve".into(), text(&vault).into()];
        settings.query_arguments = vec!["--table".into(), format!("vault={}", text(&vault))];
        settings.token = Some(OPERATOR.into());
        let cluster = Cluster::start_over(&settings, folder, words);
        let good = GoodCaller::start(&cluster);
        let guarded =
            Self { cluster, good, issuer, policy: file, runtime: Runtime::new().unwrap() };
        // The table exists, and the operator can get a row by its key.
        let rows = guarded.runtime.block_on(guarded.caller(OPERATOR, "x-api-key").get("vault"));
        rows.unwrap();
        guarded
    }

    /// Replaces the policy. The node reads it within a few seconds.
    fn replace_policy(&self, readers_key: &str, tables: &str) {
        let (next, jwks) =
            (self.policy.with_extension("next"), self.cluster.folder().join("jwks.json"));
        std::fs::write(&next, policy(text(&jwks), readers_key, tables)).unwrap();
        std::fs::rename(&next, &self.policy).unwrap();
    }

    /// Returns a caller that sends `credential` in `header`, over a connection of its own.
    fn caller(&self, credential: &str, header: &'static str) -> Caller {
        self.caller_with(vec![(header, credential.to_owned())])
    }

    fn caller_with(&self, headers: Vec<(&'static str, String)>) -> Caller {
        let _entered = self.runtime.enter();
        let channel = Endpoint::from_shared(self.cluster.query.endpoint.clone()).unwrap();
        Caller { service: QueryServiceClient::new(channel.connect_lazy()), headers }
    }

    fn token(&self, changes: Value) -> String {
        self.issuer.sign(&claims(changes))
    }

    /// Returns how many requests the node has refused by its policy.
    fn denied(&self) -> u64 {
        let scraped = self.cluster.query.scrape();
        let series = scraped.lines().filter(|line| line.starts_with("bireme_query_denied_total{"));
        series.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Checks that the node is alive and within its memory limit, that it answers probes and always answered the good
    /// caller, and that no log contains a key. Returns the number of rows of `vault` that callers other than the
    /// operator got.
    fn end(self) -> u64 {
        let seen = self.good.stop();
        assert!(seen.answered > 0 && seen.refused.is_empty(), "{seen:?}");
        self.cluster.assert_healthy();
        let peak_mib = self.cluster.query.peak_mib();
        assert!(peak_mib <= QUERY_MEMORY_MIB, "{peak_mib} MiB were resident");
        let lines = std::fs::read_to_string(self.cluster.folder().join("audit.jsonl")).unwrap();
        for log in [self.cluster.query.log(), lines] {
            assert!(!log.contains(OPERATOR) && !log.contains(READER), "a key is in a log");
        }
        let stolen = |line: &Value| line["table"] == "vault" && line["caller"] != "key:operator";
        let lines = audited(&self.cluster);
        lines.iter().filter(|it| stolen(it)).filter_map(|line| line["rows"].as_u64()).sum()
    }
}

/// Returns the lines of the query node's audit log.
fn audited(cluster: &Cluster) -> Vec<Value> {
    let text = std::fs::read_to_string(cluster.folder().join("audit.jsonl")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the claims of a valid token with some of them changed.
fn claims(changes: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims =
        json!({"iss": "https://idp", "sub": "team:a", "aud": "bireme", "exp": now + 3600});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = match (name.as_str(), value.as_i64()) {
            // Times in `changes` are relative to now.
            ("exp" | "nbf", Some(later)) => json!(now as i64 + later),
            _ => value.clone(),
        };
    }
    claims
}

/// A caller that sends these headers.
#[derive(Clone)]
struct Caller {
    service: QueryServiceClient<Channel>,
    headers: Vec<(&'static str, String)>,
}

impl Caller {
    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(PATIENCE);
        for (name, value) in &self.headers {
            let value: AsciiMetadataValue = value.parse().unwrap();
            request.metadata_mut().insert(AsciiMetadataKey::from_static(name), value);
        }
        request
    }

    async fn get(&self, table: &str) -> Result<(), Fault> {
        let answer = self.service.clone().get(self.ask(get(table))).await;
        answer.map(drop).map_err(fault)
    }

    /// Calls each rpc that names a table, except Lookup. Returns the first answer of each.
    async fn each_call_of(&self, table: &str) -> [(&'static str, Result<(), Fault>); 10] {
        let table = table.to_owned();
        let search = SearchRequest {
            table: table.clone(),
            by: Some(By::Like(KEY.into())),
            k: 1,
            ..Default::default()
        };
        let take = TakeRequest { table: table.clone(), row_addrs: vec![0], ..Default::default() };
        let describe = DescribeTableRequest { table: table.clone(), ..Default::default() };
        let versions = ListVersionsRequest { table: table.clone(), ..Default::default() };
        let tags = ListTagsRequest { table: table.clone(), ..Default::default() };
        let tune = TuneRequest { table: table.clone(), rows: 1, ..Default::default() };
        let warm = WarmRequest { table: table.clone(), ..Default::default() };
        let place = PlacementRequest { table: table.clone(), ..Default::default() };
        let mut service = self.service.clone();
        let streamed = async {
            let asked = stream::iter([get(&table)]);
            let mut answers = self.service.clone().get_stream(self.ask(asked)).await?.into_inner();
            Ok(answers.message().await?.and_then(|answer| answer.error))
        };
        let streamed = match streamed.await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(Fault::from(error)),
            Err(status) => Err(fault(status)),
        };
        [
            ("Search", service.search(self.ask(search)).await.map(drop).map_err(fault)),
            ("Get", self.get(&table).await),
            ("GetStream", streamed),
            ("Take", service.take(self.ask(take)).await.map(drop).map_err(fault)),
            ("Describe", service.describe_table(self.ask(describe)).await.map(drop).map_err(fault)),
            ("Versions", service.list_versions(self.ask(versions)).await.map(drop).map_err(fault)),
            ("Tags", service.list_tags(self.ask(tags)).await.map(drop).map_err(fault)),
            ("Tune", service.tune(self.ask(tune)).await.map(drop).map_err(fault)),
            ("Warm", service.warm(self.ask(warm)).await.map(drop).map_err(fault)),
            ("Placement", service.placement(self.ask(place)).await.map(drop).map_err(fault)),
        ]
    }

    /// Calls every rpc except Lookup. Returns the first answer of each.
    async fn each_call(&self, table: &str) -> Vec<(&'static str, Result<(), Fault>)> {
        let mut answers = Vec::from(self.each_call_of(table).await);
        let mut service = self.service.clone();
        let listed = service.list_tables(self.ask(ListTablesRequest {})).await;
        answers.push(("ListTables", listed.map(drop).map_err(fault)));
        let status = service.status(self.ask(StatusRequest {})).await;
        answers.push(("Status", status.map(drop).map_err(fault)));
        answers
    }
}

fn get(table: &str) -> GetRequest {
    GetRequest { table: table.into(), keys: vec![KEY.into()], ..Default::default() }
}

fn fault(status: Status) -> Fault {
    Fault::from_status(&status)
}

/// Returns credentials that the policy does not accept, each with what is wrong with it.
fn forgeries(guarded: &Guarded) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let good = guarded.token(json!({}));
    let [header, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let none = |signature: &str| format!("eyJhbGciOiJub25lIn0.{body}.{signature}");
    let [stranger, other] = [TokenSigner::new("k1"), guarded.issuer.named("k2")];
    let public = guarded.issuer.public().to_string();
    let shared = TokenSigner::secret("k1", public.as_bytes());
    let of_other = guarded.token(json!({"sub": "team:b"}));
    let other_body = of_other.split('.').nth(1).unwrap();
    let bearer = |token: &str| vec![("authorization", format!("Bearer {token}"))];
    let key = |key: &str| vec![("x-api-key", key.to_owned())];
    let token = |changes: Value| bearer(&guarded.token(changes));
    vec![
        ("nothing", vec![]),
        ("the name of a key", key("operator")),
        ("a key but for its last character", key(&OPERATOR[..OPERATOR.len() - 1])),
        ("a key and a character", key(&format!("{OPERATOR}."))),
        ("a key in capitals", key(&OPERATOR.to_uppercase())),
        ("the digest of a key", key(&access::digest_of_key(OPERATOR.as_bytes()))),
        ("an empty key", key("")),
        ("two credentials", [bearer(OPERATOR), key(READER)].concat()),
        ("a password", vec![("authorization", format!("Basic {OPERATOR}"))]),
        (
            "a name that a proxy would vouch for",
            vec![
                ("x-forwarded-client-cert", "URI=spiffe://prod/operator".into()),
                ("x-forwarded-user", "operator".into()),
                ("x-caller", "key:operator".into()),
            ],
        ),
        ("alg: none", bearer(&none(""))),
        ("alg: none, with a signature", bearer(&none(signature))),
        ("no signature", bearer(&format!("{header}.{body}."))),
        ("the public key as a shared secret", bearer(&shared.sign(&claims(json!({}))))),
        ("another signer's key", bearer(&stranger.sign(&claims(json!({}))))),
        ("a key that the issuer does not have", bearer(&other.sign(&claims(json!({}))))),
        ("the signature of another token", bearer(&format!("{header}.{other_body}.{signature}"))),
        ("an expired token", token(json!({"exp": -60}))),
        ("a token for tomorrow", token(json!({"nbf": 86_400}))),
        ("a token for another audience", token(json!({"aud": "other"}))),
        ("a token of another issuer", token(json!({"iss": "https://idp.example"}))),
        ("a token of 8 KB", bearer(&format!("{good}{}", "A".repeat(8000)))),
    ]
}

#[test]
fn forged_and_expired_credentials_get_one_answer_from_a_query_node() {
    let guarded = Guarded::begin();
    let good = guarded.caller(&format!("Bearer {}", guarded.token(json!({}))), "authorization");
    guarded.runtime.block_on(good.get("words")).unwrap();
    let before = guarded.denied();
    let forgeries = forgeries(&guarded);
    let (kinds, mut refused, mut one_answer) = (forgeries.len(), 0, None);
    for (what, headers) in forgeries {
        let caller = guarded.caller_with(headers);
        for table in ["words", "vault", "nowhere"] {
            for (rpc, answer) in guarded.runtime.block_on(caller.each_call(table)) {
                let fault = answer.expect_err(what);
                assert_eq!(fault.reason, Reason::Unauthenticated, "{what}: {rpc}: {fault}");
                assert_eq!(
                    &fault,
                    one_answer.get_or_insert_with(|| fault.clone()),
                    "{what}: {rpc}"
                );
                refused += 1;
            }
        }
    }
    assert_eq!(guarded.denied() - before, refused, "not every refusal is counted");
    let is_denied = |line: &&Value| line["verdict"] == "denied";
    wait_until("not every refusal is in the audit log", || {
        audited(&guarded.cluster).iter().filter(is_denied).count() as u64 == refused
    });
    assert_eq!(guarded.end(), 0);
    let seen = format!("{refused} calls with {kinds} kinds of credentials refused with one answer");
    held(16, "no, forged, expired and foreign credentials", &seen);
}

#[test]
fn guesses_of_keys_and_tokens_find_none_and_hold_up_nobody() {
    let guarded = Guarded::begin();
    let before = (guarded.denied(), guarded.cluster.query.resident_mib());
    let stranger = Arc::new(TokenSigner::new("k1"));
    let callers: Vec<_> = (0..CONNECTIONS).map(|_| guarded.caller("", "x-api-key")).collect();
    let mut guessers = JoinSet::new();
    for at in 0..IN_FLIGHT {
        let (mut caller, stranger) = (callers[at % CONNECTIONS].clone(), Arc::clone(&stranger));
        let guess = async move {
            for number in (at..GUESSES).step_by(IN_FLIGHT) {
                caller.headers = match number % 4 {
                    0 => {
                        let token = stranger.sign(&claims(json!({"jti": number})));
                        vec![("authorization", format!("Bearer {token}"))]
                    }
                    _ => {
                        let digits = rand::random::<[u8; 32]>().map(|byte| format!("{byte:02x}"));
                        vec![("x-api-key", format!("bireme_{}", digits.concat()))]
                    }
                };
                let fault = caller.get("vault").await.expect_err("a guess was right");
                assert_eq!(fault.reason, Reason::Unauthenticated, "{fault}");
            }
        };
        guessers.spawn_on(guess, guarded.runtime.handle());
    }
    let guessed = guarded.runtime.spawn(guessers.join_all());
    while !guessed.is_finished() {
        guarded.cluster.query.assert_answers_probes();
        std::thread::sleep(Duration::from_millis(100));
    }
    guarded.runtime.block_on(guessed).unwrap();
    assert_eq!(guarded.denied() - before.0, GUESSES as u64);
    let grown = guarded.cluster.query.peak_mib().saturating_sub(before.1);
    assert_eq!(guarded.end(), 0);
    let seen = format!("{GUESSES} refused; {grown} MiB more; probes and good callers are answered");
    held(16, "guesses of keys and tokens at volume", &seen);
}

#[test]
fn a_grant_on_one_table_is_no_way_to_another() {
    let guarded = Guarded::begin();
    let token = format!("Bearer {}", guarded.token(json!({})));
    let home = text(guarded.cluster.folder()).to_owned();
    // Names that would lead to the other table if a node treated a name as a path or a pattern, or normalised it.
    let spelt = [
        "Vault",
        "VAULT",
        " vault",
        "vault ",
        "vault\0",
        "vault/",
        "./vault",
        "../vault",
        "words/../vault",
        "words,vault",
        "words\nvault",
        "*",
        "v*",
        "vault?",
        "%76ault",
        "",
    ]
    .map(str::to_owned);
    let names = [&spelt[..], &[format!("{home}/vault"), format!("file://{home}/vault")]].concat();
    let mut refused = 0;
    for caller in [guarded.caller(READER, "x-api-key"), guarded.caller(&token, "authorization")] {
        guarded.runtime.block_on(caller.get("words")).unwrap();
        let call = |name: &str| guarded.runtime.block_on(caller.each_call_of(name));
        // `hinge` is no table. Neither name resembles a table that the caller may see.
        for ((rpc, forbidden), (_, absent)) in call("vault").into_iter().zip(call("hinge")) {
            let (forbidden, mut absent) = (forbidden.expect_err(rpc), absent.expect_err(rpc));
            assert_eq!(forbidden.reason, Reason::TableNotFound, "{rpc}: {forbidden}");
            absent.message = absent.message.replace("hinge", "vault");
            absent.metadata.insert("table".into(), "vault".into());
            assert_eq!(forbidden, absent, "{rpc}");
            refused += 2;
        }
        for name in &names {
            for (rpc, answer) in call(name) {
                let fault = answer.expect_err(name);
                assert_eq!(fault.reason, Reason::TableNotFound, "{name:?}: {rpc}: {fault}");
                refused += 1;
            }
        }
        // With its own table the caller can do only what its grant allows, and no answer names the other table.
        let mut service = caller.service.clone();
        let listed = service.list_tables(caller.ask(ListTablesRequest {}));
        let listed = guarded.runtime.block_on(listed).unwrap().into_inner().tables;
        assert_eq!(listed.iter().map(|it| &it.name).collect::<Vec<_>>(), ["words"]);
        for (rpc, answer) in guarded.runtime.block_on(caller.each_call("words")) {
            let is_allowed = !["Tune", "Warm", "Placement", "Status"].contains(&rpc);
            let Err(fault) = answer else {
                assert!(is_allowed, "{rpc} was answered");
                continue;
            };
            assert!(!is_allowed && fault.reason == Reason::Forbidden, "{rpc}: {fault}");
            assert!(!fault.to_string().contains("vault"), "{rpc}: {fault}");
            refused += 1;
        }
    }
    assert_eq!(guarded.end(), 0);
    let seen = format!(
        "{refused} calls refused; a table of others has the answer of one that does not exist"
    );
    held(16, "a grant on one table, for other tables and permissions", &seen);
}

#[test]
fn a_stream_that_goes_on_after_its_grant_is_withdrawn_gets_no_row() {
    let guarded = Guarded::begin();
    let endpoint = guarded.cluster.query.endpoint.parse().unwrap();
    let (mut answered, mut refused) = (0, 0);
    guarded.runtime.block_on(async {
        let client = QueryClient::connect(&endpoint).await.unwrap().with_token(READER).unwrap();
        let (send, requests) = mpsc::unbounded();
        let mut answers = client.get_stream(requests, RowFormat::Arrow).await.unwrap();
        let mut ask = async |table: &str| {
            send.unbounded_send(get(table)).unwrap();
            let answer = tokio::time::timeout(PATIENCE, answers.next()).await;
            answer.expect("an answer").expect("the stream ended")
        };
        ask("words").await.unwrap();
        // The grant is for another table from now on. The stream does not pause.
        guarded.replace_policy(READER, "others");
        let until = Instant::now() + PATIENCE;
        let lost = loop {
            match ask("words").await {
                Ok(gotten) => {
                    let GottenRows::Arrow(rows) = gotten.rows else { panic!("asked for Arrow") };
                    assert_eq!(rows.num_rows(), 1);
                    answered += 1;
                }
                Err(fault) => break fault,
            }
            assert!(Instant::now() < until, "the stream keeps its right");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(lost.reason, Reason::TableNotFound, "{lost}");
        for number in 0..1000 {
            let table = ["words", "vault", "hinge"][number % 3];
            let fault = ask(table).await.unwrap_err();
            assert_eq!(fault.message, lost.message.replace("words", table));
            refused += 1;
        }
        // Now the key itself is replaced, which ends the stream.
        guarded.replace_policy("another key", "words");
        let fault = loop {
            let fault = ask("words").await.unwrap_err();
            if fault.reason != Reason::TableNotFound {
                break fault;
            }
            assert!(Instant::now() < until + PATIENCE, "the stream goes on without its key");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(fault.reason, Reason::Unauthenticated, "{fault}");
        assert!(answers.next().await.is_none(), "the stream goes on");
    });
    assert_eq!(guarded.end(), 0);
    let seen = format!(
        "answered until the new policy was read; then {refused} of {refused} requests refused, and the stream ended with its key"
    );
    held(16, "a GetStream that goes on after its grant is withdrawn", &seen);
}

#[test]
fn a_lookup_stream_gets_no_row_after_its_grant_is_withdrawn_and_ends_with_its_key() {
    let guarded = Guarded::begin();
    let endpoint = guarded.cluster.query.endpoint.parse().unwrap();
    guarded.runtime.block_on(async {
        let client = QueryClient::connect(&endpoint).await.unwrap().with_token(READER).unwrap();
        let stream = client.lookups().await.unwrap();
        let open = |table: &str| LookupOpen { table: table.into(), ..Default::default() };
        let words = stream.open(open("words")).await.unwrap();
        let keys = || Keys::Strings(Strings { data: "n02503517".into(), lengths: vec![9] });
        words.get(keys()).await.unwrap();
        let lost = async |reason| {
            let until = Instant::now() + PATIENCE;
            loop {
                match words.get(keys()).await {
                    Err(fault) if fault.reason == reason => return,
                    other => assert!(Instant::now() < until, "{other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // The grant is for another table from now on. The stream does not pause.
        guarded.replace_policy(READER, "others");
        lost(Reason::TableNotFound).await;
        for _ in 0..1000 {
            let fault = words.get(keys()).await.unwrap_err();
            assert_eq!(fault.reason, Reason::TableNotFound, "{fault}");
        }
        let vault = stream.open(open("vault")).await.err().unwrap();
        assert_eq!(vault.reason, Reason::TableNotFound, "{vault}");
        guarded.replace_policy("another key", "words");
        lost(Reason::Unauthenticated).await;
        let ended = stream.open(open("words")).await.err().unwrap();
        assert_eq!(ended.reason, Reason::Unauthenticated, "the stream goes on");
    });
    assert_eq!(guarded.end(), 0);
    let seen = "answered until the new policy was read; then 1,001 of 1,001 batches and projections refused, and \
                the stream ended with its key";
    held(16, "a Lookup stream that goes on after its grant is withdrawn", seen);
}
