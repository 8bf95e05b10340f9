//! Decides which job runs where, and how the player waits for its reads: by the paper, or by `punctual_cores`.

use punctual_cores::{Completion, LendingCosts, Sporadic};
use punctual_sim::{Step, Task};
use punctual_units::Nanos;
use thiserror::Error;

use crate::completion::{NoFigures, completion};
use crate::dual::{DualError, DualMachine, Exclusive, Management, Sharing, computes};
use crate::edf::first_fit;

use super::plan::{Approach, PlannedRun};

/// The decisions before a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Assignment of jobs to cores.
    pub management: Management,
    /// The longest read of the rehearsal; `None`: there was no rehearsal.
    pub longest: Option<Nanos>,
    /// The execution time of a frame that admission was asked for; `None`: no admission test.
    pub demanded: Option<Nanos>,
}

/// Reason why no decision is possible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Undecided {
    /// The medium has no service times.
    #[error(transparent)]
    NoFigures(#[from] NoFigures),
    /// The rehearsal, which measures service times, failed.
    #[error(transparent)]
    Rehearsal(#[from] DualError),
}

impl Decision {
    fn of(management: Management) -> Decision {
        Decision {
            management,
            longest: None,
            demanded: None,
        }
    }

    /// Whether the player has an exclusive core.
    pub fn is_granted(&self) -> bool {
        matches!(self.management, Management::Dual(_))
    }
}

/// Decides for one run of the plan. `rehearse` measures service times of the player's medium; it is called only where
/// they matter.
///
/// # Errors
/// [`Undecided`] without service times, or if the rehearsal fails.
pub fn decide(
    planned: &PlannedRun,
    machine: &DualMachine,
    player: &Task,
    rehearse: impl Fn() -> Result<Vec<Nanos>, DualError>,
) -> Result<Decision, Undecided> {
    let wait = planned
        .wait
        .map(|percent| machine.quantum().scaled(f64::from(percent) / 100.0));
    let shared = |sharing| Decision::of(Management::Shared(sharing));
    Ok(match planned.approach {
        Approach::Blocking => shared(wait.map_or(Sharing::Quantum, Sharing::QuantumAfter)),
        Approach::Fair => shared(Sharing::Fair),
        Approach::Fifo => shared(Sharing::Fifo),
        Approach::Dual => Decision::of(Management::Dual(Exclusive {
            places: machine.exclusive.iter().take(1).copied().collect(),
            waits: vec![Completion::Poll, OTHERS_WAIT],
            costs: lending(machine),
            slack: Nanos::ZERO,
            wait: wait.unwrap_or_default(),
        })),
        Approach::Computed => computed(machine, player, &rehearse()?)?,
    })
}

/// The player makes no request to the interactive jobs' device, so any choice serves.
const OTHERS_WAIT: Completion = Completion::Block;

/// Takes every decision by `punctual_cores`, from measured `services`.
fn computed(machine: &DualMachine, player: &Task, services: &[Nanos]) -> Result<Decision, NoFigures> {
    // On its exclusive core a job that blocked gets its core back at once: blocking costs two context switches.
    let block = machine.switch() * 2;
    let way = completion(services, block)?;
    let longest = services.iter().copied().max().ok_or(NoFigures)?;
    let read = longest + if way == Completion::Poll { Nanos::ZERO } else { block };
    let time = |step: &Step| computes(step).unwrap_or(read);
    // A frame needs one switch at its start, and another if the core was lent and is taken back.
    let execution = |steps: &Vec<Step>| steps.iter().map(time).sum::<Nanos>() + block;
    // The deadline of a frame is the end of its period.
    let period = player.deadline.unwrap_or_default();
    let demand = Sporadic {
        execution: player.jobs.lists().iter().map(execution).max().unwrap_or_default(),
        deadline: period,
        period,
    };
    let management = match first_fit(&[demand], &machine.exclusive) {
        Some(places) => Management::Dual(Exclusive {
            places,
            waits: vec![way, OTHERS_WAIT],
            costs: lending(machine),
            slack: demand.deadline - demand.execution,
            wait: Nanos::ZERO,
        }),
        None => Management::Shared(Sharing::Fifo),
    };
    Ok(Decision {
        management,
        longest: Some(longest),
        demanded: Some(demand.execution),
    })
}

/// Lending switches to other work; taking back interrupts it at once and switches back.
fn lending(machine: &DualMachine) -> LendingCosts {
    LendingCosts {
        hand_over: machine.switch(),
        take_back: machine.switch(),
    }
}

#[cfg(test)]
mod tests {
    use crate::dual::compute;
    use punctual_sim::{Access, PageRequest};
    use punctual_units::Time;

    use super::super::setting::PERIOD;
    use super::*;

    /// 10 ms of computation and 100 reads a frame.
    fn player() -> Task {
        let read = Step::Io {
            device: 0,
            request: PageRequest {
                access: Access::Read,
                page: 0,
                pages: 1,
            },
        };
        let mut frame = vec![compute(Nanos::from_millis(10))];
        frame.extend([read; 100]);
        super::super::replicate::played("player", Time::ZERO, PERIOD, vec![frame])
    }

    fn computed(services: &[Nanos]) -> Decision {
        super::computed(&DualMachine::dps_dual_core(), &player(), services).unwrap()
    }

    #[test]
    fn one_long_read_refuses_a_core_that_short_ones_are_granted() {
        let quick = vec![Nanos::from_micros(6); 99];
        let granted = computed(&quick);
        assert_eq!(granted.demanded, Some(Nanos::from_micros(10_000 + 100 * 6 + 30)));
        let Management::Dual(decided) = &granted.management else {
            panic!("{granted:?}")
        };
        assert_eq!(decided.waits[0], Completion::Poll);
        // One in a hundred takes longer than the hundredth part of what is left of the period.
        let mut collecting = quick;
        collecting.push(Nanos::from_millis(1));
        let refused = computed(&collecting);
        assert_eq!(refused.management, Management::Shared(Sharing::Fifo));
        assert_eq!((refused.is_granted(), granted.is_granted()), (false, true));
    }

    #[test]
    fn a_job_that_blocks_is_charged_its_switches() {
        let services = vec![Nanos::from_micros(60); 3];
        let demanded = computed(&services).demanded;
        assert_eq!(demanded, Some(Nanos::from_micros(10_000 + 100 * (60 + 30) + 30)));
    }

    #[test]
    fn nothing_is_rehearsed_without_a_need() {
        let machine = DualMachine::dps_dual_core();
        let rehearse = || panic!("it was rehearsed");
        for approach in [Approach::Blocking, Approach::Fair, Approach::Fifo, Approach::Dual] {
            let planned = PlannedRun::of(approach);
            let decision = decide(&planned, &machine, &player(), rehearse).unwrap();
            assert_eq!(decision.is_granted(), approach == Approach::Dual);
            assert_eq!(decision.demanded, None);
        }
    }
}
