//! Examines the facilities of this machine: available or missing, and how to get them.
//!
//! Each finding answers one question about one facility. Kernel files are read below the given tree; facts that only a
//! system call reveals (scheduling, locked memory) are those of this process, found by harmless trials on a thread or a
//! group that is removed afterwards.

use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use punctual_custody::journal::Journal;
use punctual_custody::recovery::{self, Holding, Ledgered};
use punctual_custody::tree::read_trimmed;
use punctual_units::{CoreId, Nanos};
use serde::{Deserialize, Serialize};

use super::cgroup::{self, CgroupVersion, CpuGroup};
use super::cpufreq::CpuFreq;
use super::emulated::nominal_frequency;
use super::exclusive::{self, Mechanism};
use super::fix::{self, RemedyStep};
use super::flush::{Flush, flush_instruction};
use super::powercap::EnergyMeter;
use super::real_time::{FairServer, RealTimeLimits, Throttling};
use super::thermal::Thermometer;
use super::{KernelTree, busy, cores, resctrl, thread};
use crate::{CoreChoice, Refusal};

/// The examined facilities, in the order of [`examine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Facility {
    /// A clock knob of the hardware (cpufreq).
    Clock,
    /// A clock knob emulated by real extra work.
    EmulatedClock,
    /// A bound on the CPU share of best-effort work (cgroup).
    CpuShare,
    /// Permission for real-time scheduling (`SCHED_FIFO`).
    RealTime,
    /// Real-time threads that the kernel's throttling never stops.
    UnthrottledRealTime,
    /// Real-time threads that the fair server never interrupts.
    NoFairServer,
    /// Memory that is never paged out (`mlockall`).
    LockedMemory,
    /// Cores to which the scheduler moves no thread by itself (isolcpus, cpuset partitions).
    IsolatedCores,
    /// A core from which all other threads are moved away.
    ExclusiveCore,
    /// Memory that survives power loss, mapped into files (dax).
    PersistentMemory,
    /// Completions that can be polled for (`io_uring`).
    PolledCompletion,
    /// Cores without a timer tick (nohz_full).
    TicklessCores,
    /// A kernel that can be preempted.
    Preemption,
    /// Cache ways and memory bandwidth by control group (resctrl).
    CachePartitions,
    /// Clock limits per task (uclamp).
    UtilClamp,
    /// A meter of energy (powercap).
    Energy,
    /// A meter of temperature (thermal zones).
    Temperature,
    /// A meter of busy time per core.
    BusyTime,
    /// Hardware without a hypervisor.
    BareMetal,
    /// Cores from which no hypervisor takes time.
    NoSteal,
    /// A machine without changes left by dead processes.
    AsFound,
    /// An emulator that counts cache misses for every number of ways. The command examines it, because it knows the
    /// profiler.
    CacheProfiles,
    /// A store's files. The command examines them, because it knows the engines.
    Store,
}

impl fmt::Display for Facility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Facility::Clock => "clock knob",
            Facility::EmulatedClock => "emulated clock",
            Facility::CpuShare => "CPU share of best-effort work",
            Facility::RealTime => "real-time scheduling",
            Facility::UnthrottledRealTime => "unthrottled real time",
            Facility::NoFairServer => "real time without fair server",
            Facility::LockedMemory => "locked memory",
            Facility::IsolatedCores => "isolated cores",
            Facility::ExclusiveCore => "exclusive core",
            Facility::PersistentMemory => "persistent memory",
            Facility::PolledCompletion => "polled completion",
            Facility::TicklessCores => "tickless cores",
            Facility::Preemption => "preemptible kernel",
            Facility::CachePartitions => "cache and bandwidth partitions",
            Facility::UtilClamp => "clock limits per task",
            Facility::Energy => "energy meter",
            Facility::Temperature => "temperature meter",
            Facility::BusyTime => "busy time per core",
            Facility::BareMetal => "bare metal",
            Facility::NoSteal => "no stolen time",
            Facility::AsFound => "machine as it was found",
            Facility::CacheProfiles => "cache profiles",
            Facility::Store => "store",
        })
    }
}

