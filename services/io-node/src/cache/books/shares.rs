//! Each table's extents on the drives, and its share: a guarantee, a quota and a pin.
//!
//! ```text
//! a fill of a table ─┬─ below its guarantee ─► held log: its extents are not evicted for other tables
//!                    ├─ at its quota ─► its oldest extents are evicted, or, if it is pinned, the fill is refused
//!                    ├─ longer than its quota ─► the fill is refused; other fills of the table go on
//!                    └─ otherwise ─► small log, as for tables without a share
//! ```
//!
//! Sectors count towards a table from the moment they are allocated, so a table never exceeds its quota. A held extent
//! is evicted only for the quota of its own table, if it is bad or its drive fails, or if there is no space to move it
//! to. So fills of other tables never take a table below its guarantee. Of a table that is not pinned, at most one
//! extent more than its guarantee is held. Reads decide which extents are held: a new extent that is read again
//! and kept becomes held, and the one that has been held longest is released.
//!
//! The index and deletion files of all tables count together, as if they were one table, except the files of tables
//! whose files have a share of their own. The node chooses the guarantee of this one table ([`super::files_share`]).
//! Without its index, a query node has to read a slow store for each search, so fills of rows should not evict indexes.
//! Blocks of indexes that no version names any more are not read again, so once they are released, they do not become
//! held again.
//!
//! Pure bookkeeping, in sectors of extents, without journals.

use std::collections::{BTreeMap, HashMap};

use address::{ExtentKey, TableTag};

use super::arrivals::Arrivals;
use super::checked::less;
use super::eviction::Candidate;
use crate::config::Share;
use crate::extent::{ByKey, SegmentNo};

/// The decision whether a chunk gets space under its table's share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceDecision {
    /// The chunk gets space.
    Room {
        /// Whether the space is in the held log.
        is_held: bool,
    },
    /// The chunk gets space after these extents of its table have been evicted.
    Evict(Vec<ExtentKey>),
    /// The chunk waits until an extent of its table that is being written can be evicted.
    Wait,
    /// The chunk is refused: its table is pinned and at its quota.
    Full,
    /// The chunk is refused: it is longer than its table's quota.
    TooLong,
}

/// The segment in which an extent was held until now, and the extent's sectors.
pub type Unheld = (SegmentNo, u64);

/// A table's extents on all of the node's drives. An extent counts from the time space is allocated for it, before it
/// is written, until it is removed because it was evicted or found to be bad, because its drive was retired, or because
/// it could not be written. After a restart, the counts are computed from the journals. The entry of a table is removed
/// with the table's last extent, so a count of events since the start can't be kept here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Number of extents.
    pub extents: u64,
    /// Number of the extents' sectors.
    pub sectors: u64,
    /// Number of the sectors of held extents, which count towards the table's guarantee.
    pub held_sectors: u64,
}

/// The shares and extents of all tables.
#[derive(Debug, Default)]
pub struct Shares {
    shares: HashMap<TableTag, Share>,
    /// The share of [`Account::Files`].
    files: Option<Share>,
    /// Sorted, so that a simulated run repeats.
    accounts: BTreeMap<Account, Holdings>,
}

/// The tables whose extents count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Account {
    /// One table, or the files of one.
    Table(TableTag),
    /// The files of all tables, except those that have a share.
    Files,
}

/// The extents of an account.
#[derive(Debug, Default)]
struct Holdings {
    /// The sum of `tables`.
    holding: Holding,
    tables: BTreeMap<TableTag, Holding>,
    /// Whether a fill was refused as [`SpaceDecision::Full`], and no extent was removed since.
    is_full: bool,
    /// The extents, by name. This and the following fields are used only for accounts with a share.
    extents: ByKey<CountedExtent>,
    /// Names in the order in which the extents came; some entries may be stale.
    order: Arrivals,
    /// Names in the order in which the extents became held; some entries may be stale.
    held: Arrivals,
}

#[derive(Clone, Copy, Debug)]
struct CountedExtent {
    sectors: u64,
    is_written: bool,
    /// The serial number of its entry in `order`.
    serial: u64,
    /// If it is held: its segment, and the serial number of its entry in `held`.
    held: Option<(SegmentNo, u64)>,
}

