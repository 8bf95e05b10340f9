//! What this machine, and boards that are only files, make of the contract of every machine.

#![cfg(target_os = "linux")]

use std::fs;

use punctual_os::{LinuxOs, Tid};
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions};
use punctual_platform::{DomainId, KnobId, Machine, MeterId, Plan, Provenance, Value};
use punctual_testing::conformance::machine as conformance;
use punctual_testing::shared_machine;
use punctual_units::{Clock, CoreId, Hertz, Nanos, Share};

/// A tree of the given kernel paths and contents.
fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
    let folder = punctual_testing::kernel_files(files);
    let tree = KernelTree::at(folder.path());
    (folder, tree)
}

fn open(tree: &KernelTree, clock: ClockPreference) -> LinuxMachine {
    LinuxMachine::open(LinuxOptions {
        tree: tree.clone(),
        clock,
        guardian: false,
    })
    .unwrap()
}

fn sleep(machine: &mut LinuxMachine) {
    LinuxOs.sleep_until(machine.now() + Nanos::from_millis(10));
}

const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";

/// A board with cpufreq and energy counters, and without cgroups.
fn board() -> (tempfile::TempDir, KernelTree) {
    let cpufreq = [
        ("scaling_available_frequencies", "200000 600000 1000000 1400000"),
        ("cpuinfo_min_freq", "200000"),
        ("cpuinfo_max_freq", "1400000"),
        ("cpuinfo_transition_latency", "50000"),
        ("scaling_min_freq", "200000"),
        ("scaling_max_freq", "1400000"),
        ("scaling_available_governors", "ondemand userspace"),
        ("scaling_governor", "ondemand"),
        ("scaling_setspeed", "<unsupported>"),
    ]
    .map(|(file, content)| (format!("{POLICY}/{file}"), content));
    let zone = "/sys/class/powercap/intel-rapl:0";
    let energy = [
        ("name", "package-0"),
        ("energy_uj", "5000"),
        ("max_energy_range_uj", "9000"),
    ]
    .map(|(file, content)| (format!("{zone}/{file}"), content));
    let rest = [
        ("/sys/devices/system/cpu/online".to_owned(), "0-1"),
        ("/proc/stat".to_owned(), "cpu0 1 2 3 4\ncpu1 1 2 3 4"),
        ("/sys/class/thermal/thermal_zone0/temp".to_owned(), "41500"),
        ("/proc/cpuinfo".to_owned(), "Hardware : SAMSUNG EXYNOS"),
    ];
    let files: Vec<(String, &str)> = cpufreq.into_iter().chain(energy).chain(rest).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    tree(&files)
}

#[test]
fn this_machine_conforms_with_every_choice_of_clock() {
    let _machine = shared_machine();
    for clock in [ClockPreference::Auto, ClockPreference::Emulated, ClockPreference::None] {
        let mut machine = open(&KernelTree::default(), clock);
        eprintln!("{:?}; not offered: {:#?}", machine.offers(), machine.refusals());
        assert_eq!(conformance::check(&mut machine, sleep), [""; 0], "{clock:?}");
    }
}

#[test]
fn a_board_with_cpufreq_conforms_and_is_put_back() {
    let (_folder, tree) = board();
    let mut machine = open(&tree, ClockPreference::Auto);
    assert_eq!(machine.offers().machine, "SAMSUNG EXYNOS");
    let clock = machine.offers().clock().unwrap();
    assert_eq!(
        (clock.provenance, clock.change),
        (Provenance::Real, Nanos::from_micros(50))
    );
    assert_eq!(
        machine.offers().meters,
        [
            (MeterId::Energy, Provenance::Real),
            (MeterId::Temperature, Provenance::Real)
        ]
    );
    assert_eq!(machine.emulated_clock().ratio(), 1.0);
    assert_eq!(conformance::check(&mut machine, sleep), [""; 0]);
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(200))));
    drop(machine);
    assert_eq!(tree.read(format!("{POLICY}/scaling_governor")).unwrap(), "ondemand");
    assert_eq!(
        tree.read(format!("{POLICY}/scaling_setspeed")).unwrap(),
        "<unsupported>"
    );
}

/// A run then has an emulated clock; a program whose work none can slow down has a clock of one step.
#[test]
fn a_fixed_clock_is_no_knob() {
    let (_folder, tree) = board();
    let path = tree.path(format!("{POLICY}/scaling_available_frequencies"));
    fs::write(path, "1400000").unwrap();
    let offered = |clock| open(&tree, clock).offers().clock().cloned().unwrap();
    let run = offered(ClockPreference::Auto);
    assert!(run.provenance == Provenance::Emulated && run.is_turnable(), "{run:?}");
    let real = offered(ClockPreference::Real);
    assert!(real.provenance == Provenance::Real && !real.is_turnable(), "{real:?}");
}

