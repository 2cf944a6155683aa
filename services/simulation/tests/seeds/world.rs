//! A complete run: nodes, clients, network, store and clock, on one thread, from one seed.
//!
//! ```text
//! faults are injected ─► all faults end ─► calm: every answer is due ─► clients end: nodes hold nothing for them
//!        ─► Warm: everything can be filled again ─► restart: all extents are found again
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use io_node::{DriveState, SteppedState};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use crate::clients::{Around, Client, Seen, Wishes, warm};
use crate::dice::Dice;
use crate::happened::Happened;
use crate::key_clients::KeyClient;
use crate::network::Net;
use crate::node::{Node, runtime};
use crate::observer::Observer;
use crate::panics;
use crate::store::Store;
use crate::strangers::Stranger;
use crate::trace::Trace;
use crate::troubles::Troubles;
use crate::truth::TABLES;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The hash and the number of all events.
    pub digest: (u64, u64),
    /// The number of answers, and of the rows that they contain or among which they contain the nearest.
    pub answers: (u64, u64),
    /// The run's duration on the simulated clock, in milliseconds.
    pub took_ms: u64,
    /// The number of events of each kind.
    pub happened: Happened,
}

/// The state of a run.
pub struct World {
    pub now_ms: u64,
    pub nodes: Vec<Node>,
    pub net: Net,
    pub store: Store,
    pub clients: Clients,
    pub dice: Dice,
    pub trace: Trace,
    seen: Rc<Seen>,
    pub happened: Happened,
    /// The number of each node's current life, for observers; `None` while it stops.
    lives: Rc<RefCell<BTreeMap<String, Option<u64>>>>,
}

/// The runtime of all clients.
pub struct Clients {
    pub local: LocalSet,
    pub runtime: Runtime,
    now: Instant,
}

/// Runs a seed. All runs of a seed have the same outcome.
///
/// # Panics
/// If an invariant is violated.
pub fn run(seed: u64, is_shown: bool) -> Outcome {
    let mut world = World::new(seed, is_shown);
    world.live(seed);
    world.end()
}

impl World {
    /// Creates the nodes of a seed, which are down, and everything around them.
    pub fn new(seed: u64, is_shown: bool) -> Self {
        let mut dice = Dice::new(seed, "world");
        let nodes = (0..1 + dice.below(2)).map(|number| Node::new(seed, number)).collect();
        Self {
            now_ms: 0,
            nodes,
            net: Net::new(seed),
            store: Store::new(seed),
            clients: Clients::new(),
            dice,
            trace: Trace::new(is_shown),
            seen: Rc::default(),
            happened: Happened::default(),
            lives: Rc::default(),
        }
    }

    /// Ends the run.
    pub fn end(mut self) -> Outcome {
        for node in &mut self.nodes {
            self.happened.in_life_of(node);
        }
        self.happened.seen_by_clients(&self.seen);
        let Self { nodes, clients, seen, happened, trace, .. } = self;
        drop((nodes, clients));
        panics::none_so_far();
        trace.say(format_args!("{seen:?}"));
        let answers = (seen.answers.get(), seen.rows.get());
        Outcome { digest: trace.digest(), answers, took_ms: trace.now_ms(), happened }
    }

    /// Returns the environment of clients in a phase with these conditions.
    pub fn around(&self, wishes: &Rc<Wishes>) -> Around {
        Around {
            net: self.net.clone(),
            names: self.nodes.iter().map(|node| node.name.clone()).collect(),
            wishes: Rc::clone(wishes),
            store_keeps_blocks: self.store.keeps_blocks(),
            seen: Rc::clone(&self.seen),
            trace: self.trace.clone(),
        }
    }

    fn live(&mut self, seed: u64) {
        let mut troubles = Troubles::new(seed);
        self.trace.say(format_args!("{:?}", troubles.kinds()));
        let wishes = Rc::new(Wishes::default());
        wishes.is_rough.set(true);
        let clients = self.begin_clients(seed, 0, &wishes);
        for _ in 0..self.dice.in_range(200..=900) {
            self.step_with(&mut troubles);
        }
        troubles.end_all(self.now_ms, &mut self.nodes, &self.net, &self.store);
        self.trace.say("all faults have ended");
        wishes.is_to_end.set(true);
        self.until("clients have their answers", 120_000, |_| all_done(&clients));
        joined(clients);
        self.until("all nodes serve", 30_000, |world| world.nodes.iter().all(Node::serves));
        self.calm(seed);
        self.quiet();
        if self.dice.per_mille(400) {
            self.fill();
        }
        if self.dice.per_mille(400) {
            self.start_again();
        }
    }

