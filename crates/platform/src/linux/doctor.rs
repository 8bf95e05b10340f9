//! Examines the facilities of this machine that runs use: available or missing, and how to get them.
//!
//! Each finding answers one question about one facility. Kernel files are read below the given tree; facts that only a
//! system call reveals (scheduling, locked memory) are those of this process, found by harmless trials on a thread or a
//! group that is removed afterwards.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use punctual_custody::journal::Journal;
use punctual_custody::mounts::Mount;
use punctual_custody::recovery::{self, Holding, Ledgered};
use punctual_custody::tree::{entries, read_trimmed, writable};
use punctual_os::MappedMedium;
use punctual_units::{CoreId, Nanos};
use serde::{Deserialize, Serialize};

use super::cgroup::{self, CgroupVersion, CpuGroup};
use super::cpufreq::CpuFreq;
use super::emulated::nominal_frequency;
use super::exclusive::{self, Mechanism};
use super::fix::{self, RemedyStep};
use super::powercap::EnergyMeter;
use super::real_time::{FairServer, RealTimeLimits, Throttling};
use super::thermal::Thermometer;
use super::{KernelTree, busy, cores, resctrl, thread};
use crate::{CoreChoice, Refusal};

punctual_units::named! {
    /// The examined facilities, in the order of [`examine`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Facility by name {
        /// A clock knob of the hardware (cpufreq).
        Clock = "clock knob",
        /// A clock knob emulated by real extra work.
        EmulatedClock = "emulated clock",
        /// A bound on the CPU share of best-effort work (cgroup).
        CpuShare = "CPU share of best-effort work",
        /// Permission for real-time scheduling (`SCHED_FIFO`).
        RealTime = "real-time scheduling",
        /// Real-time threads that the kernel's throttling never stops.
        UnthrottledRealTime = "unthrottled real time",
        /// Real-time threads that the fair server never interrupts.
        NoFairServer = "real time without fair server",
        /// Memory that is never paged out (`mlockall`).
        LockedMemory = "locked memory",
        /// Folders in memory for the values of temporal objects (`store.temporal`), and what they survive.
        MappedObjects = "memory for mapped objects",
        /// Cores to which the scheduler moves no thread by itself (isolcpus, cpuset partitions).
        IsolatedCores = "isolated cores",
        /// A core from which all other threads are moved away.
        ExclusiveCore = "exclusive core",
        /// Cores without a timer tick (nohz_full).
        TicklessCores = "tickless cores",
        /// A kernel that can be preempted.
        Preemption = "preemptible kernel",
        /// Cache ways and memory bandwidth by control group (resctrl).
        CachePartitions = "cache and bandwidth partitions",
        /// A meter of energy (powercap).
        Energy = "energy meter",
        /// A meter of temperature (thermal zones).
        Temperature = "temperature meter",
        /// A meter of busy time per core.
        BusyTime = "busy time per core",
        /// Hardware without a hypervisor.
        BareMetal = "bare metal",
        /// Cores from which no hypervisor takes time.
        NoSteal = "no stolen time",
        /// A machine without changes left by dead processes.
        AsFound = "machine as it was found",
        /// An emulator that counts cache misses for every number of ways. The command examines it, because it knows the
        /// profiler.
        CacheProfiles = "cache profiles",
        /// A store's files. The command examines them, because it knows the engines.
        Store = "store",
    }
}

impl fmt::Display for Facility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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

/// Result of a check: state, facts and remedy.
type CheckResult = (Status, String, String);

