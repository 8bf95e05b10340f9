//! Costs of store accesses on this machine, measured at start-up.
//!
//! Each figure is the median of [`ROUNDS`] batches of a few milliseconds on a scratch store of the run's shape, on the
//! real-time core, at full clock. All figures take turns, over more than a second: on a shared machine memory is faster
//! at one moment and slower at the next, and a load that was sized in a lucky moment is an overload a second later.
//! Costs come from the same interpreter and the same transactions that the run uses, so that a compiled program takes
//! what was demanded.

use std::sync::Arc;

use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_runtime::linux::Job;
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, SensorId, Seq, Time};
use punctual_workload::{Costs, ObjectSet, Op, Program};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::interpret::Interpreter;

/// Number of batches per figure.
const ROUNDS: usize = 40;
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
) -> Result<Option<Costs>, StoreError> {
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
    let Some([one_get, many_gets, one_put, many_puts, arrivals]) = typical(works, go_on)? else {
        return Ok(None);
    };
    let get_ns = slope(one_get, many_gets);
    let put_ns = slope(one_put, many_puts);
    Ok(Some(Costs {
        top: emulated.offer().top(),
        get_ns,
        read_txn_ns: (one_get - get_ns).max(0.0),
        put_ns,
        write_txn_ns: (one_put - put_ns).max(0.0),
        update_ns: arrivals / ARRIVALS as f64,
    }))
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

/// Typical time of one call of each of `works`, in nanoseconds: the median of the batches. `None` where `go_on` became
/// false.
fn typical<const N: usize>(mut works: [Work<'_>; N], go_on: &dyn Fn() -> bool) -> Result<Option<[f64; N]>, StoreError> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        if !go_on() {
            return Ok(None);
        }
        for (work, times) in works.iter_mut().zip(&mut times) {
            times.push(batch(work)?);
        }
    }
    Ok(Some(times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[ROUNDS / 2]
    })))
}

/// Mean time of one call in a batch of them, in nanoseconds.
fn batch(work: &mut dyn FnMut() -> Result<(), StoreError>) -> Result<f64, StoreError> {
    let (warm, _) = repeat(work, WARM_UP)?;
    let (ended, calls) = repeat(work, BATCH)?;
    LinuxOs.sleep_until(ended + BREATH);
    Ok(ended.since(warm).0 as f64 / calls as f64)
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
