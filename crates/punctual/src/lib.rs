//! The front crate: keeps a program's soft real-time work on time, with one dependency and one `use` line:
//!
//! ```no_run
//! use punctual::{ObjectSpec, Runtime, in_folder, ms};
//!
//! let store = in_folder("robot.store", [ObjectSpec::number("battery", ms(100))])?;
//! let runtime = Runtime::start(store)?;
//! let task = runtime.task("steer").every(ms(20)).due_in(ms(10)).late("1 %").run(|job| {
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
//! Besides transactions, the store has iterators, values that belong together, histories and watches (docs/store.md):
//!
//! ```
//! use punctual::store::StoreError;
//! use punctual::{Change, Deadline, ObjectSpec, ReadingBuffer, Together, WatchTarget, in_memory, ms};
//!
//! fn main() -> Result<(), StoreError> {
//!     let pose = ObjectSpec::number("pose", ms(10)).keeping(100); // its last 100 values
//!     let store = in_memory([pose, ObjectSpec::number("covariance", ms(10))])?;
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
//!     let last = transaction.records_with_prefix(b"room/")?.next_back();
//!     assert_eq!(&*last.unwrap()?.0, b"room/4");
//!     let mut from_two = transaction.records_with_prefix(b"room/")?;
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
//! The top level has everything that most programs need. All else is in the crates below, under their names: [`store`]
//! (deadlines, freshness, admission of updates), [`engines`] (storage of bytes), [`runtime`] (threads and reports),
//! [`control`] (identification and control laws), [`decisions`] (the loop), [`machine`] (knobs and meters), [`os`]
//! (clock and waits), [`workload`] and [`units`]. Streams of frames through several processes are in [`pipelines`]. A
//! virtual clock for a program's own tests is in `punctual-testing`.

// Programs of others depend on this crate.
#![warn(missing_docs)]

pub use punctual_control as control;
pub use punctual_engines as engines;
pub use punctual_loop as decisions;
pub use punctual_os as os;
pub use punctual_platform as machine;
pub use punctual_runtime as runtime;
pub use punctual_store as store;
pub use punctual_units as units;
pub use punctual_workload as workload;

pub use punctual_engines::lmdb::LmdbOptions;
pub use punctual_engines::{Lmdb, Memory};
#[cfg(target_os = "linux")]
pub use punctual_os::LinuxOs;
#[cfg(target_os = "linux")]
pub use punctual_platform::linux::events::{Bell, EventSource};
pub use punctual_platform::{CoreChoice, Neighbours};
#[cfg(target_os = "linux")]
pub use punctual_runtime::linux::{
    Bytes, CorePin, Job, LearningState, RunOptions, Runtime, RuntimeBuilder, RuntimeFigures, RuntimeOptions, Sensor,
    SensorError, TaskEnd, TaskHandle,
};
pub use punctual_runtime::report::{Progress, RunReport};
pub use punctual_runtime::{FinishedRun, Learning, RuntimeError};
pub use punctual_store::tables::NamedTable;
pub use punctual_store::temporal::{ObjectSpec, ReadingBuffer};
pub use punctual_store::watch::{Change, WatchTarget};
pub use punctual_store::{
    Deadline, Freshness, ReadTransaction, Records, Split, StoreError, StoreOptions, Together, UpdateMode,
    WriteTransaction,
};
pub use punctual_units::{Clock, Nanos, SensorId, Seq, Share, Time};
pub use punctual_workload::{Arrival, Class, ControllerKind, Goal, TaskGoal};

use std::path::Path;
use std::sync::Arc;

use punctual_store::temporal::ClockOrigin;

/// Pipelines of stages that migrate to other cores, are replaced and restarted while frames flow: the interface of a
/// stage, and the runtime of a pipeline. See the example `pipeline` and docs/pipelines.md.
#[cfg(target_os = "linux")]
pub mod pipelines {
    pub use punctual_pipelines::linux::*;
    pub use punctual_pipelines::*;
}

/// The store of a program on this machine: on LMDB and Linux, unless the type parameters say otherwise.
pub type Store<E = Lmdb, O = LinuxOs> = punctual_store::Store<E, O>;

/// Notices of changes in such a store, see [`store::watch`].
pub type Watch<O = LinuxOs> = punctual_store::watch::Watch<O>;

/// Converts milliseconds to a span, for periods and deadlines.
pub const fn ms(milliseconds: u64) -> Nanos {
    Nanos::from_millis(milliseconds)
}

/// Opens the store in `folder` on LMDB; creates the folder if it is missing. Where `options` name no origin of the
/// clock, it is this boot's: ages and lives of records go on after a restart of the program.
///
/// # Errors
/// [`StoreError`], for example if the folder is in use by another program, damaged or read-only.
pub fn in_folder(folder: impl AsRef<Path>, options: impl Into<StoreOptions>) -> Result<Arc<Store>, StoreError> {
    let engine = LmdbOptions::default().open(folder)?;
    let mut options = options.into();
    if options.clock_origin == ClockOrigin::UNKNOWN
        && let Some(name) = os::linux::clock_origin()
    {
        options.clock_origin = ClockOrigin::named(name.as_bytes());
    }
    Ok(Arc::new(Store::open(engine, LinuxOs, options)?))
}

/// Opens a store in memory, which is gone with the program: for tests, and for data that need not survive it.
///
/// # Errors
/// [`StoreError`] if two objects of `options` have the same key.
pub fn in_memory(options: impl Into<StoreOptions>) -> Result<Arc<Store<Memory>>, StoreError> {
    Ok(Arc::new(Store::open(Memory::default(), LinuxOs, options.into())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_lives_go_on_after_a_restart_of_the_program() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let open = || in_folder(folder.path(), [ObjectSpec::number("battery", Nanos::from_secs(3_600))]);
        if os::linux::clock_origin().is_none() {
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
        let reading = store.get_fresh(b"battery", Nanos::from_secs(3_600))?;
        assert!(matches!(reading, Freshness::Fresh { .. }), "{reading:?}");
        assert_eq!(store.get(b"lease")?, None);
        Ok(())
    }
}