/// A list of names is compacted when it is longer than twice the number of extents plus this number. Without this
/// number, the list of a table with few extents would be compacted after every few additions.
const STALE_NAMES_MAX: usize = 64;

impl Shares {
    /// Creates the bookkeeping for tables with these shares. All other tables have no share.
    pub fn new(shares: impl IntoIterator<Item = (TableTag, Share)>) -> Self {
        Self { shares: shares.into_iter().collect(), ..Self::default() }
    }

    /// Gives a share to the files of all tables together, without those that have a share of their own.
    pub fn with_files(self, files: Option<Share>) -> Self {
        Self { files, ..self }
    }

    /// Whether no table has a share of its own.
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Each table's holding.
    pub fn holdings(&self) -> impl Iterator<Item = (TableTag, Holding)> {
        let of_accounts = self.accounts.values();
        of_accounts.flat_map(|it| it.tables.iter().map(|(&tag, &holding)| (tag, holding)))
    }

    fn account(&self, key: ExtentKey) -> Account {
        let tag = key.pack.table();
        let is_of_files = tag.is_of_files() && self.files.is_some();
        match is_of_files && !self.shares.contains_key(&tag) {
            true => Account::Files,
            false => Account::Table(tag),
        }
    }

    fn share(&self, account: Account) -> Option<Share> {
        match account {
            Account::Table(tag) => self.shares.get(&tag).copied(),
            Account::Files => self.files,
        }
    }

    fn share_of(&self, key: ExtentKey) -> Option<Share> {
        self.share(self.account(key))
    }

    /// Whether a fill of this extent's table was refused as [`SpaceDecision::Full`], and none of the table's extents
    /// was removed since.
    pub fn is_full(&self, key: ExtentKey) -> bool {
        self.accounts.get(&self.account(key)).is_some_and(|holdings| holdings.is_full)
    }

    /// Whether this extent's table has a guarantee, so that its extents may be held.
    pub fn holds(&self, key: ExtentKey) -> bool {
        self.share_of(key).is_some_and(|share| share.guarantee > 0)
    }

    /// Whether this extent's table is pinned, so that none of its extents is evicted.
    pub fn is_pinned(&self, key: ExtentKey) -> bool {
        self.share_of(key).is_some_and(|share| share.is_pinned)
    }

    /// Returns the quota of this extent's table, in sectors. `None` for a table without a share.
    pub fn quota(&self, key: ExtentKey) -> Option<u64> {
        self.share_of(key).map(|share| share.quota)
    }

    /// Decides whether a chunk of `sectors` sectors gets space.
    pub fn decide(&mut self, key: ExtentKey, sectors: u64) -> SpaceDecision {
        let account = self.account(key);
        let Some(share) = self.share(account) else {
            return SpaceDecision::Room { is_held: false };
        };
        let table = self.accounts.entry(account).or_default();
        let over = (table.holding.sectors + sectors).saturating_sub(share.quota);
        if over == 0 {
            return SpaceDecision::Room { is_held: table.holding.held_sectors < share.guarantee };
        }
        if sectors > share.quota {
            return SpaceDecision::TooLong;
        }
        if share.is_pinned {
            table.is_full = true;
            return SpaceDecision::Full;
        }
        table.drop_stale();
        let (first, freed) = table.first_written(over);
        if freed < over { SpaceDecision::Wait } else { SpaceDecision::Evict(first) }
    }

    /// The extents to evict because their tables exceed their quotas, as happens after a restart with other shares.
    pub fn over(&self) -> Vec<ExtentKey> {
        let over = |(&account, table): (&Account, &Holdings)| {
            let quota = self.share(account).map_or(u64::MAX, |share| share.quota);
            let over = table.holding.sectors.saturating_sub(quota);
            if over > 0 { table.first_written(over).0 } else { Vec::new() }
        };
        self.accounts.iter().flat_map(over).collect()
    }

