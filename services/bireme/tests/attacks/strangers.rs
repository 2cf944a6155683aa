//! Attempts to call an I/O node without being its peer, and to have rows accepted without being an I/O node.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use certificates::{Authority, Pair};
use client::fetch::{FetchClient, FetchOptions, TableVersion};
use client::{ClientTls, ClientTlsConfig, Network};
use futures::stream::{self, StreamExt};
use peers::{PROOF_HEADER, Prover, SecretFile};
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use wire::fetch::fetch_request::Kind as Asked;
use wire::fetch::fetch_service_client::FetchServiceClient;
use wire::fetch::{DescribeRequest, FetchRequest, Open, WarmRequest};
use wire::{DESCRIBE_PATH, FETCH_PATH, Fault, Reason, WARM_PATH};

use super::cluster::{Cluster, Node, PATIENCE, Settings};
use super::impostor::{FORGED, Impostor};
use super::report::held;
use super::{folder, run, text, words_table};

const DAY: Duration = Duration::from_secs(86_400);

/// A secret of both tiers, and another one.
const SECRET: &str = "the-secret-of-both-tiers-0123456789abcdef";
const OTHER: &str = "not-the-secret-of-the-tiers-0123456789ab";

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn soon() -> client::fetch::Instant {
    client::fetch::Instant::now() + PATIENCE
}

fn assert_newcomer_is_answered(cluster: &Cluster) {
    let found = run(&["get", "words", "n02503517", "--endpoint", &cluster.query.endpoint]);
    assert!(found.contains("elephant"), "{found}");
}

/// Makes each of the calls of an I/O node. Returns their outcomes.
async fn each_call(client: &FetchClient, uri: &str) -> [Result<(), Fault>; 3] {
    let opened = async {
        let table = TableVersion { uri, branch: "", version: 1, identity: "" };
        client.ready(soon()).await?;
        client.open(table, &["synset".to_owned()], soon()).await.map(drop)
    };
    let warmed = async {
        let request = WarmRequest { table_uri: uri.into(), version: 1, ..Default::default() };
        let mut progress = client.warm(request).await?;
        while let Some(step) = progress.next().await {
            step?;
        }
        Ok(())
    };
    let described = async { client.describe(PATIENCE).await.map(drop) };
    [opened.await, warmed.await, described.await]
}

#[test]
fn another_certificate_of_the_authority_reads_no_table() {
    let folder = folder();
    let table = words_table(folder.path());
    let authority = Authority::new(folder.path(), "authority");
    let [own, query] = ["io.example", "query.example"].map(|name| authority.issue(name, DAY));
    let config = folder.path().join("io.toml");
    let tls = |pair: &Pair| {
        format!(
            "[tls]\ncert = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            pair.cert, pair.key, authority.ca
        )
    };
    std::fs::write(&config, format!("peers = [\"query.example\"]\n{}", tls(&own))).unwrap();
    let io_arguments = vec!["--config".into(), text(&config).into()];
    let mut settings = Settings { io_arguments, ..Settings::default() };
    let path = |path: &Path| text(path).to_owned();
    settings.query.extend([
        ("IO_TLS_CA", path(&authority.ca)),
        ("IO_TLS_CERT", path(&query.cert)),
        ("IO_TLS_KEY", path(&query.key)),
        ("IO_TLS_SERVER_NAME", "io.example".into()),
    ]);
    let cluster = Cluster::start_over(&settings, folder, table.clone());
    assert_newcomer_is_answered(&cluster);

    let endpoint = cluster.io.endpoint.replace("http://", "https://");
    let client_of = |pair: &Pair| {
        let tls = ClientTlsConfig {
            ca: Some(authority.ca.clone()),
            cert: Some(pair.cert.clone()),
            key: Some(pair.key.clone()),
            server_name: Some("io.example".into()),
            crl: None,
        };
        let network = Network::Tls(ClientTls::load(&tls).unwrap());
        let options = FetchOptions { network, ..Default::default() };
        FetchClient::new(endpoint.parse().unwrap(), options).unwrap()
    };
    let names = [
        "client.example",
        "io.example",
        "query.example.org",
        "a.query.example",
        "xquery.example",
        "*.example",
        "query-example",
    ];
    let runtime = Runtime::new().unwrap();
    let mut refused = 0;
    runtime.block_on(async {
        // The query node's own certificate works, so the others are refused for their names.
        for outcome in each_call(&client_of(&query), text(&table)).await {
            outcome.unwrap();
        }
        for name in names {
            let client = client_of(&authority.issue(name, DAY));
            for outcome in each_call(&client, text(&table)).await {
                let fault = outcome.expect_err(name);
                assert!(fault.message.contains("answers only its peers"), "{name}: {fault}");
                refused += 1;
            }
        }
    });
    assert_newcomer_is_answered(&cluster);
    let counted = cluster.io.scrape();
    let series = "bireme_io_calls_refused_total{error_type=\"other_name\"} ";
    let counted = counted.lines().find_map(|line| line.strip_prefix(series));
    assert!(counted.unwrap().parse::<u64>().unwrap() >= refused, "{counted:?}");
    let seen = format!(
        "{refused} calls with {} other certificates of the authority refused; only health and reflection answered",
        names.len()
    );
    held(10, "other certificates of the authority", &seen);
}

