//! The members over time: who keeps a place, and how large a share. Pure: it is told the time.
//!
//! ```text
//!          in a later list              slow_start is over
//!   (new) ────────────────► Joining ────────────────────► Ready ◄──► Draining
//!   (new) ── in the first list ──────────────────────────►  │  ▲
//!                                        not there any more │  │ there again
//!                             (gone) ◄── after hold ── Away ◄──┘
//! ```
//!
//! A member that restarts comes back with its drives, so its chunks stay its own meanwhile: moving them
//! would fill them elsewhere for nothing, and back again. One that joins a running list takes its chunks
//! over bit by bit: by rendezvous hashing a growing weight only ever adds chunks to it, each of which its
//! last owner has served until then. What query nodes don't have in common (when each of them saw a
//! member come or go) makes them ask different nodes for a while, never for different rows.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::list::{Entry, MemberList, Presence};
use crate::view::{Seat, State};

/// In how many steps a joining member's share grows.
const STEPS: u32 = 8;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How long a member that is not there keeps its place.
    pub hold: Duration,
    /// Until a member that joins has its whole share.
    pub slow_start: Duration,
}

/// The members.
#[derive(Debug)]
pub struct Roster {
    policy: Policy,
    places: BTreeMap<String, Place>,
    is_first: bool,
}

#[derive(Debug)]
struct Place {
    entry: Entry,
    /// Since when it has been growing; `None` once it has grown.
    joined: Option<Instant>,
    /// Since when it has not been there.
    away: Option<Instant>,
}