/// State of a facility on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Present, and this user may use it.
    Offered,
    /// Replaced by an emulation.
    Emulated,
    /// Missing on the machine or in its kernel, or switched off.
    Missing,
    /// Present, but this user may not use it, or cannot find out.
    Refused,
}

/// Result of examining a facility.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The facility that was examined.
    pub facility: Facility,
    /// State of the facility.
    pub status: Status,
    /// Facts that were found, in words.
    pub detail: String,
    /// Remedy in words; empty if nothing is wanted.
    pub remedy: String,
    /// Steps by which a program carries the remedy out, in order; empty if it takes a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RemedyStep>,
}

/// Examines every facility up to [`Facility::AsFound`], in the order of [`Facility`]. Undoes every trial that it makes.
pub fn examine(tree: &KernelTree) -> Vec<Finding> {
    let held = held(tree);
    let mut findings = vec![
        clock(tree),
        emulated_clock(tree),
        cpu_share(tree),
        real_time(),
        throttling(tree),
        fair_server(tree),
        locked_memory(),
        isolated(tree),
        exclusive_core(tree, held.as_ref().map_or(&[], |held| &held.holders)),
        persistent_memory(tree),
        polled_completion(tree),
        tickless(tree),
        preemption(tree),
        cache_partitions(tree),
        uclamp(tree),
        energy(tree),
        temperature(tree),
        busy_time(tree),
        bare_metal(tree),
        steal(tree),
        as_found(tree, held),
    ];
    { &mut findings }
        .iter_mut()
        .for_each(|finding| finding.steps = fix::steps(tree, finding));
    findings
}

impl Facility {
    fn offered(self, detail: impl Into<String>) -> Finding {
        self.found(Status::Offered, detail, "")
    }

    fn missing(self, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.found(Status::Missing, detail, remedy)
    }

    fn refused(self, refusal: Refusal) -> Finding {
        self.found(Status::Refused, refusal.why, refusal.remedy)
    }

    fn found(self, status: Status, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            facility: self,
            status,
            detail: detail.into(),
            remedy: remedy.into(),
            steps: Vec::new(),
        }
    }

    /// `refusal` as refused if the machine has the facility (`present`), as missing if not.
    fn absent_or_refused(self, refusal: Refusal, present: bool) -> Finding {
        if present {
            self.refused(refusal)
        } else {
            self.missing(refusal.why, refusal.remedy)
        }
    }
}

fn clock(tree: &KernelTree) -> Finding {
    let folder = tree.path("/sys/devices/system/cpu/cpufreq");
    let present = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match Journal::alone().and_then(|journal| CpuFreq::open(tree, &journal)) {
        Ok(knob) => {
            let offer = knob.offer();
            let detail = format!("{} steps from {} to {}", offer.steps.len(), offer.bottom(), offer.top());
            Facility::Clock.offered(detail)
        }
        Err(refusal) => Facility::Clock.absent_or_refused(refusal, present),
    }
}

fn emulated_clock(tree: &KernelTree) -> Finding {
    let top = nominal_frequency(&tree.read("/proc/cpuinfo").unwrap_or_default());
    let detail = format!("real extra work in proportion, from 20 % to 100 % of {top}");
    Facility::EmulatedClock.found(Status::Emulated, detail, "")
}

