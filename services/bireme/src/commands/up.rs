//! `bireme up`: both tiers in one process, for a laptop.

mod cache_folder;
mod cache_size;
mod next_steps;
mod ready_file;
mod table_facts;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use io_node::{DriveConfig, IoConfig, IoNode, NodeError};
use lake::{FolderListing, Lake, Table, TableFolder, UriPrefix};
use query_node::{IoNodeConfig, QueryConfig, QueryNode, TableConfig};
use ring::SlabError;
use serde_json::{Value, json};

use self::cache_folder::{CacheFolder, Slab, TemporaryCache};
use self::cache_size::{cache_size_for, cache_size_max};
use self::next_steps::{TableFacts, next_steps, program};
use self::ready_file::ReadyFile;
use self::table_facts::table_facts;
use crate::arguments::{NamedUri, StorageArgs, folders, parse_duration, parse_listen, parse_size};
use crate::error::{CliError, Result};
use crate::output::{self, Output};
use crate::runtime::{on_a_thread, runtime};
use crate::serve::{
    Signals, UP_LOG_LEVEL, drain, exit_at_second_signal, log_help, start_io_node, start_log,
};

/// The address that `bireme search` and other commands use by default.
const QUERY_LISTEN: &str = "127.0.0.1:7070";

/// The hint if another process uses the port or the cache.
const SECOND: &str = "if `bireme up` is running already, a second one needs its own --listen and its own cache, such as \
                      `--listen 127.0.0.1:0 --name second`; its I/O node takes a free port";

const EXAMPLES: &str = "\
Examples:
  bireme up --table words=./words.lance
  bireme up --table words=./words.lance --table docs=s3://bucket/docs \\
      --cache-size 20GiB
  bireme up --tables ./lake
  bireme up --table words=./words.lance --listen 127.0.0.1:0 \\
      --ready-file /tmp/ready.json

The cache is one file in ~/.cache/bireme/up/NAME (or under $XDG_CACHE_HOME). It
fills as rows are requested, or in advance by `bireme warm`, and is kept over
restarts. The file keeps its size on the disk; it can be deleted while no
process uses it. The I/O node takes a free port. The ready file has the
endpoints as JSON; it is written once both tiers serve, and removed at the end.

A second `bireme up` needs its own --listen and its own cache:
  bireme up --table words=./words.lance --listen 127.0.0.1:0 --name second";

/// Flags of earlier versions, each with the fixed behaviour that has replaced it.
const REMOVED_FLAGS: [(&str, &str); 4] = [
    ("--engine", "io_uring is used if it is available"),
    ("--io-cores", "the I/O node uses half of the cores"),
    ("--io-listen", "the I/O node takes a free port, which the ready file names"),
    ("--ram-tier", "the RAM tier has 256MiB"),
];

/// Returns the message for a flag of an earlier version. Returns `None` if `flag` is not one.
pub fn removed_flag(flag: &str) -> Option<String> {
    let (_, now) = REMOVED_FLAGS.iter().find(|(removed, _)| *removed == flag)?;
    Some(format!("`bireme up` no longer has {flag}: {now}; `bireme io` has such settings"))
}

/// Arguments of `bireme up`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", log_help(UP_LOG_LEVEL)))]
pub struct UpArgs {
    /// A table to serve (repeatable)
    #[arg(long = "table", value_name = "NAME=URI", value_hint = ValueHint::AnyPath, required_unless_present = "folders")]
    tables: Vec<NamedUri>,
    /// A folder of tables to serve, each in a folder NAME.lance; it is listed every 5 s (repeatable)
    #[arg(long = "tables", value_name = "FOLDER", value_hint = ValueHint::AnyPath)]
    folders: Vec<String>,
    /// The address of the query node; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value = QUERY_LISTEN, value_parser = parse_listen)]
    listen: SocketAddr,
    /// The name of the cache; processes that run at the same time need different names
    #[arg(long, default_value = "default", value_hint = ValueHint::Other)]
    name: String,
    /// The folder of the cache [default: one for each --name]
    #[arg(long, env = "BIREME_CACHE_DIR", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    cache_dir: Option<PathBuf>,
    /// The cache's size on the disk [default: twice the tables' size, from 256MiB to 4GiB, or 4GiB with
    /// --tables, and less if the disk has less room]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_size: Option<ByteSize>,
    /// Read through the page cache if the cache's filesystem does not support O_DIRECT
    #[arg(long)]
    allow_buffered: bool,
    /// A file to write once both tiers serve, with their endpoints as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ready_file: Option<PathBuf>,
    /// The time that running requests have to finish when the process is stopped
    #[arg(long, env = "BIREME_GRACE", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    /// End when stdin ends, and remove the cache then. For a program that starts this one with a pipe as stdin: its end,
    /// even by SIGKILL, closes the pipe.
    #[arg(long, hide = true, requires = "cache_dir")]
    temporary: bool,
    #[command(flatten)]
    storage: StorageArgs,
}