impl Roster {
    /// Nobody yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, places: BTreeMap::new(), is_first: true }
    }

    /// Takes over what a source says at `now`.
    pub fn take(&mut self, list: &MemberList, now: Instant) {
        let deserted = !self.is_first && self.is_deserted();
        for place in self.places.values_mut() {
            place.away.get_or_insert(now);
        }
        for entry in list.entries() {
            let place = self.places.get_mut(&entry.name);
            match (place, entry.presence) {
                // Its place is kept with the address at which it was last seen.
                (Some(_), Presence::Absent) => {}
                // The same, and it is asked there once it can be reached.
                (Some(place), Presence::Starting) => {
                    place.entry.endpoint.clone_from(&entry.endpoint);
                }
                (Some(place), Presence::Ready | Presence::Draining) => {
                    place.entry.clone_from(entry);
                    place.away = None;
                }
                // Whoever has yet to become ready joins then, unless all are at their beginning.
                (None, Presence::Absent | Presence::Starting) if !self.is_first => {}
                (None, presence) => {
                    let grows = !self.is_first && !self.policy.slow_start.is_zero();
                    let is_away = matches!(presence, Presence::Absent | Presence::Starting);
                    let place = Place {
                        entry: entry.clone(),
                        joined: grows.then_some(now),
                        away: is_away.then_some(now),
                    };
                    self.places.insert(entry.name.clone(), place);
                }
            }
        }
        if deserted && !self.is_deserted() {
            // While nobody was there, it was the source that was in doubt: the time begins now.
            for away in self.places.values_mut().filter_map(|place| place.away.as_mut()) {
                *away = now;
            }
        }
        // A list of nobody is the beginning of nothing.
        self.is_first = self.places.is_empty();
        self.pass(now);
    }

    /// Lets time pass until `now`.
    pub fn pass(&mut self, now: Instant) {
        let Policy { hold, slow_start } = self.policy;
        if !self.is_deserted() {
            self.places.retain(|_, place| place.away.is_none_or(|away| now < away + hold));
        }
        for place in self.places.values_mut() {
            place.joined = place.joined.filter(|&joined| now < joined + slow_start);
        }
    }

    /// When [`pass`](Self::pass) changes something next.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let hold = self.policy.hold;
        let leaves = |place: &Place| place.away.map(|away| away + hold);
        let leaves = self.places.values().filter(|_| !self.is_deserted()).filter_map(leaves);
        let grows = |place: &Place| {
            let joined = place.joined?;
            Some(joined + self.policy.slow_start * self.step(joined, now) / STEPS)
        };
        leaves.chain(self.places.values().filter_map(grows)).min()
    }

    /// The members at `now`, by ascending name.
    pub fn seats(&self, now: Instant) -> Vec<Seat> {
        let seat = |place: &Place| {
            let Entry { name, endpoint, weight, zone, presence } = place.entry.clone();
            let step = place.joined.map_or(STEPS, |joined| self.step(joined, now));
            let state = match (place.away, presence) {
                (Some(_), _) | (None, Presence::Absent | Presence::Starting) => State::Away,
                (None, Presence::Draining) => State::Draining,
                (None, Presence::Ready) if step < STEPS => State::Joining,
                (None, Presence::Ready) => State::Ready,
            };
            let share = weight * f64::from(step) / f64::from(STEPS);
            Seat { name, endpoint, weight, share, zone, state }
        };
        self.places.values().map(seat).collect()
    }

    /// A source that says that nobody is there is more likely to be mistaken, and if it isn't, nothing is
    /// won by forgetting who was.
    fn is_deserted(&self) -> bool {
        self.places.values().all(|place| place.away.is_some())
    }

    /// From 1 to [`STEPS`].
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

    /// Names that are ready; in upper case draining, after `-` absent.
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
        let seat = |seat: Seat| format!("{} {:?} {}", seat.name, seat.state, seat.share);
        roster.seats(now).into_iter().map(seat).collect::<Vec<_>>().join(", ")
    }

    /// A roster that has taken `first` at `start`.
    fn roster(first: &str) -> (Roster, Instant) {
        let (mut roster, start) = (Roster::new(POLICY), Instant::now());
        roster.take(&list(first), start);
        (roster, start)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_member_that_restarts_keeps_its_place_and_its_share() {
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
    fn a_member_that_is_back_and_starting_is_away_at_its_new_address() {
        let (mut roster, start) = roster("ab");
        let moved = |presence| {
            let entry = Entry { endpoint: "http://h:1".parse().unwrap(), ..entry("b", presence) };
            MemberList::new(vec![self::entry("a", Presence::Ready), entry]).unwrap()
        };
        let before = roster.seats(start)[1].endpoint.clone();
        roster.take(&moved(Presence::Absent), after(start, 10));
        assert_eq!(roster.seats(after(start, 10))[1].endpoint, before);
        roster.take(&moved(Presence::Starting), after(start, 20));
        assert_eq!(shown(&roster, after(start, 20)), "a Ready 2, b Away 2");
        assert_eq!(roster.seats(after(start, 20))[1].endpoint.to_string(), "http://h:1");
        // Its place is kept no longer for it.
        roster.pass(after(start, 130));
        assert_eq!(shown(&roster, after(start, 130)), "a Ready 2");
    }

    #[test]
    fn a_member_that_stays_away_loses_its_place_and_joins_anew() {
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
    fn a_member_that_joins_grows_in_steps() {
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
    fn in_the_first_list_of_anybody_all_have_their_place_at_once() {
        let (mut empty, start) = roster("");
        empty.take(&list("ab"), after(start, 10));
        assert_eq!(shown(&empty, after(start, 10)), "a Ready 2, b Ready 2");
        let (roster, start) = roster("a-bc");
        assert_eq!(shown(&roster, start), "a Ready 2, b Away 2, c Away 2");
    }

    #[test]
    fn while_nobody_is_there_nobody_leaves() {
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
    fn without_hold_and_slow_start_the_list_is_what_counts() {
        let policy = Policy { hold: Duration::ZERO, slow_start: Duration::ZERO };
        let (mut roster, now) = (Roster::new(policy), Instant::now());
        roster.take(&list("ab"), now);
        roster.take(&list("bc"), now);
        assert_eq!(shown(&roster, now), "b Ready 2, c Ready 2");
    }

    proptest! {
        /// Whoever is listed has a place and nobody else has one for longer than `hold`; a share never
        /// shrinks while its member is there.
        #[test]
        fn places_follow_the_lists(
            lists in prop::collection::vec((0u64..200, prop::collection::btree_set("[a-e]", 1..5)), 1..30),
        ) {
            let (mut roster, mut now) = (Roster::new(POLICY), Instant::now());
            let mut missing: BTreeMap<String, Instant> = BTreeMap::new();
            let mut shares: BTreeMap<String, f64> = BTreeMap::new();
            for (pause, names) in lists {
                now += Duration::from_secs(pause);
                roster.take(&list(&names.iter().map(String::as_str).collect::<String>()), now);
                let seats = roster.seats(now);
                prop_assert!(names.iter().all(|name| seats.iter().any(|seat| seat.name == *name)));
                for seat in &seats {
                    prop_assert!(seat.share > 0.0 && seat.share <= seat.weight);
                    prop_assert_eq!(names.contains(&seat.name), seat.state != State::Away);
                    if names.contains(&seat.name) {
                        let was_away = missing.remove(&seat.name).is_some();
                        let before = shares.get(&seat.name).filter(|_| !was_away);
                        prop_assert!(before.is_none_or(|&share| seat.share >= share));
                    } else {
                        let since = *missing.entry(seat.name.clone()).or_insert(now);
                        prop_assert!(now < since + POLICY.hold);
                    }
                }
                shares = seats.into_iter().map(|seat| (seat.name, seat.share)).collect();
                missing.retain(|name, _| shares.contains_key(name));
            }
        }
    }
}
