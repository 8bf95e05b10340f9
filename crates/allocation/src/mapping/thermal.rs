//! Cooling the hottest core by exchanging stages with a cooler one.
//!
//! After F. Mulas, D. Atienza, A. Acquaviva, S. Carta, L. Benini and G. De Micheli, "Thermal Balancing Policy for
//! Multiprocessor Stream Computing Platforms", IEEE TCAD 28(12), 2009 (MiGra): a core that is hotter than the mean by a
//! threshold exchanges stages with a core below the mean. Of the exchanges that lower its load, that all cores can
//! serve and that draw no more than a given share above the mapping at hand, the one that copies the least state is
//! taken.

use smallvec::SmallVec;

use super::model::{Mapping, Move, Problem};

/// Exchange of one stage for another, or for nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// Moves of the exchange, one or two.
    pub moves: SmallVec<[Move; 2]>,
    /// Bytes of state that the moves copy.
    pub bytes: u64,
}

/// The exchange that takes load from the hottest core, if that is hotter than the mean of `celsius` by more than
/// `threshold` degrees. `None` otherwise, or where no exchange serves `fps` frames per second with at most `1 + dearer`
/// times the power.
pub fn thermal(
    problem: &Problem,
    mapping: &Mapping,
    fps: f64,
    celsius: &[f64],
    threshold: f64,
    dearer: f64,
) -> Option<Exchange> {
    let mean = celsius.iter().sum::<f64>() / celsius.len() as f64;
    let hottest = (0..celsius.len()).max_by(|one, other| celsius[*one].total_cmp(&celsius[*other]))?;
    if celsius[hottest] <= mean + threshold {
        return None;
    }
    let now = problem.watts(&problem.clocked(mapping, fps)?, fps)?;
    let load = problem.loads(mapping)[hottest].0;
    let serves = |exchange: &Exchange| {
        let after = mapping.after(&exchange.moves);
        let watts = problem
            .clocked(&after, fps)
            .and_then(|after| problem.watts(&after, fps));
        problem.loads(&after)[hottest].0 < load && watts.is_some_and(|watts| watts <= now * (1.0 + dearer))
    };
    let cooler = (0..celsius.len()).filter(|core| celsius[*core] < mean);
    let options = cooler.flat_map(|core| exchanges(problem, mapping, hottest, core));
    // Of equal sizes the one that leaves the least load, then the first.
    let key = |exchange: &Exchange| {
        (
            exchange.bytes,
            problem.loads(&mapping.after(&exchange.moves))[hottest].0,
        )
    };
    options.filter(serves).min_by_key(key)
}

/// Exchanges of each stage of `hot`, for nothing and for each stage of `cool`.
fn exchanges(problem: &Problem, mapping: &Mapping, hot: usize, cool: usize) -> Vec<Exchange> {
    let movable = |at: usize| {
        let here = mapping.cores().enumerate().filter(move |(_, core)| *core == at);
        here.map(|(stage, _)| stage)
    };
    let bytes = |stage: usize| problem.stages()[stage].state_bytes;
    let there = |stage| Move {
        stage,
        from: hot,
        to: cool,
    };
    let back = |stage| Move {
        stage,
        from: cool,
        to: hot,
    };
    let alone = movable(hot).map(|stage| Exchange {
        moves: [there(stage)].into_iter().collect(),
        bytes: bytes(stage),
    });
    let pairs = movable(hot).flat_map(|stage| movable(cool).map(move |other| (stage, other)));
    let both = pairs.map(|(stage, other)| Exchange {
        moves: [there(stage), back(other)].into_iter().collect(),
        bytes: bytes(stage) + bytes(other),
    });
    alone.chain(both).collect()
}