impl UpArgs {
    fn io_config(
        &self,
        slab: &Slab,
        serve: Vec<UriPrefix>,
        storage: HashMap<String, String>,
    ) -> IoConfig {
        let half = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        IoConfig {
            // Take a free port of the loopback address.
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            drives: vec![DriveConfig { path: slab.path.clone(), size: Some(slab.size) }],
            serve,
            cores: half,
            // Do not pin: the query node uses the same cores.
            pin: false,
            allow_buffered: self.allow_buffered,
            segment: slab.segment,
            storage,
            ..Default::default()
        }
    }

    fn query_config(&self) -> Result<QueryConfig> {
        let mut config = QueryConfig { listen: self.listen, ..Default::default() };
        NamedUri::check_names_unique(&self.tables)?;
        for NamedUri { name, uri } in &self.tables {
            let table = TableConfig { uri: uri.clone(), ..Default::default() };
            config.tables.insert(name.clone(), table);
        }
        config.folders = folders(&self.folders)?;
        config.storage = self.storage.to_map()?;
        Ok(config)
    }
}

/// Both nodes and what they serve.
struct Up {
    io: IoNode,
    query: QueryNode,
    slab: Slab,
    served: Served,
    steps: Vec<String>,
}

/// The tables that are served.
struct Served {
    /// The tables of --table.
    tables: Vec<(String, Table)>,
    /// The folders of --tables.
    folders: Vec<FolderListing>,
}

impl Served {
    /// Opens the tables and lists the folders, so that an error is reported before anything is started.
    async fn open(lake: &Lake, named: &[NamedUri], folders: &[TableFolder]) -> Result<Self> {
        let mut served = Self { tables: Vec::new(), folders: Vec::new() };
        for NamedUri { name, uri } in named {
            served.tables.push((name.clone(), lake.open(uri).await?));
        }
        for folder in folders {
            served.folders.push(lake.list_folder(folder, None).await?);
        }
        Ok(served)
    }

    /// Returns the tables and folders that the I/O node serves.
    fn prefixes(&self) -> Vec<UriPrefix> {
        let tables = self.tables.iter();
        let tables = tables.map(|(_, table)| UriPrefix::Table(table.canonical_uri().clone()));
        tables.chain(self.folders.iter().map(|listed| listed.folder.prefix())).collect()
    }

    /// Returns the size of the cache if none is asked for.
    fn cache_size(&self) -> ByteSize {
        match self.folders.is_empty() {
            true => cache_size_for(self.tables.iter().map(|(_, table)| table)),
            // Tables may be added to a folder later.
            false => cache_size_max(),
        }
    }

    /// Describes the first table, for the commands that are suggested.
    async fn facts(&self, lake: &Lake) -> TableFacts {
        if let Some((name, table)) = self.tables.first() {
            return table_facts(name, table).await;
        }
        let mut in_folders = self.folders.iter().flat_map(|it| &it.tables);
        let Some((name, uri)) = in_folders.next() else { return TableFacts::default() };
        match lake.open_canonical(uri).await {
            Ok(table) => table_facts(name, &table).await,
            Err(_) => TableFacts::default(),
        }
    }
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: UpArgs, out: &mut Output) -> Result<()> {
    let config = args.query_config()?;
    start_log(UP_LOG_LEVEL, out.json())?;
    let temporary = args.cache_dir.as_deref().filter(|_| args.temporary);
    // Removed last, when the ready file in the same folder is gone.
    let _cache = temporary.map(TemporaryCache::new);
    let ready = args.ready_file.as_deref().map(ReadyFile::prepare).transpose()?;
    let runtime = runtime(None)?;
    let outcome = runtime.block_on(serve(&args, config, ready, out));
    runtime.shutdown_background();
    outcome
}

