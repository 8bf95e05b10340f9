//! Costs of store accesses on this machine, measured at start-up.
//!
//! Each figure is taken from [`ROUNDS`] batches of a few milliseconds on a scratch store of the run's shape, on the
//! real-time core, at the priority of jobs, at full clock. Costs come from the same interpreter and the same
//! transactions that the run uses, so that a compiled program takes what was demanded.
//!
//! Other work on the machine is no part of a cost. Time in which this thread was ready and another one had the core is
//! subtracted from each batch. The rest still varies: caches are cold after such a wait, and memory is shared. The
//! typical cost, by which work is sized, is the median of the batches. It is not the least cost, because all figures
//! take turns for more than a second, and a load that was sized in the luckiest moment is an overload a second later.
//! The least cost decides whether a task can run here at all, so that the answer does not depend on what runs beside.

use std::sync::Arc;

use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::run_queue::RunQueue;
use punctual_runtime::linux::Job;
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Hertz, Nanos, SensorId, Seq, Time};
use punctual_workload::{Costs, ObjectSet, Op, Program};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::interpret::Interpreter;

/// Number of batches per figure, and the least number if these take longer than [`MEASURED_MAX`].
const ROUNDS: usize = 40;
const ROUNDS_MIN: usize = 8;
/// Time after which fewer rounds are enough: on a machine where each batch waits for its turn, all would take minutes.
const MEASURED_MAX: Nanos = Nanos::from_secs(8);
/// Objects per long transaction: enough for the transaction itself to vanish in the figure.
const MANY: u32 = 256;
/// Updates that arrive together: about a millisecond's worth of the fire scenario.
const ARRIVALS: usize = 64;
/// Stride through the sensors: a prime, coprime to [`super::CALIBRATION_SENSORS`].
const STRIDE: u32 = 7919;
/// Least duration of a batch: long against the cold start of a core that was idle.
const BATCH: Nanos = Nanos::from_millis(3);
/// Uncounted time before each batch: caches and core wake up.
const WARM_UP: Nanos = Nanos::from_millis(1);
/// Pause after each batch, so that real-time calibration stays far below the kernel's 95 % throttle.
const BREATH: Nanos = Nanos::from_millis(2);

/// Costs as they were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeasuredCosts {
    /// Costs by which work is sized.
    pub typical: Costs,
    /// Costs in the batches that were disturbed least.
    pub least: Costs,
}

