//! Test bench for measuring a real-time thread beside background load: CPU-bound threads, a busy disk, a probe, and a
//! core, which may be exclusive.

mod figures;
pub(crate) mod load;
mod medium;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use punctual_os::LinuxOs;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::exclusive::{ExclusiveCore, Lendee, candidates, spared};
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::{KernelTree, cores, thread};
use punctual_platform::{CoreChoice, Neighbours, Refusal};
use punctual_runtime::linux::tenancy::{LendingMeasured, Tenancy, measure_lending};
use punctual_runtime::linux::{PROBE_PERIOD, PROBE_PRIORITY, TASK_PRIORITY};
use punctual_units::{Clock, CoreId, Nanos, Time};
use thiserror::Error;

pub use self::figures::{Effort, Interactive, LendingSummary, Quantiles};
use self::load::Load;
pub use self::medium::Medium;

/// Time between the end of preparation and the first release.
const START_AFTER: Nanos = Nanos::from_millis(50);
/// Real-time priority of the thread that counts the load's work: it only sleeps and reads.
const COUNTER_PRIORITY: u8 = 90;

/// Why a measurement ended early.
#[derive(Debug, Error)]
pub enum BesideError {
    /// A requirement of the measurement was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{what}: {why}")]
    File {
        /// The operation and the path of its file.
        what: String,
        why: std::io::Error,
    },
    /// The user interrupted the measurement; the machine was restored.
    #[error("interrupted; the machine has been restored")]
    Interrupted,
    /// Restoring the machine failed, so it is not as it was.
    #[error("not restored: {0}")]
    NotPutBack(Refusal),
}

/// Turns an I/O error into a `BesideError` that names the operation `what` and its `path`.
pub(crate) fn failed<'p>(what: &'p str, path: &'p Path) -> impl Fn(std::io::Error) -> BesideError + 'p {
    move |why| BesideError::File {
        what: format!("{what} {}", path.display()),
        why,
    }
}

/// The machine before any load disturbs it.
pub(crate) struct Place {
    pub(crate) tree: KernelTree,
    /// Changes for one run, restored after it...
    journal: Journal,
    /// ...and changes for the whole measurement, restored at its end.
    files: Journal,
    /// Folder for files that should lie on a device.
    pub(crate) folder: PathBuf,
    /// Medium that `folder` lies on.
    pub(crate) medium: Medium,
    pub(crate) cores: Vec<CoreId>,
    /// The core on which the real-time thread is measured: the first that may become exclusive.
    pub(crate) core: CoreId,
    pub(crate) clock: Arc<EmulatedClock>,
}

impl Place {
    /// Inspects the machine; the measured core is the first of `choice`.
    ///
    /// # Errors
    /// [`BesideError`] where no core of `choice` may become exclusive, or no folder can be made.
    pub(crate) fn find(choice: &CoreChoice) -> Result<Place, BesideError> {
        let tree = KernelTree::default();
        let core = candidates(&tree, choice)?.first().copied().unwrap_or_default();
        let (journal, files) = (Journal::open(true)?, Journal::open(true)?);
        let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
        let (folder, medium) = medium::folder(std::env::temp_dir(), &mountinfo);
        Ok(Place {
            folder: files.temporary_dir(&folder)?,
            medium,
            cores: cores::usable(&tree),
            core,
            clock: Arc::new(EmulatedClock::of(&tree, &LinuxOs)),
            tree,
            journal,
            files,
        })
    }

    /// Makes a folder in `parent` that is removed at the end. Where that is refused, returns the folder for files on a
    /// device.
    pub(crate) fn folder_in(&self, parent: &Path) -> PathBuf {
        let folder = self.files.temporary_dir(parent);
        folder.unwrap_or_else(|_| self.folder.clone())
    }
}

/// The machine under load. Fields drop in declaration order: the load ends before the place is restored.
pub(crate) struct LoadedMachine {
    pub(crate) load: Load,
    probe: Result<GapProbe, Refusal>,
    busy_disk: bool,
    pub(crate) place: Place,
}

