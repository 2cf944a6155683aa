//! Tests a block device with unreadable sectors: a loop device whose file is truncated. The kernel fails reads beyond
//! the file's end with EIO. The error passes from the kernel through the whole node: the ring, the stages and the
//! filler.
//!
//! The test needs root and loop devices. Without them it prints a message and is skipped, or fails if
//! BIREME_REQUIRE_LOOP is set.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use address::ByteOffset;
use ring::{AlignedBuf, Direct, OpenOptions, SlabFile};
use wire::fetch::DriveState;

use crate::cluster::{Io, folder, total};
use crate::damage::{check, table};

const DEVICE_BYTES: u64 = 64 << 20;

/// The bytes before a drive's first segment.
const HEAD_BYTES: u64 = 1 << 20;

/// The maximum time to wait until the drive is retired.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loop device, which is detached when the value is dropped.
struct Loop {
    device: PathBuf,
    file: PathBuf,
}

impl Loop {
    /// Creates a loop device over a new file in `folder`.
    fn new(folder: &Path) -> Result<Self, String> {
        let file = folder.join("device");
        let made = File::create(&file).and_then(|made| made.set_len(DEVICE_BYTES));
        made.map_err(|error| error.to_string())?;
        let losetup = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let losetup = losetup.map_err(|error| format!("losetup: {error}"))?;
        if !losetup.status.success() {
            return Err(String::from_utf8_lossy(&losetup.stderr).trim().to_owned());
        }
        let device = PathBuf::from(String::from_utf8_lossy(&losetup.stdout).trim());
        Ok(Self { device, file })
    }

    /// Truncates the device's file to `bytes`, so that everything beyond that is unreadable.
    fn cut(&self, bytes: u64) {
        File::options().write(true).open(&self.file).unwrap().set_len(bytes).unwrap();
    }

    /// Returns whether reads of the truncated part fail with EIO. Some kernels return zeros.
    fn fails(&self) -> bool {
        self.cut(HEAD_BYTES);
        // Bypass the page cache, which still has the data.
        let options = OpenOptions { size: None, direct: Direct::Prefer, read_only: true };
        let device = SlabFile::open(&self.device, options).unwrap();
        let read = device.read_at(ByteOffset(2 * HEAD_BYTES), &mut AlignedBuf::for_sectors(1));
        self.cut(DEVICE_BYTES);
        read.is_err()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

fn device(folder: &Path) -> Option<Loop> {
    let device = Loop::new(folder);
    let device = device.and_then(|device| match device.fails() {
        true => Ok(device),
        false => Err("its kernel reads zeros beyond the end of a loop device's file".into()),
    });
    match device {
        Ok(device) => Some(device),
        Err(why) => {
            let name = "medium::the_table_answers_for_unreadable_sectors";
            assert!(std::env::var_os("BIREME_REQUIRE_LOOP").is_none(), "no loop device: {why}");
            let _ = writeln!(std::io::stderr(), "\n{name} is SKIPPED: no loop device: {why}\n");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_answers_for_unreadable_sectors() {
    const ROWS: u32 = 10_000;
    let place = folder();
    let Some(device) = device(place.path()) else { return };
    let (_folder, uri) = table(ROWS as usize).await;
    let path = device.device.clone();
    let io = Io::start(|config| {
        config.drives[0].path = path;
        config.drives[0].size = None;
        config.segment = bytesize::ByteSize::mib(4);
        // Turn the scrubber off, so that only the test causes reads.
        config.scrub_rate = bytesize::ByteSize::b(0);
    })
    .await;
    io.warm(&uri, 1).await;
    let all: Vec<u32> = (0..ROWS).collect();
    let some: Vec<u32> = all.iter().copied().step_by(5).collect();
    check(&io, &uri, &some).await;
    let whole = io.describe().await;
    assert_eq!((total(&whole, |c| c.bad_sectors), total(&whole, |c| c.table_rows)), (0, 0));

    // A part of the device is unreadable. Its extents are dropped, and filled again where there is room.
    let used = whole.drives[0].used_bytes;
    device.cut(HEAD_BYTES + used - used / 5);
    for part in some.chunks(250) {
        check(&io, &uri, part).await;
    }
    let cut = io.describe().await;
    assert!(total(&cut, |c| c.bad_sectors) > 0, "{cut:?}");
    assert!(total(&cut, |c| c.table_rows) > 0 && cut.extents_dropped > 0, "{cut:?}");

    // The whole device but its head is unreadable. The drive is retired, and the node continues to serve.
    device.cut(HEAD_BYTES);
    let began = std::time::Instant::now();
    loop {
        for part in some.chunks(250) {
            check(&io, &uri, part).await;
        }
        let state = io.describe().await.drives[0].state();
        if state == DriveState::Retired {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the drive is still {state:?}");
    }
    check(&io, &uri, &all).await;
    let described = io.describe().await;
    assert_eq!(described.extents, 0);
    assert!(total(&described, |c| c.table_rows) >= u64::from(ROWS));
    io.stop().await;
}
