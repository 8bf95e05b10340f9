//! The Linux machine: knobs and meters of this computer, or of an emulated tree.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_custody::journal::Journal;
use punctual_units::{Clock, CoreId, Hertz, Nanos, Share, Time};

use super::busy::{CoreTimes, Stat};
use super::cgroup::CpuGroup;
use super::cpufreq::CpuFreq;
use super::emulated::EmulatedClock;
use super::exclusive::{self, ExclusiveCore};
use super::powercap::EnergyMeter;
use super::resctrl::{self, Partitions};
use super::thermal::Thermometer;
use super::thread::{Guests, Tid};
use super::{KernelTree, cores, refused};
use crate::{
    Applied, ClockOffer, DOMAINS_MAX, DomainId, KnobId, KnobOffer, Machine, Measure, MeterId, Neighbours, Offers, Plan,
    Provenance, Range, Reading, Readings, Refusal, Value,
};
use punctual_os::LinuxOs;

/// Folder of POSIX shared memory: a file system in memory (shm_overview(7)).
const SHARED_MEMORY: &str = "/dev/shm";

/// The clock knob to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockPreference {
    /// The hardware's knob, else the emulated one; a fixed clock is no knob.
    #[default]
    Auto,
    /// The hardware's knob or none: for programs whose work an emulated clock could not slow down.
    Real,
    /// The emulated knob, even beside a real one.
    Emulated,
    /// No knob: the clock is left alone.
    None,
}

/// How to open a [`LinuxMachine`].
#[derive(Clone, Debug)]
pub struct LinuxOptions {
    /// Root of the kernel's files.
    pub tree: KernelTree,
    /// The clock knob to use.
    pub clock: ClockPreference,
    /// Whether a guardian process restores the machine if this one is killed.
    pub guardian: bool,
}

impl Default for LinuxOptions {
    /// The running kernel, the best available clock knob, and a guardian.
    fn default() -> Self {
        LinuxOptions {
            tree: KernelTree::default(),
            clock: ClockPreference::default(),
            guardian: true,
        }
    }
}

/// A Linux machine. Dropping it restores everything; if no destructor runs, the guardian does.
///
/// Open it early, before loading data and locking memory: the guardian shares the memory that exists at that time.
///
/// ```
/// use punctual_platform::linux::{ClockPreference, LinuxMachine, LinuxOptions};
/// use punctual_platform::{KnobId, Machine, Plan, Value};
/// use punctual_units::Hertz;
/// let options = LinuxOptions { clock: ClockPreference::Emulated, ..LinuxOptions::default() };
/// let mut machine = LinuxMachine::open(options)?;
/// let slowest = machine.offers().clock().unwrap().bottom();
/// let applied = machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz(0))));
/// assert_eq!(applied.obtained.clock(), Some(slowest));
/// assert_eq!(machine.emulated_clock().clock(), slowest);
/// # Ok::<(), punctual_platform::Refusal>(())
/// ```
#[derive(Debug)]
pub struct LinuxMachine {
    offers: Offers,
    tree: KernelTree,
    journal: Journal,
    clock: ClockKnob,
    emulated: Arc<EmulatedClock>,
    best_effort: BestEffort,
    /// Where they are asked for.
    partitions: Option<Partitions>,
    energy: Option<EnergyMeter>,
    thermometer: Option<Thermometer>,
    stat: Option<Stat>,
    /// Times of the cores read last; empty if they could not be read.
    times: Vec<CoreTimes>,
    /// Busy times read last, so that none ever decreases.
    busy: Vec<Nanos>,
    refusals: Vec<Refusal>,
}

#[derive(Debug)]
enum ClockKnob {
    Real(CpuFreq),
    Emulated,
    None,
}

impl ClockKnob {
    /// Cores and steps of the clock domains with knobs of their own.
    fn domains(&self) -> Vec<(Vec<CoreId>, ClockOffer)> {
        let ClockKnob::Real(knob) = self else { return Vec::new() };
        let domains = knob.domains().map(|(cores, offer)| (cores.to_vec(), offer.clone()));
        let domains: Vec<_> = domains.collect();
        if (2..=DOMAINS_MAX).contains(&domains.len()) {
            domains
        } else {
            Vec::new()
        }
    }
}