/// Examines every facility up to [`Facility::AsFound`], in the order of [`Facility`]. Undoes every trial that it makes.
pub fn examine(tree: &KernelTree) -> Vec<Finding> {
    let held = held(tree);
    let holders = held.as_ref().map_or(&[][..], |held| &held.holders);
    #[rustfmt::skip]
    let told = [
        (Facility::Clock, clock(tree)),
        (Facility::EmulatedClock, emulated_clock(tree)),
        (Facility::CpuShare, cpu_share(tree)),
        (Facility::RealTime, real_time()),
        (Facility::UnthrottledRealTime, throttling(tree)),
        (Facility::NoFairServer, fair_server(tree)),
        (Facility::LockedMemory, locked_memory()),
        (Facility::MappedObjects, mapped_objects(tree)),
        (Facility::IsolatedCores, isolated(tree)),
        (Facility::ExclusiveCore, exclusive_core(tree, holders)),
        (Facility::TicklessCores, tickless(tree)),
        (Facility::Preemption, preemption(tree)),
        (Facility::CachePartitions, cache_partitions(tree)),
        (Facility::Energy, energy(tree)),
        (Facility::Temperature, temperature(tree)),
        (Facility::BusyTime, busy_time(tree)),
        (Facility::BareMetal, bare_metal(tree)),
        (Facility::NoSteal, steal(tree)),
        (Facility::AsFound, as_found(tree, held)),
    ];
    let finding = |(facility, (status, detail, remedy)): (Facility, CheckResult)| {
        let mut finding = facility.found(status, detail, remedy);
        finding.steps = fix::steps(tree, &finding);
        finding
    };
    told.into_iter().map(finding).collect()
}

impl Facility {
    /// The finding that the facility has this status.
    pub fn found(self, status: Status, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            facility: self,
            status,
            detail: detail.into(),
            remedy: remedy.into(),
            steps: Vec::new(),
        }
    }
}

fn offered(detail: impl Into<String>) -> CheckResult {
    (Status::Offered, detail.into(), String::new())
}

fn missing(detail: impl Into<String>, remedy: impl Into<String>) -> CheckResult {
    (Status::Missing, detail.into(), remedy.into())
}

fn refused(detail: impl Into<String>, remedy: impl Into<String>) -> CheckResult {
    (Status::Refused, detail.into(), remedy.into())
}

/// `refusal` as refused if the machine has the facility (`present`), as missing if not.
fn absent_or_refused(refusal: Refusal, present: bool) -> CheckResult {
    let tell = if present { refused } else { missing };
    tell(refusal.why, refusal.remedy)
}

fn clock(tree: &KernelTree) -> CheckResult {
    let folder = tree.path("/sys/devices/system/cpu/cpufreq");
    let present = entries(&folder).next().is_some();
    match Journal::alone().and_then(|journal| CpuFreq::open(tree, &journal)) {
        Ok(knob) => {
            let offer = knob.offer();
            let detail = format!("{} steps from {} to {}", offer.steps.len(), offer.bottom(), offer.top());
            offered(detail)
        }
        Err(refusal) => absent_or_refused(refusal, present),
    }
}

fn emulated_clock(tree: &KernelTree) -> CheckResult {
    let top = nominal_frequency(&tree.text("/proc/cpuinfo"));
    let detail = format!("real extra work in proportion, from 20 % to 100 % of {top}");
    (Status::Emulated, detail, String::new())
}

/// Makes a group and removes it again; in a recorded tree, only locates it.
fn cpu_share(tree: &KernelTree) -> CheckResult {
    let location = cgroup::of_this_process(tree, "cpu");
    let describe = |version| match version {
        CgroupVersion::V1 => "cgroup version 1 (cpu.cfs_quota_us)",
        CgroupVersion::V2 => "cgroup version 2 (cpu.max), threaded",
    };
    if let (Some(location), false) = (&location, tree.is_live()) {
        let detail = format!("{}, not tried: this tree is a record", describe(location.version));
        return offered(detail);
    }
    let tried = Journal::alone().and_then(|journal| {
        let group = CpuGroup::create(tree, &journal)?;
        match group.restore().pop() {
            None => Ok(group.version()),
            Some(left_over) => Err(left_over),
        }
    });
    match tried {
        Ok(version) => offered(describe(version)),
        Err(refusal) => absent_or_refused(refusal, location.is_some()),
    }
}

/// Tries the lowest real-time priority, on a thread of its own.
fn real_time() -> CheckResult {
    let tried = std::thread::spawn(|| thread::real_time(*thread::REAL_TIME_PRIORITIES.start())).join();
    match tried {
        Ok(Ok(())) => offered("SCHED_FIFO, priorities 1 to 99 as far as the limits allow"),
        Ok(Err(refusal)) => refused(refusal.why, refusal.remedy),
        Err(_) => refused("the thread that tried it ended", "this is a defect worth reporting"),
    }
}