    fn begin_clients(
        &mut self,
        seed: u64,
        first: usize,
        wishes: &Rc<Wishes>,
    ) -> Vec<JoinHandle<()>> {
        let count = 1 + self.dice.below(5);
        let around = self.around(wishes);
        let Clients { local, runtime, .. } = &mut self.clients;
        let make = |number| Client::new(seed, number, around.clone());
        let clients: Vec<_> = {
            let _guard = runtime.enter();
            (first..first + count).map(make).collect()
        };
        let mut tasks: Vec<_> =
            clients.into_iter().map(|client| local.spawn_local(client.run())).collect();
        for number in first..first + self.dice.below(3) {
            let _guard = runtime.enter();
            let client = KeyClient::new(seed, number, around.clone());
            tasks.push(local.spawn_local(client.run()));
        }
        if self.dice.per_mille(300) {
            let stranger = Stranger::new(seed, first, around.clone());
            tasks.push(local.spawn_local(stranger.run()));
        }
        if self.dice.per_mille(500) {
            let configs = self.nodes.iter().map(|node| node.config().clone()).collect();
            let _guard = runtime.enter();
            let observer = Observer::new(seed, first, around, configs, Rc::clone(&self.lives));
            tasks.push(local.spawn_local(observer.run()));
        }
        tasks
    }

    /// Runs clients without faults, and checks that they get answers.
    fn calm(&mut self, seed: u64) {
        self.trace.say("calm");
        let wishes = Rc::new(Wishes::default());
        let (before_answers, before_shed) = (self.seen.answers.get(), self.shed());
        let unanswered = |seen: &Seen| seen.overloaded() + seen.dropped.get();
        let before_unanswered = unanswered(&self.seen);
        let clients = self.begin_clients(seed, 100, &wishes);
        (0..self.dice.in_range(50..=300)).for_each(|_| self.step());
        self.check_credits();
        if self.dice.per_mille(250) {
            // While the node restarts, clients are answered, or learn that it is unavailable.
            wishes.is_restarting.set(true);
            let at = self.dice.below(self.nodes.len());
            self.stop_gracefully(at);
            self.until("the node serves again", 30_000, |world| world.nodes[at].serves());
            (0..self.dice.in_range(50..=300)).for_each(|_| self.step());
        }
        wishes.is_to_end.set(true);
        self.until("clients have their answers in calm", 60_000, |_| all_done(&clients));
        joined(clients);
        // A calm phase with one client may bring no answer: the client's own queue (`queue_batches_max`) may refuse its
        // requests, and the client may drop them. So refused and dropped requests count as well.
        let has_answers = self.seen.answers.get() > before_answers;
        let has_asked_in_vain = unanswered(&self.seen) > before_unanswered;
        assert!(has_answers || has_asked_in_vain, "there were no answers in calm");
        let unavailable = self.seen.unavailable_in_calm.get();
        let may_be = wishes.is_restarting.get() || self.shed() > before_shed;
        assert!(unavailable == 0 || may_be, "a node was unavailable in calm");
    }

    /// Returns the number of batches that the running nodes have shed.
    fn shed(&mut self) -> u64 {
        let states = self.nodes.iter_mut().filter_map(|node| node.up().map(|up| up.state()));
        states.flat_map(|state| state.cores).map(|core| core.shed).sum()
    }

    /// Checks that no stream has more credit than it was given.
    fn check_credits(&mut self) {
        for node in &mut self.nodes {
            let most = node.credit_rows();
            let Some(up) = node.up() else { continue };
            for rows in up.state().credit_rows.into_iter().flatten() {
                assert!(rows <= most, "a stream has credit for {rows} rows of {most}");
            }
        }
    }

