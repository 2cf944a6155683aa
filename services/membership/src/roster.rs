//! Tracks members over time: their states and their shares. Pure: callers pass the time.
//!
//! ```text
//!          in a later list              slow_start is over
//!   (new) ────────────────► Joining ────────────────────► Ready ◄──► Draining
//!   (new) ── in the first list ──────────────────────────►  │  ▲
//!                                          no longer listed │  │ listed again
//!                          (removed) ◄── after hold ── Away ◄──┘
//! ```
//!
//! A member that restarts comes back with its drives, so it keeps its chunks while it is away. Moving them would
//! fill them on other nodes, and fill them again when the member is back.
//!
//! A member that joins later takes over its chunks in steps. With rendezvous hashing a growing weight only adds
//! chunks to a member, and the previous owner serves a chunk until the chunk moves.
//!
//! Query nodes may see a member come or go at different times. They then ask different nodes for a while, but
//! always for the same rows.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::list::{Entry, MemberList, Presence};
use crate::view::{MemberState, ViewMember};

/// The number of steps in which a joining member's share grows. With each step, every core makes new routes, and more
/// chunks are filled on the member. Fewer steps would begin more fills at once.
const STEPS: u32 = 8;

/// The durations of holds and of slow starts.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The time for which a member that is away keeps its chunks.
    pub hold: Duration,
    /// The time in which a joining member's share grows to its full weight.
    pub slow_start: Duration,
}

/// The tracked members.
#[derive(Debug)]
pub struct Roster {
    policy: Policy,
    members: BTreeMap<String, Tracked>,
    /// Whether the roster has no members. The next list then counts as a first list: its members get their full share
    /// at once.
    is_empty: bool,
}

/// A member that the roster tracks.
#[derive(Debug)]
struct Tracked {
    entry: Entry,
    /// The time at which the member joined, while its share still grows.
    joined: Option<Instant>,
    /// The time at which the hold of a member that is away began. `None` if it is not away.
    away: Option<Instant>,
}

impl Roster {
    /// Creates an empty roster.
    pub fn new(policy: Policy) -> Self {
        Self { policy, members: BTreeMap::new(), is_empty: true }
    }

    /// Applies a source's list at `now`.
    pub fn take(&mut self, list: &MemberList, now: Instant) {
        let were_all_away = !self.is_empty && self.are_all_away();
        for member in self.members.values_mut() {
            member.away.get_or_insert(now);
        }
        for entry in list.entries() {
            let member = self.members.get_mut(&entry.name);
            match (member, entry.presence) {
                // The member is away, and keeps its last known endpoint.
                (Some(_), Presence::Absent) => {}
                // The member is away, but it can be reached at its new endpoint before it is ready.
                (Some(member), Presence::Starting) => {
                    member.entry.endpoint.clone_from(&entry.endpoint);
                }
                (Some(member), Presence::Ready | Presence::Draining) => {
                    member.entry.clone_from(entry);
                    member.away = None;
                }
                // A new member joins when it becomes ready. In a first list it is tracked at once, because the
                // whole cluster may be starting.
                (None, Presence::Absent | Presence::Starting) if !self.is_empty => {}
                (None, presence) => {
                    let grows = !self.is_empty && !self.policy.slow_start.is_zero();
                    let is_away = matches!(presence, Presence::Absent | Presence::Starting);
                    let member = Tracked {
                        entry: entry.clone(),
                        joined: grows.then_some(now),
                        away: is_away.then_some(now),
                    };
                    self.members.insert(entry.name.clone(), member);
                }
            }
        }
        if were_all_away && !self.are_all_away() {
            // While all members were away, the source was not trusted. The holds of members that are still away begin
            // now.
            for away in self.members.values_mut().filter_map(|member| member.away.as_mut()) {
                *away = now;
            }
        }
        self.is_empty = self.members.is_empty();
        self.pass(now);
    }

    /// Removes members whose hold has ended, unless all members are away. Ends the slow start of members whose share
    /// has fully grown.
    pub fn pass(&mut self, now: Instant) {
        let Policy { hold, slow_start } = self.policy;
        if !self.are_all_away() {
            self.members.retain(|_, member| member.away.is_none_or(|away| now < away + hold));
        }
        for member in self.members.values_mut() {
            member.joined = member.joined.filter(|&joined| now < joined + slow_start);
        }
    }

