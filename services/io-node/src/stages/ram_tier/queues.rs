//! Which sector goes when there is no room: S3-FIFO.
//!
//! New ones go to a small queue. At its end, those that were used meanwhile go on to the large one, and the others go,
//! remembered by their hashes: what comes back soon goes to the large queue at once. In that one a sector goes to the
//! back again for each of its uses. Where all are used, one of them goes all the same after some looks: whoever waits for the
//! room serves requests. (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.)

use std::collections::VecDeque;

use super::{FrameNo, bucket_of};

/// A tenth of the frames are the small queue's.
const SMALL_PART: usize = 10;

/// Frames that are looked at for one that goes.
const EXAMINED_MAX: usize = 32;

/// What a frame costs here, in bytes: its place in either queue, which may have just grown, and what is remembered.
pub const QUEUED_BYTES: usize = 3 * size_of::<FrameNo>() + size_of::<u32>();

/// The queues of frames.
pub struct Queues {
    small: VecDeque<FrameNo>,
    small_max: usize,
    large: VecDeque<FrameNo>,
    /// A part of the hash of what went unused, at a place by the hash; 0 where nothing is.
    ghosts: Box<[u32]>,
}

impl Queues {
    /// For so many frames.
    pub fn new(room: usize) -> Self {
        let ghosts = vec![0; room].into();
        let small_max = room.div_ceil(SMALL_PART);
        Self { small: VecDeque::new(), small_max, large: VecDeque::new(), ghosts }
    }

    /// Queues a frame that was given to a sector of this hash.
    pub fn push(&mut self, frame: FrameNo, hash: u64) {
        let remembered = &mut self.ghosts[bucket_of(hash, self.ghosts.len())];
        match *remembered == mark(hash) {
            true => {
                *remembered = 0;
                self.large.push_back(frame);
            }
            false => self.small.push_back(frame),
        }
    }

    /// The frame whose sector goes. `take_use` takes away one of its uses and says whether there was any, `hash`
    /// is its sector's.
    ///
    /// # Panics
    /// If no frame was ever pushed.
    pub fn pop(
        &mut self,
        take_use: impl Fn(FrameNo) -> bool,
        hash: impl Fn(FrameNo) -> u64,
    ) -> FrameNo {
        for _ in 1..EXAMINED_MAX {
            let (frame, is_new) = self.next();
            match (take_use(frame), is_new) {
                (true, _) => self.large.push_back(frame),
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

    /// The frame whose turn it is, and whether it is of the small queue.
    fn next(&mut self) -> (FrameNo, bool) {
        let is_new = self.small.len() > self.small_max || self.large.is_empty();
        let queue = if is_new { &mut self.small } else { &mut self.large };
        (queue.pop_front().expect("a full tier has frames"), is_new)
    }
}

/// The lower bits, as the upper ones choose the place; never 0.
fn mark(hash: u64) -> u32 {
    hash as u32 | 1
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::*;

    /// What goes, with these uses of frames whose sectors' hashes are spread over all.
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
    fn the_unused_go_in_turn_and_the_used_stay_for_each_use() {
        let mut queues = Queues::new(20);
        (0..6).for_each(|it| queues.push(FrameNo(it), hash(FrameNo(it))));
        let uses = RefCell::new(HashMap::from([(0, 2), (2, 1)]));
        // 0 and 2 go on to the large queue, 0 with a use left.
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [1, 3]);
        // Two are as many as the small queue may have, so it is the large one's turn.
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [2, 0]);
        assert_eq!([pop(&mut queues, &uses), pop(&mut queues, &uses)], [4, 5]);
    }

    #[test]
    fn where_all_are_used_one_goes_after_some_looks() {
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
    fn what_comes_back_is_not_on_trial_again() {
        let mut queues = Queues::new(20);
        (0..4).for_each(|it| queues.push(FrameNo(it), hash(FrameNo(it))));
        let uses = RefCell::default();
        assert_eq!(pop(&mut queues, &uses), 0);
        queues.push(FrameNo(0), hash(FrameNo(0)));
        assert_eq!(queues.large, [FrameNo(0)]);
        assert_eq!(queues.small, [FrameNo(1), FrameNo(2), FrameNo(3)]);
    }
}