    /// Checks that nodes hold nothing once there are no requests.
    pub fn quiet(&mut self) {
        self.until("no connection is open", 30_000, |world| {
            world.nodes.iter().all(|node| world.net.held_by(&node.name) == 0)
        });
        let mut last = String::new();
        let is_quiet = self.until_or_not(30_000, |world| {
            last.clear();
            for node in &mut world.nodes {
                let state = node.up().map(|up| up.state());
                let held = state.as_ref().and_then(held);
                last.extend(held.map(|what| format!("{} {what}; ", node.name)));
            }
            last.is_empty()
        });
        assert!(is_quiet, "nodes hold something without any request: {last}");
        // A scrub or an eviction may still run; cores learn its results a moment later.
        self.until("cores find what the filler knows", 1_000, |world| {
            let agree = |node: &mut Node| {
                let state = node.up().map(|up| up.state());
                state.is_none_or(|it| it.extents_found.iter().all(|&at| at as u64 == it.extents))
            };
            world.nodes.iter_mut().all(agree)
        });
        for node in &mut self.nodes {
            let Some(up) = node.up() else { continue };
            let mut state = up.state();
            // Runs may group operations into submissions differently, so leave these counts out of the comparison.
            for core in &mut state.cores {
                (core.ring.submits, core.ring.reaps) = (0, 0);
            }
            self.trace.say(format_args!("{state:?}"));
        }
    }

    /// Checks that each node can fill a version of a table, unless none of its drives accepts writes.
    fn fill(&mut self) {
        let version = &TABLES[0][self.dice.below(TABLES[0].len())];
        for at in 0..self.nodes.len() {
            let state = self.nodes[at].up().map(|up| up.state());
            let serves = state.is_some_and(|state| state.drives.contains(&DriveState::Serving));
            let (net, name) = (self.net.clone(), self.nodes[at].name.clone());
            let warmed =
                self.clients.local.spawn_local(async move { warm(&net, &name, version).await });
            self.until("Warm is over", 300_000, |_| warmed.is_finished());
            let failed = futures::FutureExt::now_or_never(warmed).map(Result::unwrap);
            self.trace.say(format_args!("warmed: {failed:?}, drives serve: {serves}"));
            match failed {
                Some(Ok(0)) => assert!(serves, "no drive takes fills, and none failed"),
                Some(Ok(_)) if !serves => {}
                other => panic!("{}: not all could be filled: {other:?}", self.nodes[at].name),
            }
        }
        self.quiet();
    }

    /// Checks that all extents are found again after a graceful stop.
    fn start_again(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].up().is_none() {
                continue;
            }
            self.stop_gracefully(at);
            self.until("the node serves again", 10_000, |world| world.nodes[at].serves());
            let found = self.nodes[at].up().and_then(|up| up.found()).unwrap_or(0) as u64;
            let ended = self.nodes[at].ended.take().expect("it has recorded what it had written");
            let all_serve = ended.drives.iter().all(|&it| it == DriveState::Serving);
            let is_sound = !self.nodes[at].is_damaged && all_serve;
            let extents = ended.extents;
            if is_sound && ended.extents_dropped == 0 {
                // There may be more extents: evicted ones are in their journal until it is emptied, and a start warm
                // may fill others.
                assert!(found >= extents, "{found} extents are found after a stop, of {extents}");
            }
        }
    }

    /// Stops a node with enough time to end its streams, and checks that it ends them although clients keep sending
    /// requests.
    fn stop_gracefully(&mut self, at: usize) {
        let before = self.happened.count_of("drained");
        let lives = self.nodes[at].lives();
        self.nodes[at].stop(&self.net, self.now_ms + 20_000, &self.trace);
        self.until("the node has stopped", 30_000, |world| {
            world.nodes[at].starts_at.is_some() || world.nodes[at].lives() > lives
        });
        let has_drained = self.happened.count_of("drained") > before;
        assert!(has_drained, "{} did not drain", self.nodes[at].name);
    }

    /// Begins and ends faults, and runs everything for a millisecond.
    pub fn step_with(&mut self, troubles: &mut Troubles) {
        let Self { now_ms, nodes, net, store, trace, happened, .. } = self;
        troubles.act(*now_ms, nodes, net, store, trace, happened);
        self.step();
    }

    /// Runs everything for a millisecond.
    pub fn step(&mut self) {
        self.now_ms += 1;
        self.trace.set_now(self.now_ms);
        self.net.tick(self.now_ms);
        for node in &mut self.nodes {
            if node.starts_at.is_some_and(|at| at <= self.now_ms) {
                node.start(&self.store, &self.trace);
            }
            node.step(&self.net, &mut self.dice, &self.trace);
            self.lives.borrow_mut().insert(node.name.clone(), node.life());
            if let Some(in_time) = node.has_stopped(self.now_ms) {
                self.trace.say(format_args!("{} has stopped, in time: {in_time}", node.name));
                self.happened.count(if in_time { "drained" } else { "not drained in time" }, 1);
                // A node that has ended its streams must have released what it held for them.
                let state = node.up().map(|up| (up.state(), up.has_recorded()));
                let held =
                    state.as_ref().filter(|_| in_time).and_then(|(it, _)| held_for_clients(it));
                assert!(held.is_none(), "{} has stopped and holds {held:?}", node.name);
                node.ended = state.filter(|(_, has_recorded)| *has_recorded).map(|(it, _)| it);
                self.net.vanish(&node.name, false);
                self.happened.in_life_of(node);
                node.crash(false, &self.trace);
                node.starts_at = Some(self.now_ms + self.dice.in_range(1..=20));
            }
        }
        self.clients.step();
        if let Some(wrong) = self.seen.wrong.borrow_mut().take() {
            panic!("{wrong}");
        }
        panics::none_so_far();
    }

    pub fn until(&mut self, what: &str, ms_max: u64, is_so: impl FnMut(&mut Self) -> bool) {
        let came = self.until_or_not(ms_max, is_so);
        assert!(came, "this did not happen within {ms_max} ms: {what}");
    }

    fn until_or_not(&mut self, ms_max: u64, mut is_so: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..ms_max {
            if is_so(self) {
                return true;
            }
            self.step();
        }
        is_so(self)
    }
}