impl LinuxMachine {
    /// Looks for all knobs and meters, and makes the group for best-effort work. Turns no knob.
    ///
    /// # Errors
    /// [`Refusal`] if the guardian cannot be started or no core is known. Anything else that is missing or refused is
    /// not offered; [`LinuxMachine::refusals`] says why.
    pub fn open(options: LinuxOptions) -> Result<LinuxMachine, Refusal> {
        let LinuxOptions { tree, clock, guardian } = options;
        let cores = cores::usable(&tree);
        if cores.is_empty() {
            let why = format!("{} lists none", tree.path("/sys/devices/system/cpu/online").display());
            let remedy = "mount /sys, or point to a complete tree of kernel files";
            return Err(refused("finding the cores of the machine", why, remedy));
        }
        let journal = Journal::open(guardian)?;
        let emulated = Arc::new(EmulatedClock::of(&tree, &LinuxOs));
        let mut refusals = Vec::new();
        let clock = match clock {
            ClockPreference::None => ClockKnob::None,
            ClockPreference::Emulated => ClockKnob::Emulated,
            ClockPreference::Real => {
                unless_refused(CpuFreq::open(&tree, &journal), &mut refusals).map_or(ClockKnob::None, ClockKnob::Real)
            }
            ClockPreference::Auto => unless_refused(CpuFreq::open(&tree, &journal), &mut refusals)
                .filter(|real| real.offer().is_turnable())
                .map_or(ClockKnob::Emulated, ClockKnob::Real),
        };
        let best_effort = BestEffort::new(&tree, &journal, cores.len());
        let share = unless_refused(best_effort.with_group(|_| Ok(())), &mut refusals);
        let energy = unless_refused(EnergyMeter::open(&tree), &mut refusals);
        let thermometer = unless_refused(Thermometer::open(&tree), &mut refusals);
        let domains = clock.domains();
        let meters = [
            (MeterId::Energy, energy.is_some()),
            (MeterId::Temperature, thermometer.is_some()),
            (MeterId::DomainClocks, !domains.is_empty()),
        ];
        let meters = meters.into_iter().filter(|(_, there)| *there);
        let meters = meters.map(|(meter, _)| (meter, Provenance::Real));
        let of_all = match &clock {
            ClockKnob::Real(knob) => Some(knob.offer()),
            ClockKnob::Emulated => Some(emulated.offer()),
            ClockKnob::None => None,
        };
        let clocks = of_all
            .into_iter()
            .chain(domains.iter().map(|(_, offer)| offer))
            .zip(0..);
        let clocks = clocks.map(|(offer, number)| (KnobId::Clock(DomainId(number)), Range::Clock(offer.clone())));
        let share = share.map(|()| (KnobId::BestEffortShare, Range::Share(Provenance::Real)));
        let offers = Offers {
            machine: name(&tree),
            knobs: { clocks.chain(share) }
                .map(|(knob, range)| KnobOffer { knob, range })
                .collect(),
            meters: meters.collect(),
            domains: domains.into_iter().map(|(cores, _)| cores).collect(),
            cores,
        };
        Ok(LinuxMachine {
            stat: None,
            times: Vec::new(),
            busy: vec![Nanos::ZERO; offers.cores.len()],
            offers,
            tree,
            journal,
            clock,
            emulated,
            best_effort,
            partitions: None,
            energy,
            thermometer,
            refusals,
        })
    }

    /// Knobs and meters that were not obtained, each with the reason and a remedy.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// This machine with the ways and bandwidth of each core, where resctrl is mounted; [`LinuxMachine::refusals`] says
    /// what is missing. Makes no group yet.
    ///
    /// # Errors
    /// [`Refusal`] where it is mounted and this process may not use it.
    pub fn with_partitions(mut self) -> Result<LinuxMachine, Refusal> {
        match Partitions::open(&self.tree) {
            Err(refusal) if resctrl::look(&self.tree).is_ok() => return Err(refusal),
            Err(refusal) => self.refusals.push(refusal),
            Ok(partitions) => {
                let knobs = partitions.offers(&self.offers.cores);
                self.offers.knobs.extend(knobs);
                self.refusals.extend(partitions.layout().bandwidth.clone().err());
                self.partitions = Some(partitions);
            }
        }
        Ok(self)
    }

    /// The ways and bandwidth of cores, after [`LinuxMachine::with_partitions`] where resctrl is mounted.
    pub fn partitions(&self) -> Option<&Partitions> {
        self.partitions.as_ref()
    }

