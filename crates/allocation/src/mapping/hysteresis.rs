//! Following a table as far as it pays.
//!
//! The best mapping of the new frame rate is taken where the mapping at hand cannot serve the rate, and otherwise only
//! where it saves more energy, over the time that the rate is expected to stay, than the moves cost. Clocks change for
//! free and always follow.
//!
//! The rate is expected to stay as long as rates have stayed on average, with a weight of [`WEIGHT`] on the latest one.

use punctual_units::{Nanos, Time};
use smallvec::SmallVec;

use super::cost::MoveCost;
use super::model::{Configuration, Mapping, Move, Problem, STAGES_MAX};
use super::table::MappingTable;

/// Weight of the latest stay in the expected one. Chosen by hand: four stays make most of it.
pub const WEIGHT: f64 = 0.25;

/// Decides when to move.
#[derive(Clone, Debug)]
pub struct Keeper {
    problem: Problem,
    table: MappingTable,
    cost: MoveCost,
    mapping: Mapping,
    /// The rate at hand, and since when.
    rate: Option<(f64, Time)>,
    stay: Nanos,
}

/// Configuration to take, and the moves that lead to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigurationChange {
    /// Mapping and clocks to take.
    pub configuration: Configuration,
    /// The stages to move, first those that leave the most loaded core.
    pub moves: SmallVec<[Move; STAGES_MAX]>,
}

impl Keeper {
    /// Begins at `mapping`; `stay` is how long rates are expected to stay until some have been measured.
    pub fn new(problem: Problem, table: MappingTable, cost: MoveCost, mapping: Mapping, stay: Nanos) -> Keeper {
        Keeper {
            problem,
            table,
            cost,
            mapping,
            rate: None,
            stay,
        }
    }

    /// Goes on with other loads, or another machine; what was learned about rates stays.
    pub fn relearn(&mut self, problem: Problem, table: MappingTable) {
        (self.problem, self.table) = (problem, table);
    }

    /// Goes on from a mapping that another hand has made.
    pub fn go_on_from(&mut self, mapping: Mapping) {
        self.mapping = mapping;
    }

    /// The mapping at hand.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Decides for `fps` frames per second from `now` on; `None` where no configuration serves the rate.
    pub fn decide(&mut self, fps: f64, now: Time) -> Option<ConfigurationChange> {
        self.learn(fps, now);
        let best = &self.table.row(fps)?.configuration;
        let configuration = match self.problem.clocked(&self.mapping, fps) {
            Some(here) if !self.pays(&here, best, fps) => here,
            _ => best.clone(),
        };
        let mut moves: SmallVec<[Move; STAGES_MAX]> = self.mapping.moves(&configuration.mapping).collect();
        let loads = self.problem.loads(&self.mapping);
        moves.sort_by_key(|one| std::cmp::Reverse(loads[one.from].1));
        self.mapping = configuration.mapping.clone();
        Some(ConfigurationChange { configuration, moves })
    }

    fn learn(&mut self, fps: f64, now: Time) {
        match self.rate {
            Some((rate, _)) if rate == fps => {}
            Some((_, since)) => {
                let stayed = now.since(since);
                self.stay = self.stay.scaled(1.0 - WEIGHT) + stayed.scaled(WEIGHT);
                self.rate = Some((fps, now));
            }
            None => self.rate = Some((fps, now)),
        }
    }

    fn pays(&self, here: &Configuration, best: &Configuration, fps: f64) -> bool {
        let (Some(now), Some(then)) = (self.problem.watts(here, fps), self.problem.watts(best, fps)) else {
            return true;
        };
        let cost = self.cost.joules(&self.problem, best, here.mapping.moves(&best.mapping));
        (now - then) * self.stay.as_secs_f64() > cost
    }
}