/// An exclusive core for one run, and the measured costs of lending it.
pub(crate) struct ReservedCore {
    pub(crate) core: ExclusiveCore,
    _lendees: Vec<Lendee>,
    /// `None`: measuring was refused, so the core cannot be lent.
    pub(crate) lending: Option<LendingMeasured>,
    lend: bool,
}

impl ReservedCore {
    /// The lease of the measured thread, which lends the core between jobs; `None`: the core is not lent.
    pub(crate) fn tenancy(&self) -> Option<Tenancy> {
        let costs = self.lending.as_ref().filter(|_| self.lend)?.costs();
        Some(Tenancy::new(self.core.clone(), costs))
    }
}

/// Signals that a thread is ready and receives the instant at which it begins.
pub(crate) struct Begin {
    ready: Sender<()>,
    going: Receiver<Time>,
}

impl Begin {
    /// Reports readiness and blocks until all is ready. Returns the instant of the first release.
    pub(crate) fn at(self) -> Result<Time, BesideError> {
        let _ = self.ready.send(());
        self.going.recv().map_err(|_| BesideError::Interrupted)
    }
}

impl LoadedMachine {
    /// Starts `hogs_per_core` CPU-bound threads for each core, the disk's writer if `busy_disk`, and the probe.
    pub(crate) fn start(place: Place, hogs_per_core: u32, busy_disk: bool) -> Result<LoadedMachine, BesideError> {
        let hogs = hogs_per_core as usize * place.cores.len();
        let disk = busy_disk.then(|| place.folder.join("busy"));
        Ok(LoadedMachine {
            probe: GapProbe::start(place.core, PROBE_PRIORITY, PROBE_PERIOD),
            load: Load::start(hogs, disk.as_deref(), &place.clock)?,
            busy_disk,
            place,
        })
    }

    /// Runs each of `ways` `repetitions` times, in an order that rotates; the machine is restored after each run. Calls
    /// `say` before each run; it returns whether to go on.
    pub(crate) fn by_turns<W: Copy, R>(
        &self,
        ways: &[W],
        repetitions: u32,
        name: fn(W) -> &'static str,
        say: &mut dyn FnMut(&str) -> ControlFlow<()>,
        run: impl Fn(u32, W) -> Result<R, BesideError>,
    ) -> Result<Vec<R>, BesideError> {
        let mut runs = Vec::new();
        for repetition in 0..repetitions {
            for place in 0..ways.len() {
                let way = ways[(place + repetition as usize) % ways.len()];
                let what = format!("repetition {} of {repetitions}: {}", repetition + 1, name(way));
                if say(&what).is_break() {
                    return Err(BesideError::Interrupted);
                }
                let run = run(repetition, way);
                // The journal holds the changes for this run only: all threads get the core back, whether the run
                // failed or not.
                if let Some(left) = self.place.journal.restore().pop() {
                    return Err(BesideError::NotPutBack(left));
                }
                runs.push(run?);
            }
        }
        thread::unlock_memory();
        Ok(runs)
    }

    /// Locks memory for a run. Returns messages: the outcome, and why there is no probe.
    pub(crate) fn lock_memory(&self) -> Vec<String> {
        let mut told = vec![match thread::lock_memory() {
            Ok(()) => "memory locked".to_owned(),
            Err(refusal) => format!("not memory locked: {refusal}"),
        }];
        if let Err(refusal) = &self.probe {
            told.push(format!("no probe, so nothing explains what is late: {refusal}"));
        }
        told
    }

    /// Describes the disk for the report: its medium, and whether it was in fact kept busy during this run.
    pub(crate) fn disk_told(&self, counted: &Effort) -> String {
        let Medium { name, in_memory } = &self.place.medium;
        let memory = if *in_memory { ", which is memory" } else { "" };
        let busy = match (self.busy_disk, self.load.disk_failed()) {
            (false, _) => "idle".to_owned(),
            (true, Some(why)) => format!("NOT kept busy, its writer ended: {why}"),
            (true, None) if counted.disk_bytes == 0 => "kept busy, but nothing was written in this run".into(),
            (true, None) => "kept busy".into(),
        };
        format!("disk: {name}{memory}, {busy}")
    }