/// Measures what accesses cost on `store`, which holds `sensors` temporal and `objects` ordinary objects of
/// `object_bytes` bytes. Its contents change. `None` where `go_on` became false on the way.
pub(super) fn costs<E: Engine>(
    store: &Store<E, LinuxOs>,
    emulated: &Arc<EmulatedClock>,
    sensors: u32,
    objects: u32,
    object_bytes: u32,
    value_bytes: u32,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<MeasuredCosts>, StoreError> {
    let mut updates = UpdateStream {
        store,
        value: vec![0; value_bytes as usize],
        sensors,
        seq: 1,
        next: 0,
    };
    for _ in 0..sensors.div_ceil(ARRIVALS as u32) {
        // Every sensor has reported, as in a running system: a get that finds nothing would be too cheap.
        updates.arrive()?;
    }
    let perform = |op: Op| {
        let rng = ChaCha8Rng::seed_from_u64(0);
        let mut interpreter = Interpreter::new(Program { ops: vec![op] }, sensors, objects, Arc::clone(emulated), rng);
        move || interpreter.perform(&mut Job::begin(store, 0, Time::ZERO, None))
    };
    let get = |count| {
        perform(Op::Get {
            table: ObjectSet::Sensors,
            count,
        })
    };
    let put = |count| {
        perform(Op::Put {
            count,
            bytes: object_bytes,
        })
    };
    let (mut one_get, mut many_gets) = (get(1), get(MANY));
    let (mut one_put, mut many_puts) = (put(1), put(MANY));
    let mut arrive = || updates.arrive();
    let works: [Work<'_>; 5] = [&mut one_get, &mut many_gets, &mut one_put, &mut many_puts, &mut arrive];
    let Some(batches) = measure(works, go_on)? else {
        return Ok(None);
    };
    Ok(Some(MeasuredCosts::of(&batches, emulated.offer().top())))
}

impl MeasuredCosts {
    /// Costs from the batches of transactions of one and of [`MANY`] gets, of one and of [`MANY`] puts, and of
    /// [`ARRIVALS`] updates.
    fn of(batches: &[Vec<Batch>; 5], top: Hertz) -> MeasuredCosts {
        let sorted = batches.each_ref().map(|batches| {
            let mut calls: Vec<f64> = batches.iter().map(Batch::call_ns).collect();
            calls.sort_unstable_by(f64::total_cmp);
            calls
        });
        MeasuredCosts {
            typical: costs_of(sorted.each_ref().map(|calls| calls[calls.len() / 2]), top),
            least: costs_of(sorted.each_ref().map(|calls| calls[0]), top),
        }
    }
}

/// Costs from the times of one call, in nanoseconds.
fn costs_of([one_get, many_gets, one_put, many_puts, arrivals]: [f64; 5], top: Hertz) -> Costs {
    let get_ns = slope(one_get, many_gets);
    let put_ns = slope(one_put, many_puts);
    Costs {
        top,
        get_ns,
        read_txn_ns: (one_get - get_ns).max(0.0),
        put_ns,
        write_txn_ns: (one_put - put_ns).max(0.0),
        update_ns: arrivals / ARRIVALS as f64,
    }
}

/// An access whose cost is measured.
type Work<'w> = &'w mut dyn FnMut() -> Result<(), StoreError>;

/// Cost of one more object, from transactions of 1 and of [`MANY`]; never zero, because it is divided by.
fn slope(one: f64, many: f64) -> f64 {
    ((many - one) / f64::from(MANY - 1)).max(1.0)
}

/// Updates of one sensor after the other, from offer to installation.
struct UpdateStream<'s, E: Engine> {
    store: &'s Store<E, LinuxOs>,
    value: Vec<u8>,
    sensors: u32,
    seq: u64,
    next: u32,
}

impl<E: Engine> UpdateStream<'_, E> {
    /// Offers and installs [`ARRIVALS`] updates, as they arrive in a run: together, at a tick of the feeder.
    fn arrive(&mut self) -> Result<(), StoreError> {
        for _ in 0..ARRIVALS {
            let now = LinuxOs.now();
            self.store.offer(SensorId(self.next), Seq(self.seq), now, &self.value)?;
            // Sensors in no order of their keys, as they report: a stride that is coprime to their number visits all.
            self.next = (self.next + STRIDE) % self.sensors;
            if self.next == 0 {
                self.seq += 1;
            }
        }
        self.store.install_pending(ARRIVALS).map(drop)
    }
}

/// A batch of calls.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Time from its start to its end.
    took: Nanos,
    /// Part of it in which the thread was ready, and another one had its core.
    ready: Nanos,
    /// Number of calls, at least 1.
    calls: u64,
}

impl Batch {
    /// Time of one call without that of others, in nanoseconds.
    fn call_ns(&self) -> f64 {
        self.took.saturating_sub(self.ready).0 as f64 / self.calls as f64
    }
}