/// Returns the settings of a cluster whose tiers share the secret in `file`.
fn with_secret(file: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.io.push(("PEER_SECRET", text(file).to_owned()));
    settings.query.push(("PEER_SECRET", text(file).to_owned()));
    settings
}

fn secret_file(folder: &Path, name: &str, secret: &str) -> Arc<SecretFile> {
    let file = folder.join(name);
    std::fs::write(&file, secret).unwrap();
    SecretFile::load(&file).unwrap()
}

/// Returns the query node's answer with the glosses of the first rows of the table.
fn glosses(cluster: &Cluster) -> String {
    let endpoint = &cluster.query.endpoint;
    run(&["take", "words", "0", "1", "2", "--columns", "gloss", "--json", "--endpoint", endpoint])
}

/// Waits until `is_done` returns true. Fails with `what` after [`PATIENCE`].
pub fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn rows_of_an_impostor_are_not_believed() {
    let home = folder();
    let table = words_table(home.path());
    let file = home.path().join("secret");
    let secret = secret_file(home.path(), "secret", SECRET);
    let runtime = Runtime::new().unwrap();

    // Get the true rows and their schema from a cluster without an impostor.
    let cluster = Cluster::start_over(&with_secret(&file), folder(), table.clone());
    let truth = glosses(&cluster);
    let schema = runtime.block_on(async {
        let options =
            FetchOptions { prover: Some(Arc::new(Prover::new(secret))), ..Default::default() };
        let client = FetchClient::new(cluster.io.endpoint.parse().unwrap(), options).unwrap();
        client.ready(soon()).await.unwrap();
        let named = TableVersion { uri: text(&table), branch: "", version: 1, identity: "" };
        let projection = client.open(named, &["gloss".to_owned()], soon()).await.unwrap();
        Arc::clone(projection.schema())
    });
    drop(cluster);

    // Without a secret the impostor's rows are accepted, so the attack works where the defence is missing.
    let impostor = runtime.block_on(async { Impostor::start(Arc::clone(&schema)) });
    let in_its_place = |settings: Settings, impostor: &Impostor| {
        let io_node = Some(format!("http://{}", impostor.address));
        Cluster::start_over(&Settings { io_node, ..settings }, folder(), table.clone())
    };
    let cluster = in_its_place(Settings::default(), &impostor);
    wait_until("the query node does not call the impostor", || impostor.calls() > 0);
    let forged = glosses(&cluster);
    assert!(forged.contains(FORGED) && impostor.messages() > 0, "{forged}");
    drop(cluster);

    let impostor = runtime.block_on(async { Impostor::start(schema) });
    let cluster = in_its_place(with_secret(&file), &impostor);
    impostor.pass_on_to(&cluster.io.endpoint);
    assert_eq!(glosses(&cluster), truth);
    wait_until("the impostor has not tried everything", || impostor.has_tried_all());
    assert_eq!(glosses(&cluster), truth);
    assert_eq!(impostor.messages(), 0, "the impostor was asked for something");
    let log = cluster.query.log();
    assert!(log.contains("it does not prove that it knows the secret"), "{log}");
    // The impostor passed proofs on to the real I/O node.
    wait_until("no proof was passed on", || cluster.io.log().contains("somebody passes it on"));
    let fallback = cluster.query.scrape();
    let fallback =
        fallback.lines().find_map(|it| it.strip_prefix("bireme_query_fallback_rows_total "));
    assert!(fallback.unwrap().parse::<u64>().unwrap() >= 6, "{fallback:?}");
    let seen = "without a secret its rows are believed; with one it is asked for no row, whether it sends no proof, \
                the caller's own, a random one, or tries to get one from a true I/O node; the table answers";
    held(13, "an impostor at an I/O node's address", seen);
}

