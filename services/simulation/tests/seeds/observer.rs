//! Observers call Describe on nodes, as operators do. A description must agree with the node's settings and with
//! earlier descriptions in the same life.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::fetch::{FetchClient, FetchOptions};
use client::{Endpoint, Network};
use io_node::IoConfig;
use wire::fetch::{DescribeResponse, DriveState, StartWarm, TableUse};

use crate::clients::{Around, count};
use crate::dice::Dice;
use crate::truth::Version;

/// The maximum time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// One observer.
pub struct Observer {
    dice: Dice,
    around: Around,
    configs: Vec<IoConfig>,
    lives: Rc<RefCell<BTreeMap<String, Option<u64>>>>,
    nodes: Vec<FetchClient>,
    /// The last two descriptions, by node and life.
    last: HashMap<(usize, u64), (Option<DescribeResponse>, DescribeResponse)>,
}

impl Observer {
    /// Creates an observer of all nodes. `configs` are the nodes' settings, and `lives` has the number of each node's
    /// current life. Must be called within the clients' runtime.
    pub fn new(
        seed: u64,
        number: usize,
        around: Around,
        configs: Vec<IoConfig>,
        lives: Rc<RefCell<BTreeMap<String, Option<u64>>>>,
    ) -> Self {
        let mut dice = Dice::new(seed, &format!("observer {number}"));
        let options = FetchOptions {
            streams: 1,
            jitter_seed: dice.any(),
            network: Network::Simulated(Arc::new(around.net.clone())),
            ..FetchOptions::default()
        };
        let dial = |name: &String| {
            let endpoint: Endpoint = format!("{name}:7071").parse().unwrap();
            FetchClient::new(endpoint, options.clone()).unwrap()
        };
        let nodes = around.names.iter().map(dial).collect();
        Self { dice, around, configs, lives, nodes, last: HashMap::new() }
    }

    /// Requests descriptions until [`Wishes::is_to_end`](crate::clients::Wishes::is_to_end) is set.
    pub async fn run(mut self) {
        while !self.around.wishes.is_to_end.get() {
            let pause = self.dice.ms(0..=30);
            tokio::time::sleep(pause).await;
            let at = self.dice.below(self.nodes.len());
            let before = self.life(at);
            let described = self.nodes[at].describe(PATIENCE).await;
            // Check a description only if the node was in the same life before and after it; the filler of a stopping
            // node no longer answers.
            match (described, before.filter(|_| self.life(at) == before)) {
                (Ok(described), Some(before)) => {
                    count(&self.around.seen.looks, 1);
                    if let Err(why) = self.look(at, before, &described) {
                        let name = &self.around.names[at];
                        self.around.wrong(format_args!("{name}'s description"), why);
                    }
                    let last = self.last.remove(&(at, before)).map(|(_, last)| last);
                    self.last.insert((at, before), (last, described));
                }
                (Ok(_), None) => {}
                (Err(fault), _) => {
                    self.around.trace.say(format_args!("an observer: {:?}", fault.reason));
                }
            }
        }
    }

    fn life(&self, at: usize) -> Option<u64> {
        self.lives.borrow().get(&self.around.names[at]).copied().flatten()
    }

    fn look(&self, at: usize, life: u64, now: &DescribeResponse) -> Result<(), String> {
        let config = &self.configs[at];
        let (last_but_one, last) = match self.last.get(&(at, life)) {
            Some((last_but_one, last)) => (last_but_one.as_ref(), Some(last)),
            None => (None, None),
        };
        is(&now.node, &self.around.names[at], "name")?;
        is(now.cores.len(), config.cores, "number of cores")?;
        is(now.ram_tier_bytes, config.ram_tier.as_u64(), "RAM tier")?;
        for drive in &now.drives {
            holds(drive.used_bytes <= drive.capacity_bytes, || format!("{drive:?} is overfull"))?;
        }
        if let Some(last) = last {
            grows(last, now)?;
        }
        for share in &config.shares {
            let table = now.tables.iter().find(|table| table.table == share.label());
            let table = table.ok_or_else(|| format!("{} is not among the tables", share.uri))?;
            is(table.minimum_bytes, share.minimum.as_u64(), "minimum")?;
            is(table.maximum_bytes, share.maximum.map_or(0, |it| it.as_u64()), "maximum")?;
            is(table.pinned, share.pinned, "pin")?;
            let before = last.and_then(|last| {
                // Extents within a guarantee are lost only if a drive cannot be read or a write fails (extents being
                // written count already). A description reads the tables before the counters of losses, so the last
                // description may count losses that its tables do not show yet.
                let losses = |of: &DescribeResponse| (of.extents_dropped, of.fills_failed);
                let is_sound = all_serve(last)
                    && all_serve(now)
                    && last_but_one.is_some_and(|it| losses(it) == losses(now));
                last.tables.iter().find(|table| table.table == share.label()).filter(|_| is_sound)
            });
            self.look_at_share(table, before)?;
        }
        for (warm, config) in now.start_warms.iter().zip(&config.warm_at_start) {
            is(&warm.table, &config.label(), "table that is warmed")?;
            self.look_at_warm(&config.uri, warm)?;
        }
        is(now.start_warms.len(), config.warm_at_start.len(), "number of warms")?;
        let all_done = now.start_warms.iter().all(|warm| warm.done);
        let was_ready = last.is_some_and(|last| last.ready);
        holds(now.ready || !was_ready, || "it is ready no more".into())?;
        holds(now.ready || !config.warm_at_start.is_empty(), || "it waits for nothing".into())?;
        count(&self.around.seen.looks_before_ready, u64::from(!now.ready));
        self.around.trace.say(format_args!(
            "an observer of {}: {} extents, ready {}, all warm {all_done}",
            now.node, now.extents, now.ready
        ));
        Ok(())
    }

