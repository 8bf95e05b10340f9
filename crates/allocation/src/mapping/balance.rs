//! Levelling loads: one stage at a time from the most loaded core to the least loaded one.

use super::model::{Mapping, Move, Problem};

/// The move that lowers the load of the most loaded core the most, that of the target counted; none where all gain less
/// than `margin` cycles per frame. Of equal moves the one that copies the least.
///
/// Every move lowers the larger of the two loads by more than the margin and leaves the sum as it is, so that repeated
/// asking ends.
pub fn balance(problem: &Problem, mapping: &Mapping, margin: u64) -> Option<Move> {
    let loads = problem.loads(mapping);
    let from = (0..loads.len()).max_by_key(|core| (loads[*core].1, std::cmp::Reverse(*core)))?;
    let to = (0..loads.len()).min_by_key(|core| (loads[*core].1, *core))?;
    let stages = problem.stages().iter().enumerate().zip(mapping.cores());
    let options = stages.filter_map(|((number, stage), core)| {
        let after = loads[to].1 + stage.cycles_worst;
        let free = core == from && from != to;
        let left = (loads[from].1 - if free { stage.cycles_worst } else { 0 }).max(after);
        (free && left + margin < loads[from].1).then_some((left, stage.state_bytes, number))
    });
    let (_, _, stage) = options.min()?;
    Some(Move { stage, from, to })
}