fn throttling(tree: &KernelTree) -> CheckResult {
    let of = |runtime: Nanos, period: Nanos| format!("{} us of every {} us", runtime.0 / 1000, period.0 / 1000);
    match RealTimeLimits::read(tree).throttling {
        Throttling::Bounded { runtime, period } => missing(
            format!("real-time threads may use a core for {}", of(runtime, period)),
            "keep polling loops below that, or, if none can run away: sysctl -w kernel.sched_rt_runtime_us=-1",
        ),
        Throttling::Possible { runtime, period } => refused(
            format!(
                "whether this kernel throttles (since Linux 6.12 only with CONFIG_RT_GROUP_SCHED) cannot be read; if so, at {}",
                of(runtime, period)
            ),
            "install the kernel's configuration as /boot/config-RELEASE, or: sysctl -w kernel.sched_rt_runtime_us=-1",
        ),
        Throttling::Off => offered("real-time threads are not throttled"),
        Throttling::Unknown => refused("/proc/sys/kernel/sched_rt_runtime_us cannot be read", "mount /proc"),
    }
}

/// Since Linux 6.12 a server reserves time for ordinary threads above real-time ones, per core.
fn fair_server(tree: &KernelTree) -> CheckResult {
    match RealTimeLimits::read(tree).fair_server {
        FairServer::Unknown => refused(
            "the scheduler's debugging files cannot be read",
            "as root: mount -t debugfs debugfs /sys/kernel/debug (a locked-down kernel shows none)",
        ),
        FairServer::None => offered("this kernel has none"),
        FairServer::Off => offered("the fair server is off on all cores"),
        FairServer::Reserves { runtime, period, cores } => missing(
            format!("on {cores} cores, ordinary threads get up to {runtime} of each {period} if they wait"),
            // Linux 6.12.117 loses count of the servers' bandwidth once a process reads sched_rt_runtime_us, as this
            // one does.
            "as root: echo 0 into every runtime file under /sys/kernel/debug/sched/fair_server; where that is refused as busy, soon after boot",
        ),
    }
}

fn locked_memory() -> CheckResult {
    if thread::may_lock_memory() {
        return offered("mlockall is allowed");
    }
    refused(
        "there is a limit on locked memory, and no right to lift it",
        "run as root, grant CAP_IPC_LOCK, or lift the limit (memlock unlimited, LimitMEMLOCK=infinity)",
    )
}

fn mapped_objects(tree: &KernelTree) -> CheckResult {
    let mounts = tree.read("/proc/self/mountinfo").unwrap_or_default();
    let usable = |mount: Mount<'_>| {
        let dax = |option: &str| matches!(option, "dax" | "dax=always");
        let medium = match mount.options.split(',').any(dax) {
            true if cfg!(target_arch = "x86_64") => MappedMedium::PersistentMemory,
            // Where POSIX shared memory is (shm_overview(7)).
            false if (mount.kind, mount.point) == ("tmpfs", "/dev/shm") => MappedMedium::SharedMemory,
            _ => return None,
        };
        writable(&tree.path(mount.point))
            .is_ok()
            .then(|| format!("{} ({medium})", mount.point))
    };
    let found: BTreeSet<String> = mounts.lines().filter_map(Mount::parse).filter_map(usable).collect();
    if found.is_empty() {
        let why = "no /dev/shm, nor a file system with dax, that this user may write";
        return missing(why, "mount a tmpfs at /dev/shm");
    }
    offered(Vec::from_iter(found).join(", "))
}