    fn look_at_share(&self, now: &TableUse, before: Option<&TableUse>) -> Result<(), String> {
        let seen = &self.around.seen;
        holds(now.held_bytes <= now.bytes, || format!("{now:?} holds more than it has"))?;
        if now.maximum_bytes > 0 {
            holds(now.bytes <= now.maximum_bytes, || format!("{now:?} has more than it may"))?;
            count(&seen.maxima, u64::from(now.bytes >= now.maximum_bytes / 2));
        }
        let Some(before) = before else { return Ok(()) };
        if now.pinned {
            let lost = || format!("{before:?}, pinned, became {now:?}");
            // Extents that were being written have counted already, and may have failed.
            holds(now.bytes >= before.held_bytes.min(before.bytes), lost)?;
            count(&seen.pinned, u64::from(before.held_bytes > 0));
        }
        let kept = before.held_bytes.min(now.minimum_bytes);
        if kept > 0 {
            holds(now.bytes >= kept, || format!("{before:?} became {now:?}"))?;
            count(&seen.minima, 1);
        }
        Ok(())
    }

    fn look_at_warm(&self, uri: &str, warm: &StartWarm) -> Result<(), String> {
        let Some(progress) = &warm.progress else {
            return holds(!warm.done, || format!("{warm:?} is done and has not begun"));
        };
        let version = Version::find(uri, warm.version);
        let version = version.ok_or_else(|| format!("there is no {warm:?}"))?;
        is(progress.extents_total, version.extents(), "number of extents to warm")?;
        let ended = progress.extents_done + progress.extents_failed;
        holds(ended <= progress.extents_total, || format!("{warm:?} is more than done"))?;
        holds(!warm.done || ended == progress.extents_total, || format!("{warm:?} is not done"))
    }
}

/// Checks counters and states that can only increase within a life.
fn grows(last: &DescribeResponse, now: &DescribeResponse) -> Result<(), String> {
    let counters = |of: &DescribeResponse| {
        let sum = |count: fn(&wire::fetch::Core) -> u64| of.cores.iter().map(count).sum::<u64>();
        [
            ("fills done", of.fills_done),
            ("fills failed", of.fills_failed),
            ("bytes filled", of.bytes_filled),
            ("bytes kept", of.bytes_kept),
            ("extents dropped", of.extents_dropped),
            ("extents scrubbed", of.extents_scrubbed),
            ("scans", of.scans),
            ("rows", sum(|core| core.rows)),
            ("batches", sum(|core| core.batches)),
            ("drive reads", sum(|core| core.drive_reads)),
            ("bad sectors", sum(|core| core.bad_sectors)),
        ]
    };
    for ((what, before), (_, after)) in counters(last).into_iter().zip(counters(now)) {
        holds(before <= after, || format!("{before} {what} became {after}"))?;
    }
    // The state of a drive never improves.
    let states = last.drives.iter().zip(&now.drives);
    states.map(|(last, now)| (last.state, now.state)).try_for_each(|(last, now)| {
        holds(last <= now, || format!("a drive's state {last} became {now}"))
    })
}

fn all_serve(of: &DescribeResponse) -> bool {
    of.drives.iter().all(|drive| drive.state() == DriveState::Serving)
}

fn is<T, U>(said: T, wanted: U, what: &str) -> Result<(), String>
where
    T: Debug + PartialEq<U>,
    U: Debug,
{
    holds(said == wanted, || format!("its {what} is {said:?}, not {wanted:?}"))
}

fn holds(is_so: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(why()) }
}