    /// Whether the guardian is running now.
    pub fn guarded(&self) -> bool {
        self.journal.guarded()
    }

    /// The emulated clock, to compute and to stretch work by. If the clock knob is real, or there is none, it stays at
    /// its top and adds nothing.
    pub fn emulated_clock(&self) -> Arc<EmulatedClock> {
        Arc::clone(&self.emulated)
    }

    /// The group of best-effort threads; new threads join it through this handle.
    pub fn best_effort(&self) -> BestEffort {
        self.best_effort.clone()
    }

    /// Takes `cores` for the real-time work of this process alone; see [`ExclusiveCore`]. Drop them before this machine
    /// is restored. Programs that the environment names ([`exclusive::SPARE`]) are not moved either.
    ///
    /// # Errors
    /// [`Refusal`] if a core or a group to lend to does not exist, no core would be left, or the cores cannot be
    /// reserved.
    pub fn exclusive_cores(&self, cores: &[CoreId], neighbours: &Neighbours) -> Result<Vec<ExclusiveCore>, Refusal> {
        let mut neighbours = neighbours.clone();
        neighbours.spare.extend(exclusive::spared());
        ExclusiveCore::take_all(&self.tree, &self.journal, cores, &neighbours)
    }

    /// Gives the share of best-effort work to each of these groups of other programs, as `/proc/PID/cgroup` names them,
    /// in place of best-effort threads of this process.
    ///
    /// # Errors
    /// [`Refusal`] if one does not exist, has no `cpu` controller, or contains this process.
    pub fn bound_groups(&self, groups: &[PathBuf]) -> Result<(), Refusal> {
        let named = |group: &PathBuf| CpuGroup::named(&self.tree, &self.journal, group);
        self.best_effort.place().named = groups.iter().map(named).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Records how to undo further changes, and knows the tasks and cores of other processes. Drop its clones before
    /// this machine is restored.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Moves threads of other programs while the machine is in use elsewhere.
    pub fn guests(&self) -> Guests {
        Guests(self.journal.clone())
    }

    /// A folder for temporary files that is removed on restore, even after a kill. It is in the folder that `TMPDIR`
    /// names; without `TMPDIR`, files that need no medium (`in_memory`) are kept in shared memory, so that other
    /// programs' disk traffic does not slow down the threads that write to them.
    ///
    /// # Errors
    /// [`Refusal`] if the folder cannot be made.
    pub fn temporary_dir(&self, in_memory: bool) -> Result<std::path::PathBuf, Refusal> {
        let shared_memory = self.tree.path(SHARED_MEMORY);
        if in_memory && std::env::var_os("TMPDIR").is_none() && shared_memory.is_dir() {
            let made = self.journal.temporary_dir(&shared_memory);
            if made.is_ok() {
                return made;
            }
        }
        self.journal.temporary_dir(&std::env::temp_dir())
    }

    /// Times of the cores as of the last [`read`](Machine::read); empty if they could not be read.
    pub fn core_times(&self) -> &[CoreTimes] {
        &self.times
    }

    fn set_clock(&mut self, wanted: Hertz) -> Result<Hertz, Refusal> {
        match &mut self.clock {
            ClockKnob::Real(knob) => knob.set(wanted),
            ClockKnob::Emulated => Ok(self.emulated.set(wanted)),
            ClockKnob::None => Err(refused(
                "setting the clock",
                "this machine was opened without a clock knob",
                "open it with the emulated clock, or with the real one where there is one",
            )),
        }
    }

    fn set_domain(&mut self, domain: DomainId, wanted: Hertz) -> Result<Hertz, Refusal> {
        match (&mut self.clock, usize::from(domain.0).checked_sub(1)) {
            (ClockKnob::Real(knob), Some(number)) if number < self.offers.domains.len() => {
                knob.set_domain(number, wanted)
            }
            _ => Err(refused(
                format!("setting the {}", KnobId::Clock(domain)),
                "this machine has no such clock domain",
                "leave it out of the plan, or turn the clock of all cores",
            )),
        }
    }

    /// Compares the groups of ways and bandwidth with what was set, and removes them once another program has changed
    /// them: all cores then have what the machine gives them.
    fn check_partitions(&mut self) {
        let Some(partitions) = &mut self.partitions else { return };
        if partitions
            .check(&mut resctrl::carry(&self.tree, &self.journal))
            .is_some()
        {
            resctrl::remove(&self.tree, &self.journal);
        }
    }

    /// Sets the ways and bandwidths of `plan`. If they are lost, each of them is refused, whatever the plan names, so
    /// that the loop learns it from the next plan.
    fn set_partitions(&mut self, plan: &Plan, applied: &mut Applied) {
        let Some(partitions) = &mut self.partitions else { return };
        let results = partitions.apply(plan, &mut resctrl::carry(&self.tree, &self.journal));
        if let Some(lost) = partitions.lost() {
            let knobs = self.offers.knobs.iter().map(|offer| offer.knob);
            let unplanned = knobs.filter(|knob| is_partition(*knob) && plan.get(*knob).is_none());
            applied.refused.extend(unplanned.map(|knob| (knob, lost.clone())));
        }
        results
            .into_iter()
            .for_each(|(knob, result)| applied.note(knob, result));
    }

    fn read_busy(&mut self) -> Reading {
        let stat = match &mut self.stat {
            Some(stat) => stat,
            none => none.insert(Stat::open(&self.tree)?),
        };
        self.times.clear();
        self.times = stat.read()?;
        for (core, busy) in self.offers.cores.iter().zip(&mut self.busy) {
            match self.times.binary_search_by_key(core, |times| times.core) {
                Ok(found) => *busy = (*busy).max(self.times[found].busy),
                Err(_) => return Err(format!("core {core} is not online any more")),
            }
        }
        Ok(Measure::Busy(self.busy.clone()))
    }
}

impl Clock for LinuxMachine {
    fn now(&self) -> Time {
        LinuxOs.now()
    }
}

impl Machine for LinuxMachine {
    fn offers(&self) -> &Offers {
        &self.offers
    }

