//! `bireme bench`: measures a running endpoint under load, or parts of an I/O node by themselves.

mod bare_stream;
mod eviction;
mod limits;
mod recovery;
mod row_memory;
mod trial;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use client::Endpoint;
use client::query::QueryClient;
use lake::{Lake, LakeOptions};
use peers::{Prover, SecretFile};
use serde_json::{Value, json};

use self::eviction::EvictionArgs;
use self::limits::LimitsArgs;
use self::recovery::RecoveryArgs;
use self::write::WriteArgs;
use crate::arguments::{Connection, TableArgs, parse_column, parse_filter};
use crate::bench::{
    Counters, EmptyLoad, FetchLoad, FetchPlan, GetLoad, GetPlan, KeyDistribution, LoadArgs,
    Measured, Report, SearchBy, SearchLoad, SearchPlan, Subject, TakeLoad, TakePlan, Target, Watch,
    Workload, apply_load, at_least_1, report_text,
};
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::runtime::runtime;

const ABOUT_NUMBERS: &str = "\
A closed loop (the default) has --concurrency callers, each of which sends its
next request once the last is answered. At a fixed --rate requests start on
schedule, and latency counts from the scheduled start, so that a stall shows in
every request that it delayed. Percentiles come from an HDR histogram. CPU,
reads and bytes are the nodes' counters, which include other callers' requests.
No cache is warmed or dropped: `bireme warm TABLE` fills it first, and the RAM
tier keeps what the last run left.";

const FETCH_EXAMPLES: &str = "\
Examples:
  bireme bench fetch words --uri ./words.lance --rows 500 --seconds 10
  bireme bench fetch words --uri s3://bucket/words --columns vector --rerank 50
  bireme bench fetch words --uri s3://bucket/words --json \\
      --io-endpoint http://10.0.0.7:7071";

const TAKE_EXAMPLES: &str = "\
Examples:
  bireme bench take words --concurrency 1
  bireme bench take words --rows 100 --columns vector --rate 500";

const SEARCH_EXAMPLES: &str = "\
Examples:
  bireme bench search words -k 10 --concurrency 4
  bireme bench search words -k 50 --refine 10 --rate 200 --json
  bireme bench search words --by words --filter \"pos = 'noun'\"";

const GET_EXAMPLES: &str = "\
Examples:
  bireme bench get words --concurrency 32
  bireme bench get words --keys 10 --rate 5000 --format json
  bireme bench get words --streams 1 --keys 64 --distribution zipfian";

const EMPTY_EXAMPLES: &str = "\
Examples:
  bireme bench empty --concurrency 1
  bireme bench empty --streams 1 --concurrency 512";

/// Arguments of `bireme bench`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT_NUMBERS)]
pub struct BenchArgs {
    #[command(subcommand)]
    benchmark: Benchmark,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Fetch random rows from an I/O node, over the streams that query nodes use
    Fetch(Box<FetchArgs>),
    /// Take random rows by address, through both tiers
    Take(Box<TakeArgs>),
    /// Search by vector, words or filter on the query node
    Search(Box<SearchArgs>),
    /// Look up keys on the query node
    Get(Box<GetArgs>),
    /// Send messages that need no work, which shows what server and client cost
    Empty(Box<EmptyArgs>),
    /// Measure how fast this machine copies, compares and streams rows without
    /// Bireme, as limits for the loads
    Limits(LimitsArgs),
    /// Measure how long an I/O node takes to recover what its drives hold
    Recovery(RecoveryArgs),
    /// Measure how fast encoded extents are written to a drive
    Write(WriteArgs),
    /// Compare the hit ratios of eviction policies on a full drive
    Eviction(EvictionArgs),
}

#[derive(Debug, Args)]
#[command(after_help = FETCH_EXAMPLES)]
struct FetchArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The table's URI, as in the I/O node's `serve`
    #[arg(long, value_name = "URI", value_hint = ValueHint::AnyPath)]
    uri: String,
    /// Addresses in a batch, drawn at random over the table
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_1)]
    rows: usize,
    /// Columns to fetch [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// Score the rows on the I/O node, and return the K nearest
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    rerank: Option<u32>,
    /// The I/O node [default: the query node's only one]
    #[arg(long, value_name = "URL")]
    io_endpoint: Option<Endpoint>,
    /// A file with the secret of the I/O node's `peer_secret`, if it has one
    #[arg(long, env = "BIREME_PEER_SECRET", value_name = "FILE", value_hint = ValueHint::FilePath)]
    peer_secret: Option<PathBuf>,
    /// Streams to the I/O node, each on a connection of its own [default: one per core of the node]
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    streams: Option<usize>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of every load on the query node.
#[derive(Debug, Args)]
struct QueryNodeArgs {
    /// Connections to the query node
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_1)]
    connections: usize,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
#[command(after_help = TAKE_EXAMPLES)]
struct TakeArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Addresses in a request, drawn at random over the table
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1)]
    rows: usize,
    /// Columns of the rows [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    #[command(flatten)]
    on: QueryNodeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = SEARCH_EXAMPLES)]
