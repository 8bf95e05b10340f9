//! The front crate: keeps a program's soft real-time work on time, with one dependency and one `use` line:
//!
//! ```no_run
//! use punctual::{Late, ObjectSpec, Runtime, Store, ms};
//!
//! let store = Store::builder("robot.store").object(ObjectSpec::number("battery").period(ms(100))).open()?;
//! let runtime = Runtime::start(store)?;
//! let task = runtime.task("steer").every(ms(20)).due_in(ms(10)).late(Late::percent(1.0)).run(|job| {
//!     job.write(|store| store.put(b"angle", b"0.1"))
//! })?;
//! let battery = runtime.sensor("battery")?;
//! std::thread::spawn(move || battery.offer(12.6));
//! std::thread::sleep(std::time::Duration::from_secs(60));
//! let report = runtime.stop()?.report;
//! println!("{} of {} jobs were late", report.summary.misses, report.summary.jobs);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Besides transactions, the store has iterators, values that belong together, histories and watches
//! (docs/guide/store.md):
//!
//! ```
//! use punctual::store::StoreError;
//! use punctual::{Change, Deadline, ObjectSpec, ReadingBuffer, Store, Together, WatchTarget, ms};
//!
//! fn main() -> Result<(), StoreError> {
//!     let pose = ObjectSpec::number("pose").period(ms(10)).keeping(100); // its last 100 values
//!     let covariance = ObjectSpec::number("covariance").period(ms(10));
//!     let store = Store::in_memory().object(pose).object(covariance).open()?;
//!     let both = ["pose", "covariance"].map(|key| store.object(key.as_bytes()).unwrap());
//!     let mut rooms = store.watch(WatchTarget::Prefix(b"room/"), 16)?;
//!
//!     // Installed together, read together: other threads see both or neither.
//!     store.install_together(&both.map(|object| Together { object, sampled_at: None, value: b"1" }))?;
//!     let mut readings = ReadingBuffer::default();
//!     store.read_together(&both, &mut readings)?;
//!     assert_eq!(readings.get(0), readings.get(1));
//!     store.history(both[0], &mut readings)?; // the oldest first
//!
//!     for room in ["room/1", "room/2", "room/4"] {
//!         store.put(room.as_bytes(), b"warm")?;
//!     }
//!     let transaction = store.read_transaction(Deadline::NONE)?;
//!     let last = transaction.prefix(b"room/")?.next_back();
//!     assert_eq!(&*last.unwrap()?.0, b"room/4");
//!     let mut from_two = transaction.prefix(b"room/")?;
//!     from_two.seek(b"room/2");
//!     assert_eq!(from_two.count(), 2);
//!     assert_eq!(rooms.take(), Some(Change::Put { key: b"room/1" }));
//!     Ok(())
//! }
//! ```
//!
//! - A job may return any error: it counts as failed, and the first one is in the figures. A panic ends its task alone.
//! - A run ends after [`RuntimeOptions::run_for`], at [`Runtime::stop`], or with its last handle.
//! - [`Runtime::learn`] learns a model of the running tasks. In vain, the control law from before goes on; without one,
//!   knobs move in steps, towards fewer late jobs.
//! - After a standstill the missed jobs are skipped, and counted as late.
//! - Memory does not grow with the length of a run (example `soak`).
//!
//! The top level has everything that most programs need. Beside it are [`store`] (the whole store: tables, watches,
//! admission of updates, copies and checks of its files), [`control`] (identification and control laws), [`os`] (clock
//! and waits) and [`pipelines`] (streams of frames through several processes). A virtual clock for tests of own code is
//! in `punctual-testing`.

// Programs of others depend on this crate.
#![warn(missing_docs)]

pub mod store;

/// The program in docs/guide/store.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/store.md")]
struct StorePage;

pub use os::LinuxOs;
pub use punctual_platform::linux::events::{Bell, EventSource};
pub use punctual_platform::{CoreChoice, Neighbours};
pub use punctual_runtime::linux::{
    Bytes, CorePin, Job, Late, LearningState, RunOptions, Runtime, RuntimeBuilder, RuntimeFigures, RuntimeOptions,
    Sensor, SensorError, TaskBuilder, TaskEnd, TaskHandle,
};
pub use punctual_runtime::report::{Progress, RunReport};
pub use punctual_runtime::{FinishedRun, Learning, RuntimeError};
pub use punctual_units::{Clock, CoreId, Hertz, Nanos, Share, Time};
pub use punctual_workload::{Arrival, Class, ControllerKind, Goal, TaskGoal};
pub use store::{
    Change, Deadline, Durability, Freshness, ObjectSpec, ReadTransaction, ReadingBuffer, Split, Store, StoreError,
    Together, Watch, WatchTarget, WriteTransaction,
};

/// Identification of a system from a recording, and control laws designed from the model.
pub mod control {
    pub use punctual_control::*;
}

/// The operating system of waiting threads: clock, locks, parking places.
pub mod os {
    pub use punctual_os::{LinuxOs, Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
}

/// Reports of a program's jobs to `punctual attach`, in place of tasks of its own runtime: see docs/guide/attach.md.
#[cfg(target_os = "linux")]
pub mod jobs {
    pub use punctual_jobs::{JobGuard, JobReporter};
}

/// Pipelines of stages that migrate to other cores, are replaced and restarted while frames flow: the interface of a
/// stage, and the runtime of a pipeline. See the example `pipeline` and docs/guide/pipelines.md.
pub mod pipelines {
    pub use punctual_pipelines::linux::*;
    pub use punctual_pipelines::*;
}

/// Converts milliseconds to a span, for periods and deadlines.
pub const fn ms(milliseconds: u64) -> Nanos {
    Nanos::from_millis(milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::SensorId;

    #[test]
    fn ages_and_lives_go_on_after_a_restart_of_the_program() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let hour = Nanos::from_secs(3_600);
        let open = || {
            Store::builder(folder.path())
                .object(ObjectSpec::number("battery").period(hour))
                .open()
        };
        if os::Os::clock_origin(&LinuxOs).is_none() {
            eprintln!("skipped: this kernel names no origin of its clock");
            return Ok(());
        }
        let store = open()?;
        store.offer_next(SensorId(0), None, b"12.6")?;
        store.install_pending(1)?;
        store.flush()?;
        let mut transaction = store.write_transaction(Deadline::NONE)?;
        transaction.put_for(b"lease", b"mine", Nanos(1))?;
        transaction.commit()?;
        drop(store);
        let store = open()?;
        let reading = store.get_fresh(b"battery", hour)?;
        assert!(matches!(reading, Freshness::Fresh { .. }), "{reading:?}");
        assert_eq!(store.get(b"lease")?, None);
        Ok(())
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_with_the_remedy() {
        let refused = |builder: store::StoreBuilder<_, LinuxOs>| builder.open().map(drop).unwrap_err().to_string();
        let in_memory = || Store::in_memory();
        let messages = [
            refused(in_memory().durability(Durability::Durable)),
            refused(in_memory().quota(1 << 20)),
            refused(in_memory().object(ObjectSpec::number("pose"))),
            refused(
                in_memory()
                    .set(|options| options.replicated = true)
                    .update_mode(store::UpdateMode::Transaction),
            ),
        ];
        for (message, remedy) in messages
            .iter()
            .zip(["leave it out", "leave it out", "valid_for", "memory-first"])
        {
            assert!(message.contains(remedy), "{message}");
        }
    }
}

/// The programs of the README and the guide, compiled as tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/robot.md")]
    struct Robot;
    #[doc = include_str!("../../../docs/guide/pipelines.md")]
    struct Means;
}