/// Makes a group and removes it again; in a recorded tree, only locates it.
fn cpu_share(tree: &KernelTree) -> Finding {
    let text = |file: &str| tree.read(file).unwrap_or_default();
    let location = cgroup::locate(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let describe = |version| match version {
        CgroupVersion::V1 => "cgroup version 1 (cpu.cfs_quota_us)",
        CgroupVersion::V2 => "cgroup version 2 (cpu.max), threaded",
    };
    if let (Some(location), false) = (&location, tree.is_live()) {
        let detail = format!("{}, not tried: this tree is a record", describe(location.version));
        return Facility::CpuShare.offered(detail);
    }
    let tried = Journal::alone().and_then(|journal| {
        let group = CpuGroup::create(tree, &journal)?;
        match group.restore().pop() {
            None => Ok(group.version()),
            Some(left_over) => Err(left_over),
        }
    });
    match tried {
        Ok(version) => Facility::CpuShare.offered(describe(version)),
        Err(refusal) => Facility::CpuShare.absent_or_refused(refusal, location.is_some()),
    }
}

/// Tries the lowest real-time priority, on a thread of its own.
fn real_time() -> Finding {
    let tried = std::thread::spawn(|| thread::real_time(*thread::REAL_TIME_PRIORITIES.start())).join();
    match tried {
        Ok(Ok(())) => Facility::RealTime.offered("SCHED_FIFO, priorities 1 to 99 as far as the limits allow"),
        Ok(Err(refusal)) => Facility::RealTime.refused(refusal),
        Err(_) => Facility::RealTime.found(
            Status::Refused,
            "the thread that tried it ended",
            "this is a defect worth reporting",
        ),
    }
}

fn throttling(tree: &KernelTree) -> Finding {
    match RealTimeLimits::read(tree).throttling {
        Throttling::Bounded { runtime, period } => Facility::UnthrottledRealTime.missing(
            format!(
                "real-time threads may use a core for {} us of every {} us",
                runtime.0 / 1000,
                period.0 / 1000
            ),
            "keep polling loops below that, or, if none can run away: sysctl -w kernel.sched_rt_runtime_us=-1",
        ),
        Throttling::Possible { runtime, period } => Facility::UnthrottledRealTime.found(
            Status::Refused,
            format!(
                "whether this kernel throttles (since Linux 6.12 only with CONFIG_RT_GROUP_SCHED) cannot be read; if so, at {} us of every {} us",
                runtime.0 / 1000,
                period.0 / 1000
            ),
            "install the kernel's configuration as /boot/config-RELEASE, or: sysctl -w kernel.sched_rt_runtime_us=-1",
        ),
        Throttling::Off => Facility::UnthrottledRealTime.offered("real-time threads are not throttled"),
        Throttling::Unknown => Facility::UnthrottledRealTime.found(
            Status::Refused,
            "/proc/sys/kernel/sched_rt_runtime_us cannot be read",
            "mount /proc",
        ),
    }
}

/// Since Linux 6.12 a server reserves time for ordinary threads above real-time ones, per core.
fn fair_server(tree: &KernelTree) -> Finding {
    let facility = Facility::NoFairServer;
    match RealTimeLimits::read(tree).fair_server {
        FairServer::Unknown => facility.found(
            Status::Refused,
            "the scheduler's debugging files cannot be read",
            "as root: mount -t debugfs debugfs /sys/kernel/debug (a locked-down kernel shows none)",
        ),
        FairServer::None => facility.offered("this kernel has none"),
        FairServer::Off => facility.offered("the fair server is off on all cores"),
        FairServer::Reserves { runtime, period, cores } => facility.missing(
            format!("on {cores} cores, ordinary threads get up to {runtime} of each {period} if they wait"),
            // Linux 6.12.117 loses count of the servers' bandwidth once a process reads sched_rt_runtime_us, as this
            // one does.
            "as root: echo 0 into every runtime file under /sys/kernel/debug/sched/fair_server; where that is refused as busy, soon after boot",
        ),
    }
}

fn locked_memory() -> Finding {
    if thread::may_lock_memory() {
        return Facility::LockedMemory.offered("mlockall is allowed");
    }
    Facility::LockedMemory.found(
        Status::Refused,
        "there is a limit on locked memory, and no right to lift it",
        "run as root, grant CAP_IPC_LOCK, or lift the limit (memlock unlimited, LimitMEMLOCK=infinity)",
    )
}

fn isolated(tree: &KernelTree) -> Finding {
    let facility = Facility::IsolatedCores;
    let booted = cores::isolated(tree);
    let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
    let root = cgroup::mount_point(None, &mountinfo);
    let in_groups = root.and_then(|root| tree.read(root.join("cpuset.cpus.isolated")).ok());
    let mut in_groups = cores::parse_list(&in_groups.unwrap_or_default());
    in_groups.retain(|core| !booted.contains(core));
    let list = |cores: &[CoreId]| exclusive::list(cores);
    let partitions = format!(
        "cores {} in partitions of cgroup version 2, for programs that are started there",
        list(&in_groups)
    );
    match (booted.is_empty(), in_groups.is_empty()) {
        (false, true) => facility.offered(format!("cores {}; exclusive tasks get them first", list(&booted))),
        (false, false) => facility.offered(format!("cores {}; {partitions}", list(&booted))),
        (true, false) => facility.offered(partitions),
        (true, true) => facility.missing(
            "no core",
            "boot with isolcpus=<cores>, or make an isolated cpuset partition (cgroup version 2)",
        ),
    }
}

/// Checks the requirements without taking a core, which would move all threads. A program that has a core alone keeps
/// this process off it; it is named if so few cores are left to all programs, not where this process may use few.
fn exclusive_core(tree: &KernelTree, holders: &[Holding]) -> Finding {
    let facility = Facility::ExclusiveCore;
    let (usable, online) = (cores::usable(tree), cores::online(tree));
    let has = |holder: &&Holding| holder.alive && holder.exclusive.iter().any(|core| online.contains(core));
    let holding: Vec<&Holding> = holders.iter().filter(has).collect();
    let taken = |core: &CoreId| holding.iter().any(|holder| holder.exclusive.contains(core));
    let free = online.iter().filter(|core| !taken(core)).count();
    if free < 2 && !holding.is_empty() {
        let one = |holder: &&Holding| {
            let Holding { name, process, .. } = holder;
            format!(
                "{name} (process {process}) has core {} for itself alone",
                exclusive::list(&holder.exclusive)
            )
        };
        let owners: Vec<String> = holding.iter().map(one).collect();
        return facility.found(
            Status::Refused,
            format!("{}; one core is left to all others", owners.join(", ")),
            "wait until that program has ended, or end it",
        );
    }
    if usable.len() < 2 {
        return facility.missing(
            "there are not two cores to be used",
            "give this machine, or this process, two cores or more",
        );
    }
    match exclusive::likely(tree) {
        Ok(mechanism @ (Mechanism::IsolatedPartition | Mechanism::Partition | Mechanism::Isolated)) => facility.offered(mechanism.to_string()),
        Ok(mechanism) => facility.found(
            Status::Offered,
            mechanism.to_string(),
            "the kernel would keep new threads off the core by itself with a cpuset partition: boot with the unified hierarchy \
             (systemd.unified_cgroup_hierarchy=1, cgroup_no_v1=all)",
        ),
        Err(refusal) => facility.refused(refusal),
    }
}

fn persistent_memory(tree: &KernelTree) -> Finding {
    let facility = Facility::PersistentMemory;
    let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mountinfo.lines().filter(|line| {
        line.split([' ', ','])
            .any(|option| ["dax", "dax=always"].contains(&option))
    });
    let points: Vec<&str> = mounted.filter_map(|line| line.split(' ').nth(4)).collect();
    let flush = match flush_instruction() {
        Flush::Clwb => "written back by CLWB",
        Flush::Clflushopt => "written back by CLFLUSHOPT",
        Flush::Msync => "written back by msync",
    };
    if points.is_empty() {
        facility.missing(
            format!("no file system is mounted with dax (it would be {flush}); shared memory stands in, which survives the process only"),
            "mount persistent memory with -o dax, or set memory aside for trying: memmap=<size>!<start> on the kernel's command line",
        )
    } else {
        facility.offered(format!("{}, {flush}", points.join(", ")))
    }
}

/// Makes a ring on trial; a device's queue shows whether its driver polls (`nvme.poll_queues`).
fn polled_completion(tree: &KernelTree) -> Finding {
    let facility = Facility::PolledCompletion;
    if let Err(why) = try_ring() {
        return facility.found(
            Status::Refused,
            format!("io_uring: {why}"),
            "allow it: sysctl kernel.io_uring_disabled=0, and in containers its seccomp profile",
        );
    }
    let devices = std::fs::read_dir(tree.path("/sys/block"))
        .into_iter()
        .flatten()
        .flatten();
    let polled: Vec<String> = devices
        .filter(|device| read_trimmed(&device.path().join("queue/io_poll")).is_ok_and(|flag| flag == "1"))
        .map(|device| device.file_name().to_string_lossy().into_owned())
        .collect();
    let drivers = match polled.as_slice() {
        [] => "no driver polls its device".to_owned(),
        polled => format!("drivers poll {}", polled.join(", ")),
    };
    facility.offered(format!("io_uring, by looking into its ring; {drivers}"))
}

/// Makes an io_uring with two entries, and closes it.
fn try_ring() -> Result<(), std::io::Error> {
    /// Bytes of `struct io_uring_params` (io_uring_setup(2)); all zero asks for the defaults.
    const PARAMS_BYTES: usize = 120;
    let mut params = [0u64; PARAMS_BYTES / 8];
    // SAFETY: the kernel writes at most PARAMS_BYTES to `params`, which live until the call has returned.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    if ring < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned the descriptor, and no other code knows it.
    drop(unsafe { OwnedFd::from_raw_fd(ring as RawFd) });
    Ok(())
}

/// Examines the core that an exclusive task would get first.
fn tickless(tree: &KernelTree) -> Finding {
    let facility = Facility::TicklessCores;
    let candidates = exclusive::candidates(tree, &CoreChoice::Any).unwrap_or_default();
    let Some(core) = candidates.first() else {
        return facility.missing("no core", "boot with nohz_full=<cores>");
    };
    match exclusive::quieter(tree, &[*core]) {
        Some(hint) => facility.missing(format!("core {core}: {}", hint.why), hint.remedy),
        None => facility.offered(format!("core {core}, which an exclusive task gets first")),
    }
}

fn preemption(tree: &KernelTree) -> Finding {
    let facility = Facility::Preemption;
    let release = tree
        .read("/proc/sys/kernel/osrelease")
        .unwrap_or_else(|_| "unknown".into());
    let kernel = |model: &str| format!("kernel {release}, {model}");
    if tree.read("/sys/kernel/realtime").is_ok_and(|flag| flag == "1") {
        return facility.offered(kernel("fully preemptible (PREEMPT_RT)"));
    }
    let remedy = "boot with preempt=full, or install a PREEMPT_RT kernel";
    let build = tree.read("/proc/sys/kernel/version").unwrap_or_default();
    // The model in force is in parentheses, among all possible ones: "none voluntary (full) lazy".
    let debug = tree.read("/sys/kernel/debug/sched/preempt").unwrap_or_default();
    let dynamic = debug
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(model, _)| model.to_owned());
    let asked = tree.read("/proc/cmdline").unwrap_or_default();
    let asked = asked
        .split(' ')
        .filter_map(|word| word.strip_prefix("preempt="))
        .next_back()
        .map(str::to_owned);
    match (dynamic.or(asked).as_deref(), build.contains("PREEMPT_DYNAMIC")) {
        (Some("full"), true) => facility.offered(kernel("preemptible (preempt=full)")),
        (Some(model), true) => facility.missing(kernel(&format!("preempt={model}")), remedy),
        (None, true) => facility.found(
            Status::Refused,
            kernel("chosen at boot (PREEMPT_DYNAMIC), which one cannot be read"),
            format!("mount -t debugfs debugfs /sys/kernel/debug to see it; {remedy}"),
        ),
        _ if build.contains("PREEMPT") => facility.offered(kernel("preemptible (PREEMPT)")),
        _ => facility.missing(kernel("not preemptible"), remedy),
    }
}

