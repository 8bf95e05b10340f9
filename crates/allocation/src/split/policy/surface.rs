//! Rates that jobs reach together with a part of the spare: surfaces over (ways, partitions), and how they are joined.
//!
//! **Method.** The surface of one job is its rate with each number of ways and partitions beyond the least. That of two
//! together is their max-plus product,
//!
//! ```text
//! both(c, b) = max over c' <= c, b' <= b of one(c', b') + other(c - c', b - b')
//! ```
//!
//! and so on, in a tournament: neighbours are joined until two are left, whose best split of all that is spare is one
//! pass over its cells. Then the way back down finds what each core got. Whole numbers, so that the best is found by
//! equality.

use smallvec::smallvec;

use crate::grid::{Grid, Share};
use crate::levels::LEVELS;
use crate::pool::{PerCore, Spare};

/// A surface, in place: cell (row, column) is `cells[row * stride + column]`; rows are ways, columns partitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub cells: &'a [i32],
    pub stride: usize,
}

impl<'a> View<'a> {
    /// The surface beyond `least` of a table in the order of [`Grid::index`].
    pub fn beyond(table: &'a [i32], grid: Grid, least: Share) -> View<'a> {
        View {
            cells: &table[grid.index(least)..],
            stride: usize::from(grid.partitions),
        }
    }

    /// The first columns of a row.
    fn row(self, row: usize, columns: usize) -> &'a [i32] {
        &self.cells[row * self.stride..][..columns]
    }
}

/// The max-plus product, for parts up to `spare`; by ways, then by partitions.
pub(crate) fn join(one: View<'_>, other: View<'_>, spare: Spare, both: &mut [i32]) {
    let columns = spare.partitions + 1;
    both.fill(i32::MIN);
    for ways in 0..=spare.ways {
        let out = &mut both[ways * columns..][..columns];
        for first in 0..=ways {
            let (ours, theirs) = (one.row(first, columns), other.row(ways - first, columns));
            for (partitions, ours) in ours.iter().enumerate() {
                // A vector operation covers many cells: that makes this loop quick.
                for (best, theirs) in out[partitions..].iter_mut().zip(theirs) {
                    *best = (*best).max(ours + theirs);
                }
            }
        }
    }
}

/// Bits beside a sum of two levels for the number of a cell.
const CELL_BITS: u32 = 12;
const _: () = assert!(
    2 * (LEVELS as i64) < 1 << (31 - CELL_BITS),
    "no bit is left for the sign"
);

/// The max-plus product of two surfaces of levels as [`join`] has it, and for each cell the cell that the first gets of
/// it.
///
/// The number of that cell rides along below the sum, so that the largest of both is found in one operation on many
/// cells.
pub(crate) fn join_with_split(
    one: View<'_>,
    other: View<'_>,
    spare: Spare,
    scratch: &mut [i32],
    (sums, firsts): (&mut [i32], &mut [u16]),
) {
    let (columns, cells) = (spare.partitions + 1, spare.cells());
    debug_assert!(cells <= 1 << CELL_BITS);
    let (ours, rest) = scratch.split_at_mut(cells);
    let (theirs, rest) = rest.split_at_mut(cells);
    let both = &mut rest[..cells];
    for (cell, (ours, theirs)) in ours.iter_mut().zip(&mut *theirs).enumerate() {
        let level = |view: View<'_>| view.row(cell / columns, columns)[cell % columns] << CELL_BITS;
        (*ours, *theirs) = (level(one) | cell as i32, level(other));
    }
    let view = |cells| View { cells, stride: columns };
    join(view(ours), view(theirs), spare, both);
    for ((both, sum), first) in both.iter().zip(sums).zip(firsts) {
        (*sum, *first) = (both >> CELL_BITS, (both & ((1 << CELL_BITS) - 1)) as u16);
    }
}

/// Best split of `whole` between two players: the part of the first. Of equals, the one in which the first gets the
/// fewest ways.
pub(crate) fn best_split(one: View<'_>, other: View<'_>, whole: Spare) -> Spare {
    let columns = whole.partitions + 1;
    let sums = |ways: usize| {
        let (ours, theirs) = (one.row(ways, columns), other.row(whole.ways - ways, columns));
        ours.iter().zip(theirs.iter().rev()).map(|(ours, theirs)| ours + theirs)
    };
    // First the best of each row, which is one operation on many cells; only then where in its row it is.
    let (mut best, mut row) = (i32::MIN, 0);
    for ways in 0..=whole.ways {
        let of_row = sums(ways).fold(i32::MIN, i32::max);
        if of_row > best {
            (best, row) = (of_row, ways);
        }
    }
    let partitions = sums(row).position(|sum| sum == best).unwrap_or(0);
    Spare { ways: row, partitions }
}

/// The best split of all of `spare` among all of `players`.
pub(crate) fn best_parts(players: &[View<'_>], spare: Spare, scratch: &mut [i32]) -> PerCore<Spare> {
    match players {
        [] => PerCore::new(),
        [_] => smallvec![spare],
        [one, other] => {
            let split = best_split(*one, *other, spare);
            smallvec![split, spare.without(split)]
        }
        many => {
            let cells = spare.cells();
            let (joined, scratch) = scratch.split_at_mut(many.len() / 2 * cells);
            for (pair, both) in many.chunks_exact(2).zip(joined.chunks_exact_mut(cells)) {
                join(pair[0], pair[1], spare, both);
            }
            let winners = joined.chunks_exact(cells).map(|cells| View {
                cells,
                stride: spare.partitions + 1,
            });
            let alone = many.chunks_exact(2).remainder();
            let next: PerCore<View<'_>> = winners.chain(alone.iter().copied()).collect();
            let parts = best_parts(&next, spare, scratch);
            let mut split = PerCore::new();
            for (pair, part) in many.chunks(2).zip(parts) {
                match pair {
                    [one, other] => {
                        let first = best_split(*one, *other, part);
                        split.extend([first, part.without(first)]);
                    }
                    _ => split.push(part),
                }
            }
            split
        }
    }
}
