//! `bireme query`: one query node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use lake::{Lake, LakeOptions};
use query_node::{AccessConfig, IoNodeConfig, QueryConfig, QueryNode, Source};
use serde_json::json;

use crate::arguments::{
    IoEndpoint, NamedUri, StorageArgs, folders, parse_duration, parse_listen, secret_options,
};
use crate::error::{CliError, Result};
use crate::output::{Output, counted};
use crate::runtime::runtime;
use crate::serve::{
    NODE_LOG_LEVEL, Signals, announced, exit_at_second_signal, start_log, telemetry_help,
};
use crate::settings::{environment, layered};

/// The prefix of the environment variables that set a query node's settings.
pub const PREFIX: &str = "BIREME_QUERY_";

const EXAMPLES: &str = "\
Examples:
  bireme query --table words=s3://bucket/words --io-node io-0=10.0.0.7:7071
  bireme query --tables s3://bucket/tables/ --io-node io-0=10.0.0.7:7071
  bireme query --config query.toml --listen 0.0.0.0:7070 --access access.toml
  bireme query --table words=s3://bucket/words \\
      --io-nodes-from kubernetes:NAMESPACE/bireme-io:grpc

A setting's value is that of its flag, else of the variable BIREME_QUERY_<FIELD>
(such as BIREME_QUERY_INDEX_CACHE or BIREME_QUERY_IO_TLS_CA), else of the
file, else its default. An example of a file:
  listen = \"0.0.0.0:7070\"
  access = \"/etc/bireme/access.toml\"
  index_cache = \"4GiB\"
  tables.words = { uri = \"s3://bucket/words\", key = \"synset\" }
  [[io_nodes]]
  name = \"io-0\"
  endpoint = \"http://10.0.0.7:7071\"
  [storage]
  aws_region = \"eu-central-1\"

Every query node of a cluster must have the same I/O nodes with the same names.
With --io-nodes-from the node follows a list, so that I/O nodes can be added and
removed without a restart:
  kubernetes:[NAMESPACE/]SERVICE[:PORT]
      the pods of a Service, by its EndpointSlices; SERVICE,SERVICE if some have
      another size
  dns:HOST:PORT
      SRV records of _grpc._tcp.HOST, else the addresses of HOST
  file:PATH
      a TOML file of [[io_nodes]] with name, endpoint, weight and
      draining; to replace it, rename another file over it";

/// Arguments of `bireme query`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", telemetry_help(PREFIX)))]
pub struct QueryArgs {
    /// A TOML file with settings
    #[arg(long, env = "BIREME_QUERY_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// The access policy: a file, or `open` for everybody who reaches the node; needed to
    /// listen beyond loopback
    #[arg(long, value_name = "FILE|open", value_hint = ValueHint::FilePath)]
    access: Option<String>,
    /// The node's name, for traces and status [default: query-0]
    #[arg(long, value_hint = ValueHint::Other)]
    name: Option<String>,
    /// A table to serve (repeatable)
    #[arg(long = "table", value_name = "NAME=URI", value_hint = ValueHint::AnyPath)]
    tables: Vec<NamedUri>,
    /// A folder of tables to serve, each in a folder NAME.lance; it is listed every 5 s (repeatable;
    /// replaces those of the file)
    #[arg(long = "tables", value_name = "FOLDER", value_hint = ValueHint::AnyPath)]
    folders: Vec<String>,
    /// An I/O node to use (repeatable; replaces those of the file)
    #[arg(long = "io-node", value_name = "[NAME=]ENDPOINT", value_hint = ValueHint::Url)]
    io_nodes: Vec<IoEndpoint>,
    /// The list of I/O nodes to follow: dns:HOST:PORT, file:PATH or
    /// kubernetes:[NAMESPACE/]SERVICE[,SERVICE][:PORT] (replaces those of the file)
    #[arg(long, value_name = "SOURCE", conflicts_with = "io_nodes", value_hint = ValueHint::Other)]
    io_nodes_from: Option<Source>,
    /// The address that serves /metrics, such as 0.0.0.0:9464 [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    metrics: Option<SocketAddr>,
    /// The address that answers only probes, such as 0.0.0.0:9465 [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    probes: Option<SocketAddr>,
    /// The time that running requests have to finish when the node is stopped
    #[arg(long, env = "BIREME_GRACE", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    #[command(flatten)]
    storage: StorageArgs,
}

impl QueryArgs {
    fn settings(&self, variables: &[(String, String)]) -> Result<QueryConfig> {
        let mut config: QueryConfig = layered(self.config.as_deref(), PREFIX, variables)?;
        config.listen = self.listen.unwrap_or(config.listen);
        if let Some(access) = &self.access {
            config.access = Some(AccessConfig::from(access.clone()));
        }
        if let Some(name) = &self.name {
            config.name.clone_from(name);
        }
        NamedUri::check_names_unique(&self.tables)?;
        for table in &self.tables {
            config.tables.entry(table.name.clone()).or_default().uri.clone_from(&table.uri);
        }
        if !self.folders.is_empty() {
            config.folders = folders(&self.folders)?;
        }
        if !self.io_nodes.is_empty() {
            let node = |node: &IoEndpoint| IoNodeConfig {
                name: node.name.clone(),
                ..IoNodeConfig::at(node.endpoint.to_string())
            };
            config.io_nodes = self.io_nodes.iter().map(node).collect();
            config.io_nodes_from = None;
        }
        if let Some(source) = &self.io_nodes_from {
            config.io_nodes_from = Some(source.clone());
            config.io_nodes.clear();
        }
        config.telemetry.metrics_listen = self.metrics.or(config.telemetry.metrics_listen);
        config.telemetry.probes_listen = self.probes.or(config.telemetry.probes_listen);
        self.storage.apply(&mut config.storage)?;
        Ok(config)
    }
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &QueryArgs, out: &mut Output) -> Result<()> {
    let config = args.settings(&environment(PREFIX))?;
    out.follow_log(config.telemetry.log_format);
    start_log(NODE_LOG_LEVEL, out.json())?;
    config.validate()?;
    let runtime = runtime(None)?;
    let outcome = runtime.block_on(serve(config, args.grace, out));
    runtime.shutdown_background();
    outcome
}

async fn serve(config: QueryConfig, grace: Duration, out: &mut Output) -> Result<()> {
    let mut signals = Signals::listen()?;
    let storage_secrets = secret_options(config.storage_secrets.as_deref(), &config.storage)?;
    let lake = Lake::new(LakeOptions { storage_secrets, ..config.lake_options() });
    let (name, tables) = (config.name.clone(), config.tables.len());
    let (folders, has_tls) = (config.folders.len(), config.tls.is_some());
    let started = async { QueryNode::start(config, lake).await.map_err(CliError::from) };
    let node = signals.unless_stopped(started).await?;
    let (source, io_nodes) = node.io_nodes();
    let endpoint = announced(node.local_addr(), has_tls);
    if out.json() {
        out.document(&json!({
            "event": "serving",
            "node": name,
            "endpoint": endpoint,
            "metrics": node.metrics_addr().map(|address| format!("http://{address}/metrics")),
            "probes": node.probes_addr().map(|address| format!("http://{address}")),
            "tables": tables,
            "folders": folders,
            "io_nodes": io_nodes,
            "io_nodes_from": source,
        }))?;
    } else {
        out.line(format_args!(
            "query node {name} serves at {endpoint} ({} to open, {} to list, I/O nodes: {io_nodes} from {source})",
            counted(tables as u64, "table", "tables"),
            counted(folders as u64, "folder", "folders"),
        ))?;
    }
    out.flush()?;
    let signal = signals.next().await;
    tracing::info!(signal, ?grace, "draining");
    tokio::spawn(exit_at_second_signal(signals));
    node.shutdown(grace).await?;
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn settings(line: &str, variables: &[(&str, &str)]) -> Result<QueryConfig> {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli { command: Command::Query(args), .. }) => {
                let config = args.settings(&variables)?;
                config.validate()?;
                Ok(config)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_have_precedence_and_tables_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("query.toml");
        let text = "cores = 3\ntables.a = { uri = \"/a\", key = \"id\" }\n\
                    tables.b = { uri = \"/b\" }\n[[io_nodes]]\nendpoint = \"http://x:1\"\n";
        std::fs::write(&file, text).unwrap();
        let line = format!(
            "bireme query --config {} --table a=/a2 --table c=/c --io-node n=y:2 --name q",
            file.display()
        );
        let config = settings(&line, &[("CORES", "4"), ("NAME", "env")]).unwrap();
        assert_eq!((config.cores, config.name.as_str()), (4, "q"));
        let uris: Vec<_> = config.tables.values().map(|table| table.uri.as_str()).collect();
        assert_eq!(uris, ["/a2", "/b", "/c"]);
        assert_eq!(config.tables["a"].key.as_deref(), Some("id"));
        assert_eq!(config.io_nodes.len(), 1);
        assert_eq!(config.io_nodes[0].name.as_deref(), Some("n"));
    }

    #[test]
    fn folders_replace_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("query.toml");
        std::fs::write(&file, "folders = [\"/a\"]\n").unwrap();
        let line = format!("bireme query --config {} --io-node x:1", file.display());
        let of =
            |config: QueryConfig| config.folders.into_iter().map(|it| it.to_string()).collect();
        let folders: Vec<String> = of(settings(&line, &[]).unwrap());
        assert_eq!(folders, ["/a/"]);
        let line = format!("{line} --tables s3://bucket --tables /b/");
        let folders: Vec<String> = of(settings(&line, &[]).unwrap());
        assert_eq!(folders, ["s3://bucket/", "/b/"]);
        let bad = "bireme query --io-node x:1 --tables s3://key:secret@bucket/t";
        let error = settings(bad, &[]).unwrap_err();
        assert!(error.message().starts_with("--tables: `s3://***@bucket/t`"), "{error:?}");
    }

    #[test]
    fn a_list_is_followed_or_given() {
        let followed =
            settings("bireme query --table a=/a --io-nodes-from dns:io:7071", &[]).unwrap();
        assert_eq!(followed.io_nodes_from.unwrap().to_string(), "dns:io:7071");
        let variable = ("IO_NODES_FROM", "kubernetes:bireme/io:grpc");
        let twice = settings("bireme query --table a=/a --table a=/b --io-node y:2", &[]);
        assert_eq!(twice.unwrap_err().message(), "two tables are named `a`");
        let followed = settings("bireme query --table a=/a", &[variable]).unwrap();
        assert_eq!(followed.io_nodes_from.unwrap().to_string(), variable.1);
        let given = settings("bireme query --table a=/a --io-node x:1", &[variable]).unwrap();
        assert_eq!((given.io_nodes.len(), given.io_nodes_from), (1, None));
        let nowhere = settings("bireme query --table a=/a", &[("IO_NODES_FROM", "x")]).unwrap_err();
        assert!(nowhere.message().starts_with("BIREME_QUERY_IO_NODES_FROM: `x` is not a source"));
        let both = "bireme query --io-node x:1 --io-nodes-from file:x";
        assert!(Cli::try_parse_from(both.split_whitespace()).is_err());
    }

    #[test]
    fn a_node_without_io_nodes_is_refused() {
        let error = settings("bireme query --table a=/a", &[]).unwrap_err();
        assert_eq!(error.exit().number(), 2);
        assert!(error.message().contains("io_nodes"), "{error:?}");
    }
}
