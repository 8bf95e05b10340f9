//! What a real-time thread is measured beside: hogs, a busy disk, a probe, and a core, which may be its own.

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

pub use self::figures::{Counted, Interactive, LendingSummary, Quantiles};
use self::load::Load;
pub use self::medium::Medium;

/// Between preparation and the first release.
const START_AFTER: Nanos = Nanos::from_millis(50);
/// Of the thread that counts the hogs' work: it only sleeps and reads.
const COUNTER_PRIORITY: u8 = 90;

/// Why a measurement ended early.
#[derive(Debug, Error)]
pub enum BesideError {
    /// Something that it cannot do without was refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// A file failed.
    #[error("{what}: {why}")]
    File {
        /// What was done with which file.
        what: String,
        /// Why it failed.
        why: std::io::Error,
    },
    /// The user broke it off; the machine was put back.
    #[error("interrupted; the machine has been put back")]
    Interrupted,
    /// The machine is not as it was.
    #[error("not put back: {0}")]
    NotPutBack(Refusal),
}

/// What was done with `path` when it failed.
pub(crate) fn failed<'p>(what: &'p str, path: &'p Path) -> impl Fn(std::io::Error) -> BesideError + 'p {
    move |why| BesideError::File {
        what: format!("{what} {}", path.display()),
        why,
    }
}

/// The machine before any load disturbs it.
pub(crate) struct Place {
    pub(crate) tree: KernelTree,
    /// What belongs to one run is put back after it...
    journal: Journal,
    /// ...and what belongs to all of them at the end.
    files: Journal,
    /// Of files that are to lie on a device.
    pub(crate) folder: PathBuf,
    /// What that is on.
    pub(crate) medium: Medium,
    pub(crate) cores: Vec<CoreId>,
    /// The core that is measured on: the first that may become exclusive.
    pub(crate) core: CoreId,
    pub(crate) clock: Arc<EmulatedClock>,
}

impl Place {
    /// Looks around; the core that is measured on is the first of `choice`.
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

    /// A folder in `parent` that goes at the end; the one for files on a device where that is refused.
    pub(crate) fn folder_in(&self, parent: &Path) -> PathBuf {
        let folder = self.files.temporary_dir(parent);
        folder.unwrap_or_else(|_| self.folder.clone())
    }
}

/// The machine under load. The fields end in this order.
pub(crate) struct Beside {
    pub(crate) load: Load,
    probe: Result<GapProbe, Refusal>,
    busy_disk: bool,
    pub(crate) place: Place,
}

/// An exclusive core for one run, and what lending it was measured to cost.
pub(crate) struct Kept {
    pub(crate) core: ExclusiveCore,
    _lendees: Vec<Lendee>,
    /// None where the core cannot be lent.
    pub(crate) lending: Option<LendingMeasured>,
    lend: bool,
}

impl Kept {
    /// The place of its only occupant, which lends it; none where it is not lent.
    pub(crate) fn tenancy(&self) -> Option<Tenancy> {
        let costs = self.lending.as_ref().filter(|_| self.lend)?.costs();
        Some(Tenancy::new(self.core.clone(), costs))
    }
}

/// Tells a thread that is ready when to begin.
pub(crate) struct Begin {
    ready: Sender<()>,
    going: Receiver<Time>,
}

impl Begin {
    /// The instant of the first release, once all is ready.
    pub(crate) fn at(self) -> Result<Time, BesideError> {
        let _ = self.ready.send(());
        self.going.recv().map_err(|_| BesideError::Interrupted)
    }
}

impl Beside {
    /// Starts so many hogs on each core, the disk's writer where the disk is to be busy, and the probe.
    pub(crate) fn start(place: Place, hogs_per_core: u32, busy_disk: bool) -> Result<Beside, BesideError> {
        let hogs = hogs_per_core as usize * place.cores.len();
        let disk = busy_disk.then(|| place.folder.join("busy"));
        Ok(Beside {
            probe: GapProbe::start(place.core, PROBE_PRIORITY, PROBE_PERIOD),
            load: Load::start(hogs, disk.as_deref(), &place.clock)?,
            busy_disk,
            place,
        })
    }

    /// Runs each of `ways` `repetitions` times, in an order that rotates; the machine is put back after each. `say`
    /// hears of each run before it begins, and says whether to go on.
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
                // The journal holds what was done for this run only: all threads get the core back, whatever became
                // of the run.
                if let Some(left) = self.place.journal.restore().pop() {
                    return Err(BesideError::NotPutBack(left));
                }
                runs.push(run?);
            }
        }
        thread::unlock_memory();
        Ok(runs)
    }

    /// Locks memory for a run; what was obtained, for people.
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

    /// What became of the disk that was to be busy, and which one it is.
    pub(crate) fn disk_told(&self, counted: &Counted) -> String {
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

    /// The measured core for this run, lent to the load where `neighbours` says so; what was obtained is told.
    ///
    /// # Errors
    /// [`Refusal`] where the core cannot be had.
    pub(crate) fn keep(&self, neighbours: &Neighbours, told: &mut Vec<String>) -> Result<Kept, Refusal> {
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
        Ok(Kept {
            core,
            _lendees: lendees,
            lending,
            lend: neighbours.lend,
        })
    }

    /// Lets `work` run on a thread of its own, which prepares before it asks when to [begin](Begin::at), and counts
    /// what the load does from then on, for as long as the work is to last. The load is counted alone where there is
    /// no work.
    pub(crate) fn perform<W: Send>(
        &self,
        lasts: Nanos,
        work: Option<impl FnOnce(Begin) -> Result<W, BesideError> + Send>,
    ) -> Result<(Option<W>, Counted), BesideError> {
        let (ready, prepared) = channel();
        let (go, going) = channel();
        std::thread::scope(|scope| {
            // It prepares where it will run: what it measures there is what it will meet.
            let working = work.map(|work| scope.spawn(move || work(Begin { ready, going })));
            // Without work, or with work that failed, no thread is left to say so.
            let failed = prepared.recv().is_err() && working.is_some();
            let start = LinuxOs.now() + START_AFTER;
            let _ = go.send(start);
            let counting = (!failed).then(|| scope.spawn(move || self.count(start, start + lasts)));
            let worked = working.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let counted = counting.map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Ok((worked.transpose()?, counted.unwrap_or_default()))
        })
    }

    fn count(&self, start: Time, end: Time) -> Counted {
        // On time even where hogs are many; where that is refused, the clock still gives the time.
        let first = self.place.cores.first().copied().unwrap_or_default();
        let _ = thread::pin(first).and_then(|()| thread::real_time(COUNTER_PRIORITY));
        LinuxOs.sleep_until(start);
        let (began, before) = (LinuxOs.now(), self.load.done());
        LinuxOs.sleep_until(end);
        let (ended, after) = (LinuxOs.now(), self.load.done());
        let done = after - before;
        Counted {
            window: ended.since(began),
            interactive_units: done.units,
            disk_bytes: done.disk_bytes,
        }
    }

    /// Whether the probe explains so long an overrun of work that lasted from one instant to the other.
    pub(crate) fn explains(&self, overrun: Nanos, from: Time, to: Time) -> bool {
        self.probe
            .as_ref()
            .is_ok_and(|probe| probe.longest_gap(from, to) >= overrun)
    }

    /// The probe, where it runs.
    pub(crate) fn probe(&self) -> Option<&GapProbe> {
        self.probe.as_ref().ok()
    }
}

/// Sleeps until a release; the core is lent meanwhile where there is one to lend.
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