    /// Counts a chunk for which space was allocated and that is being written. `held_in` is the segment of that space
    /// if it is in the held log.
    pub fn add(&mut self, key: ExtentKey, sectors: u64, held_in: Option<SegmentNo>) {
        let account = self.account(key);
        let has_share = self.share(account).is_some();
        let table = self.accounts.entry(account).or_default();
        table.count(key, |holding| {
            holding.extents += 1;
            holding.sectors += sectors;
        });
        if has_share {
            let serial = table.order.add(key);
            let extent = CountedExtent { sectors, is_written: false, serial, held: None };
            assert!(table.extents.insert(key, extent).is_none(), "{key:?} is counted twice");
            let extents = &table.extents;
            table.order.compact(extents.len(), STALE_NAMES_MAX, |key, serial| {
                is_counted(extents, key, serial)
            });
            if let Some(segment) = held_in {
                table.hold(key, segment);
            }
        }
    }

    /// Records that the write of an extent has succeeded.
    pub fn written(&mut self, key: ExtentKey) {
        let table = self.accounts.get_mut(&self.account(key));
        if let Some(extent) = table.and_then(|table| table.extents.get_mut(&key)) {
            extent.is_written = true;
        }
    }

    /// Counts an extent that was found when the node started; `held_in` as in [`add`](Self::add).
    pub fn restore(&mut self, key: ExtentKey, sectors: u64, held_in: Option<SegmentNo>) {
        let held_in = held_in.filter(|_| self.holds(key));
        self.add(key, sectors, held_in);
        self.written(key);
    }

    /// Records that an extent was moved, or its segment was given to another log: the extent is now held in `held_in`,
    /// or not held if that is `None`. Returns the extents that are not held any more: this one at its old place, and
    /// those that it replaces in the table's guarantee.
    pub fn moved(&mut self, key: ExtentKey, held_in: Option<SegmentNo>) -> Vec<Unheld> {
        let account = self.account(key);
        let Some(table) = self.accounts.get_mut(&account) else { return Vec::new() };
        let mut unheld: Vec<_> = table.release(key).into_iter().collect();
        if let Some(segment) = held_in {
            table.hold(key, segment);
        }
        unheld.extend(self.trim(account));
        unheld
    }

    /// Releases, in each table, the extents that have been held longest, as long as the other held extents still cover
    /// the table's guarantee.
    pub fn trim_all(&mut self) -> Vec<Unheld> {
        let accounts: Vec<_> = self.accounts.keys().copied().collect();
        accounts.into_iter().flat_map(|account| self.trim(account)).collect()
    }

    fn trim(&mut self, account: Account) -> Vec<Unheld> {
        let guarantee = self.share(account).map_or(0, |share| share.guarantee);
        let Some(table) = self.accounts.get_mut(&account) else { return Vec::new() };
        let mut unheld = Vec::new();
        while let Some(first) = table.first_held() {
            let sectors = table.extents[&first].sectors;
            if less(table.holding.held_sectors, sectors, "a table's held sectors") < guarantee {
                break;
            }
            unheld.extend(table.release(first));
        }
        unheld
    }

    /// Removes an extent that was evicted or dropped, or could not be written. Returns the segment in which it was
    /// held, if it was.
    pub fn remove(&mut self, key: ExtentKey, sectors: u64) -> Option<Unheld> {
        let account = self.account(key);
        let table = self.accounts.get_mut(&account);
        let table = table.unwrap_or_else(|| panic!("{key:?} is removed but was not counted"));
        let was_held = table.release(key);
        table.extents.remove(&key);
        table.is_full = false;
        table.count(key, |holding| {
            holding.extents = less(holding.extents, 1, "a table's extents");
            holding.sectors = less(holding.sectors, sectors, "a table's sectors");
        });
        if table.holding.extents == 0 {
            self.accounts.remove(&account);
        }
        was_held
    }

    /// Sets `is_due` for those of a segment's extents that must be kept for their tables' guarantees. Returns the sum
    /// of their sectors.
    pub fn mark_due(&self, candidates: &mut [Candidate]) -> u64 {
        let due = self.due(candidates);
        for (candidate, is_due) in candidates.iter_mut().zip(due) {
            candidate.is_due = is_due;
        }
        let due = candidates.iter().filter(|candidate| candidate.is_due);
        due.map(|candidate| candidate.sectors).sum()
    }