/// Makes one call with `header` in place of a proof.
async fn call(node: &Node, rpc: &str, uri: &str, header: Option<&str>) -> Result<(), Status> {
    fn with<T>(message: T, header: Option<&str>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(header) = header {
            request.metadata_mut().insert(PROOF_HEADER, header.parse().unwrap());
        }
        request
    }
    let channel = Endpoint::from_shared(node.endpoint.clone()).unwrap().connect().await.unwrap();
    let mut client = FetchServiceClient::new(channel);
    match rpc {
        FETCH_PATH => {
            let open = Open { handle: 1, table_uri: uri.into(), version: 1, ..Default::default() };
            let message = FetchRequest { kind: Some(Asked::Open(open)) };
            let messages = stream::iter([message]).chain(stream::pending());
            let mut answers = client.fetch(with(messages, header)).await?.into_inner();
            answers.message().await.map(drop)
        }
        WARM_PATH => {
            let warm = WarmRequest { table_uri: uri.into(), version: 1, ..Default::default() };
            let mut steps = client.warm(with(warm, header)).await?.into_inner();
            steps.message().await.map(drop)
        }
        _ => client.describe(with(DescribeRequest {}, header)).await.map(drop),
    }
}

#[test]
fn strangers_in_the_clear_get_nothing_from_an_io_node() {
    let home = folder();
    let table = words_table(home.path());
    let secret = secret_file(home.path(), "secret", SECRET);
    let other = secret_file(home.path(), "other", OTHER);
    let file = home.path().join("secret");
    let cluster = Cluster::start_over(&with_secret(&file), folder(), table.clone());
    let address = cluster.io.address();
    let ours = Prover::new(Arc::clone(&secret));
    let early = Prover::with(Arc::clone(&secret), || unix_time() - DAY, rand::random);
    let late = Prover::with(secret, || unix_time() + DAY, rand::random);
    let elsewhere = "127.0.0.2:7071".parse().ok();
    let runtime = Runtime::new().unwrap();
    let mut refused = 0;
    runtime.block_on(async {
        for rpc in [FETCH_PATH, WARM_PATH, DESCRIBE_PATH] {
            let answered =
                async |header: Option<&str>| call(&cluster.io, rpc, text(&table), header).await;
            let used = ours.begin(rpc, Some(address)).header();
            answered(Some(&used)).await.unwrap();
            let other_rpc = if rpc == FETCH_PATH { DESCRIBE_PATH } else { FETCH_PATH };
            let guesses = [
                None,
                Some(String::new()),
                Some("v1".into()),
                Some(used),
                Some(Prover::new(Arc::clone(&other)).begin(rpc, Some(address)).header()),
                Some(ours.begin(other_rpc, Some(address)).header()),
                Some(ours.begin(rpc, elsewhere).header()),
                Some(early.begin(rpc, Some(address)).header()),
                Some(late.begin(rpc, Some(address)).header()),
            ];
            for guess in guesses {
                let status = answered(guess.as_deref()).await.expect_err(rpc);
                assert_eq!(status.code(), Code::Unauthenticated, "{guess:?}: {status:?}");
                let fault = Fault::from_status(&status);
                assert_eq!(fault.reason, Reason::Unauthenticated);
                assert!(!fault.message.contains(SECRET), "{fault}");
                refused += 1;
            }
        }
    });
    assert_newcomer_is_answered(&cluster);
    cluster.assert_healthy();
    for log in [cluster.io.log(), cluster.query.log()] {
        assert!(!log.contains(SECRET), "the secret is in the log");
    }
    let seen = format!(
        "{refused} calls refused with one message: without a proof, with one of another secret, rpc, address or time, \
         or with one that was used before"
    );
    held(13, "calls of strangers in the clear", &seen);
}