fn cache_partitions(tree: &KernelTree) -> Finding {
    match resctrl::look(tree) {
        Ok(partitions) => Facility::CachePartitions.offered(partitions.to_string()),
        Err(lack) => Facility::CachePartitions.missing(lack.to_string(), lack.remedy()),
    }
}

fn uclamp(tree: &KernelTree) -> Finding {
    let facility = Facility::UtilClamp;
    if tree.read("/proc/sys/kernel/sched_util_clamp_min").is_err() {
        return facility.missing("this kernel has none", "build the kernel with CONFIG_UCLAMP_TASK");
    }
    // 1024 is the full clock: real-time threads then run at it, however low a governor sets the knob.
    let real_time = tree
        .read("/proc/sys/kernel/sched_util_clamp_min_rt_default")
        .unwrap_or_default();
    match real_time.parse::<u32>() {
        Ok(least) if least > 0 => facility.found(
            Status::Offered,
            format!("real-time threads ask for at least {least}/1024 of the clock"),
            "to let governors slow real-time threads down: sysctl -w kernel.sched_util_clamp_min_rt_default=0",
        ),
        _ => facility.offered("real-time threads ask for no clock of their own"),
    }
}

fn temperature(tree: &KernelTree) -> Finding {
    match Thermometer::open(tree) {
        Ok(_) => Facility::Temperature.offered("the hottest thermal zone"),
        Err(refusal) => Facility::Temperature.missing(refusal.why, refusal.remedy),
    }
}

