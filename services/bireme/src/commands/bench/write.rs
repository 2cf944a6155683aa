//! `bireme bench write`: the speed at which encoded extents are written to a drive.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use address::SECTOR_BYTES;
use bytesize::ByteSize;
use clap::{Args, ValueHint};
use io_node::IoConfig;
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::trial::TrialFile;
use crate::arguments::parse_size;
use crate::error::{CliError, Result};
use crate::output::{Output, bytes};
use crate::runtime;
use crate::serve::start_io_node;

const EXAMPLES: &str = "\
Examples:
  bireme bench write --drive /mnt/nvme0/trial
  bireme bench write --drive /mnt/nvme0/trial --size 16GiB --json

Starts a node on a new file of this size, which writes encoded extents of 4 MiB
and records them in the journal as usual. Then writes as many bytes to another
file as programs on tokio do, in pieces of 4 MiB, synced at the end. Both files
are removed.";

/// The number of sectors of a full chunk's extent: 4 MiB.
const EXTENT_SECTORS: u32 = 1024;

/// The number of extents that are written at the same time. Each is written in 16 transfers of 256 KiB. The 128
/// transfers of all extents are more than a drive gets at a time (at most 32).
const AT_ONCE: usize = 8;

/// Arguments of `bireme bench write`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WriteArgs {
    /// A new file on the drive to measure
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    drive: PathBuf,
    /// Bytes to write, each way
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_size)]
    size: ByteSize,
}

/// Measures and prints the results.
pub fn run(args: &WriteArgs, out: &mut Output) -> Result<()> {
    let extent = u64::from(EXTENT_SECTORS) * SECTOR_BYTES as u64;
    let extents = u32::try_from(args.size.as_u64() / extent).unwrap_or(u32::MAX);
    if extents == 0 {
        return Err(CliError::usage("--size is less than an extent of 4MiB; give more"));
    }
    let (node, tokio) = runtime::run_unless_stopped(async {
        let node = through_a_node(&args.drive, extents).await?;
        Ok((node, through_tokio(&args.drive, extents, extent as usize).await?))
    })?;
    let written = u64::from(extents) * extent;
    let mb_per_s = |took: Duration| written as f64 / 1e6 / took.as_secs_f64();
    if out.json() {
        return out.document(&json!({
            "workload": "write",
            "bytes": written,
            "mb_per_s": mb_per_s(node),
            "tokio_mb_per_s": mb_per_s(tokio),
        }));
    }
    out.line(format_args!(
        "{} of extents: {:.0} MB/s; as many bytes by tokio's file: {:.0} MB/s",
        bytes(written),
        mb_per_s(node),
        mb_per_s(tokio),
    ))
}

async fn through_a_node(drive: &Path, extents: u32) -> Result<Duration> {
    let trial = TrialFile::new(drive)?;
    // Add a twentieth and four segments, for journals, and so that no segment is reclaimed.
    let bytes = u64::from(extents) * u64::from(EXTENT_SECTORS) * SECTOR_BYTES as u64;
    let spare = 4 * IoConfig::default().segment.as_u64();
    let size = ByteSize::b((bytes + bytes / 20 + spare) >> 20 << 20);
    let scrub_rate = ByteSize::b(0);
    let config = IoConfig { fills: AT_ONCE, scrub_rate, ..trial.node(Some(size)) };
    runtime::on_a_thread(move || {
        let node = start_io_node(config, None)?;
        let took = node.fill_ready(extents, EXTENT_SECTORS, AT_ONCE);
        node.stop(Duration::from_secs(10));
        Ok(took?)
    })
    .await
}

async fn through_tokio(path: &Path, extents: u32, extent: usize) -> Result<Duration> {
    let _trial = TrialFile::new(path)?;
    let failed = |error| CliError::os("writing failed", &error, "name another file with --drive");
    // Write the same bytes as the node's extents hold.
    let piece: Vec<u8> = (0..extent as u64 / 8).flat_map(u64::to_le_bytes).collect();
    let began = Instant::now();
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .await
        .map_err(failed)?;
    for _ in 0..extents {
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    file.sync_data().await.map_err(failed)?;
    Ok(began.elapsed())
}
