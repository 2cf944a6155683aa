//! Plan: divides a request's rows among the I/O nodes that own them. Pure.

use address::{ChunkId, RowAddr};

/// One node's slice of a request: the rows that are read from one I/O node, or from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSlice {
    /// The I/O node's index in the routes; `None` for the table.
    pub owner: Option<usize>,
    /// Positions of the slice's rows in the request, ascending.
    pub places: Vec<u32>,
    /// The rows' addresses.
    pub addrs: Vec<RowAddr>,
}

impl NodeSlice {
    fn with_capacity(owner: Option<usize>, rows: usize) -> Self {
        Self { owner, places: Vec::with_capacity(rows), addrs: Vec::with_capacity(rows) }
    }
}

/// Assigns all of `addrs` to `owner`.
pub fn all_to_one(addrs: &[RowAddr], owner: Option<usize>) -> Vec<NodeSlice> {
    if addrs.is_empty() {
        return Vec::new();
    }
    vec![NodeSlice { owner, places: (0..addrs.len() as u32).collect(), addrs: addrs.to_vec() }]
}

/// Divides `addrs` among their owners. `nodes` is the number of I/O nodes. `owner_of` is called once for rows of one chunk
/// that follow each other. The rows of all nodes for which `allow_request` returns false form one slice for the table.
/// `allow_request` is called once for each node that owns rows. Within a slice, rows keep the request's order.
pub fn plan(
    addrs: &[RowAddr],
    nodes: usize,
    chunk_of: impl Fn(RowAddr) -> ChunkId,
    owner_of: impl Fn(ChunkId) -> usize,
    allow_request: impl Fn(usize) -> bool,
) -> Vec<NodeSlice> {
    let mut last: Option<(ChunkId, usize)> = None;
    let owner = |&addr: &RowAddr| {
        let chunk = chunk_of(addr);
        let owner = match last {
            Some((last, owner)) if last == chunk => owner,
            _ => owner_of(chunk),
        };
        last = Some((chunk, owner));
        owner
    };
    let owners: Vec<usize> = addrs.iter().map(owner).collect();
    let mut rows = vec![0; nodes];
    owners.iter().for_each(|&owner| rows[owner] += 1);
    let is_asked: Vec<bool> =
        (0..nodes).map(|node| rows[node] > 0 && allow_request(node)).collect();
    let of_table = (0..nodes).filter(|&node| !is_asked[node]).map(|node| rows[node]).sum();
    // Index of each node's slice; the last entry is the table's.
    let mut at = vec![None; nodes + 1];
    let mut slices: Vec<NodeSlice> = Vec::new();
    for ((place, &addr), &owner) in (0..).zip(addrs).zip(&owners) {
        let (seat, owner, count) = match is_asked[owner] {
            true => (owner, Some(owner), rows[owner]),
            false => (nodes, None, of_table),
        };
        let at = *at[seat].get_or_insert_with(|| {
            slices.push(NodeSlice::with_capacity(owner, count));
            slices.len() - 1
        });
        slices[at].places.push(place);
        slices[at].addrs.push(addr);
    }
    slices
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn rows(offsets: &[u32]) -> Vec<RowAddr> {
        offsets.iter().map(|&offset| RowAddr::new(0, offset)).collect()
    }

    fn slice(owner: Option<usize>, places: &[u32], offsets: &[u32]) -> NodeSlice {
        NodeSlice { owner, places: places.to_vec(), addrs: rows(offsets) }
    }

    /// Returns a chunk of two rows.
    fn chunk_of(addr: RowAddr) -> ChunkId {
        ChunkId { fragment: addr.fragment(), index: addr.offset() / 2 }
    }

    /// Returns a chunk of one row.
    fn row_of(addr: RowAddr) -> ChunkId {
        ChunkId { fragment: addr.fragment(), index: addr.offset() }
    }

    #[test]
    fn the_owner_of_rows_that_follow_each_other_in_a_chunk_is_looked_up_once() {
        let asked = RefCell::new(Vec::new());
        let owner_of = |chunk: ChunkId| {
            asked.borrow_mut().push(chunk.index);
            chunk.index as usize % 2
        };
        let slices = plan(&rows(&[4, 5, 5, 2, 3, 4, 6]), 2, chunk_of, owner_of, |_| true);
        let dealt =
            [slice(Some(0), &[0, 1, 2, 5], &[4, 5, 5, 4]), slice(Some(1), &[3, 4, 6], &[2, 3, 6])];
        assert_eq!(slices, dealt);
        assert_eq!(*asked.borrow(), [2, 1, 2, 3]);
    }

    #[test]
    fn rows_go_to_their_owners_in_order() {
        let addrs = rows(&[5, 2, 9, 5, 4]);
        let owner_of = |chunk: ChunkId| (chunk.index % 2) as usize;
        let slices = plan(&addrs, 2, row_of, owner_of, |_| true);
        let dealt = [slice(Some(1), &[0, 2, 3], &[5, 9, 5]), slice(Some(0), &[1, 4], &[2, 4])];
        assert_eq!(slices, dealt);
        assert_eq!(plan(&[], 1, row_of, |_| 0, |_| true), []);
        assert_eq!(all_to_one(&addrs, Some(0)), plan(&addrs, 1, row_of, |_| 0, |_| true));
        assert_eq!(all_to_one(&addrs, None), plan(&addrs, 1, row_of, |_| 0, |_| false));
        assert_eq!(all_to_one(&[], None), []);
    }

    #[test]
    fn rows_of_nodes_that_may_not_be_asked_form_one_slice() {
        let asked = RefCell::new(Vec::new());
        let allow_request = |node| {
            asked.borrow_mut().push(node);
            node == 3
        };
        let owner_of = |chunk: ChunkId| chunk.index as usize % 4;
        let slices = plan(&rows(&[1, 3, 2, 1, 2, 7]), 5, row_of, owner_of, allow_request);
        let dealt = [slice(None, &[0, 2, 3, 4], &[1, 2, 1, 2]), slice(Some(3), &[1, 5], &[3, 7])];
        assert_eq!(slices, dealt);
        assert_eq!(*asked.borrow(), [1, 2, 3]);
    }
}
