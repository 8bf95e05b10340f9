//! Which exclusive tasks get a core, which core, and what lending it costs.
//!
//! Tasks are admitted to cores by response-time analysis, because the kernel schedules them by fixed priorities
//! (`cores::responses`); first fit, so that few cores are taken, the last ones first, and the first core is always left to others. Once
//! the cores are taken, what waking up costs there is measured, and the tasks are admitted again with that much more in each job. Who is refused runs
//! as a real-time task; that is told and never an error.

use punctual_cores::{Bandwidth, LendingCosts, Sporadic, Unfit, admit, by_deadline, responses};
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::real_time::{RealTimeLimits, Throttling};
use punctual_platform::linux::{KernelTree, LinuxMachine};
use punctual_platform::{Machine, Refusal};
use punctual_units::{CoreId, Nanos};
use punctual_workload::Arrival;

use super::shared::protection;
use super::tenancy::{Accountant, LendingMeasured, Tenancy, measure_lending};
use super::{TASK_PRIORITY, UPDATER_PRIORITY};
use crate::report::Protection;

/// Real-time priorities on one core, one for each task: equal ones would run in the order of their releases, which is not what is analysed.
const PRIORITIES: usize = (TASK_PRIORITY - UPDATER_PRIORITY) as usize;

/// What is known of an exclusive task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) name: String,
    /// By its place among all tasks.
    pub(super) task: usize,
    pub(super) deadline: Nanos,
    pub(super) arrival: Arrival,
    /// How long a job keeps the core at most.
    pub(super) execution: Option<Nanos>,
}

impl Offer {
    fn sporadic(&self) -> Option<Sporadic> {
        let execution = self.execution?;
        Some(Sporadic {
            execution,
            deadline: self.deadline,
            period: match self.arrival {
                Arrival::Periodic { period } => period,
                Arrival::Sporadic { gap_min, .. } => gap_min,
                // A job that takes less comes again sooner, but never needs a larger share of the core.
                Arrival::AfterCompletion { pause_min, .. } => pause_min + execution,
            },
        })
    }
}

/// A task's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) core: CoreId,
    /// SCHED_FIFO.
    pub(super) priority: u8,
    /// From release to completion at most, where that can be known.
    pub(super) response: Option<Nanos>,
}

/// Seats for `offers`, in their order, on as few of `cores` as are needed, the first ones first; each job takes `overhead` more than told.
fn seats(
    offers: &[Offer],
    cores: &[CoreId],
    overhead: Nanos,
    bandwidth: Option<Bandwidth>,
) -> Vec<Result<Seat, Unfit>> {
    let burdened = |offer: &Offer| offer.sporadic().map(|task| task.with_overhead(overhead));
    let tasks: Vec<Option<Sporadic>> = offers.iter().map(burdened).collect();
    let cores = admit(&tasks, cores, |there| match there.len() {
        0..=PRIORITIES => responses(there, bandwidth).map(drop),
        _ => Err(Unfit::NoCore),
    });
    let seat = |(offer, core): (usize, &Result<CoreId, Unfit>)| {
        let core = (*core)?;
        let alone = Seat {
            core,
            priority: TASK_PRIORITY,
            response: None,
        };
        let Some(_) = tasks[offer] else { return Ok(alone) };
        let there: Vec<usize> = (0..tasks.len()).filter(|other| cores[*other] == Ok(core)).collect();
        let together: Vec<Sporadic> = there.iter().filter_map(|other| tasks[*other]).collect();
        let place = there.iter().position(|other| *other == offer).unwrap_or_default();
        let order = by_deadline(&together);
        let rank = order.iter().position(|other| *other == place).unwrap_or_default();
        Ok(Seat {
            priority: TASK_PRIORITY - rank as u8,
            response: responses(&together, bandwidth)?.get(place).copied(),
            ..alone
        })
    };
    cores.iter().enumerate().map(seat).collect()
}

