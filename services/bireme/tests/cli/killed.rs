//! Kills an I/O node under load, again and again: it recovers what it cached and never serves a wrong row. BIREME_KILLS
//! sets the number of kills; a soak uses a thousand.

use std::io::Write;
use std::time::Duration;

use address::RowAddr;
use arrow_array::cast::AsArray;
use client::fetch::{FetchClient, FetchOptions, Instant, TableVersion};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use super::io_process::IoProcess;
use super::{folder, json, run, text};

const FRAGMENTS: u32 = 8;
const ROWS_PER_FRAGMENT: u32 = 4000;
const CALLERS: u64 = 4;
/// The test fails if the node caches nothing in this many lives in a row. On average, each of these lives is longer
/// than the one before.
const LIFETIME_MAX: u32 = 10;

/// Returns the content of a row: 600 hexadecimal digits of random bytes, which compress to no less than half their
/// size.
fn words(id: u32) -> String {
    let mut bytes = [0; 300];
    StdRng::seed_from_u64(id.into()).fill_bytes(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Requests random rows and checks them until the node is gone. Returns how many rows arrived.
async fn ask(client: FetchClient, uri: String, seed: u64) -> usize {
    let (mut random, mut rows) = (StdRng::seed_from_u64(seed), 0);
    let soon = || Instant::now() + Duration::from_secs(20);
    let table = TableVersion { uri: &uri, branch: "", version: u64::from(FRAGMENTS), identity: "" };
    let Ok(projection) = client.open(table, &["words".into()], soon()).await else { return 0 };
    loop {
        let ids: Vec<_> =
            (0..40).map(|_| random.random_range(0..FRAGMENTS * ROWS_PER_FRAGMENT)).collect();
        let addr = |&id| RowAddr::new(id / ROWS_PER_FRAGMENT, id % ROWS_PER_FRAGMENT);
        let addrs = ids.iter().map(addr).collect();
        let Ok(reply) = client.fetch(&projection, addrs, None, soon()).await else { return rows };
        let reply = reply.into_rows().unwrap();
        for (got, &id) in reply["words"].as_string::<i32>().iter().zip(&ids) {
            assert_eq!(got, Some(words(id).as_str()), "row {id}");
        }
        rows += ids.len();
    }
}

#[test]
fn a_killed_node_recovers_its_cache_and_never_serves_a_wrong_row() {
    let kills = std::env::var("BIREME_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let folder = folder();
    let table = folder.path().join("table");
    for fragment in 0..FRAGMENTS {
        let path = folder.path().join("rows.jsonl");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
        for id in fragment * ROWS_PER_FRAGMENT..(fragment + 1) * ROWS_PER_FRAGMENT {
            writeln!(file, r#"{{"words":"{}"}}"#, words(id)).unwrap();
        }
        file.into_inner().unwrap();
        let mode = if fragment == 0 { "create" } else { "append" };
        run(&["ingest", text(&path), "--table", text(&table), "--mode", mode]);
    }
    let drive = folder.path().join("slab");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let mut random = StdRng::seed_from_u64(1);
    let (mut rows, mut found) = (0, 0);
    // On a busy machine the node may be killed before it has cached anything. Its next life is then longer on average.
    let mut lifetime = 1;
    for kill in 0..kills + LIFETIME_MAX {
        if kill >= kills && lifetime == 1 {
            break;
        }
        // The drive has room for only a part of the table.
        let settings = [("RAM_TIER", "0"), ("SEGMENT", "3MiB")];
        let mut io = IoProcess::start(&format!("{}:19MiB", text(&drive)), &settings);
        let endpoint = io.endpoint.parse().unwrap();
        let client = FetchClient::new(endpoint, FetchOptions::default()).unwrap();
        // An extent that was being moved to the main log may be in two journals. `inspect` counts it in both, the node
        // only once.
        let expected = found.min(1)..=found;
        assert!(expected.contains(&io.extents), "{} of {found} after {kill} kills", io.extents);
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| runtime.spawn(ask(client.clone(), text(&table).into(), random.random())))
            .collect();
        std::thread::sleep(lifetime * Duration::from_millis(random.random_range(50..600)));
        io.kill();
        for caller in callers {
            rows += runtime.block_on(caller).unwrap();
        }
        let inspected = &json(&["inspect", text(&drive), "--verify"])[0];
        assert!(inspected["bad_extents"].as_array().unwrap().is_empty(), "{inspected}");
        let segments = inspected["segments"].as_array().unwrap();
        found = segments.iter().map(|segment| segment["extents"].as_u64().unwrap()).sum();
        lifetime = if found == 0 { lifetime + 1 } else { 1 };
        assert!(lifetime <= LIFETIME_MAX, "nothing was cached in {LIFETIME_MAX} lives in a row");
    }
    assert!(rows > 0 && found > 0, "{rows} rows, {found} extents");
}
