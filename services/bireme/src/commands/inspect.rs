//! `bireme inspect`: the contents of a drive's slab, and whether the drive still returns them.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use io_node::inspect::{BadExtent, Inspection, SegmentState};
use serde_json::{Value, json};

use crate::error::{CliError, Result};
use crate::output::{Align, Output, TextTable, bytes, count, counted};
use crate::progress::{Unit, bar};

const EXAMPLES: &str = "\
Examples:
  bireme inspect /mnt/nvme0/slab
  bireme inspect /dev/nvme0n1 --verify
  bireme inspect /mnt/nvme0/slab --json | jq '.segments[] | select(.error)'

For drives that no I/O node is using; nothing is changed. --verify reads every
extent and checks every sector, and ends with exit code 1 if one is wrong. An
I/O node detects such a sector when it reads it: the row then comes from the
table, and the extent is filled again.";

/// Arguments of `bireme inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    /// The slab: a file or a block device
    #[arg(value_hint = ValueHint::AnyPath)]
    drive: PathBuf,
    /// Read every extent and check its sectors
    #[arg(long)]
    verify: bool,
    /// List the segments
    #[arg(long)]
    segments: bool,
}

/// Prints the slab's contents. Fails if the slab can't be opened, if a journal can't be read, or if `--verify` finds a
/// sector that is wrong or can't be read.
pub fn run(args: &InspectArgs, out: &mut Output) -> Result<()> {
    let slab = Inspection::open(&args.drive)?;
    let bad = args.verify.then(|| verify(&slab, out));
    match out.json() {
        true => out.document(&to_json(&slab, bad.as_deref()))?,
        false => report(args, &slab, bad.as_deref(), out)?,
    }
    out.flush()?;
    let unreadable = slab.segments().iter().filter(|segment| segment.error().is_some()).count();
    let extents = bad.map_or(0, |bad| bad.len());
    if unreadable + extents > 0 {
        return Err(CliError::damaged(format!(
            "{} has {} with wrong or unreadable sectors, and {} whose journal can't be read; an I/O node \
             fills them again",
            args.drive.display(),
            counted(extents as u64, "extent", "extents"),
            counted(unreadable as u64, "segment", "segments"),
        )));
    }
    Ok(())
}

fn verify(slab: &Inspection, out: &Output) -> Vec<BadExtent> {
    let bar = bar(out.json(), Unit::Bytes, "verify");
    bar.set_length(slab.segments().iter().map(SegmentState::extent_bytes).sum());
    let bad = slab.verify(|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    bad
}

fn report(
    args: &InspectArgs,
    slab: &Inspection,
    bad: Option<&[BadExtent]>,
    out: &mut Output,
) -> Result<()> {
    let (superblock, used) = (slab.superblock(), slab.segments());
    let sum = |of: &dyn Fn(&SegmentState) -> u64| used.iter().map(of).sum::<u64>();
    let extents = sum(&|segment| segment.extents() as u64);
    out.line(format_args!("slab {} of {}", superblock.uuid, bytes(slab.bytes())))?;
    out.line(format_args!(
        "{} of {}, {} in use",
        counted(slab.segments_total().into(), "segment", "segments"),
        bytes(superblock.segment_sectors * address::SECTOR_BYTES as u64),
        count(used.iter().filter(|segment| segment.extents() > 0).count() as u64),
    ))?;
    out.line(format_args!(
        "{}, {}; {} of journals",
        counted(extents, "extent", "extents"),
        bytes(sum(&SegmentState::extent_bytes)),
        bytes(sum(&SegmentState::journal_bytes)),
    ))?;
    if args.segments {
        out.line("")?;
        let mut text = TextTable::new([
            ("segment", Align::Right),
            ("epoch", Align::Right),
            ("extents", Align::Right),
            ("bytes", Align::Right),
            ("journal", Align::Right),
        ]);
        for segment in used {
            text.row(vec![
                segment.index.to_string(),
                segment.epoch().to_string(),
                count(segment.extents() as u64),
                bytes(segment.extent_bytes()),
                match (segment.error(), segment.is_cut_short()) {
                    (Some(error), _) => error,
                    (None, true) => format!("{}, cut short", bytes(segment.journal_bytes())),
                    (None, false) => bytes(segment.journal_bytes()),
                },
            ]);
        }
        out.bytes(text.text(out.width()).as_bytes())?;
    }
    for extent in bad.unwrap_or_default() {
        out.line(format_args!(
            "segment {}, extent {:?} of chunk {}: {} of {} sectors are wrong",
            extent.segment, extent.key.pack, extent.key.chunk, extent.bad_sectors, extent.sectors
        ))?;
    }
    if bad.is_some_and(<[_]>::is_empty) {
        out.line("every sector has its checksum")?;
    }
    Ok(())
}

fn to_json(slab: &Inspection, bad: Option<&[BadExtent]>) -> Value {
    let segment = |segment: &SegmentState| {
        json!({
            "segment": segment.index,
            "epoch": segment.epoch(),
            "extents": segment.extents(),
            "superseded": segment.superseded(),
            "extent_bytes": segment.extent_bytes(),
            "journal_bytes": segment.journal_bytes(),
            "error": segment.error(),
            "cut_short": segment.is_cut_short(),
        })
    };
    let extent = |extent: &BadExtent| {
        json!({
            "segment": extent.segment,
            "pack": format!("{:?}", extent.key.pack),
            "chunk": extent.key.chunk,
            "bad_sectors": extent.bad_sectors,
            "sectors": extent.sectors,
        })
    };
    let superblock = slab.superblock();
    json!({
        "uuid": superblock.uuid.to_string(),
        "bytes": slab.bytes(),
        "segment_bytes": superblock.segment_sectors * address::SECTOR_BYTES as u64,
        "segments_total": slab.segments_total(),
        "segments": slab.segments().iter().map(segment).collect::<Vec<_>>(),
        "bad_extents": bad.map(|bad| bad.iter().map(extent).collect::<Vec<_>>()),
    })
}