    /// Returns for each of a segment's extents whether it must be kept: those that are held, and the hottest others, as
    /// many as their tables need to reach their guarantees.
    fn due(&self, candidates: &[Candidate]) -> Vec<bool> {
        let mut due = vec![false; candidates.len()];
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(candidates[at].heat));
        let mut coming: HashMap<Account, u64> = HashMap::new();
        for at in order {
            let Candidate { key, sectors, .. } = candidates[at];
            let account = self.account(key);
            let share = self.share(account).filter(|share| share.guarantee > 0);
            let Some((share, table)) = share.zip(self.accounts.get(&account)) else { continue };
            if table.extents.get(&key).is_some_and(|extent| extent.held.is_some()) {
                due[at] = true;
                continue;
            }
            let coming = coming.entry(account).or_default();
            if table.holding.held_sectors + *coming < share.guarantee {
                due[at] = true;
                *coming += sectors;
            }
        }
        due
    }
}

impl Holdings {
    /// Returns the table's oldest written extents, until they have `sectors` sectors or there are no more, and the sum
    /// of their sectors.
    fn first_written(&self, sectors: u64) -> (Vec<ExtentKey>, u64) {
        let (mut first, mut freed) = (Vec::new(), 0);
        for (key, serial) in self.order.iter() {
            if freed >= sectors {
                break;
            }
            let extent = self.extents.get(&key);
            if let Some(extent) = extent.filter(|it| it.serial == serial && it.is_written) {
                freed += extent.sectors;
                first.push(key);
            }
        }
        (first, freed)
    }

    /// Removes the stale entries at the front of `order`, so that no fill has to look at them again.
    fn drop_stale(&mut self) {
        let extents = &self.extents;
        self.order.first(|key, serial| is_counted(extents, key, serial));
    }

    /// Returns the extent that has been held longest.
    fn first_held(&mut self) -> Option<ExtentKey> {
        let extents = &self.extents;
        self.held.first(|key, serial| is_held(extents, key, serial))
    }

    fn hold(&mut self, key: ExtentKey, segment: SegmentNo) {
        let Some(extent) = self.extents.get_mut(&key) else { return };
        extent.held = Some((segment, self.held.add(key)));
        let sectors = extent.sectors;
        self.count(key, |holding| holding.held_sectors += sectors);
        let extents = &self.extents;
        self.held
            .compact(extents.len(), STALE_NAMES_MAX, |key, serial| is_held(extents, key, serial));
    }

    fn release(&mut self, key: ExtentKey) -> Option<Unheld> {
        let extent = self.extents.get_mut(&key)?;
        let ((segment, _), sectors) = (extent.held.take()?, extent.sectors);
        self.count(key, |holding| {
            holding.held_sectors = less(holding.held_sectors, sectors, "a table's held sectors");
        });
        Some((segment, sectors))
    }

    /// Changes the holding of an extent's table, and its account's sum.
    fn count(&mut self, key: ExtentKey, change: impl Fn(&mut Holding)) {
        change(&mut self.holding);
        let tag = key.pack.table();
        let table = self.tables.entry(tag).or_default();
        change(table);
        if table.extents == 0 {
            self.tables.remove(&tag);
        }
    }
}

/// Whether this entry of [`Holdings::order`] is not stale.
fn is_counted(extents: &ByKey<CountedExtent>, key: &ExtentKey, serial: u64) -> bool {
    extents.get(key).is_some_and(|extent| extent.serial == serial)
}

/// Whether this entry of [`Holdings::held`] is not stale.
fn is_held(extents: &ByKey<CountedExtent>, key: &ExtentKey, serial: u64) -> bool {
    let held = extents.get(key).and_then(|extent| extent.held);
    held.is_some_and(|(_, held)| held == serial)
}

#[cfg(test)]
mod tests {
    use address::{DriveNo, PackKey};

    use super::*;

    fn key(table: u32, chunk: u32) -> ExtentKey {
        ExtentKey { pack: PackKey::new(TableTag(table), 0), chunk }
    }

    fn segment(index: u32) -> Option<SegmentNo> {
        Some(SegmentNo { drive: DriveNo(0), index })
    }

    impl Shares {
        fn holding(&self, table: TableTag) -> Holding {
            self.accounts.get(&Account::Table(table)).map_or(Holding::default(), |it| it.holding)
        }
    }

    fn shares(guarantee: u64, quota: u64, is_pinned: bool) -> Shares {
        Shares::new([(TableTag(1), Share { guarantee, quota, is_pinned })])
    }