fn isolated(tree: &KernelTree) -> CheckResult {
    let booted = cores::isolated(tree);
    let root = tree.hierarchy(None);
    let in_groups = root.and_then(|root| read_trimmed(&root.join("cpuset.cpus.isolated")).ok());
    let mut in_groups = cores::parse_list(&in_groups.unwrap_or_default());
    in_groups.retain(|core| !booted.contains(core));
    let list = |cores: &[CoreId]| exclusive::list(cores);
    let partitions = format!(
        "cores {} in partitions of cgroup version 2, for programs that are started there",
        list(&in_groups)
    );
    match (booted.is_empty(), in_groups.is_empty()) {
        (false, true) => offered(format!("cores {}; exclusive tasks get them first", list(&booted))),
        (false, false) => offered(format!("cores {}; {partitions}", list(&booted))),
        (true, false) => offered(partitions),
        (true, true) => missing(
            "no core",
            "boot with isolcpus=<cores>, or make an isolated cpuset partition (cgroup version 2)",
        ),
    }
}

/// Checks the requirements without taking a core, which would move all threads. A program that has a core alone keeps
/// this process off it; it is named if so few cores are left to all programs, not where this process may use few.
fn exclusive_core(tree: &KernelTree, holders: &[Holding]) -> CheckResult {
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
        return refused(
            format!("{}; one core is left to all others", owners.join(", ")),
            "wait until that program has ended, or end it",
        );
    }
    if usable.len() < 2 {
        return missing(
            "there are not two cores to be used",
            "give this machine, or this process, two cores or more",
        );
    }
    match exclusive::likely(tree) {
        Ok(mechanism @ (Mechanism::IsolatedPartition | Mechanism::Partition | Mechanism::Isolated)) => offered(mechanism.to_string()),
        Ok(mechanism) => (Status::Offered, mechanism.to_string(),
            "the kernel would keep new threads off the core by itself with a cpuset partition: boot with the unified hierarchy \
             (systemd.unified_cgroup_hierarchy=1, cgroup_no_v1=all)".into(),
        ),
        Err(refusal) => refused(refusal.why, refusal.remedy),
    }
}

/// Examines the core that an exclusive task would get first.
fn tickless(tree: &KernelTree) -> CheckResult {
    let candidates = exclusive::candidates(tree, &CoreChoice::Any).unwrap_or_default();
    let Some(core) = candidates.first() else {
        return missing("no core", "boot with nohz_full=<cores>");
    };
    match exclusive::quieter(tree, &[*core]) {
        Some(hint) => missing(format!("core {core}: {}", hint.why), hint.remedy),
        None => offered(format!("core {core}, which an exclusive task gets first")),
    }
}

fn preemption(tree: &KernelTree) -> CheckResult {
    let release = tree
        .read("/proc/sys/kernel/osrelease")
        .unwrap_or_else(|_| "unknown".into());
    let kernel = |model: &str| format!("kernel {release}, {model}");
    if tree.read("/sys/kernel/realtime").is_ok_and(|flag| flag == "1") {
        return offered(kernel("fully preemptible (PREEMPT_RT)"));
    }
    let remedy = "boot with preempt=full, or install a PREEMPT_RT kernel";
    let build = tree.text("/proc/sys/kernel/version");
    // The model in force is in parentheses, among all possible ones: "none voluntary (full) lazy".
    let debug = tree.text("/sys/kernel/debug/sched/preempt");
    let dynamic = debug
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(model, _)| model.to_owned());
    let asked = tree.text("/proc/cmdline");
    let asked = asked
        .split(' ')
        .filter_map(|word| word.strip_prefix("preempt="))
        .next_back()
        .map(str::to_owned);
    match (dynamic.or(asked).as_deref(), build.contains("PREEMPT_DYNAMIC")) {
        (Some("full"), true) => offered(kernel("preemptible (preempt=full)")),
        (Some(model), true) => missing(kernel(&format!("preempt={model}")), remedy),
        (None, true) => refused(
            kernel("chosen at boot (PREEMPT_DYNAMIC), which one cannot be read"),
            format!("mount -t debugfs debugfs /sys/kernel/debug to see it; {remedy}"),
        ),
        _ if build.contains("PREEMPT") => offered(kernel("preemptible (PREEMPT)")),
        _ => missing(kernel("not preemptible"), remedy),
    }
}