    /// Makes the measured core exclusive for this run and lends it to the load where `neighbours` says so. Appends to
    /// `told` what was obtained and what was refused.
    ///
    /// # Errors
    /// [`Refusal`] where the core cannot be made exclusive.
    pub(crate) fn keep(&self, neighbours: &Neighbours, told: &mut Vec<String>) -> Result<ReservedCore, Refusal> {
        let Place { tree, journal, .. } = &self.place;
        let mut neighbours = neighbours.clone();
        neighbours.spare.extend(spared());
        let core = ExclusiveCore::take(tree, journal, self.place.core, &neighbours)?;
        told.push(core.obtained().to_string());
        let refused = core.obtained().refused.iter();
        told.extend(refused.map(|better| format!("better, but refused: {better}")));
        let mut lendees = Vec::new();
        for thread in self.load.threads().filter(|_| neighbours.lend) {
            match core.lend_to(thread) {
                Ok(lendee) => lendees.push(lendee),
                Err(refusal) => told.push(refusal.to_string()),
            }
        }
        if let Ok(probe) = &self.probe
            && let Err(refusal) = core.enter(probe.tid())
        {
            told.push(refusal.to_string());
        }
        let lending = measure_lending(&core, TASK_PRIORITY, neighbours.lend)
            .map_err(|refusal| told.push(format!("core not lent: {refusal}")))
            .ok();
        Ok(ReservedCore {
            core,
            _lendees: lendees,
            lending,
            lend: neighbours.lend,
        })
    }

    /// Runs `work` on a thread of its own, which prepares before it asks when to [begin](Begin::at). Counts the load's
    /// work from that instant on for `lasts`. Without `work`, counts the load alone.
    pub(crate) fn perform<W: Send>(
        &self,
        lasts: Nanos,
        work: Option<impl FnOnce(Begin) -> Result<W, BesideError> + Send>,
    ) -> Result<(Option<W>, Effort), BesideError> {
        let (ready, prepared) = channel();
        let (go, going) = channel();
        std::thread::scope(|scope| {
            // The thread prepares where it will run, so that its measurements hold for its run.
            let working = work.map(|work| scope.spawn(move || work(Begin { ready, going })));
            // Without work, or after it failed, no thread holds the sender, so `recv` returns an error.
            let failed = prepared.recv().is_err() && working.is_some();
            let start = LinuxOs.now() + START_AFTER;
            let _ = go.send(start);
            let counting = (!failed).then(|| scope.spawn(move || self.count(start, start + lasts)));
            let worked = working.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let counted = counting.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Ok((worked.transpose()?, counted.unwrap_or_default()))
        })
    }

    fn count(&self, start: Time, end: Time) -> Effort {
        // The counting thread is real-time to be on time beside many CPU-bound threads; where that is refused, it may
        // be late, but `window` is still the time that passed.
        let first = self.place.cores.first().copied().unwrap_or_default();
        let _ = thread::pin(first).and_then(|()| thread::real_time(COUNTER_PRIORITY));
        LinuxOs.sleep_until(start);
        let (began, before) = (LinuxOs.now(), self.load.done());
        LinuxOs.sleep_until(end);
        let (ended, after) = (LinuxOs.now(), self.load.done());
        let done = after - before;
        Effort {
            window: ended.since(began),
            interactive_units: done.units,
            disk_bytes: done.disk_bytes,
        }
    }

    /// Whether the probe saw a gap of at least `overrun` between `from` and `to`, the time in which the work ran.
    pub(crate) fn explains(&self, overrun: Nanos, from: Time, to: Time) -> bool {
        self.probe
            .as_ref()
            .is_ok_and(|probe| probe.longest_gap(from, to) >= overrun)
    }

    /// The probe; `None`: it could not be started.
    pub(crate) fn probe(&self) -> Option<&GapProbe> {
        self.probe.as_ref().ok()
    }
}

/// Sleeps until a release; where there is a lease, the core is lent meanwhile.
pub(crate) fn sleep(tenancy: &mut Option<Tenancy>, until: Time) {
    let sleep = |until| {
        LinuxOs.sleep_until(until);
        true
    };
    match tenancy {
        Some(tenancy) => tenancy.wait(until, sleep),
        None => sleep(until),
    };
}