async fn serve(
    args: &UpArgs,
    config: QueryConfig,
    mut ready: Option<ReadyFile>,
    out: &mut Output,
) -> Result<()> {
    let mut signals = Signals::listen()?;
    if args.temporary {
        signals = signals.and_end_of_stdin();
    }
    let up = signals.unless_stopped(Box::pin(start(args, config))).await?;
    let state = up.state();
    report(&up, &state, out)?;
    if let Some(ready) = &mut ready {
        ready.write(&state)?;
    }
    let signal = signals.next().await;
    tracing::info!(signal, grace = ?args.grace, "draining");
    tokio::spawn(exit_at_second_signal(signals));
    drop(ready);
    let stopped = up.query.shutdown(args.grace).await;
    tracing::info!("the query node has stopped");
    drain(up.io, args.grace).await;
    tracing::info!("the I/O node has stopped");
    Ok(stopped?)
}

/// Checks that the query node's port is free, before anything is started.
fn check_port(listen: SocketAddr) -> Result<()> {
    match std::net::TcpListener::bind(listen) {
        Ok(_) => Ok(()),
        Err(source) => {
            let error = CliError::listen(&listen.to_string(), &source, "--listen");
            Err(match source.kind() {
                std::io::ErrorKind::AddrInUse => error.hint(SECOND),
                _ => error,
            })
        }
    }
}

/// Starts both nodes. Tables are opened first, so that an error is reported before a port is bound and before the
/// cache's folder is created.
async fn start(args: &UpArgs, mut config: QueryConfig) -> Result<Up> {
    let lake = Lake::new(config.lake_options());
    let served = Served::open(&lake, &args.tables, &config.folders).await?;
    check_port(args.listen)?;
    let folder =
        CacheFolder::locate(args.cache_dir.as_deref(), &args.name, |name| std::env::var_os(name))?;
    let slab = plan_slab(&folder, args.cache_size, &served)?;
    let io = args.io_config(&slab, served.prefixes(), config.storage.clone());
    let io = on_a_thread(|| start_io_node(io, None)).await;
    let io = io.map_err(|error| io_fault(error, &slab))?;
    if args.allow_buffered {
        tracing::info!(path = %slab.path.display(), "if O_DIRECT is refused, the page cache is used");
    }
    let endpoint = format!("http://{}", io.local_addr());
    config.io_nodes = vec![IoNodeConfig::at(endpoint).named(io.config().name.clone())];
    let query = QueryNode::start(config, lake.clone()).await?;
    query.refresh().await;
    let facts = served.facts(&lake).await;
    let endpoint = format!("http://{}", query.local_addr());
    let elsewhere = (query.local_addr().to_string() != QUERY_LISTEN).then_some(endpoint.as_str());
    let steps = next_steps(&facts, &program(), elsewhere);
    Ok(Up { io, query, slab, served, steps })
}

/// Plans the slab. A requested size must fit the disk; the default size is reduced to what fits.
fn plan_slab(folder: &CacheFolder, asked: Option<ByteSize>, served: &Served) -> Result<Slab> {
    let wanted = asked.unwrap_or_else(|| served.cache_size());
    let slab = folder.slab(wanted)?;
    let [free, size, wanted] = [slab.free, slab.size, wanted].map(|it| it.display().iec());
    let path = slab.path.display();
    match (slab.is_smaller, asked) {
        (false, _) => {}
        (true, None) => {
            eprintln!("bireme: the disk of {path} has {free} free: the cache gets {size} of it");
        }
        (true, Some(_)) => {
            return Err(CliError::disk_full(format!(
                "--cache-size is {wanted}, and the disk of {path} has {free} free; ask for at most \
                 {size}, or name a folder on another disk with --cache-dir"
            )));
        }
    }
    Ok(slab)
}