    fn candidate(table: u32, chunk: u32, heat: u32) -> Candidate {
        Candidate { key: key(table, chunk), sectors: 10, heat, is_due: false }
    }

    #[test]
    fn extents_are_held_up_to_the_guarantee_and_not_above() {
        let mut shares = shares(15, u64::MAX, false);
        for chunk in 0..2 {
            assert_eq!(shares.decide(key(1, chunk), 10), SpaceDecision::Room { is_held: true });
            shares.add(key(1, chunk), 10, segment(5));
            shares.written(key(1, chunk));
        }
        // One extent more than the guarantee, so that the table is never below it.
        assert_eq!(shares.holding(TableTag(1)).held_sectors, 20);
        assert_eq!(shares.decide(key(1, 2), 10), SpaceDecision::Room { is_held: false });
        assert_eq!(shares.decide(key(2, 0), 10), SpaceDecision::Room { is_held: false });
        // An extent that is read again takes the place of the one that was held first.
        shares.add(key(1, 2), 10, None);
        assert_eq!(shares.moved(key(1, 2), segment(6)), [(segment(5).unwrap(), 10)]);
        let due = shares.due(&[candidate(1, 0, 3), candidate(1, 1, 0), candidate(1, 2, 0)]);
        assert_eq!(due, [false, true, true]);
        // The hottest other extent is due in place of one that is gone.
        assert_eq!(shares.remove(key(1, 1), 10), Some((segment(5).unwrap(), 10)));
        assert_eq!(
            shares.due(&[candidate(2, 9, 3), candidate(1, 9, 1), candidate(1, 0, 2)]),
            [false, false, true]
        );
        assert_eq!(shares.decide(key(1, 3), 10), SpaceDecision::Room { is_held: true });
    }

    #[test]
    fn a_table_at_its_quota_evicts_its_own_extents() {
        let mut shares = shares(0, 35, false);
        for chunk in 0..3 {
            assert_eq!(shares.decide(key(1, chunk), 10), SpaceDecision::Room { is_held: false });
            shares.add(key(1, chunk), 10, None);
        }
        // None of them is written yet.
        assert_eq!(shares.decide(key(1, 3), 10), SpaceDecision::Wait);
        (0..3).for_each(|chunk| shares.written(key(1, chunk)));
        assert_eq!(shares.decide(key(1, 3), 10), SpaceDecision::Evict(vec![key(1, 0)]));
        assert_eq!(
            shares.decide(key(1, 3), 30),
            SpaceDecision::Evict(vec![key(1, 0), key(1, 1), key(1, 2)])
        );
        // A chunk that is longer than the quota does not make the table full.
        assert_eq!(shares.decide(key(1, 3), 36), SpaceDecision::TooLong);
        assert!(!shares.is_full(key(1, 3)));
        shares.remove(key(1, 0), 10);
        assert_eq!(shares.decide(key(1, 3), 10), SpaceDecision::Room { is_held: false });
        // The quota is lower now, as after a restart with other shares.
        shares.shares.insert(TableTag(1), Share { guarantee: 0, quota: 15, is_pinned: false });
        assert_eq!(shares.over(), [key(1, 1)]);
    }

    #[test]
    fn an_extent_that_was_filled_again_is_the_newest() {
        let mut shares = shares(0, 30, false);
        let fill = |shares: &mut Shares, chunk| {
            let decision = shares.decide(key(1, chunk), 10);
            if let SpaceDecision::Evict(evicted) = &decision {
                for &key in evicted {
                    shares.remove(key, 10);
                }
            }
            shares.add(key(1, chunk), 10, None);
            shares.written(key(1, chunk));
            decision
        };
        (0..3).for_each(|chunk| drop(fill(&mut shares, chunk)));
        let evicted = |chunk| SpaceDecision::Evict(vec![key(1, chunk)]);
        assert_eq!(fill(&mut shares, 3), evicted(0));
        // Chunk 0 comes back, so chunk 2 is the oldest one then.
        assert_eq!(fill(&mut shares, 0), evicted(1));
        assert_eq!(fill(&mut shares, 4), evicted(2));
        // No entry of an evicted chunk is left at the front.
        let table = &shares.accounts[&Account::Table(TableTag(1))];
        assert_eq!(table.order.len(), 4);
    }