/// Returns a description of something that a node still holds for clients, except reads of tables that are under way.
/// Returns `None` if there is nothing.
fn held_for_clients(state: &SteppedState) -> Option<String> {
    for (at, core) in state.cores.iter().enumerate() {
        let gauges = [
            ("pieces waiting", core.queued as u64),
            ("operations in flight", core.ring.in_flight),
            ("batches", state.requests[at] as u64),
            ("streams", state.credit_rows[at].len() as u64),
        ];
        if let Some((what, count)) = gauges.into_iter().find(|(_, count)| *count > 0) {
            return Some(format!("core {at}: {count} {what}"));
        }
    }
    None
}

/// Returns a description of something that a node holds although there are no requests. Returns `None` if there is
/// nothing.
fn held(state: &SteppedState) -> Option<String> {
    for (at, core) in state.cores.iter().enumerate() {
        let gauges = [
            ("bytes of traffic", core.traffic_bytes),
            ("pieces waiting", core.queued as u64),
            ("operations in flight", core.ring.in_flight),
            ("reads waiting", core.ring.queue_len),
            ("transfers waiting", core.ring.transfer_queue_len),
            ("batches", state.requests[at] as u64),
            ("streams", state.credit_rows[at].len() as u64),
            ("graces", u64::from(state.graces[at])),
            ("fills", state.fills_running),
            ("batches for the table", state.table_waiting as u64),
        ];
        if let Some((what, count)) = gauges.into_iter().find(|(_, count)| *count > 0) {
            return Some(format!("core {at}: {count} {what}"));
        }
    }
    None
}

pub fn all_done(clients: &[JoinHandle<()>]) -> bool {
    clients.iter().all(JoinHandle::is_finished)
}

pub fn joined(clients: Vec<JoinHandle<()>>) {
    for client in clients {
        if let Some(Err(error)) = futures::FutureExt::now_or_never(client) {
            panic!("a client panicked: {error}");
        }
    }
}

impl Clients {
    fn new() -> Self {
        let runtime = runtime().unwrap();
        let now = runtime.block_on(async { Instant::now() });
        Self { local: LocalSet::new(), runtime, now }
    }

    fn step(&mut self) {
        self.now += std::time::Duration::from_millis(1);
        let until = self.now;
        self.local.block_on(&self.runtime, async { tokio::time::sleep_until(until).await });
    }
}