fn cache_partitions(tree: &KernelTree) -> CheckResult {
    if let Err(lack) = resctrl::look(tree) {
        return missing(lack.to_string(), lack.remedy());
    }
    let groups = resctrl::groups(tree);
    let listed: Vec<String> = groups.iter().map(ToString::to_string).collect();
    match resctrl::Partitions::open(tree) {
        Err(refusal) => absent_or_refused(refusal, resctrl::ResctrlLayout::read(tree).is_ok()),
        Ok(knob) if groups.len() + 1 >= knob.layout().classes as usize => {
            // The one that is missed least.
            let least = groups.iter().min_by_key(|group| group.tasks);
            let name = least.map_or("", |group| group.name.as_str());
            missing(
                format!("resctrl: all classes are taken, by {}", listed.join(", ")),
                format!(
                    "end the programs that made them, or if these have ended, as root: rmdir {} (its tasks and cores \
                     return to the default group)",
                    resctrl::folder(name)
                ),
            )
        }
        Ok(knob) => {
            let beside = if listed.is_empty() { "" } else { "; in use: " };
            offered(format!("resctrl: {}{beside}{}", knob.layout(), listed.join(", ")))
        }
    }
}

fn temperature(tree: &KernelTree) -> CheckResult {
    match Thermometer::open(tree) {
        Ok(_) => offered("the hottest thermal zone"),
        Err(refusal) => missing(refusal.why, refusal.remedy),
    }
}

fn energy(tree: &KernelTree) -> CheckResult {
    let present = tree.path("/sys/class/powercap/intel-rapl:0").exists();
    match EnergyMeter::open(tree) {
        Ok(_) => offered("counters of the CPU packages (intel-rapl)"),
        Err(refusal) => absent_or_refused(refusal, present),
    }
}

fn busy_time(tree: &KernelTree) -> CheckResult {
    match busy::read(tree) {
        Ok(times) => offered(format!("{} cores in /proc/stat", times.len())),
        Err(why) => missing(why, "mount /proc"),
    }
}

fn bare_metal(tree: &KernelTree) -> CheckResult {
    let cpuinfo = tree.text("/proc/cpuinfo");
    let flags = cores::cpuinfo_field(&cpuinfo, "flags").unwrap_or_default();
    let hypervisor = flags.split_whitespace().any(|flag| flag == "hypervisor")
        || tree.path("/sys/hypervisor/type").exists()
        || tree.path("/proc/device-tree/hypervisor").exists();
    if hypervisor {
        missing(
            "a virtual machine: others share its cores, caches and clock",
            "claim ratios measured in one run, with a no-op control, and no bounds",
        )
    } else {
        offered("no hypervisor shows itself")
    }
}