fn energy(tree: &KernelTree) -> Finding {
    let present = tree.path("/sys/class/powercap/intel-rapl:0").exists();
    match EnergyMeter::open(tree) {
        Ok(_) => Facility::Energy.offered("counters of the CPU packages (intel-rapl)"),
        Err(refusal) => Facility::Energy.absent_or_refused(refusal, present),
    }
}

fn busy_time(tree: &KernelTree) -> Finding {
    match busy::read(tree) {
        Ok(times) => Facility::BusyTime.offered(format!("{} cores in /proc/stat", times.len())),
        Err(why) => Facility::BusyTime.missing(why, "mount /proc"),
    }
}

fn bare_metal(tree: &KernelTree) -> Finding {
    let cpuinfo = tree.read("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    let hypervisor = flags.split_whitespace().any(|flag| flag == "hypervisor")
        || tree.path("/sys/hypervisor/type").exists()
        || tree.path("/proc/device-tree/hypervisor").exists();
    if hypervisor {
        Facility::BareMetal.missing(
            "a virtual machine: others share its cores, caches and clock",
            "claim ratios measured in one run, with a no-op control, and no bounds",
        )
    } else {
        Facility::BareMetal.offered("no hypervisor shows itself")
    }
}

fn steal(tree: &KernelTree) -> Finding {
    let times = busy::read(tree).unwrap_or_default();
    let sum = |part: fn(&busy::CoreTimes) -> Nanos| times.iter().map(part).sum::<Nanos>();
    let (stolen, run) = (sum(|core| core.steal), sum(|core| core.busy));
    if times.is_empty() {
        return Facility::NoSteal.missing("/proc/stat does not tell", "mount /proc");
    }
    if stolen == Nanos::ZERO {
        return Facility::NoSteal.offered("none since boot");
    }
    Facility::NoSteal.missing(
        format!(
            "{stolen} taken by the hypervisor since boot, {:.2} % of the time wanted",
            100.0 * stolen.ratio(stolen + run)
        ),
        "pin the virtual cores on the host, or measure on bare metal",
    )
}

/// Content of this user's ledger, and of the superuser's.
///
/// # Errors
/// [`Refusal`] if one of them cannot be read.
fn held(tree: &KernelTree) -> Result<Ledgered, Refusal> {
    let mut found = Ledgered::default();
    if !tree.is_live() {
        return Ok(found);
    }
    let own = recovery::folder();
    let system = Some(PathBuf::from(recovery::SYSTEM)).filter(|system| *system != own);
    for folder in system.into_iter().chain([own]) {
        let more = recovery::look(&folder)?;
        found.holders.extend(more.holders);
        found.left.extend(more.left);
    }
    Ok(found)
}

/// Lists the holders in this machine's ledger, and changes left by dead ones. Undoes nothing.
fn as_found(tree: &KernelTree, held: Result<Ledgered, Refusal>) -> Finding {
    let facility = Facility::AsFound;
    if !tree.is_live() {
        return facility.offered("not looked at: this tree is a record");
    }
    let found = match held {
        Ok(found) => found,
        Err(refusal) => return facility.refused(refusal),
    };
    let stays = |holder: &Holding, core: &CoreId| {
        let stays = exclusive::staying(tree, holder.process, *core);
        format!("; may still run on core {core}: {}", exclusive::stays_told(&stays))
    };
    let holders = found.holders.iter().map(|holder| {
        let kept = holder.exclusive.iter().filter(|_| holder.alive);
        let stays: String = kept.map(|core| stays(holder, core)).collect();
        format!("{holder}{stays}")
    });
    let left = found.left.iter().map(|path| format!("{path} could not be restored"));
    let told: Vec<String> = holders.chain(left).collect();
    match (told.is_empty(), found.has_leftovers()) {
        (true, _) => facility.offered("no program of punctual has changed anything"),
        (_, false) => facility.offered(told.join("; ")),
        (_, true) => facility.missing(
            told.join("; "),
            "punctual doctor --restore restores what dead programs have left changed",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    fn finding(findings: &[Finding], facility: Facility) -> &Finding {
        findings.iter().find(|finding| finding.facility == facility).unwrap()
    }

    #[test]
    fn this_machine_is_examined_and_nothing_stays_changed() {
        let groups = || std::fs::read_to_string("/proc/thread-self/cgroup").unwrap();
        let before = (groups(), thread::scheduling(thread::Tid::current()));
        let findings = examine(&KernelTree::default());
        for finding in &findings {
            eprintln!(
                "{:<32} {:?}: {} [{}]",
                finding.facility, finding.status, finding.detail, finding.remedy
            );
            let wanting = matches!(finding.status, Status::Missing | Status::Refused);
            assert!(!wanting || !finding.remedy.is_empty(), "{finding:?} has no remedy");
        }
        assert_eq!((groups(), thread::scheduling(thread::Tid::current())), before);
    }

    #[test]
    fn the_order_is_stable_and_findings_survive_json() {
        let (_folder, tree) = testing::tree(&[]);
        let findings = examine(&tree);
        let facilities: Vec<Facility> = findings.iter().map(|finding| finding.facility).collect();
        let again: Vec<Facility> = examine(&KernelTree::default())
            .iter()
            .map(|finding| finding.facility)
            .collect();
        assert_eq!(facilities, again);
        let json = serde_json::to_string(&findings).unwrap();
        assert!(
            json.contains(r#""facility":"emulated-clock","status":"emulated""#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Vec<Finding>>(&json).unwrap(), findings);
    }

    #[test]
    fn a_tuned_workstation_offers_what_its_files_say() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/sys/kernel/sched_rt_runtime_us", "-1"),
            ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "0"),
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/sys/devices/system/cpu/isolated", "2-3"),
            ("/sys/devices/system/cpu/nohz_full", "2-3"),
            ("/sys/kernel/realtime", "1"),
            ("/sys/fs/resctrl/schemata", "L3:0=fff"),
            ("/proc/sys/kernel/sched_util_clamp_min", "1024"),
            ("/proc/sys/kernel/sched_util_clamp_min_rt_default", "0"),
            ("/proc/stat", "cpu0 1 2 3 4 5 6 7 0"),
            ("/proc/cpuinfo", "flags : fpu tsc"),
            ("/proc/self/cgroup", "0::/user.slice"),
            (
                "/proc/self/mountinfo",
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            ),
        ]);
        let findings = examine(&tree);
        for facility in [
            Facility::CpuShare,
            Facility::UnthrottledRealTime,
            Facility::NoFairServer,
            Facility::IsolatedCores,
            Facility::TicklessCores,
            Facility::Preemption,
            Facility::CachePartitions,
            Facility::UtilClamp,
            Facility::BusyTime,
            Facility::BareMetal,
            Facility::NoSteal,
        ] {
            assert_eq!(finding(&findings, facility).status, Status::Offered, "{facility}");
        }
    }

    #[test]
    fn a_virtual_machine_misses_what_its_files_say() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/sys/kernel/osrelease", "6.12.1"),
            ("/lib/modules/6.12.1/config", "CONFIG_RT_GROUP_SCHED=y"),
            ("/proc/sys/kernel/sched_rt_runtime_us", "950000"),
            ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "50000000"),
            ("/sys/kernel/debug/sched/fair_server/cpu0/period", "1000000000"),
            ("/sys/devices/system/cpu/isolated", ""),
            ("/sys/kernel/debug/sched/preempt", "none (voluntary) full lazy"),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
            ("/proc/filesystems", "nodev\tresctrl"),
            ("/proc/stat", "cpu0 99 0 0 4 5 0 0 1"),
            ("/proc/cpuinfo", "flags : fpu hypervisor tsc"),
        ]);
        let findings = examine(&tree);
        for facility in [
            Facility::Clock,
            Facility::CpuShare,
            Facility::UnthrottledRealTime,
            Facility::NoFairServer,
            Facility::IsolatedCores,
            Facility::TicklessCores,
            Facility::Preemption,
            Facility::CachePartitions,
            Facility::UtilClamp,
            Facility::Energy,
            Facility::Temperature,
            Facility::BareMetal,
            Facility::NoSteal,
        ] {
            assert_eq!(finding(&findings, facility).status, Status::Missing, "{facility}");
        }
        // Numbers are those of the files.
        for (facility, number) in [
            (Facility::UnthrottledRealTime, "950000"),
            (Facility::NoFairServer, "50.00 ms"),
            (Facility::Preemption, "voluntary"),
            (Facility::NoSteal, "1.00 %"),
        ] {
            let detail = &finding(&findings, facility).detail;
            assert!(detail.contains(number), "{facility}: {detail}");
        }
    }

    #[test]
    fn what_is_there_but_out_of_reach_is_refused_not_missing() {
        let (_folder, tree) = testing::tree(&[
            ("/sys/class/powercap/intel-rapl:0/name", "package-0"),
            (
                "/sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies",
                "200000",
            ),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
        ]);
        let findings = examine(&tree);
        for facility in [
            Facility::Clock,
            Facility::Energy,
            Facility::NoFairServer,
            Facility::Preemption,
            Facility::UnthrottledRealTime,
        ] {
            assert_eq!(finding(&findings, facility).status, Status::Refused, "{facility}");
        }
    }

    #[test]
    fn a_core_that_another_program_has_alone_is_named_with_that_program() {
        let (_folder, tree) = testing::tree(&[
            ("/sys/devices/system/cpu/online", "0-1"),
            ("/proc/self/status", "Cpus_allowed_list:\t0"),
        ]);
        let mut holder = Holding {
            name: "radio".into(),
            process: 77,
            alive: true,
            exclusive: vec![CoreId(1)],
            shared: Vec::new(),
            changes: 3,
        };
        let found = exclusive_core(&tree, std::slice::from_ref(&holder));
        assert_eq!(found.status, Status::Refused);
        assert!(
            found.detail.contains("radio (process 77)") && found.detail.contains("core 1"),
            "{found:?}"
        );
        let (_folder, larger) = testing::tree(&[
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/proc/self/status", "Cpus_allowed_list:\t0"),
        ]);
        let few = exclusive_core(&larger, std::slice::from_ref(&holder));
        assert_eq!(
            few.status,
            Status::Missing,
            "this process alone may use too few: {few:?}"
        );
        holder.alive = false;
        assert_eq!(exclusive_core(&tree, &[holder]).status, Status::Missing);
        assert_eq!(exclusive_core(&tree, &[]).status, Status::Missing);
    }

    #[test]
    fn the_preemption_model_is_read_from_the_command_line_where_debugging_files_are_hidden() {
        let model = |cmdline: &str, version: &str| {
            let (_folder, tree) = testing::tree(&[("/proc/cmdline", cmdline), ("/proc/sys/kernel/version", version)]);
            preemption(&tree).status
        };
        assert_eq!(
            model("ro preempt=full quiet", "#1 SMP PREEMPT_DYNAMIC"),
            Status::Offered
        );
        assert_eq!(model("ro preempt=none", "#1 SMP PREEMPT_DYNAMIC"), Status::Missing);
        assert_eq!(model("ro", "#1 SMP PREEMPT_DYNAMIC"), Status::Refused);
        assert_eq!(model("ro", "#1 SMP PREEMPT"), Status::Offered);
        assert_eq!(model("ro preempt=full", "#1 SMP"), Status::Missing);
    }
}