struct SearchArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The number of rows to return
    #[arg(short, value_name = "ROWS", default_value_t = 10)]
    k: u32,
    /// The kind of search
    #[arg(long, value_enum, default_value = "vector")]
    by: SearchBy,
    /// The vector or text column, if the table has several
    #[arg(long, value_name = "COLUMN")]
    column: Option<String>,
    /// Index partitions to search, by vector [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nprobes: Option<u32>,
    /// Candidates to score exactly for each row, by vector; 0: none [default: 10]
    #[arg(long, value_name = "FACTOR")]
    refine: Option<u32>,
    /// The share of the nearest rows to find, by vector, in place of --nprobes and --refine
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["nprobes", "refine"])]
    recall: Option<f64>,
    /// A SQL predicate that rows must match
    #[arg(long, value_name = "SQL", value_parser = parse_filter)]
    #[arg(required_if_eq("by", "filter"))]
    filter: Option<String>,
    /// Columns of the rows [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    #[command(flatten)]
    on: QueryNodeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
struct GetArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Keys in a request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1)]
    keys: usize,
    /// How keys are chosen among at most 200,000 that are drawn from the table
    #[arg(long, value_enum, default_value = "uniform")]
    distribution: KeyDistribution,
    /// Lookup streams on each connection, in place of single Gets
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    streams: Option<usize>,
    /// The key column [default: the table's own]
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// Columns of the rows [default: all but vectors and blobs]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_column)]
    columns: Vec<String>,
    /// The format in which rows are returned
    #[arg(long, value_enum, default_value = "arrow")]
    format: Format,
    #[command(flatten)]
    on: QueryNodeArgs,
}

#[derive(Debug, Args)]
#[command(after_help = EMPTY_EXAMPLES)]
struct EmptyArgs {
    /// Reflection streams on each connection, in place of single health checks
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    streams: Option<usize>,
    #[command(flatten)]
    on: QueryNodeArgs,
}

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// An Arrow IPC stream.
    Arrow,
    /// JSON lines.
    Json,
}

/// Measures and prints the report.
pub fn run(args: BenchArgs, out: &mut Output) -> Result<()> {
    let report = match args.benchmark {
        Benchmark::Fetch(args) => run_load(args.load.threads, fetch(*args)),
        Benchmark::Take(args) => run_load(args.on.load.threads, take(*args)),
        Benchmark::Search(args) => run_load(args.on.load.threads, search(*args)),
        Benchmark::Get(args) => run_load(args.on.load.threads, get(*args)),
        Benchmark::Empty(args) => run_load(args.on.load.threads, empty(*args)),
        Benchmark::Limits(args) => return limits::run(&args, out),
        Benchmark::Recovery(args) => return recovery::run(&args, out),
        Benchmark::Write(args) => return write::run(&args, out),
        Benchmark::Eviction(args) => return eviction::run(&args, out),
    }?;
    if out.json() {
        return out.document(&report);
    }
    out.bytes(report_text(&report).as_bytes())
}

fn run_load(threads: Option<usize>, load: impl Future<Output = Result<Report>>) -> Result<Report> {
    let runtime = runtime(threads)?;
    let report = runtime.block_on(load);
    runtime.shutdown_background();
    report
}

async fn fetch(args: FetchArgs) -> Result<Report> {
    let target = Target::find(&args.connection, &args.table).await?;
    let endpoint = match args.io_endpoint {
        Some(endpoint) => endpoint,
        None => only_io_node(&target.client).await?,
    };
    let uri = Lake::new(LakeOptions::default()).canonical(&args.uri).await?.to_string();
    let secret = args.peer_secret.as_deref().map(SecretFile::load).transpose()?;
    let plan = FetchPlan {
        uri,
        batch_rows: args.rows,
        columns: args.columns,
        rerank: args.rerank,
        streams: args.streams,
        seed: args.load.seed,
        concurrency: args.load.concurrency(),
        network: args.connection.network(&endpoint)?,
        prover: secret.map(|file| Arc::new(Prover::new(file))),
    };
    let endpoint_text = endpoint.to_string();
    let load = FetchLoad::prepare(&target, endpoint, plan).await?;
    let request = json!({
        "rows": args.rows,
        "columns": load.columns(),
        "rerank": args.rerank,
        "io_endpoint": endpoint_text,
    });
    let client = load.client();
    let before = FetchLoad::describe(&client).await?;
    let measured = apply_load(&args.load, Watch::IoNode(client.clone()), load).await?;
    let after = FetchLoad::describe(&client).await?;
    let run = Counters::of_node(&after).since(&Counters::of_node(&before));
    let subject = subject("fetch", &target, request);
    Ok(Report::new(subject, &args.load, &measured, &run, Some(after.ram_tier_bytes)))
}

async fn take(args: TakeArgs) -> Result<Report> {
    let target = Target::find(&args.on.connection, &args.table).await?;
    let request = json!({"rows": args.rows, "columns": args.columns});
    let plan = TakePlan { rows: args.rows, columns: args.columns, seed: args.on.load.seed };
    let clients = target.connections(&args.on.connection, args.on.connections).await?;
    let load = TakeLoad::new(&target, clients, plan);
    let (measured, run) = measured(&target.client, &args.on.load, load).await?;
    Ok(Report::new(subject("take", &target, request), &args.on.load, &measured, &run, None))
}