fn steal(tree: &KernelTree) -> CheckResult {
    let times = busy::read(tree).unwrap_or_default();
    let sum = |part: fn(&busy::CoreTimes) -> Nanos| times.iter().map(part).sum::<Nanos>();
    let (stolen, run) = (sum(|core| core.steal), sum(|core| core.busy));
    if times.is_empty() {
        return missing("/proc/stat does not tell", "mount /proc");
    }
    if stolen == Nanos::ZERO {
        return offered("none since boot");
    }
    missing(
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
fn as_found(tree: &KernelTree, held: Result<Ledgered, Refusal>) -> CheckResult {
    if !tree.is_live() {
        return offered("not looked at: this tree is a record");
    }
    let found = match held {
        Ok(found) => found,
        Err(refusal) => return refused(refusal.why, refusal.remedy),
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
        (true, _) => offered("no program of punctual has changed anything"),
        (_, false) => offered(told.join("; ")),
        (_, true) => missing(
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
            ("/sys/fs/resctrl/info/L3/cbm_mask", "fff"),
            ("/sys/fs/resctrl/info/L3/num_closids", "8"),
            ("/proc/stat", "cpu0 1 2 3 4 5 6 7 0"),
            ("/proc/cpuinfo", "flags : fpu tsc"),
            ("/proc/self/cgroup", "0::/user.slice"),
            (
                "/proc/self/mountinfo",
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n30 23 0:27 / /dev/shm rw - tmpfs tmpfs rw",
            ),
            ("/dev/shm/any", ""),
        ]);
        let findings = examine(&tree);
        for facility in [
            Facility::CpuShare,
            Facility::UnthrottledRealTime,
            Facility::NoFairServer,
            Facility::MappedObjects,
            Facility::IsolatedCores,
            Facility::TicklessCores,
            Facility::Preemption,
            Facility::CachePartitions,
            Facility::BusyTime,
            Facility::BareMetal,
            Facility::NoSteal,
        ] {
            assert_eq!(finding(&findings, facility).status, Status::Offered, "{facility}");
        }
    }

    #[test]
    fn memory_that_may_not_be_written_is_not_offered_for_mapped_objects() {
        let found = |mounts: &str| {
            let (_folder, tree) = testing::tree(&[
                ("/proc/self/mountinfo", mounts),
                ("/dev/shm/any", ""),
                ("/pmem/any", ""),
            ]);
            mapped_objects(&tree)
        };
        let shared = "30 23 0:27 / /dev/shm rw - tmpfs tmpfs rw";
        let persistent = "31 23 0:28 / /pmem rw - ext4 /dev/pmem0 rw,dax=always";
        let both = "/dev/shm (tmpfs: survives processes, not power cuts)";
        assert_eq!(found(&format!("{shared}\n{shared}")), offered(both));
        let both = format!("{both}, /pmem (persistent memory: survives processes and power cuts)");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(found(&format!("{shared}\n{persistent}")), offered(both));
        }
        let elsewhere = "30 23 0:27 / /gone rw - ext4 /dev/pmem0 rw,dax";
        for other in [
            "",
            elsewhere,
            "30 23 0:27 / /pmem rw - ext4 /dev/sda rw",
            "30 23 0:27 / /tmp rw - tmpfs none rw",
        ] {
            assert_eq!(found(other).0, Status::Missing, "{other}");
        }
    }

    #[test]
    fn taken_classes_are_listed_with_the_way_to_free_one() {
        let finding = |more: &[(&str, &str)]| {
            let mounted = [
                ("/sys/fs/resctrl/schemata", "L3:0=fff"),
                ("/sys/fs/resctrl/info/L3/cbm_mask", "fff"),
                ("/sys/fs/resctrl/info/L3/num_closids", "3"),
                ("/sys/fs/resctrl/COS1/tasks", "7"),
                ("/proc/7/comm", "ffmpeg"),
            ];
            let (_folder, tree) = testing::tree(&[&mounted, more].concat());
            cache_partitions(&tree)
        };
        let one_left = finding(&[]);
        assert_eq!(one_left.0, Status::Offered);
        assert!(
            one_left.1.ends_with("; in use: COS1 (made by pqos, 1 task)"),
            "{one_left:?}"
        );
        let none_left = finding(&[("/sys/fs/resctrl/idle/tasks", "")]);
        assert_eq!(none_left.0, Status::Missing);
        assert_eq!(
            none_left.1,
            "resctrl: all classes are taken, by COS1 (made by pqos, 1 task), idle (owner unknown, 0 tasks)"
        );
        assert!(none_left.2.contains("rmdir /sys/fs/resctrl/idle "), "{none_left:?}");
        let (_folder, monitors) = testing::tree(&[("/sys/fs/resctrl/schemata", "")]);
        assert_eq!(cache_partitions(&monitors).0, Status::Missing);
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
        assert_eq!(found.0, Status::Refused);
        assert!(
            found.1.contains("radio (process 77)") && found.1.contains("core 1"),
            "{found:?}"
        );
        let (_folder, larger) = testing::tree(&[
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/proc/self/status", "Cpus_allowed_list:\t0"),
        ]);
        let few = exclusive_core(&larger, std::slice::from_ref(&holder));
        assert_eq!(few.0, Status::Missing, "this process alone may use too few: {few:?}");
        holder.alive = false;
        assert_eq!(exclusive_core(&tree, &[holder]).0, Status::Missing);
        assert_eq!(exclusive_core(&tree, &[]).0, Status::Missing);
    }

    #[test]
    fn the_preemption_model_is_read_from_the_command_line_where_debugging_files_are_hidden() {
        let model = |cmdline: &str, version: &str| {
            let (_folder, tree) = testing::tree(&[("/proc/cmdline", cmdline), ("/proc/sys/kernel/version", version)]);
            preemption(&tree).0
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