    fn apply(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        for (knob, value) in plan.iter() {
            let result = match (knob, value) {
                (KnobId::CLOCK, Value::Clock(wanted)) => self.set_clock(wanted).map(Value::Clock),
                (KnobId::Clock(domain), Value::Clock(wanted)) => self.set_domain(domain, wanted).map(Value::Clock),
                (KnobId::BestEffortShare, Value::Share(share)) => self.best_effort.set_share(share).map(Value::Share),
                _ if self.partitions.is_some() && is_partition(knob) => continue,
                _ => Err(refused(
                    format!("setting the {knob} to {value}"),
                    "this machine has no such knob",
                    "leave it out of the plan, or use a machine that offers it",
                )),
            };
            applied.note(knob, result);
        }
        self.set_partitions(plan, &mut applied);
        applied
    }

    fn read(&mut self) -> Readings {
        let at = LinuxOs.now();
        self.check_partitions();
        let clock = match &mut self.clock {
            ClockKnob::Real(knob) => Some(knob.read()),
            ClockKnob::Emulated => Some(Ok(self.emulated.clock())),
            ClockKnob::None => None,
        };
        let clock = clock.map(|read| (MeterId::Clock, read.map(Measure::Clock)));
        let clocks = match &self.clock {
            ClockKnob::Real(knob) if !self.offers.domains.is_empty() => Some(knob.read_domains()),
            _ => None,
        };
        let clocks = clocks.map(|read| (MeterId::DomainClocks, read.map(Measure::Clocks)));
        let energy = self.energy.as_mut().map(EnergyMeter::read);
        let energy = energy.map(|read| (MeterId::Energy, read.map(Measure::Joules)));
        let celsius = self.thermometer.as_ref().map(Thermometer::read);
        let celsius = celsius.map(|read| (MeterId::Temperature, read.map(Measure::Celsius)));
        let busy = (MeterId::Busy, self.read_busy());
        Readings {
            at,
            meters: clock
                .into_iter()
                .chain([busy])
                .chain(energy)
                .chain(celsius)
                .chain(clocks)
                .collect(),
        }
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.emulated.set(Hertz(u64::MAX));
        let mut left = match &mut self.clock {
            ClockKnob::Real(knob) => knob.restore(),
            ClockKnob::Emulated | ClockKnob::None => Vec::new(),
        };
        self.best_effort.forget_group();
        self.partitions.iter_mut().for_each(Partitions::forget);
        let rest = self.journal.restore();
        left.retain(|refusal| !rest.contains(refusal)); // failures stay in the journal, and are tried again
        left.extend(rest);
        left
    }
}

impl Drop for LinuxMachine {
    fn drop(&mut self) {
        // Threads that still hold a `BestEffort` share the journal, and are not waited for. The journal's own drop
        // leaves failures to the guardian.
        drop(self.restore());
    }
}

/// The best-effort threads' group and common share. Clones refer to the same group; any thread may use one.
#[derive(Clone, Debug)]
pub struct BestEffort(Arc<Mutex<Place>>);

#[derive(Debug)]
struct Place {
    tree: KernelTree,
    journal: Journal,
    /// Made when first needed, and again after the machine was restored.
    group: Option<CpuGroup>,
    /// Groups of other programs that have the share in place of `group`, each of them.
    named: Vec<CpuGroup>,
    /// Number of cores that the share refers to.
    cores: usize,
    share: Option<Share>,
    /// The share obtained for `share` and `cores`: setting the same again costs no write.
    obtained: Option<Share>,
}

impl BestEffort {
    fn new(tree: &KernelTree, journal: &Journal, cores: usize) -> BestEffort {
        BestEffort(Arc::new(Mutex::new(Place {
            tree: tree.clone(),
            journal: journal.clone(),
            group: None,
            named: Vec::new(),
            cores,
            share: None,
            obtained: None,
        })))
    }

