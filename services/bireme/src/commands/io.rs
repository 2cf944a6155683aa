//! `bireme io`: one I/O node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use io_node::{DriveConfig, EngineChoice, IoConfig, IoNode, NodeError};
use lake::{SecretOptions, UriPrefix, shown};
use ring::SlabError;
use serde_json::json;

use crate::arguments::{
    DriveSpec, StorageArgs, parse_duration, parse_listen, parse_size, secret_options,
};
use crate::error::{CliError, Result};
use crate::output::{Output, bytes, counted};
use crate::runtime::{on_a_thread, runtime};
use crate::serve::{
    NODE_LOG_LEVEL, Signals, announced, check_machine, drain, exit_at_second_signal, start_io_node,
    start_log, telemetry_help,
};
use crate::settings::{environment, layered};

/// The prefix of the environment variables that set an I/O node's settings.
pub const PREFIX: &str = "BIREME_IO_";

const EXAMPLES: &str = "\
Examples:
  bireme io --drive /dev/nvme0n1 --drive /mnt/nvme1/slab:400GiB \\
      --serve s3://bucket/tables/
  bireme io --config io.toml
  BIREME_IO_RAM_TIER=2GiB bireme io --config io.toml

A setting's value is that of its flag, else of the variable BIREME_IO_<FIELD>
(such as BIREME_IO_FILL_RATE), else of the file, else its default. An example of
a file:
  listen = \"0.0.0.0:7071\"
  peers = [\"query.example\"]         # names in query nodes' certificates
  name = \"io-0\"
  ram_tier = \"1GiB\"
  serve = [\"s3://bucket/tables/\"]  # tables, or prefixes that end in /
  [tls]
  cert = \"/tls/tls.crt\"
  key = \"/tls/tls.key\"
  client_ca = \"/tls/ca.crt\"
  [[drives]]
  path = \"/mnt/nvme0/slab\"
  size = \"400GiB\"
  [[shares]]                        # a table's guarantee on the drives
  uri = \"s3://bucket/tables/orders\"
  minimum = \"50GiB\"
  [storage]
  aws_endpoint = \"http://minio:9000\"

A drive that holds anything but Bireme's own cache is refused, unless
--overwrite is given. The cache fills as rows are requested, or in advance by
`bireme warm`. It is kept over restarts as long as `segment` stays the same.";

/// Arguments of `bireme io`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", telemetry_help(PREFIX)))]
pub struct IoArgs {
    /// A TOML file with settings
    #[arg(long, env = "BIREME_IO_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free port [default: 127.0.0.1:7071]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// The node's own name; give it the same name in the query nodes' list [default: io-0]
    #[arg(long, value_hint = ValueHint::Other)]
    name: Option<String>,
    /// A drive: a block device, or a file and its size (repeatable); a new file without a size gets 4GiB
    #[arg(long = "drive", value_name = "PATH[:SIZE]", value_hint = ValueHint::AnyPath)]
    drives: Vec<DriveSpec>,
    /// A table to serve, or a prefix of tables that ends in / (repeatable); all others are refused
    #[arg(long, value_name = "URI", value_hint = ValueHint::AnyPath)]
    serve: Vec<String>,
    /// The number of cores that serve; 0 for all
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// Don't pin each thread to its core
    #[arg(long)]
    no_pin: bool,
    /// The engine for reads and writes
    #[arg(long, value_parser = engines())]
    engine: Option<EngineChoice>,
    /// Read through the page cache if the filesystem does not support O_DIRECT
    #[arg(long)]
    allow_buffered: bool,
    /// Overwrite a drive that holds anything but Bireme's cache
    #[arg(long)]
    overwrite: bool,
    /// The size of the RAM tier; 0 turns it off [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    ram_tier: Option<ByteSize>,
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

/// Parses a value of --serve. clap does not parse it, because its error would repeat the value, with any secret in it.
fn prefix(text: &str) -> Result<UriPrefix> {
    let bad = |error| CliError::usage(format!("--serve: `{}`: {error}", shown(text)));
    UriPrefix::of_config(text).map_err(bad)
}

/// Returns a parser of engines' names.
pub fn engines() -> impl TypedValueParser<Value = EngineChoice> {
    // Accept `io_uring`, as in configuration files, and `io-uring`, as flags are usually written.
    let names = ["auto", "io_uring", "io-uring", "pread"];
    PossibleValuesParser::new(names).map(|engine| match engine.as_str() {
        "io_uring" | "io-uring" => EngineChoice::IoUring,
        "pread" => EngineChoice::Pread,
        _ => EngineChoice::Auto,
    })
}

impl IoArgs {
    fn settings(&self, variables: &[(String, String)]) -> Result<IoConfig> {
        let mut config: IoConfig = layered(self.config.as_deref(), PREFIX, variables)?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.cores = self.cores.unwrap_or(config.cores);
        config.engine = self.engine.unwrap_or(config.engine);
        config.ram_tier = self.ram_tier.unwrap_or(config.ram_tier);
        config.pin &= !self.no_pin;
        config.allow_buffered |= self.allow_buffered;
        config.overwrite |= self.overwrite;
        if let Some(name) = &self.name {
            config.name.clone_from(name);
        }
        if !self.drives.is_empty() {
            let drive = |spec: &DriveSpec| DriveConfig { path: spec.path.clone(), size: spec.size };
            config.drives = self.drives.iter().map(drive).collect();
        }
        if !self.serve.is_empty() {
            config.serve = self.serve.iter().map(|text| prefix(text)).collect::<Result<_>>()?;
        }
        config.telemetry.metrics_listen = self.metrics.or(config.telemetry.metrics_listen);
        config.telemetry.probes_listen = self.probes.or(config.telemetry.probes_listen);
        self.storage.apply(&mut config.storage)?;
        Ok(config)
    }
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &IoArgs, out: &mut Output) -> Result<()> {
    let config = args.settings(&environment(PREFIX))?;
    out.follow_log(config.telemetry.log_format);
    start_log(NODE_LOG_LEVEL, out.json())?;
    check_machine(&config)?;
    let secrets = secret_options(config.storage_secrets.as_deref(), &config.storage)?;
    let runtime = runtime(Some(1))?;
    let outcome = runtime.block_on(serve(config, secrets, args.grace, out));
    // The start of a node that was stopped meanwhile is not waited for.
    runtime.shutdown_background();
    outcome
}

async fn serve(
    config: IoConfig,
    secrets: Option<SecretOptions>,
    grace: Duration,
    out: &mut Output,
) -> Result<()> {
    let mut signals = Signals::listen()?;
    let started = on_a_thread(|| start_io_node(config, secrets).map_err(fault));
    let node = signals.unless_stopped(started).await?;
    report(&node, out)?;
    let signal = signals.next().await;
    tracing::info!(signal, ?grace, "draining");
    tokio::spawn(exit_at_second_signal(signals));
    drain(node, grace).await;
    tracing::info!("stopped");
    Ok(())
}

/// Converts an error of the node. If a drive has no space, the message names the flag that sets the drive's size.
fn fault(error: NodeError) -> CliError {
    match error {
        NodeError::Slab(SlabError::NoSpace { .. }) => {
            CliError::from(error).hint("--drive PATH:SIZE sets its size")
        }
        _ => error.into(),
    }
}

fn report(node: &IoNode, out: &mut Output) -> Result<()> {
    let endpoint = announced(node.local_addr(), node.config().tls.is_some());
    let drives = node.drives();
    if out.json() {
        let drive = |(path, bytes): (&Path, u64)| json!({"path": path, "bytes": bytes});
        out.document(&json!({
            "event": "serving",
            "node": node.config().name,
            "endpoint": endpoint,
            "metrics": node.metrics_addr().map(|address| format!("http://{address}/metrics")),
            "probes": node.probes_addr().map(|address| format!("http://{address}")),
            "engine": node.engine(),
            "drives": drives.map(drive).collect::<Vec<_>>(),
            "extents": node.extents(),
        }))?;
    } else {
        let name = &node.config().name;
        out.line(format_args!("I/O node {name} serves at {endpoint} ({})", node.engine()))?;
        for (path, size) in drives {
            out.line(format_args!("drive {} ({})", path.display(), bytes(size)))?;
        }
        out.line(format_args!(
            "{} found on the drives; the cache fills as rows are requested, or by `bireme warm`.",
            counted(node.extents(), "extent", "extents"),
        ))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> IoArgs {
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli { command: Command::Io(args), .. }) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_win_over_the_environment_and_it_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("io.toml");
        let text = "name = \"file\"\nslots = 7\npin = true\nsegment = \"5MiB\"\ncores = 9\nlisten = \"1.1.1.1:1\"\n\
                    [[drives]]\npath = \"/file\"\n[storage]\nregion = \"file\"\ntimeout = \"file\"\n";
        std::fs::write(&file, text).unwrap();
        let line = format!(
            "bireme io --config {} --name flag --drive /d:1GiB --no-pin --storage timeout=flag",
            file.display()
        );
        let variables: Vec<_> = [("NAME", "env"), ("CORES", "4"), ("SLOTS", "8")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let config = args(&line).settings(&variables).unwrap();
        assert_eq!((config.name.as_str(), config.cores, config.slots), ("flag", 4, 8));
        assert_eq!(
            (config.segment, config.listen.port(), config.pin),
            (ByteSize::mib(5), 1, false)
        );
        assert_eq!(config.drives.len(), 1);
        assert_eq!(config.drives[0].size, Some(ByteSize::gib(1)));
        let stored = |name: &str| config.storage[name].as_str();
        assert_eq!((stored("region"), stored("timeout")), ("file", "flag"));
        assert_eq!(config.ram_tier, IoConfig::default().ram_tier);
    }

    #[test]
    fn both_spellings_of_an_engine_are_accepted_in_files_flags_and_variables() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("io.toml");
        for spelling in ["io_uring", "io-uring"] {
            std::fs::write(&file, format!("engine = \"{spelling}\"\n")).unwrap();
            let from_file = args(&format!("bireme io --config {}", file.display()));
            let from_flag = args(&format!("bireme io --engine {spelling}"));
            let from_variable = [("ENGINE".to_owned(), spelling.to_owned())];
            for (args, variables) in
                [(&from_file, &[][..]), (&from_flag, &[]), (&args("bireme io"), &from_variable)]
            {
                assert_eq!(args.settings(variables).unwrap().engine, EngineChoice::IoUring);
            }
        }
    }
}
