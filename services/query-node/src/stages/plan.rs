//! Plan: which rows are asked of which I/O node. Pure.

use address::RowAddr;

/// What one I/O node is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The node: its place among the I/O tier's clients.
    pub owner: usize,
    /// Where its rows stand in the request, ascending.
    pub places: Vec<u32>,
    /// Their addresses.
    pub addrs: Vec<RowAddr>,
}

/// All of `addrs` to the only node.
pub fn all_to_one(addrs: &[RowAddr]) -> Vec<Share> {
    if addrs.is_empty() {
        return Vec::new();
    }
    vec![Share { owner: 0, places: (0..addrs.len() as u32).collect(), addrs: addrs.to_vec() }]
}

/// Deals `addrs` to their owners; the order within a share is that of the request.
pub fn plan(addrs: &[RowAddr], owner_of: impl Fn(RowAddr) -> usize) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (place, &addr) in (0..).zip(addrs) {
        let owner = owner_of(addr);
        let at = shares.iter().position(|share| share.owner == owner).unwrap_or_else(|| {
            let rest = addrs.len() - place as usize;
            let (places, addrs) = (Vec::with_capacity(rest), Vec::with_capacity(rest));
            shares.push(Share { owner, places, addrs });
            shares.len() - 1
        });
        shares[at].places.push(place);
        shares[at].addrs.push(addr);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_to_their_owners_in_order() {
        let addrs: Vec<_> = [5, 2, 9, 5, 4].map(|offset| RowAddr::new(0, offset)).into();
        let shares = plan(&addrs, |addr| (addr.offset() % 2) as usize);
        let share = |owner, places: &[u32], offsets: &[u32]| Share {
            owner,
            places: places.to_vec(),
            addrs: offsets.iter().map(|&offset| RowAddr::new(0, offset)).collect(),
        };
        assert_eq!(shares, [share(1, &[0, 2, 3], &[5, 9, 5]), share(0, &[1, 4], &[2, 4])]);
        assert_eq!(plan(&[], |_| 0), []);
        assert_eq!(all_to_one(&addrs), plan(&addrs, |_| 0));
        assert_eq!(all_to_one(&[]), []);
    }
}
