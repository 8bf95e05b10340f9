//! Cost of moving a stage.

use super::model::{Configuration, Move, Problem};
use serde::{Deserialize, Serialize};

/// Cost of moving a stage: a constant, and cycles for each byte that is copied (the paper's Figs. 2 and 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MoveCost {
    /// Cycles of each move, whatever its size.
    pub constant_cycles: f64,
    /// Cycles for each byte that is copied.
    pub cycles_per_byte: f64,
    /// Least number of bytes that a move copies, however small the state.
    pub bytes_min: u64,
}

impl MoveCost {
    /// Cycles of moving a state of `bytes` bytes. Half of them run on the core that the stage leaves, which writes its
    /// state into a buffer, half on the core that it goes to.
    ///
    /// ```
    /// use punctual_allocation::mapping::MoveCost;
    /// let cost = MoveCost { constant_cycles: 1000.0, cycles_per_byte: 2.0, bytes_min: 100 };
    /// assert_eq!((cost.cycles(50), cost.cycles(500)), (1200.0, 2000.0));
    /// ```
    pub fn cycles(&self, bytes: u64) -> f64 {
        self.constant_cycles + self.cycles_per_byte * bytes.max(self.bytes_min) as f64
    }

    /// Energy that `moves` add at the clocks of `configuration`, in joules: their cycles run instead of idling. Nothing
    /// where idle cores draw as much as busy ones.
    pub fn joules(&self, problem: &Problem, configuration: &Configuration, moves: impl Iterator<Item = Move>) -> f64 {
        let per_cycle = |core: usize| {
            let step = configuration.step(problem.cores(), core);
            (step.busy_watts - problem.rest_watts(step.idle_watts)) / step.clock.0 as f64
        };
        let one = |one: Move| {
            let cycles = self.cycles(problem.stages()[one.stage].state_bytes);
            cycles / 2.0 * (per_cycle(one.from) + per_cycle(one.to))
        };
        moves.map(one).sum()
    }
}