    /// Returns the next time at which the members change: a hold ends or a share grows. Call [`pass`](Self::pass) then.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let hold = self.policy.hold;
        let leaves = |member: &Tracked| member.away.map(|away| away + hold);
        let leaves = self.members.values().filter(|_| !self.are_all_away()).filter_map(leaves);
        let grows = |member: &Tracked| {
            let joined = member.joined?;
            Some(joined + self.policy.slow_start * self.step(joined, now) / STEPS)
        };
        leaves.chain(self.members.values().filter_map(grows)).min()
    }

    /// Returns the members at `now`, in ascending order of their names.
    pub fn members(&self, now: Instant) -> Vec<ViewMember> {
        let view_member = |member: &Tracked| {
            let Entry { name, endpoint, weight, zone, presence } = member.entry.clone();
            let step = member.joined.map_or(STEPS, |joined| self.step(joined, now));
            let state = match (member.away, presence) {
                (Some(_), _) | (None, Presence::Absent | Presence::Starting) => MemberState::Away,
                (None, Presence::Draining) => MemberState::Draining,
                (None, Presence::Ready) if step < STEPS => MemberState::Joining,
                (None, Presence::Ready) => MemberState::Ready,
            };
            let share = weight * f64::from(step) / f64::from(STEPS);
            ViewMember { name, endpoint, weight, share, zone, state }
        };
        self.members.values().map(view_member).collect()
    }

    /// Returns whether all members are away. No member is removed then: the source is more likely wrong than
    /// right, and removing every member would gain nothing.
    fn are_all_away(&self) -> bool {
        self.members.values().all(|member| member.away.is_some())
    }

    /// Returns the step of a member that joined at `joined`, from 1 to [`STEPS`].
    fn step(&self, joined: Instant, now: Instant) -> u32 {
        let whole = self.policy.slow_start.as_nanos().max(1);
        let grown = now.saturating_duration_since(joined).as_nanos() * u128::from(STEPS) / whole;
        1 + u32::try_from(grown).unwrap_or(STEPS).min(STEPS - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::IoNodeConfig;

    const POLICY: Policy =
        Policy { hold: Duration::from_secs(120), slow_start: Duration::from_secs(80) };

    fn entry(name: &str, presence: Presence) -> Entry {
        let port = 7000 + u16::from(name.as_bytes()[0]);
        let node = IoNodeConfig { weight: 2.0, ..IoNodeConfig::at(format!("h:{port}")) };
        Entry { presence, ..node.named(name).entry().unwrap() }
    }

    /// Parses a list of one-letter names. Lower case is ready, upper case is draining, and names after `-` are
    /// absent.
    fn list(names: &str) -> MemberList {
        let mut presence = Presence::Ready;
        let mut entries = Vec::new();
        for name in names.chars() {
            match name {
                '-' => presence = Presence::Absent,
                name if name.is_uppercase() => {
                    entries.push(entry(&name.to_lowercase().to_string(), Presence::Draining));
                }
                name => entries.push(entry(&name.to_string(), presence)),
            }
        }
        MemberList::new(entries).unwrap()
    }

    fn shown(roster: &Roster, now: Instant) -> String {
        let shown = |it: ViewMember| format!("{} {:?} {}", it.name, it.state, it.share);
        roster.members(now).into_iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Returns a roster that took the list `first`, and the time at which it did.
    fn roster(first: &str) -> (Roster, Instant) {
        let (mut roster, start) = (Roster::new(POLICY), Instant::now());
        roster.take(&list(first), start);
        (roster, start)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_member_that_restarts_keeps_its_share() {
        let (mut roster, start) = roster("ab");
        assert_eq!(shown(&roster, start), "a Ready 2, b Ready 2");
        assert_eq!(roster.next_change(start), None);
        roster.take(&list("aB"), after(start, 10));
        assert_eq!(shown(&roster, after(start, 10)), "a Ready 2, b Draining 2");
        roster.take(&list("a"), after(start, 20));
        roster.take(&list("a-b"), after(start, 30));
        assert_eq!(shown(&roster, after(start, 30)), "a Ready 2, b Away 2");
        assert_eq!(roster.next_change(after(start, 30)), Some(after(start, 140)));
        roster.take(&list("ab"), after(start, 139));
        assert_eq!(shown(&roster, after(start, 139)), "a Ready 2, b Ready 2");
    }

    #[test]
    fn a_member_that_starts_again_stays_away_at_its_new_endpoint() {
        let (mut roster, start) = roster("ab");
        let moved = |presence| {
            let entry = Entry { endpoint: "http://h:1".parse().unwrap(), ..entry("b", presence) };
            MemberList::new(vec![self::entry("a", Presence::Ready), entry]).unwrap()
        };
        let before = roster.members(start)[1].endpoint.clone();
        roster.take(&moved(Presence::Absent), after(start, 10));
        assert_eq!(roster.members(after(start, 10))[1].endpoint, before);
        roster.take(&moved(Presence::Starting), after(start, 20));
        assert_eq!(shown(&roster, after(start, 20)), "a Ready 2, b Away 2");
        assert_eq!(roster.members(after(start, 20))[1].endpoint.to_string(), "http://h:1");
        // A starting member is still away, so its hold ends as usual.
        roster.pass(after(start, 130));
        assert_eq!(shown(&roster, after(start, 130)), "a Ready 2");
    }

    #[test]
    fn a_member_that_outlasts_its_hold_is_removed_and_joins_as_new() {
        let (mut roster, start) = roster("ab");
        roster.take(&list("a"), start);
        roster.pass(after(start, 119));
        assert_eq!(shown(&roster, after(start, 119)), "a Ready 2, b Away 2");
        roster.pass(after(start, 120));
        assert_eq!(shown(&roster, after(start, 120)), "a Ready 2");
        roster.take(&list("ab"), after(start, 130));
        assert_eq!(shown(&roster, after(start, 130)), "a Ready 2, b Joining 0.25");
    }

    #[test]
    fn the_share_of_a_joining_member_grows_in_steps() {
        let (mut roster, start) = roster("a");
        roster.take(&list("ab-c"), start);
        for (seconds, expected, next) in [
            (0, "b Joining 0.25", Some(10)),
            (9, "b Joining 0.25", Some(10)),
            (10, "b Joining 0.5", Some(20)),
            (79, "b Joining 2", None),
            (80, "b Ready 2", None),
        ] {
            let now = after(start, seconds);
            roster.pass(now);
            let expected = expected.replace("Joining 2", "Ready 2");
            assert_eq!(shown(&roster, now), format!("a Ready 2, {expected}"));
            let next = next.or((seconds < 80).then_some(80));
            assert_eq!(roster.next_change(now), next.map(|seconds| after(start, seconds)));
        }
    }

    #[test]
    fn members_of_the_first_list_have_their_full_share_at_once() {
        let (mut empty, start) = roster("");
        empty.take(&list("ab"), after(start, 10));
        assert_eq!(shown(&empty, after(start, 10)), "a Ready 2, b Ready 2");
        let (roster, start) = roster("a-bc");
        assert_eq!(shown(&roster, start), "a Ready 2, b Away 2, c Away 2");
    }

    #[test]
    fn no_member_is_removed_while_all_are_away() {
        let (mut roster, start) = roster("ab");
        roster.take(&list(""), start);
        roster.pass(after(start, 1000));
        assert_eq!(shown(&roster, after(start, 1000)), "a Away 2, b Away 2");
        assert_eq!(roster.next_change(after(start, 1000)), None);
        roster.take(&list("a"), after(start, 1001));
        assert_eq!(shown(&roster, after(start, 1001)), "a Ready 2, b Away 2");
        roster.pass(after(start, 1121));
        assert_eq!(shown(&roster, after(start, 1121)), "a Ready 2");
    }

    #[test]
    fn without_hold_and_slow_start_the_roster_equals_the_list() {
        let policy = Policy { hold: Duration::ZERO, slow_start: Duration::ZERO };
        let (mut roster, now) = (Roster::new(policy), Instant::now());
        roster.take(&list("ab"), now);
        roster.take(&list("bc"), now);
        assert_eq!(shown(&roster, now), "b Ready 2, c Ready 2");
    }

    proptest! {
        /// Listed members are tracked, others are tracked for at most `hold`, and the share of a listed member
        /// never shrinks.
        #[test]
        fn the_roster_follows_the_lists(
            lists in prop::collection::vec((0u64..200, prop::collection::btree_set("[a-e]", 1..5)), 1..30),
        ) {
            let (mut roster, mut now) = (Roster::new(POLICY), Instant::now());
            let mut missing: BTreeMap<String, Instant> = BTreeMap::new();
            let mut shares: BTreeMap<String, f64> = BTreeMap::new();
            for (pause, names) in lists {
                now += Duration::from_secs(pause);
                roster.take(&list(&names.iter().map(String::as_str).collect::<String>()), now);
                let members = roster.members(now);
                prop_assert!(names.iter().all(|name| members.iter().any(|it| it.name == *name)));
                for member in &members {
                    prop_assert!(member.share > 0.0 && member.share <= member.weight);
                    let is_away = member.state == MemberState::Away;
                    prop_assert_eq!(names.contains(&member.name), !is_away);
                    if names.contains(&member.name) {
                        let was_away = missing.remove(&member.name).is_some();
                        let before = shares.get(&member.name).filter(|_| !was_away);
                        prop_assert!(before.is_none_or(|&share| member.share >= share));
                    } else {
                        let since = *missing.entry(member.name.clone()).or_insert(now);
                        prop_assert!(now < since + POLICY.hold);
                    }
                }
                shares = members.into_iter().map(|member| (member.name, member.share)).collect();
                missing.retain(|name, _| shares.contains_key(name));
            }
        }
    }
}
