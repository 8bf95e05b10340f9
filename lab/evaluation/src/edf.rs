//! Admission to exclusive cores under earliest deadline first, which the second paper assumes and Linux does not run.
//!
//! Under preemptive EDF on one core all deadlines of sporadic tasks hold if and only if for every t > 0 the demand
//! dbf(t) = sum over tasks of max(0, floor((t - D) / T) + 1) C is at most t (S. Baruah, L. Rosier and R. Howell, 1990).
//! It suffices to look within the synchronous busy period, and there only at few points: QPA (F. Zhang and A. Burns,
//! "Schedulability Analysis for Real-Time Systems with EDF Scheduling", IEEE Trans. Computers 2009) walks backwards
//! from its end.

use punctual_cores::Sporadic;
use punctual_units::CoreId;

/// Bound on the steps of each of the two iterations; a set that takes more is refused. A handful is usual; without the
/// bound, a set of utilisation close to 1 with incommensurable periods would hardly end.
const STEPS_MAX: u32 = 100_000;

/// Whether preemptive EDF on one core meets every deadline of `tasks`, whenever their jobs are released.
///
/// ```
/// use punctual_cores::Sporadic;
/// use punctual_evaluation::edf::fits;
/// use punctual_units::Nanos;
/// let ms = Nanos::from_millis;
/// let player = Sporadic { execution: ms(18), deadline: ms(41), period: ms(41) };
/// let loop_ = Sporadic { execution: ms(5), deadline: ms(10), period: ms(10) };
/// assert!(fits(&[player, loop_]));
/// assert!(!fits(&[player, player, loop_]));
/// ```
pub fn fits(tasks: &[Sporadic]) -> bool {
    if tasks.iter().any(|task| task.period.0 == 0 || task.deadline.0 == 0) {
        return false;
    }
    let Some(shortest) = tasks.iter().map(|task| task.deadline.0).min() else {
        return true;
    };
    let Some(busy) = busy_period(tasks) else {
        return false;
    };
    let due_by = |t: u64| tasks.iter().map(|task| demand(task, t)).sum::<u128>();
    let before = |t: u64| tasks.iter().filter_map(|task| deadline_before(task, t)).max();
    // QPA, from the last deadline within the busy period down to the shortest relative deadline. The busy period ends
    // with work done, so a deadline at its very end matters as well.
    let mut next = before(busy.saturating_add(1));
    for _ in 0..STEPS_MAX {
        let Some(t) = next else { return true };
        let due = due_by(t);
        if due > u128::from(t) {
            return false;
        }
        if due <= u128::from(shortest) {
            return true;
        }
        // due <= t fits into 64 bits.
        next = if due < u128::from(t) {
            Some(due as u64)
        } else {
            before(t)
        };
    }
    false
}

/// Upper bound on the work of the task's jobs that are both released and due within any span of `t`.
fn demand(task: &Sporadic, t: u64) -> u128 {
    let past = t.checked_sub(task.deadline.0);
    past.map_or(0, |past| {
        u128::from(past / task.period.0 + 1) * u128::from(task.execution.0)
    })
}

/// The last absolute deadline of the task before `t` where the first release is at 0.
fn deadline_before(task: &Sporadic, t: u64) -> Option<u64> {
    let past = t.checked_sub(1)?.checked_sub(task.deadline.0)?;
    Some(past / task.period.0 * task.period.0 + task.deadline.0)
}

/// The longest stretch for which the core is never idle: all tasks released at once and as often as they may. `None`
/// where it does not end within the bound, or the tasks need more than the core.
fn busy_period(tasks: &[Sporadic]) -> Option<u64> {
    if tasks.iter().map(Sporadic::utilisation).sum::<f64>() > 1.0 + 1e-12 {
        return None;
    }
    let mut length: u128 = tasks.iter().map(|task| u128::from(task.execution.0)).sum();
    for _ in 0..STEPS_MAX {
        let work = |task: &Sporadic| length.div_ceil(u128::from(task.period.0)) * u128::from(task.execution.0);
        let next = tasks.iter().map(work).sum::<u128>();
        if next == length {
            return u64::try_from(length).ok();
        }
        length = next;
    }
    None
}