/// Converts an error of the I/O node. Adds a hint if flags of this command can fix the error, or if the message names a
/// flag that only `bireme io` has.
fn io_fault(error: NodeError, slab: &Slab) -> CliError {
    match &error {
        NodeError::Slab(SlabError::InUse { path }) if *path == slab.path => {
            CliError::from(error).hint(SECOND)
        }
        NodeError::Ring { .. } => CliError::from(error).hint("that is a flag of `bireme io`"),
        NodeError::NotOurs { .. } => CliError::from(error)
            .hint("that is a flag of `bireme io`; here, name another folder with --cache-dir"),
        NodeError::Slab(_) => {
            CliError::from(error).hint("--cache-size and --cache-dir set its size and folder")
        }
        _ => error.into(),
    }
}

impl Up {
    /// Returns the content of the ready file.
    fn state(&self) -> Value {
        let table = |(name, table): &(String, Table)| {
            json!({
                "name": name,
                "uri": table.uri(),
                "version": table.version(),
                "rows": table.row_count(),
            })
        };
        let folder = |listed: &FolderListing| json!({ "uri": listed.folder.as_str(), "tables": listed.tables.len() });
        json!({
            "event": "serving",
            "query": format!("http://{}", self.query.local_addr()),
            "io": format!("http://{}", self.io.local_addr()),
            "engine": self.io.engine(),
            "pid": std::process::id(),
            "cache": {"path": self.slab.path, "bytes": self.slab.size.as_u64()},
            "tables": self.served.tables.iter().map(table).collect::<Vec<_>>(),
            "folders": self.served.folders.iter().map(folder).collect::<Vec<_>>(),
            "try": self.steps,
        })
    }
}

fn report(up: &Up, state: &Value, out: &mut Output) -> Result<()> {
    if out.json() {
        out.document(state)?;
        return out.flush();
    }
    for (name, table) in &up.served.tables {
        let rows = output::counted(table.row_count(), "row", "rows");
        let (version, uri) = (table.version(), table.uri());
        out.line(format_args!("table {name}: {rows}, version {version} of {uri}"))?;
    }
    for listed in &up.served.folders {
        let tables = output::counted(listed.tables.len() as u64, "table", "tables");
        out.line(format_args!("folder {}: {tables}, and those that appear", listed.folder))?;
    }
    let cache = up.slab.path.display();
    out.line(format_args!("cache  {cache} ({})", output::bytes(up.slab.size.as_u64())))?;
    out.line("       fills as rows are requested, or by `bireme warm`, and is kept over restarts")?;
    out.line(format_args!("I/O    http://{} ({})", up.io.local_addr(), up.io.engine()))?;
    out.line(format_args!("query  http://{}\n\nTry next:", up.query.local_addr()))?;
    for step in &up.steps {
        out.line(format_args!("  {step}"))?;
    }
    out.line("\nCtrl-C stops both.")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> UpArgs {
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli { command: Command::Up(args), .. }) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_nodes_get_the_arguments() {
        let args = args("bireme up --table a=/a --table b=/b --storage region=1");
        let query = args.query_config().unwrap();
        assert_eq!(query.listen.to_string(), QUERY_LISTEN);
        assert_eq!(query.tables["b"].uri, "/b");
        let slab = Slab {
            path: "/c/slab".into(),
            size: ByteSize::mib(64),
            segment: ByteSize::mib(8),
            is_smaller: false,
            free: ByteSize::mib(200),
        };
        let io =
            args.io_config(&slab, vec![UriPrefix::of_config("/a").unwrap()], query.storage.clone());
        io.validate().unwrap();
        assert_eq!((io.listen.port(), io.pin, io.segment), (0, false, ByteSize::mib(8)));
        assert_eq!(io.storage, HashMap::from([("region".to_owned(), "1".to_owned())]));
    }

    #[test]
    fn a_table_or_a_folder_is_needed() {
        let query = args("bireme up --tables s3://bucket/tables").query_config().unwrap();
        assert!(query.tables.is_empty());
        assert_eq!(query.folders[0].as_str(), "s3://bucket/tables/");
        assert!(Cli::try_parse_from(["bireme", "up"]).is_err());
    }

    #[test]
    fn two_tables_with_the_same_name_are_refused() {
        let error = args("bireme up --table a=/a --table a=/b").query_config().unwrap_err();
        assert!(error.message().contains("`a`"), "{error:?}");
    }
}