/// Batches of each of `works`, until there are enough. `None` where `go_on` became false.
fn measure<const N: usize>(
    mut works: [Work<'_>; N],
    go_on: &dyn Fn() -> bool,
) -> Result<Option<[Vec<Batch>; N]>, StoreError> {
    let queue = RunQueue::of_this_thread();
    // A kernel that keeps no such account leaves the waits in: the least cost still leaves them out.
    let waited = || queue.as_ref().and_then(RunQueue::waited).unwrap_or_default();
    let mut batches = [const { Vec::new() }; N];
    let begun = LinuxOs.now();
    while !is_enough(batches[0].len(), LinuxOs.now().since(begun)) {
        if !go_on() {
            return Ok(None);
        }
        for (work, batches) in works.iter_mut().zip(&mut batches) {
            batches.push(batch(work, &waited)?);
        }
    }
    Ok(Some(batches))
}

/// Whether these `rounds` suffice; `took` is their time.
fn is_enough(rounds: usize, took: Nanos) -> bool {
    rounds >= ROUNDS || rounds >= ROUNDS_MIN && took >= MEASURED_MAX
}

fn batch(work: &mut dyn FnMut() -> Result<(), StoreError>, waited: &dyn Fn() -> Nanos) -> Result<Batch, StoreError> {
    repeat(work, WARM_UP)?;
    let (begun, waited_before) = (LinuxOs.now(), waited());
    let (ended, calls) = repeat(work, BATCH)?;
    let ready = waited().saturating_sub(waited_before);
    LinuxOs.sleep_until(ended + BREATH);
    Ok(Batch {
        took: ended.since(begun),
        ready,
        calls,
    })
}

/// Repeats `work` for at least `span`. Returns when it ended and the number of calls.
fn repeat(work: &mut dyn FnMut() -> Result<(), StoreError>, span: Nanos) -> Result<(Time, u64), StoreError> {
    let begun = LinuxOs.now();
    for done in 1.. {
        work()?;
        let now = LinuxOs.now();
        if now.since(begun) >= span {
            return Ok((now, done));
        }
    }
    unreachable!("time passes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of a quiet machine: these nanoseconds a call, some percent more in some rounds.
    fn quiet() -> [Vec<Batch>; 5] {
        [700, 90_000, 9_000, 200_000, 64 * 4_000].map(|call: u64| {
            let round = |round: usize| Batch {
                took: Nanos((call + call * (round as u64 % 5) / 100) * 10),
                ready: Nanos::ZERO,
                calls: 10,
            };
            (0..ROUNDS).map(round).collect()
        })
    }

    fn costs(batches: &[Vec<Batch>; 5]) -> MeasuredCosts {
        MeasuredCosts::of(batches, Hertz::from_mhz(2000))
    }

    /// Applies `disturb` to all batches but every eighth.
    fn beside_others(disturb: impl Fn(&mut Batch)) -> [Vec<Batch>; 5] {
        let mut batches = quiet();
        let disturbed = |(index, batch): (usize, &mut Batch)| {
            if index % 8 != 0 {
                disturb(batch);
            }
        };
        batches
            .iter_mut()
            .for_each(|batches| batches.iter_mut().enumerate().for_each(disturbed));
        batches
    }

    #[test]
    fn waits_for_the_core_are_no_part_of_a_cost() {
        let waits = beside_others(|batch| {
            (batch.took, batch.ready) = (batch.took + Nanos::from_millis(60), Nanos::from_millis(60));
        });
        assert_eq!(costs(&waits), costs(&quiet()));
    }

    #[test]
    fn slow_rounds_change_no_least_cost_and_few_of_them_no_typical_one() {
        let slow = beside_others(|batch| batch.took = batch.took * 30);
        let (slow, alone) = (costs(&slow), costs(&quiet()));
        assert_eq!(slow.least, alone.least);
        assert!(slow.typical.get_ns > alone.typical.get_ns);
        let mut few = quiet();
        few.iter_mut().for_each(|batches| {
            batches
                .iter_mut()
                .step_by(3)
                .for_each(|batch| batch.took = batch.took * 30)
        });
        let tolerable = alone.typical.update_ns * 1.05;
        assert!(costs(&few).typical.update_ns < tolerable);
    }

    #[test]
    fn a_busy_machine_measures_for_a_bounded_time_and_a_quiet_one_all_rounds() {
        let short = MEASURED_MAX.saturating_sub(Nanos(1));
        assert!(is_enough(ROUNDS, Nanos::ZERO) && !is_enough(ROUNDS - 1, short));
        assert!(is_enough(ROUNDS_MIN, MEASURED_MAX) && !is_enough(ROUNDS_MIN - 1, MEASURED_MAX * 9));
    }

    #[test]
    fn costs_are_those_of_the_transaction_and_of_one_more_object() {
        let Costs {
            get_ns,
            read_txn_ns,
            put_ns,
            write_txn_ns,
            update_ns,
            ..
        } = costs(&quiet()).least;
        assert_eq!((get_ns + read_txn_ns, put_ns + write_txn_ns), (700.0, 9_000.0));
        assert!(
            (get_ns - 350.2).abs() < 0.1 && (put_ns - 749.0).abs() < 0.1,
            "{get_ns}, {put_ns}"
        );
        assert_eq!(update_ns, 4_000.0);
    }
}
