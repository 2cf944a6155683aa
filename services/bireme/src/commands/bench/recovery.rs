//! `bireme bench recovery`: the time that a node takes to recover what its drives hold.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use client::Endpoint;
use client::fetch::{FetchClient, FetchOptions};
use io_node::{IoConfig, Recovery, lay_out};
use serde_json::json;

use super::trial::TrialFile;
use crate::error::{CliError, Result};
use crate::output::{Output, bytes, count};
use crate::runtime;
use crate::serve::start_io_node;

const EXAMPLES: &str = "\
Examples:
  bireme bench recovery --drive /mnt/nvme0/trial --extents 1000000
  bireme bench recovery --drive /mnt/nvme0/trial --extents 50000 \\
      --sectors 1024 --json

Creates a file with the journals of so many extents; the extents themselves are
holes. Then starts a node on it, with O_DIRECT, and stops it again; the file is
removed. An extent of 1,024 sectors is a full chunk of 4 MiB, so a million of
them are 4 TB.";

/// Arguments of `bireme bench recovery`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RecoveryArgs {
    /// A new file on the drive to measure
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    drive: PathBuf,
    /// The number of extents
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    extents: u32,
    /// Sectors in each extent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8192))]
    sectors: u32,
    /// The number of times that the node is started
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
}

/// One start of a node.
struct Start {
    total: Duration,
    recovery: Recovery,
    directory_bytes: u64,
}

/// Measures and prints the results.
pub fn run(args: &RecoveryArgs, out: &mut Output) -> Result<()> {
    let trial = TrialFile::new(&args.drive)?;
    let config = IoConfig { segment: ByteSize::mib(64), ..trial.node(None) };
    let owned = args.clone();
    let measured = runtime::on_a_thread(move || measure(&owned, &config));
    let (journal_bytes, slab_bytes, starts) = runtime::run_unless_stopped(measured)?;
    drop(trial);
    let ms = |of: fn(&Start) -> Duration| -> Vec<f64> {
        starts.iter().map(|start| of(start).as_secs_f64() * 1e3).collect()
    };
    let directory = starts.first().map_or(0, |start| start.directory_bytes);
    let cached = u64::from(args.extents) * u64::from(args.sectors) * address::SECTOR_BYTES as u64;
    let per_tb = directory as f64 / cached as f64 * 1e12;
    if out.json() {
        return out.document(&json!({
            "workload": "recovery",
            "extents": args.extents,
            "sectors": args.sectors,
            "slab_bytes": slab_bytes,
            "journal_bytes": journal_bytes,
            "start_ms": ms(|start| start.total),
            "read_ms": ms(|start| start.recovery.reading),
            "place_ms": ms(|start| start.recovery.placing),
            "directory_bytes": directory,
            "directory_bytes_per_tb": per_tb,
        }));
    }
    out.line(format_args!(
        "{} extents of {} recovered, from {} of journals",
        count(args.extents.into()),
        bytes(u64::from(args.sectors) * address::SECTOR_BYTES as u64),
        bytes(journal_bytes),
    ))?;
    for start in &starts {
        out.line(format_args!(
            "  start {:.0} ms: reading and decoding {:.0}, directory {:.0}",
            start.total.as_secs_f64() * 1e3,
            start.recovery.reading.as_secs_f64() * 1e3,
            start.recovery.placing.as_secs_f64() * 1e3,
        ))?;
    }
    out.line(format_args!(
        "directory {}: {:.0} bytes per extent, {} per TB cached",
        bytes(directory),
        directory as f64 / f64::from(args.extents),
        bytes(per_tb as u64),
    ))
}

/// Lays the extents out and starts the nodes. Blocks.
fn measure(args: &RecoveryArgs, config: &IoConfig) -> Result<(u64, u64, Vec<Start>)> {
    let laid = lay_out(&args.drive, args.extents, args.sectors, config.segment.as_u64())?;
    let mut starts = Vec::new();
    for _ in 0..args.starts {
        let began = Instant::now();
        let node = start_io_node(config.clone(), None)?;
        let total = began.elapsed();
        let recovery = node.recovery();
        if recovery.extents != args.extents as usize {
            return Err(CliError::damaged(format!(
                "{} of {} extents were recovered",
                recovery.extents, args.extents
            )));
        }
        let endpoint = node.local_addr().to_string();
        let directory_bytes = runtime::run(async {
            let endpoint: Endpoint = endpoint
                .parse()
                .map_err(|error: client::EndpointError| CliError::usage(error.to_string()))?;
            let client = FetchClient::new(endpoint, FetchOptions::default())?;
            Ok(client.describe(Duration::from_secs(10)).await?.directory_bytes)
        })?;
        starts.push(Start { total, recovery, directory_bytes });
        node.stop(Duration::from_secs(5));
    }
    Ok((laid.journal_bytes, laid.slab_bytes, starts))
}