/// The cores that may be exclusive, the last one first; the first one is left to others. The only core is offered to be refused with a reason.
fn candidates(cores: &[CoreId]) -> Vec<CoreId> {
    match cores {
        [] | [_] => cores.to_vec(),
        [_, rest @ ..] => rest.iter().rev().copied().collect(),
    }
}

/// The cores of a machine with `cores` that `offers` will ask for.
pub(super) fn wanted(offers: &[Offer], cores: &[CoreId]) -> Vec<CoreId> {
    let bandwidth = bandwidth(RealTimeLimits::read(&KernelTree::default()));
    let wanted = cores_of(&seats(offers, &candidates(cores), Nanos::ZERO, bandwidth));
    // All of them will not be had.
    if wanted.len() < cores.len() { wanted } else { Vec::new() }
}

/// The cores in `seats`, the last of the machine first.
fn cores_of(seats: &[Result<Seat, Unfit>]) -> Vec<CoreId> {
    let mut cores: Vec<CoreId> = seats.iter().flatten().map(|seat| seat.core).collect();
    cores.sort_unstable_by(|a, b| b.cmp(a));
    cores.dedup();
    cores
}

/// How much of a core the kernel leaves to real-time threads.
fn bandwidth(limits: RealTimeLimits) -> Option<Bandwidth> {
    match limits.throttling {
        Throttling::Bounded { runtime, period } | Throttling::Possible { runtime, period } => {
            Some(Bandwidth { runtime, period })
        }
        Throttling::Off | Throttling::Unknown => None,
    }
}

/// The cores that were taken, and who sits there.
pub(super) struct Exclusive {
    homes: Vec<Home>,
    /// By the tasks' places among all tasks.
    seated: Vec<(usize, Seat)>,
}

/// One of them.
struct Home {
    core: ExclusiveCore,
    /// For those who sit there and have not asked yet; none where the core cannot be lent.
    tenancies: Vec<Tenancy>,
}

impl Exclusive {
    /// Takes the cores that `offers` need; what was obtained, and who was refused and why, goes to `told`.
    pub(super) fn take(
        machine: &LinuxMachine,
        offers: &[Offer],
        spare: &[String],
        told: &mut Vec<Protection>,
    ) -> Option<Exclusive> {
        if offers.is_empty() {
            return None;
        }
        let bandwidth = bandwidth(RealTimeLimits::read(&KernelTree::default()));
        let wanted = seats(offers, &candidates(&machine.offers().cores), Nanos::ZERO, bandwidth);
        let cores = cores_of(&wanted);
        if cores.is_empty() {
            told.extend(refusals(offers, &wanted));
            return None;
        }
        let cores = match machine.exclusive_cores(&cores, spare) {
            Ok(cores) => cores,
            Err(refusal) => {
                told.push(protection("a core of its own for exclusive tasks".into(), Err(refusal)));
                return None;
            }
        };
        told.extend(cores.iter().map(|core| protection(core.obtained().to_string(), Ok(()))));
        let better = cores.iter().take(1).flat_map(|core| &core.obtained().refused);
        told.extend(better.map(|refusal| protection(refusal.what.clone(), Err(refusal.clone()))));
        let measured: Vec<Result<LendingMeasured, Refusal>> =
            cores.iter().map(|core| measure_lending(core, TASK_PRIORITY)).collect();
        let overhead = measured.iter().flatten().map(LendingMeasured::waking).max();
        let overhead = overhead.unwrap_or_default();
        let ids: Vec<CoreId> = cores.iter().map(|core| core.obtained().core).collect();
        let seats = seats(offers, &ids, overhead, bandwidth);
        told.extend(refusals(offers, &seats));
        let seated = offers
            .iter()
            .zip(seats)
            .filter_map(|(offer, seat)| Some((offer, seat.ok()?)));
        let seated: Vec<(&Offer, Seat)> = seated.collect();
        let mut homes = Vec::new();
        for (core, measured) in cores.into_iter().zip(measured) {
            let here = seated.iter().filter(|(_, seat)| seat.core == core.obtained().core);
            let here: Vec<(&Offer, Seat)> = here.copied().collect();
            if here.is_empty() {
                // Nobody is left to call it back.
                let what = format!("core {} lent to the end: no exclusive task fits", core.obtained().core);
                told.push(protection(what, core.lend()));
                continue;
            }
            told.extend(here.iter().map(|(offer, seat)| admitted(offer, seat, here.len())));
            let mut costs = measured.map(|measured| measured.costs());
            let at_first = costs
                .as_mut()
                .map(|costs| costs.costs())
                .map_err(|refusal| refusal.clone());
            told.push(lending(core.obtained().core, &at_first));
            homes.push(Home {
                tenancies: match costs {
                    Ok(costs) => Tenancy::shared(core.clone(), costs, here.len()),
                    Err(_) => Vec::new(),
                },
                core,
            });
        }
        let seated = seated.iter().map(|(offer, seat)| (offer.task, *seat)).collect();
        (!homes.is_empty()).then_some(Exclusive { homes, seated })
    }

