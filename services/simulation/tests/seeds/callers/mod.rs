//! Callers with grants: no answer to a caller contains a row of a table that the caller may not see, whatever fails and
//! changes during the call.
//!
//! ```text
//! callers (keys, tokens, a certificate, none) ─► access control ─► clients ─► I/O nodes, drives, network and store
//!    │ every decision                  ▲ policies and keys that change, faulty files      with every kind of fault
//!    │ every row                       └ tables that are published and dropped
//!    └─► checked against the policies that were in force during the call (`access_model`)
//! ```
//!
//! Rows tell which table and version they are from. Runs are longer than those of `world::run`, because some calls are
//! authorized again every 5 s only (`access::RENEWED_EVERY`).

mod caller;
mod front;
mod policies;
mod tables;

use std::cell::RefCell;
use std::rc::Rc;

use access_model::CALLERS;

use self::caller::Caller;
use self::front::Front;
pub use self::front::read_policy;
use self::policies::PolicyFiles;
pub use self::tables::granted;
use crate::clients::{Wishes, check_idle};
use crate::dice::Dice;
use crate::happened::Happened;
use crate::troubles::Troubles;
use crate::world::{Outcome, World, all_done, joined};

/// Events that must happen in the default number of seeds.
pub const MUST: [&str; 17] = [
    "answers to callers",
    "calls allowed",
    "calls for tables that are not served",
    "calls for tables that the caller may not see",
    "calls forbidden",
    "calls unauthenticated",
    "calls with an expired token",
    "faulty key sets",
    "faulty policies",
    "key sets written",
    "policies read",
    "policies written",
    "sessions ended by a policy",
    "streams ended by a policy",
    "tables dropped",
    "versions published to callers",
    "watches ended by a policy",
];

/// Runs a seed. All runs of a seed have the same outcome.
///
/// # Panics
/// If an invariant is violated.
pub fn run(seed: u64, is_shown: bool) -> Outcome {
    let mut world = World::new(seed, is_shown);
    let mut dice = Dice::new(seed, "callers");
    let mut troubles = Troubles::new(seed);
    world.trace.say(format_args!("{:?}", troubles.kinds()));
    let wishes = Rc::new(Wishes::default());
    wishes.is_rough.set(true);
    let around = world.around(&wishes);
    let files = Rc::new(PolicyFiles::new(&mut dice));
    let happened = Rc::new(RefCell::new(Happened::default()));
    let (access, reader) = read_policy(&files.path());
    let front = {
        let _guard = world.clients.runtime.enter();
        Rc::new(Front::new(&mut dice, &around, access, reader))
    };
    let caller = |(number, who)| {
        let mut dice = Dice::new(seed, &format!("caller {number}"));
        let credential = files.credential(who, 0, &mut dice);
        let (front, files, around) = (Rc::clone(&front), Rc::clone(&files), around.clone());
        let happened = Rc::clone(&happened);
        Caller { number, dice, credential, front, files, around, happened }
    };
    // Two callers of each kind: what callers with the same rights share must not reach callers with other rights.
    let callers: Vec<_> = CALLERS.into_iter().cycle().take(2 * CALLERS.len()).collect();
    let callers = callers.into_iter().enumerate().map(caller);
    let tasks: Vec<_> =
        callers.map(|caller| world.clients.local.spawn_local(caller.run())).collect();
    // For some time files are read often, then seldom or not at all, so that some calls last for longer than the
    // interval at which they are authorized.
    let mut read_per_mille = 5;
    for _ in 0..dice.in_range(6_000..=14_000) {
        let mut happened = happened.borrow_mut();
        if dice.per_mille(2) {
            happened.count(front.change(&mut dice), 1);
        }
        if dice.below(3_000) == 0 {
            read_per_mille = [0, 0, 1, 5][dice.below(4)];
        }
        if dice.per_mille(read_per_mille) {
            happened.count(files.change(&mut dice), 1);
        }
        if dice.per_mille(read_per_mille) {
            front.reload();
            files.were_read(world.now_ms + 1);
            happened.count("policies read", 1);
        }
        drop(happened);
        world.step_with(&mut troubles);
    }
    troubles.end_all(world.now_ms, &mut world.nodes, &world.net, &world.store);
    wishes.is_to_end.set(true);
    world.until("callers have their answers", 120_000, |_| all_done(&tasks));
    joined(tasks);
    let nodes = front.nodes.clone();
    drop(front);
    let idle = world.clients.local.spawn_local(async move {
        check_idle(&nodes, &around, "the callers' client").await;
    });
    world.until("the client is idle", 10_000, |_| idle.is_finished());
    world.quiet();
    world.happened.add(&happened.borrow());
    world.end()
}
