//! Positions of rows in a request.

/// Returns the positions of `all` that are not among `some`. Both are ascending, and `some` has only positions that
/// `all` has.
pub fn without<N: Copy + PartialEq>(
    all: impl Iterator<Item = N>,
    some: &[N],
) -> impl Iterator<Item = N> {
    let mut some = some.iter().copied().peekable();
    all.filter(move |position| some.next_if_eq(position).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positions_of_some_are_left_out() {
        let left = |some: &[u32]| without(0..4, some).collect::<Vec<u32>>();
        assert_eq!(left(&[]), [0, 1, 2, 3]);
        assert_eq!(left(&[0, 2]), [1, 3]);
        assert_eq!(left(&[1, 2, 3]), [0]);
        assert!(left(&[0, 1, 2, 3]).is_empty());
        assert_eq!(without([3, 5, 9].into_iter(), &[5usize]).collect::<Vec<usize>>(), [3, 9]);
    }
}