/// A board with a slow and a fast cluster of two cores each.
fn clusters() -> (tempfile::TempDir, KernelTree) {
    let policy = |number: u32, cores: &'static str, steps: &'static str, top: &'static str| {
        [
            ("affected_cpus", cores),
            ("scaling_available_frequencies", steps),
            ("cpuinfo_min_freq", "200000"),
            ("cpuinfo_max_freq", top),
            ("scaling_min_freq", "200000"),
            ("scaling_max_freq", top),
            ("scaling_available_governors", "ondemand userspace"),
            ("scaling_governor", "ondemand"),
            ("scaling_setspeed", "<unsupported>"),
        ]
        .map(|(file, content)| {
            (
                format!("/sys/devices/system/cpu/cpufreq/policy{number}/{file}"),
                content,
            )
        })
    };
    let slow = policy(0, "0 1", "200000 600000 1400000", "1400000");
    let fast = policy(2, "2 3", "200000 600000 1400000 2000000", "2000000");
    let rest = [
        ("/sys/devices/system/cpu/online".to_owned(), "0-3"),
        (
            "/proc/stat".to_owned(),
            "cpu0 1 2 3 4\ncpu1 1 2 3 4\ncpu2 1 2 3 4\ncpu3 1 2 3 4",
        ),
    ];
    let files: Vec<(String, &str)> = slow.into_iter().chain(fast).chain(rest).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    tree(&files)
}

#[test]
fn clock_domains_have_knobs_of_their_own() {
    let (_folder, tree) = clusters();
    let mut machine = open(&tree, ClockPreference::Auto);
    let fast = KnobId::Clock(DomainId(2));
    assert_eq!(
        machine.offers().domains,
        [[0, 1], [2, 3]].map(|cores| cores.map(CoreId).to_vec())
    );
    assert_eq!(machine.offers().clock_of(CoreId(3)), Some(fast));
    assert_eq!(conformance::check(&mut machine, sleep), [""; 0]);
    machine.apply(&Plan::of(fast, Value::Clock(Hertz::from_mhz(2000))));
    assert_eq!(
        machine.read().domain_clocks(),
        Some([1400, 2000].map(Hertz::from_mhz).as_slice())
    );
    // A planted fault: another program sets the clock of one cluster.
    fs::remove_file(tree.path("/sys/devices/system/cpu/cpufreq/policy2/scaling_setspeed")).unwrap();
    assert_ne!(conformance::check(&mut machine, sleep), [""; 0]);
}

#[test]
fn planted_fault_a_clock_that_does_not_follow_is_noticed() {
    let (_folder, tree) = board();
    let mut machine = open(&tree, ClockPreference::Auto);
    // A likely writer of the same file: a tuning daemon, thermal throttling.
    let meddle = |machine: &mut LinuxMachine| {
        fs::write(tree.path(format!("{POLICY}/scaling_setspeed")), "200000\n").unwrap();
        sleep(machine);
    };
    let path = tree.path(format!("{POLICY}/scaling_setspeed"));
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(1400))));
    meddle(&mut machine);
    assert_eq!(machine.read().clock(), Some(Hertz::from_mhz(200)));
    fs::remove_file(path).unwrap();
    assert_ne!(conformance::check(&mut machine, sleep), [""; 0]);
}

#[test]
fn a_tree_without_anything_is_refused_and_one_with_cores_only_offers_an_emulated_clock() {
    let (_folder, empty) = tree(&[]);
    let options = LinuxOptions {
        tree: empty,
        guardian: false,
        ..LinuxOptions::default()
    };
    assert!(LinuxMachine::open(options).unwrap_err().remedy.contains("/sys"));
    let (_folder, bare) = tree(&[("/sys/devices/system/cpu/online", "0")]);
    let mut machine = open(&bare, ClockPreference::Auto);
    assert_eq!(machine.offers().clock().unwrap().provenance, Provenance::Emulated);
    assert_eq!(
        machine.refusals().len(),
        4,
        "cpufreq, cgroup, powercap and thermal zones: {:?}",
        machine.refusals()
    );
    assert!(machine.best_effort().adopt(Tid::current()).is_err());
    assert!(machine.read().get(MeterId::Busy).is_some_and(Result::is_err));
    assert_eq!(conformance::check(&mut machine, sleep), [""; 0]);
}

#[test]
fn best_effort_threads_can_be_signed_in_again_after_the_machine_was_put_back() {
    let _machine = shared_machine();
    let mut machine = open(&KernelTree::default(), ClockPreference::None);
    if machine.offers().range(KnobId::BestEffortShare).is_none() {
        return eprintln!("skipped best-effort shares: {:?}", machine.refusals());
    }
    let best_effort = machine.best_effort();
    let half = Plan::of(KnobId::BestEffortShare, Value::Share(Share::clamped(0.5)));
    assert_eq!(machine.apply(&half).obtained, half);
    best_effort.runs_on(1).unwrap();
    assert_eq!(machine.restore(), []);
    let thread = std::thread::spawn(move || best_effort.adopt(Tid::current()));
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert_eq!(machine.apply(&half).obtained, half);
    assert_eq!(machine.restore(), []);
}

#[test]
fn busy_times_never_decrease_even_if_the_kernel_says_so() {
    let (_folder, tree) = board();
    let mut machine = open(&tree, ClockPreference::None);
    let before = machine.read().busy().map(<[Nanos]>::to_vec);
    fs::write(tree.path("/proc/stat"), "cpu0 0 0 0 4\ncpu1 0 0 0 4\n").unwrap();
    assert_eq!(machine.read().busy().map(<[Nanos]>::to_vec), before);
    fs::write(tree.path("/proc/stat"), "cpu0 0 0 0 4\n").unwrap();
    assert!(
        machine.read().get(MeterId::Busy).is_some_and(Result::is_err),
        "core 1 has gone"
    );
}