    /// The cores, the last one of the machine first.
    pub(super) fn cores(&self) -> impl Iterator<Item = &ExclusiveCore> {
        self.homes.iter().map(|home| &home.core)
    }

    /// The seat of the task in this place among all tasks, if it is exclusive and was admitted, with its core.
    pub(super) fn seat(&self, task: usize) -> Option<(Seat, &ExclusiveCore)> {
        let (_, seat) = self.seated.iter().find(|(seated, _)| *seated == task)?;
        let core = self.cores().find(|core| core.obtained().core == seat.core)?;
        Some((*seat, core))
    }

    /// Who reads what becomes of lending each core; to be asked for before the tenancies are.
    pub(super) fn accountants(&self) -> Vec<Accountant> {
        let one = |home: &Home| home.tenancies.first().map(Tenancy::accountant);
        self.homes.iter().filter_map(one).collect()
    }

    /// The same task's part in lending its core; to be asked for once.
    pub(super) fn tenancy(&mut self, task: usize) -> Option<Tenancy> {
        let core = self.seat(task)?.0.core;
        let home = self.homes.iter_mut().find(|home| home.core.obtained().core == core)?;
        home.tenancies.pop()
    }
}

fn admitted(offer: &Offer, seat: &Seat, tasks: usize) -> Protection {
    let Seat { core, response, .. } = seat;
    let beside = match tasks - 1 {
        0 => "alone".to_owned(),
        1 => "beside 1 other".to_owned(),
        others => format!("beside {others} others"),
    };
    let response = match response {
        Some(response) => format!("done within {response} of {} by response-time analysis", offer.deadline),
        None => "how long its jobs take is not known".into(),
    };
    protection(
        format!("{}: admitted to core {core} {beside}, {response}", offer.name),
        Ok(()),
    )
}

fn lending(core: CoreId, costs: &Result<LendingCosts, Refusal>) -> Protection {
    let what = match costs {
        Ok(costs) => format!(
            "core {core} lent while idle, taken back {} before a release at first (p99 here), then as long as it takes in the run",
            costs.take_back
        ),
        Err(_) => format!("lending core {core}"),
    };
    protection(what, costs.as_ref().map(drop).map_err(Clone::clone))
}