    /// Puts `thread`, of this process, under the share of best-effort work. Threads that it starts later are under it,
    /// too.
    ///
    /// # Errors
    /// [`Refusal`] where no share is offered or there is no such thread.
    pub fn adopt(&self, thread: Tid) -> Result<(), Refusal> {
        self.with_group(|group| group.adopt(thread))
    }

    /// Sets the number of cores that best-effort threads run on (at first: all of the machine's), to which the share
    /// refers. A share set before is set again for the new number.
    ///
    /// # Errors
    /// [`Refusal`] if the share cannot be set again.
    pub fn runs_on(&self, cores: usize) -> Result<(), Refusal> {
        let share = {
            let mut place = self.place();
            place.cores = cores;
            place.obtained = None;
            place.share
        };
        share.map_or(Ok(()), |share| self.set_share(share).map(|_| ()))
    }

    fn set_share(&self, share: Share) -> Result<Share, Refusal> {
        let cores = {
            let place = self.place();
            if let (true, Some(obtained)) = (place.share == Some(share), place.obtained) {
                return Ok(obtained);
            }
            place.cores
        };
        let obtained = match self.place().named.as_slice() {
            [] => None,
            [first, rest @ ..] => {
                rest.iter()
                    .try_for_each(|group| group.set_share(share, cores).map(drop))?;
                Some(first.set_share(share, cores)?)
            }
        };
        let obtained = obtained.map_or_else(|| self.with_group(|group| group.set_share(share, cores)), Ok)?;
        let mut place = self.place();
        (place.share, place.obtained) = (Some(share), Some(obtained));
        Ok(obtained)
    }

    fn with_group<T>(&self, act: impl FnOnce(&CpuGroup) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut place = self.place();
        let group = match place.group.take() {
            Some(group) => group,
            None => CpuGroup::create(&place.tree, &place.journal)?,
        };
        act(place.group.insert(group))
    }

    fn forget_group(&self) {
        let mut place = self.place();
        place.group = None;
        (place.share, place.obtained) = (None, None);
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // A poisoned lock is usable: each field is set at once, so a panic of another thread leaves no partial state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether resctrl turns the knob.
fn is_partition(knob: KnobId) -> bool {
    matches!(knob, KnobId::Ways(_) | KnobId::Bandwidth(_))
}

/// The value, or `None` with the refusal added to `refusals`.
fn unless_refused<T>(result: Result<T, Refusal>, refusals: &mut Vec<Refusal>) -> Option<T> {
    result.map_err(|refusal| refusals.push(refusal)).ok()
}

/// The machine's CPU or board and its number of usable cores: a model learnt on another machine does not apply here.
pub fn identity(tree: &KernelTree) -> String {
    format!("{}, {} cores", name(tree), cores::usable(tree).len())
}

/// The name of the machine's CPU or board.
fn name(tree: &KernelTree) -> String {
    let cpuinfo = tree.text("/proc/cpuinfo");
    let field = |name: &str| cores::cpuinfo_field(&cpuinfo, name).map(str::to_owned);
    let board = || tree.read("/proc/device-tree/model").ok();
    field("model name")
        .or_else(|| board().map(|model| model.trim_end_matches('\0').to_owned()))
        .or_else(|| field("Hardware"))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unnamed Linux machine".into())
}