    #[test]
    fn an_extent_that_becomes_held_again_is_the_last_to_be_released() {
        let mut shares = shares(30, u64::MAX, false);
        (0..3).for_each(|chunk| shares.restore(key(1, chunk), 10, segment(chunk)));
        // Chunk 0 is moved, so chunk 1 has been held longest.
        assert_eq!(shares.moved(key(1, 0), segment(5)), [(segment(0).unwrap(), 10)]);
        shares.restore(key(1, 3), 10, None);
        assert_eq!(shares.moved(key(1, 3), segment(6)), [(segment(1).unwrap(), 10)]);
    }

    #[test]
    fn a_pinned_table_evicts_nothing_and_is_refused_at_its_quota() {
        let mut shares = shares(20, 20, true);
        for chunk in 0..2 {
            assert_eq!(shares.decide(key(1, chunk), 10), SpaceDecision::Room { is_held: true });
            shares.restore(key(1, chunk), 10, segment(chunk));
        }
        assert_eq!(shares.decide(key(1, 2), 21), SpaceDecision::TooLong);
        assert!(!shares.is_full(key(1, 9)));
        assert_eq!(shares.decide(key(1, 2), 1), SpaceDecision::Full);
        assert!(shares.is_full(key(1, 9)) && !shares.is_full(key(2, 9)));
        assert_eq!(shares.due(&[candidate(1, 0, 0), candidate(1, 1, 0)]), [true, true]);
        assert!(shares.trim_all().is_empty());
        shares.remove(key(1, 1), 10);
        assert!(!shares.is_full(key(1, 9)));
        // An extent in another log, from before the table was pinned, is due as well.
        shares.restore(key(1, 1), 10, None);
        assert_eq!(shares.due(&[candidate(1, 1, 0)]), [true]);
    }

    #[test]
    fn the_files_of_all_tables_count_together_except_those_with_a_share() {
        let share = |guarantee| Share { guarantee, quota: u64::MAX, is_pinned: false };
        let [one, two, own] = [1, 2, 3].map(TableTag::of_files);
        let mut shares = Shares::new([(own, share(10))]).with_files(Some(share(20)));
        let mut place = |table: TableTag, chunk| {
            let is_held =
                shares.decide(key(table.0, chunk), 10) == SpaceDecision::Room { is_held: true };
            shares.add(key(table.0, chunk), 10, is_held.then_some(segment(5)).flatten());
            is_held
        };
        assert!(place(one, 0) && place(two, 0));
        assert!(!place(two, 1) && !place(one, 1) && !place(TableTag(4), 0));
        assert!(place(own, 0) && !place(own, 1));
        let held = |shares: &Shares| {
            let tables: BTreeMap<_, _> = shares.holdings().collect();
            let files = tables.into_iter().filter(|(tag, _)| tag.is_of_files());
            files.map(|(_, it)| (it.extents, it.sectors, it.held_sectors)).collect::<Vec<_>>()
        };
        assert_eq!(held(&shares), [(2, 20, 10); 3]);
        // Another block that is read again takes the place of the block that was held first.
        shares.written(key(one.0, 1));
        assert_eq!(shares.moved(key(one.0, 1), segment(6)), [(segment(5).unwrap(), 10)]);
        assert_eq!(shares.remove(key(one.0, 0), 10), None);
        assert_eq!(held(&shares), [(1, 10, 10), (2, 20, 10), (2, 20, 10)]);
    }

    #[test]
    fn stale_names_are_bounded() {
        let mut shares = shares(5, 1000, false);
        for round in 0..10_000 {
            shares.restore(key(1, round % 3), 10, segment(0));
            shares.remove(key(1, round % 3), 10);
        }
        assert_eq!(shares.holdings().count(), 0);
        shares.restore(key(1, 0), 1, None);
        for round in 0..10_000 {
            shares.restore(key(1, 1 + round % 3), 10, segment(0));
            shares.remove(key(1, 1 + round % 3), 10);
        }
        let table = &shares.accounts[&Account::Table(TableTag(1))];
        assert!(
            table.order.len() <= STALE_NAMES_MAX + 8 && table.held.len() <= STALE_NAMES_MAX + 8
        );
        assert_eq!(table.holding, Holding { extents: 1, sectors: 1, held_sectors: 0 });
    }
}