async fn search(args: SearchArgs) -> Result<Report> {
    let target = Target::find(&args.on.connection, &args.table).await?;
    let request = json!({
        "by": args.by.name(),
        "k": args.k,
        "nprobes": args.nprobes,
        "refine": args.refine,
        "recall": args.recall,
        "filter": args.filter,
        "columns": args.columns,
    });
    let plan = SearchPlan {
        by: args.by,
        column: args.column,
        k: args.k,
        nprobes: args.nprobes.unwrap_or(0),
        refine: args.refine,
        recall: args.recall.map(|it| it as f32),
        filter: args.filter.unwrap_or_default(),
        columns: args.columns,
        seed: args.on.load.seed,
    };
    let clients = target.connections(&args.on.connection, args.on.connections).await?;
    let load = SearchLoad::prepare(&target, clients, plan).await?;
    let (measured, run) = measured(&target.client, &args.on.load, load).await?;
    Ok(Report::new(subject("search", &target, request), &args.on.load, &measured, &run, None))
}

async fn get(args: GetArgs) -> Result<Report> {
    let target = Target::find(&args.on.connection, &args.table).await?;
    let json_rows = args.format == Format::Json;
    let request = json!({
        "keys": args.keys,
        "distribution": args.distribution.name(),
        "streams": args.streams,
        "columns": args.columns,
        "json_rows": json_rows,
    });
    let plan = GetPlan {
        column: args.key_column,
        keys: args.keys,
        distribution: args.distribution,
        streams: args.streams.unwrap_or(0),
        columns: args.columns,
        json_rows,
        seed: args.on.load.seed,
    };
    let clients = target.connections(&args.on.connection, args.on.connections).await?;
    let load = GetLoad::prepare(&target, clients, plan).await?;
    let (measured, run) = measured(&target.client, &args.on.load, load).await?;
    Ok(Report::new(subject("get", &target, request), &args.on.load, &measured, &run, None))
}

async fn empty(args: EmptyArgs) -> Result<Report> {
    let QueryNodeArgs { connections, load, connection } = args.on;
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(connection.open().await?);
    }
    let empty = EmptyLoad::prepare(&clients, args.streams.unwrap_or(0)).await?;
    let (measured, run) = measured(&clients[0], &load, empty).await?;
    let request = json!({"streams": args.streams});
    let (table, branch) = Default::default();
    let subject = Subject { workload: "empty", table, branch, version: 0, request };
    Ok(Report::new(subject, &load, &measured, &run, None))
}

/// Applies `load` to the query node. Returns the measurements, and the increase of the nodes' counters meanwhile.
async fn measured(
    client: &QueryClient,
    args: &LoadArgs,
    load: impl Workload,
) -> Result<(Measured, Counters)> {
    let before = Counters::of_status(&client.status().await?);
    let measured = apply_load(args, Watch::QueryNode(Box::new(client.clone())), load).await?;
    let after = Counters::of_status(&client.status().await?);
    Ok((measured, after.since(&before)))
}

async fn only_io_node(client: &QueryClient) -> Result<Endpoint> {
    let nodes = client.status().await?.io_nodes;
    match nodes.as_slice() {
        [node] => node.endpoint.parse().map_err(|error: client::EndpointError| {
            CliError::usage(format!("the query node's I/O node: {error}"))
        }),
        nodes => {
            let endpoints: Vec<&str> = nodes.iter().map(|node| node.endpoint.as_str()).collect();
            let endpoints = endpoints.join(", ");
            Err(CliError::usage(format!(
                "name an I/O node with --io-endpoint; there are {endpoints}"
            )))
        }
    }
}

fn subject(workload: &'static str, target: &Target, request: Value) -> Subject {
    let table = &target.table;
    let (name, branch) = (table.name.clone(), target.branch.clone());
    Subject { workload, table: name, branch, version: table.version, request }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(line: &str) -> Benchmark {
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli { command: Command::Bench(args), .. }) => args.benchmark,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn load_is_closed_unless_a_rate_is_given() {
        let Benchmark::Fetch(args) =
            parse("bireme bench fetch t --uri /t --rows 7 --rerank 3 --seed 9")
        else {
            panic!("not a fetch");
        };
        assert_eq!((args.rows, args.rerank, args.load.seed), (7, Some(3), 9));
        assert_eq!((args.load.rate, args.load.concurrency()), (None, 16));
        let Benchmark::Get(args) = parse("bireme bench get t --rate 0.5 --seconds 2") else {
            panic!("not a get");
        };
        assert_eq!(
            (args.on.load.rate, args.on.load.concurrency(), args.on.load.seconds),
            (Some(0.5), 1024, 2.0)
        );
        let Benchmark::Search(args) = parse("bireme bench search t -k 50 --concurrency 3") else {
            panic!("not a search");
        };
        assert_eq!((args.k, args.on.load.concurrency()), (50, 3));
    }
}
