//! Background load: CPU-bound threads that never sleep, and a thread that keeps the disk busy.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::thread::Tid;

use super::{BesideError, failed};

/// Length of a unit of work, in cycles: about 20 us, so that counting costs nothing.
const UNIT_CYCLES: u64 = 50_000;
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// File offset at which the disk's writer wraps to the start.
const FILE_BYTES: u64 = 64 << 20;
/// Number of writes between two syncs.
const WRITES_PER_SYNC: u64 = 4;

/// The CPU-bound threads and the disk's writer. Dropping it ends them.
pub(crate) struct Load {
    shared: Arc<LoadState>,
    tids: Vec<Tid>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    /// Counters of units, for each CPU-bound thread, on a cache line of its own.
    units: Vec<Counter>,
    disk_bytes: AtomicU64,
    /// The error that ended the disk's writer.
    disk_failed: OnceLock<String>,
}

#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// Work done since the start of the load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadWork {
    pub(crate) units: u64,
    pub(crate) disk_bytes: u64,
}

impl std::ops::Sub for LoadWork {
    type Output = LoadWork;
    fn sub(self, earlier: LoadWork) -> LoadWork {
        LoadWork {
            units: self.units - earlier.units,
            disk_bytes: self.disk_bytes - earlier.disk_bytes,
        }
    }
}

impl Load {
    /// Starts `hogs` CPU-bound threads, and, where `disk` is given, one thread that writes and syncs that file.
    pub(crate) fn start(hogs: usize, disk: Option<&Path>, clock: &Arc<EmulatedClock>) -> Result<Load, BesideError> {
        let shared = Arc::new(LoadState {
            units: (0..hogs).map(|_| Counter::default()).collect(),
            ..LoadState::default()
        });
        let (tell, told) = channel();
        let mut load = Load {
            shared: Arc::clone(&shared),
            tids: Vec::new(),
            threads: Vec::new(),
        };
        for hog in 0..hogs {
            let (shared, clock, tell) = (Arc::clone(&shared), Arc::clone(clock), tell.clone());
            load.spawn("hog", move || hog_on(&shared, &shared.units[hog], &clock, &tell))?;
        }
        if let Some(path) = disk {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
            let file = file.map_err(failed("making", path))?;
            let (shared, tell) = (Arc::clone(&shared), tell.clone());
            load.spawn("busy disk", move || write_on(&shared, &file, &tell))?;
        }
        drop(tell);
        load.tids = told.iter().take(load.threads.len()).collect();
        Ok(load)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), BesideError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        self.threads.push(thread.map_err(|why| BesideError::File {
            what: "starting a thread".into(),
            why,
        })?);
        Ok(())
    }

    /// Kernel thread ids of all threads of the load, for lending a core to them.
    pub(crate) fn threads(&self) -> impl Iterator<Item = Tid> {
        self.tids.iter().copied()
    }

    /// The error that ended the disk's writer; `None`: it still runs.
    pub(crate) fn disk_failed(&self) -> Option<&str> {
        self.shared.disk_failed.get().map(String::as_str)
    }

    /// Work of all threads since their start.
    pub(crate) fn done(&self) -> LoadWork {
        LoadWork {
            units: self
                .shared
                .units
                .iter()
                .map(|counter| counter.0.load(Ordering::Relaxed))
                .sum(),
            disk_bytes: self.shared.disk_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The panic hook has already printed a panic of this thread.
            let _ = thread.join();
        }
    }
}

fn hog_on(shared: &LoadState, counter: &Counter, clock: &EmulatedClock, tell: &Sender<Tid>) {
    let _ = tell.send(Tid::current());
    while !shared.stop.load(Ordering::Relaxed) {
        clock.compute(UNIT_CYCLES);
        counter.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn write_on(shared: &LoadState, file: &File, tell: &Sender<Tid>) {
    let _ = tell.send(Tid::current());
    let piece = vec![0xA5u8; WRITE_BYTES];
    for n in 0u64.. {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let written = file.write_all_at(&piece, n * WRITE_BYTES as u64 % FILE_BYTES);
        let synced = if n % WRITES_PER_SYNC == 0 {
            file.sync_data()
        } else {
            Ok(())
        };
        if let Err(why) = written.and(synced) {
            let _ = shared.disk_failed.set(why.to_string());
            return;
        }
        shared.disk_bytes.fetch_add(WRITE_BYTES as u64, Ordering::Relaxed);
    }
}