/// Who is refused a core, and why.
fn refusals(offers: &[Offer], seats: &[Result<Seat, Unfit>]) -> Vec<Protection> {
    let refused = |(offer, seat): (&Offer, &Result<Seat, Unfit>)| {
        let unfit = seat.as_ref().err()?;
        let why = match *unfit {
            Unfit::Response {
                task,
                response,
                deadline,
            } => {
                let late = offers.get(task).map_or("a task", |late| late.name.as_str());
                format!("with it, {late} can take {response} or more, its deadline is {deadline}")
            }
            unfit => unfit.to_string(),
        };
        let refusal = Refusal {
            what: format!("an exclusive core for {}", offer.name),
            why,
            remedy: "it runs as a real-time task; shorten it, give it more time, or run on a machine with more cores"
                .into(),
        };
        let what = format!("{}: on a core of its own or with other exclusive tasks", offer.name);
        Some(protection(what, Err(refusal)))
    };
    offers.iter().zip(seats).filter_map(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    fn offer(task: usize, execution: Option<u64>, every: u64) -> Offer {
        Offer {
            name: format!("task {task}"),
            task,
            deadline: MS * every,
            arrival: Arrival::Periodic { period: MS * every },
            execution: execution.map(|execution| MS * execution),
        }
    }

    #[test]
    fn few_cores_are_taken_from_the_end_and_the_first_stays_with_the_rest() {
        let cores: Vec<CoreId> = (0..4).map(CoreId).collect();
        let candidates = candidates(&cores);
        assert_eq!(candidates, [CoreId(3), CoreId(2), CoreId(1)]);
        let offers = [offer(0, Some(15), 40), offer(1, Some(5), 20), offer(2, Some(9), 36)];
        let two = seats(&offers[..2], &candidates, Nanos::ZERO, None);
        assert_eq!(cores_of(&two), [CoreId(3)]);
        let seat = |seat: &Result<Seat, Unfit>| (*seat).map(|seat| (seat.priority, seat.response));
        assert_eq!(seat(&two[0]), Ok((79, Some(MS * 20))), "15 ms and one job of the other");
        assert_eq!(seat(&two[1]), Ok((80, Some(MS * 5))));
        let three = seats(&offers, &candidates, Nanos::ZERO, None);
        assert_eq!(cores_of(&three), [CoreId(3)], "15 + 9 + 2 * 5 = 34 of 40 ms");
        // What waking up costs is part of every job: 17 + 11 + 2 * 7 = 42 ms.
        let burdened = seats(&offers, &candidates, MS * 2, None);
        assert_eq!(cores_of(&burdened), [CoreId(3), CoreId(2)]);
    }

    #[test]
    fn who_does_not_fit_is_refused_with_the_reason_and_who_is_unknown_sits_alone() {
        let offers = [offer(0, Some(15), 40), offer(1, None, 20), offer(2, Some(30), 40)];
        let one = seats(&offers, &[CoreId(1)], Nanos::ZERO, None);
        assert!(one[2].is_ok() && one[0].is_err() && one[1] == Err(Unfit::Unknown));
        let told = refusals(&offers, &one);
        assert_eq!(told.len(), 2);
        let why = told[0].refused.as_ref().map(|refusal| refusal.why.as_str());
        assert_eq!(why, Some("together they need more than the whole core"));
        let more = seats(&offers, &[CoreId(3), CoreId(2), CoreId(1)], Nanos::ZERO, None);
        let cores: Vec<Option<CoreId>> = more
            .iter()
            .map(|seat| seat.as_ref().ok().map(|seat| seat.core))
            .collect();
        assert_eq!(cores, [Some(CoreId(2)), Some(CoreId(1)), Some(CoreId(3))]);
    }

    #[test]
    fn the_kernels_bound_counts() {
        let bandwidth = Some(Bandwidth {
            runtime: MS * 950,
            period: MS * 1000,
        });
        let seats = seats(&[offer(0, Some(39), 40)], &[CoreId(1)], Nanos::ZERO, bandwidth);
        assert!(matches!(seats[0], Err(Unfit::Throttled { .. })), "{seats:?}");
    }

    #[test]
    fn every_task_of_a_core_has_a_priority_of_its_own() {
        let offers: Vec<Offer> = (0..PRIORITIES + 1).map(|task| offer(task, Some(1), 100)).collect();
        let seats = seats(&offers, &[CoreId(1)], Nanos::ZERO, None);
        let mut priorities: Vec<u8> = seats.iter().flatten().map(|seat| seat.priority).collect();
        assert_eq!(priorities.len(), PRIORITIES, "one is refused");
        priorities.sort_unstable();
        priorities.dedup();
        assert_eq!(priorities.len(), PRIORITIES);
        assert!(priorities[0] > UPDATER_PRIORITY);
    }
}
