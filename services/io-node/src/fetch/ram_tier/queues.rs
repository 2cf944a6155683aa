//! S3-FIFO selects the sector to evict when the tier is full.
//!
//! New sectors enter a small queue. At its end, sectors that were used in the meantime move to the main queue; the
//! others are evicted, and their hashes are remembered as ghosts. A sector whose hash is a ghost enters the main queue
//! at once. In the main queue, a sector returns to the back once for each of its uses. An eviction examines a limited
//! number of frames, because requests wait for it: if all of them were used, the next frame is evicted nevertheless.
//! (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.)

use std::collections::VecDeque;

use super::{FrameNo, bucket_of};

/// While the small queue has more than one in this many of all frames, the next frame to examine comes from it. S3-FIFO
/// divides its queues like this.
const SMALL_PART: usize = 10;

/// The maximum number of frames that an eviction removes from the queues. It examines all of them but the last, which
/// it evicts in any case. Each costs an access to memory or two, so an eviction takes microseconds at most. This value
/// was not chosen by measurement.
const EXAMINED_MAX: usize = 32;

/// Bytes of the queues per frame: one ghost and three entries. There are three, because a queue that grows holds, for a
/// moment, its old buffer and one of twice the size.
pub const QUEUED_BYTES: usize = 3 * size_of::<FrameNo>() + size_of::<u32>();

/// The small and the main queue of frames, and the ghosts.
pub struct Queues {
    small: VecDeque<FrameNo>,
    small_max: usize,
    main: VecDeque<FrameNo>,
    /// A part of the hash of each sector that was evicted from the small queue, at an index that the hash determines; 0
    /// for none. A later ghost replaces an earlier one at the same index.
    ghosts: Box<[u32]>,
}

impl Queues {
    /// Creates queues for `room` frames.
    pub fn new(room: usize) -> Self {
        let ghosts = vec![0; room].into();
        let small_max = room.div_ceil(SMALL_PART);
        Self { small: VecDeque::new(), small_max, main: VecDeque::new(), ghosts }
    }

    /// Queues a frame that now holds a sector with this hash.
    pub fn push(&mut self, frame: FrameNo, hash: u64) {
        let remembered = &mut self.ghosts[bucket_of(hash, self.ghosts.len())];
        match *remembered == mark(hash) {
            true => {
                *remembered = 0;
                self.main.push_back(frame);
            }
            false => self.small.push_back(frame),
        }
    }

    /// Removes and returns the frame whose sector is to be evicted. `take_use` decrements a frame's use counter and
    /// returns whether it was above 0; `hash` returns the hash of a frame's sector.
    ///
    /// # Panics
    /// If the queues are empty.
    pub fn pop(
        &mut self,
        take_use: impl Fn(FrameNo) -> bool,
        hash: impl Fn(FrameNo) -> u64,
    ) -> FrameNo {
        for _ in 1..EXAMINED_MAX {
            let (frame, is_new) = self.next();
            match (take_use(frame), is_new) {
                (true, _) => self.main.push_back(frame),
                (false, true) => {
                    let hash = hash(frame);
                    self.ghosts[bucket_of(hash, self.ghosts.len())] = mark(hash);
                    return frame;
                }
                (false, false) => return frame,
            }
        }
        self.next().0
    }

    /// Removes and returns the next frame to examine, and whether it comes from the small queue.
    fn next(&mut self) -> (FrameNo, bool) {
        let is_new = self.small.len() > self.small_max || self.main.is_empty();
        let queue = if is_new { &mut self.small } else { &mut self.main };
        (queue.pop_front().expect("a full tier has frames"), is_new)
    }
}

/// Returns the lower bits of a hash, never 0. The upper bits select the index.
fn mark(hash: u64) -> u32 {
    hash as u32 | 1
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::*;

    /// Evicts a frame, given these use counters and evenly spread hashes.
    fn pop(queues: &mut Queues, uses: &RefCell<HashMap<u32, u32>>) -> u32 {
        let take_use = |frame: FrameNo| match uses.borrow_mut().get_mut(&frame.0) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        queues.pop(take_use, hash).0
    }

    fn hash(frame: FrameNo) -> u64 {
        u64::from(frame.0) << 59 | u64::from(frame.0) << 1
    }

    #[test]
    fn unused_sectors_are_evicted_in_order_and_each_use_saves_once() {
        let mut queues = Queues::new(20);
        (0..6).for_each(|it| queues.push(FrameNo(it), hash(FrameNo(it))));
        let uses = RefCell::new(HashMap::from([(0, 2), (2, 1)]));
        // 0 and 2 move to the main queue, 0 with one use left.
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [1, 3]);
        // The small queue may keep two frames, so the main queue is next.
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [2, 0]);
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [4, 5]);
    }

    #[test]
    fn if_all_are_used_one_is_evicted_after_the_maximum() {
        let mut queues = Queues::new(1000);
        (0..1000).for_each(|it| queues.push(FrameNo(it), hash(FrameNo(it))));
        let looks = std::cell::Cell::new(0);
        let used = |_| {
            looks.set(looks.get() + 1);
            true
        };
        assert_eq!(queues.pop(used, hash), FrameNo(EXAMINED_MAX as u32 - 1));
        assert_eq!(looks.get(), EXAMINED_MAX - 1);
    }

    #[test]
    fn a_ghost_that_returns_enters_the_main_queue() {
        let mut queues = Queues::new(20);
        (0..4).for_each(|it| queues.push(FrameNo(it), hash(FrameNo(it))));
        let uses = RefCell::default();
        assert_eq!(pop(&mut queues, &uses), 0);
        queues.push(FrameNo(0), hash(FrameNo(0)));
        assert_eq!(queues.main, [FrameNo(0)]);
        assert_eq!(queues.small, [FrameNo(1), FrameNo(2), FrameNo(3)]);
    }
}
