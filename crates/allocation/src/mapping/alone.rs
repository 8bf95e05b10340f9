//! Levelling loads without a coordinator: each core decides for itself from the loads that all have published.
//!
//! **Problem.** Cores that decide by themselves from figures of a moment ago may all push a stage to the same idle
//! core, which then pushes them back: they play ping-pong.
//!
//! **Method.** Time is divided into rounds. In each, every core has at most one *partner*, which has it as partner as
//! well ([`partner`]: the schedule of a tournament, so that any two meet once in as many rounds as there are cores).
//! The heavier of the two may push one stage of `w` cycles to the lighter, where the loads differ by more than `w` plus
//! a margin. Both publish their loads before the next round.
//!
//! **Why it ends.** A core's load changes in its own pair only, so both partners decide from true figures, whatever the
//! others do meanwhile. A push lowers the sum of the squared loads by `2 w (difference - w)`, that is by more than
//! `2 w margin`. As loads stay the same otherwise, no state comes back, and there are at most `(sum of squares) / (2
//! (least w) margin)` pushes. A margin of 0 would still not let states come back, because the sum falls strictly.

use super::model::{Move, StageModel};

/// The partner of `core` in a round; none if it stays alone in it.
///
/// ```
/// use punctual_allocation::mapping::alone::partner;
/// assert_eq!((partner(0, 3, 1), partner(1, 3, 1), partner(2, 3, 1)), (Some(1), Some(0), None));
/// ```
pub fn partner(core: usize, cores: usize, round: u64) -> Option<usize> {
    let turn = (round % cores.max(1) as u64) as usize;
    let other = (turn + cores - core % cores.max(1)) % cores.max(1);
    (other != core && core < cores).then_some(other)
}

/// What `core` pushes in a round: of its own `stages` (by number), from the worst-case cycles per frame that all cores
/// have published. The stage that levels the two loads best; of equal ones that of the smallest state.
pub fn push<'s>(
    core: usize,
    round: u64,
    published: &[u64],
    stages: impl Iterator<Item = (usize, &'s StageModel)>,
    margin: u64,
) -> Option<Move> {
    let other = partner(core, published.len(), round)?;
    let ahead = published[core].checked_sub(published[other])?;
    let fits = stages.filter(|(_, stage)| stage.cycles_worst.saturating_add(margin) < ahead);
    let left = |stage: &StageModel| ahead.abs_diff(2 * stage.cycles_worst);
    let (stage, _) = fits.min_by_key(|(number, stage)| (left(stage), stage.state_bytes, *number))?;
    Some(Move {
        stage,
        from: core,
        to: other,
    })
}