/// Puts each task on one of `cores`: the largest utilisation first, on the first core on which it fits beside what is
/// there (first fit decreasing). Cores at the end of the list stay free of tasks where few suffice. Returns the core of
/// each task, in the order of `tasks`; `None` where a task fits on no core.
pub fn first_fit(tasks: &[Sporadic], cores: &[CoreId]) -> Option<Vec<CoreId>> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    // Ties keep the order of the list: the sort is stable.
    order.sort_by(|a, b| tasks[*b].utilisation().total_cmp(&tasks[*a].utilisation()));
    let mut placed = vec![CoreId::default(); tasks.len()];
    let mut on_core: Vec<Vec<Sporadic>> = vec![Vec::new(); cores.len()];
    for task in order {
        let beside = |there: &Vec<Sporadic>| fits(&[there.as_slice(), &[tasks[task]]].concat());
        let core = on_core.iter().position(beside)?;
        on_core[core].push(tasks[task]);
        placed[task] = cores[core];
    }
    Some(placed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_cores::responses;
    use punctual_units::Nanos;

    use super::*;

    /// A small task; its deadline may be shorter or longer than its period.
    fn task() -> impl Strategy<Value = Sporadic> {
        (1u64..8, 1u64..24, 1u64..16).prop_map(|(c, d, t)| Sporadic {
            execution: Nanos(c),
            deadline: Nanos(d),
            period: Nanos(t),
        })
    }

    /// EDF, unit by unit, all tasks released together and as often as they may: the worst case. Twice the hyperperiod
    /// and the longest deadline are enough to see every miss of a set that does not overload the core.
    fn simulated(tasks: &[Sporadic]) -> bool {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let periods = tasks.iter().map(|task| task.period.0);
        let hyper = periods.fold(1, |h, period| h / gcd(h, period) * period);
        let need: u64 = tasks.iter().map(|task| hyper / task.period.0 * task.execution.0).sum();
        if need > hyper {
            return false;
        }
        let longest = tasks.iter().map(|task| task.deadline.0).max().unwrap_or(0);
        let mut jobs: Vec<(u64, u64)> = Vec::new(); // absolute deadline, left to do
        for now in 0..2 * hyper + longest {
            for task in tasks.iter().filter(|task| now % task.period.0 == 0) {
                jobs.push((now + task.deadline.0, task.execution.0));
            }
            jobs.sort_unstable();
            if let Some(job) = jobs.first_mut() {
                job.1 -= 1;
            }
            jobs.retain(|job| job.1 > 0);
            if jobs.iter().any(|job| job.0 <= now + 1) {
                return false;
            }
        }
        true
    }

    proptest! {
        #[test]
        fn the_test_agrees_with_the_schedule(tasks in prop::collection::vec(task(), 1..4)) {
            prop_assert_eq!(fits(&tasks), simulated(&tasks));
        }

        #[test]
        fn every_core_fits_what_is_placed_on_it(tasks in prop::collection::vec(task(), 0..8), cores in 1u32..4) {
            let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
            if let Some(placed) = first_fit(&tasks, &cores) {
                for core in &cores {
                    let there: Vec<Sporadic> =
                        tasks.iter().zip(&placed).filter(|(_, on)| *on == core).map(|(t, _)| *t).collect();
                    prop_assert!(fits(&there));
                }
            }
        }

        #[test]
        fn one_core_takes_a_set_that_fits(tasks in prop::collection::vec(task(), 1..4)) {
            prop_assert_eq!(first_fit(&tasks, &[CoreId(3)]).is_some(), fits(&tasks));
        }

        #[test]
        fn less_work_never_stops_fitting(tasks in prop::collection::vec(task(), 1..4), which in 0usize..4) {
            if fits(&tasks) {
                let mut less = tasks.clone();
                let task = &mut less[which % tasks.len()];
                task.execution = task.execution - Nanos(1);
                prop_assert!(fits(&less));
            }
        }

        #[test]
        fn what_fixed_priorities_meet_earliest_deadline_first_meets(tasks in prop::collection::vec(task(), 1..5)) {
            prop_assert!(responses(&tasks, None).is_err() || fits(&tasks));
        }
    }

    #[test]
    fn impossible_tasks_are_refused() {
        let long = Sporadic {
            execution: Nanos(9),
            deadline: Nanos(8),
            period: Nanos(20),
        };
        assert!(!fits(&[long]));
        assert_eq!(first_fit(&[long], &[CoreId(1)]), None);
        let short = Sporadic {
            execution: Nanos(1),
            ..long
        };
        assert!(fits(&[short]));
        assert_eq!(first_fit(&[short], &[]), None);
        let endless = Sporadic {
            period: Nanos::ZERO,
            ..long
        };
        assert!(!fits(&[endless]));
    }
}
