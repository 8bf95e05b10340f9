//! The simulated federation keeps its promises under every fault, and the check finds planted ones.

use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_cluster_sim::history::Deed;
use punctual_cluster_sim::{ClusterReport, ClusterSettings, Plant, TraceMode, run};
use punctual_federation::ids::NodeId;
use punctual_federation::message::{Answer, Fate, Operation, Output, Refusal, Stop, Work};
use punctual_units::{Nanos, Time};

/// Seeds that each commit tries without a planted fault; `.ci/nightly seeds` tries 10,000.
const CLEAN_SEEDS: u64 = 100;
/// Seeds among which each planted fault is found.
const SEEDS: u64 = 1_000;

/// Runs seeds on all cores until `stop` says so of a report: that of the least seed of which it does.
fn first(
    settings: &ClusterSettings,
    seeds: Range<u64>,
    plant: Option<Plant>,
    stop: impl Fn(&ClusterReport) -> bool + Sync,
) -> Option<ClusterReport> {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut found: Option<ClusterReport> = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return found;
            }
            let report = run(settings, seed, plant, TraceMode::Nothing);
            if stop(&report) && found.as_ref().is_none_or(|found| seed < found.seed) {
                end.fetch_min(seed, Ordering::Relaxed);
                found = Some(report);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let found = threads
            .into_iter()
            .filter_map(|thread| thread.join().expect("a run does not panic"));
        found.min_by_key(|report| report.seed)
    })
}

fn assert_clean(settings: &ClusterSettings, seeds: Range<u64>) {
    let violated = |report: &ClusterReport| report.violation.is_some();
    if let Some(report) = first(settings, seeds, None, violated) {
        fail(settings, &report);
    }
}

fn fail(settings: &ClusterSettings, ClusterReport { seed, violation, .. }: &ClusterReport) {
    let what = violation
        .as_ref()
        .map_or(String::new(), |violation| violation.to_string());
    panic!("seed {seed}: {what}\nreplay it: run({settings:?}, {seed}, None, TraceMode::Trace)");
}

/// The runs of seeds `0..CLEAN_SEEDS`, made on all cores, for all tests that look at them.
static REPORTS: LazyLock<Vec<ClusterReport>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |seed| run(&ClusterSettings::default(), seed, None, TraceMode::Nothing);
    let share = |core| move || (core..CLEAN_SEEDS).step_by(cores).map(of).collect::<Vec<_>>();
    let mut reports: Vec<ClusterReport> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores as u64).map(|core| scope.spawn(share(core))).collect();
        let made = threads
            .into_iter()
            .map(|thread| thread.join().expect("a run does not panic"));
        made.flatten().collect()
    });
    reports.sort_by_key(|report| report.seed);
    reports
});

#[test]
fn without_faults_all_is_served() {
    let settings = ClusterSettings {
        fault_every: Nanos::ZERO,
        loss_per_mille: 0,
        repeat_per_mille: 0,
        slow_per_mille: 0,
        joiners: 0,
        clients: 1,
        ..ClusterSettings::default()
    };
    for seed in 0..10 {
        let report = run(&settings, seed, None, TraceMode::Nothing);
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.takeovers, 1, "seed {seed}");
        let done = report.requests.get("done").copied().unwrap_or_default();
        assert!(done > 100, "seed {seed}: {:?}", report.requests);
    }
}

#[test]
fn hundreds_of_seeds_are_clean() {
    if let Some(report) = REPORTS.iter().find(|report| report.violation.is_some()) {
        fail(&ClusterSettings::default(), report);
    }
}

#[test]
fn every_planted_fault_is_found_within_a_thousand_seeds() {
    for plant in Plant::ALL {
        let found = first(&ClusterSettings::default(), 0..SEEDS, Some(plant), |report| {
            report.violation.is_some()
        });
        let Some(ClusterReport { seed, violation, .. }) = found else {
            panic!("{} was not found", plant.name());
        };
        println!(
            "{}: seed {seed}: {}",
            plant.name(),
            violation.map_or(String::new(), |violation| violation.to_string())
        );
    }
}

#[test]
fn everything_happens_that_should_be_survived() {
    let (reports, others) = REPORTS.split_at(60);
    let times = |count: &dyn Fn(&ClusterReport) -> u64| reports.iter().map(count).sum::<u64>();
    for fault in [
        "one-way cut",
        "isolated",
        "pause",
        "crash",
        "log silent",
        "clock jump",
        "heavy loss",
        "leave",
        "left",
        "told to pause",
        "front gone",
    ] {
        let found = times(&|report| report.faults.get(fault).copied().unwrap_or(0));
        assert!(found > 10, "{fault}: {found}");
    }
    for ending in [
        "done",
        "unknown",
        "refused",
        "late: expired",
        "late: no master",
        "no answer",
    ] {
        assert!(
            times(&|report| report.requests.get(ending).copied().unwrap_or(0)) > 10,
            "{ending}"
        );
    }
    let fates = |wanted: fn(&Fate) -> bool| {
        let fate = move |deed: &Deed| match &deed.returned {
            Some((
                _,
                Answer::Done {
                    output: Output::Fate(fate),
                    ..
                },
            )) => wanted(fate),
            _ => false,
        };
        times(&|report| report.history.deeds.iter().filter(|deed| fate(deed)).count() as u64)
    };
    assert!(
        fates(|fate| matches!(fate, Fate::Committed(_))) > 10,
        "unknown requests that were executed"
    );
    assert!(
        fates(|fate| matches!(fate, Fate::NotExecuted)) > 10,
        "unknown requests that were not"
    );
    assert!(times(&|report| report.takeovers) > 120, "takeovers");
    let (copies, images) = (times(&|report| report.copies), times(&|report| report.images));
    assert!(
        copies > 20 && images > 2 * copies,
        "{copies} copies, {images} images before their last ones"
    );
    // Rare: a node has to die within a copy.
    let mut parts = times(&|report| report.parts);
    let further = |seed| run(&ClusterSettings::default(), seed, None, TraceMode::Nothing).parts;
    let mut more = others
        .iter()
        .map(|report| report.parts)
        .chain((CLEAN_SEEDS..360).map(further));
    while parts <= 5 {
        parts += more.next().expect("six starts with a part of the records");
    }
    assert!(times(&|report| report.readings) > 1_000, "readings of sensors");
}

/// Faults other than the one that a test is about.
fn calm() -> ClusterSettings {
    ClusterSettings {
        fault_every: Nanos::ZERO,
        joiners: 0,
        ..ClusterSettings::default()
    }
}

#[test]
fn a_node_that_restarts_for_ever_harms_no_other() {
    let settings = ClusterSettings {
        restless: true,
        ..calm()
    };
    assert_clean(&settings, 0..20);
    for seed in 0..5 {
        let report = run(&settings, seed, None, TraceMode::Nothing);
        assert!(report.requests["done"] > 200, "seed {seed}: {:?}", report.requests);
    }
}

#[test]
fn of_two_nodes_of_one_name_one_stops_and_nothing_is_lost() {
    let settings = ClusterSettings {
        namesake: true,
        ..calm()
    };
    assert_clean(&settings, 0..20);
    for seed in 0..5 {
        let report = run(&settings, seed, None, TraceMode::Nothing);
        let node = NodeId(0);
        assert_eq!(report.stopped, [(node, Stop::NameTaken { node })], "seed {seed}");
    }
}

#[test]
fn while_the_log_is_gone_reads_go_on_and_nothing_is_acknowledged() {
    let gone = Nanos::from_secs(1);
    let settings = ClusterSettings {
        log_gone_from: Some(gone),
        ..calm()
    };
    assert_clean(&settings, 0..20);
    let mut reads = 0;
    for seed in 0..10 {
        let report = run(&settings, seed, None, TraceMode::Nothing);
        let meanwhile = |deed: &&Deed| {
            let at = deed.returned.as_ref().map_or(Time::ZERO, |(at, _)| *at);
            at > Time::ZERO + gone + Nanos::from_millis(300) && at < Time::ZERO + settings.duration
        };
        let done = |deed: &&Deed| matches!(deed.returned, Some((_, Answer::Done { .. })));
        let answered = report.history.deeds.iter().filter(meanwhile).filter(done);
        let (written, read): (Vec<_>, Vec<_>) = answered.partition(|deed| deed.request.work.for_master());
        assert!(written.is_empty(), "seed {seed}: {written:?}");
        reads += read.len();
    }
    assert!(reads > 100, "{reads}"); // clients stop to read as soon as they wait for an outcome
}

#[test]
fn a_log_that_takes_short_entries_splits_batches_and_loses_nothing() {
    let settings = ClusterSettings {
        entry_bytes_max: 300,
        clients: 12,
        ..ClusterSettings::default()
    };
    assert_clean(&settings, 0..20);
    let too_long = |deed: &&Deed| {
        matches!(
            &deed.returned,
            Some((_, Answer::Refused(Refusal::WritesTooLong { .. })))
        )
    };
    let report = run(&settings, 0, None, TraceMode::Nothing);
    let refused = report.history.deeds.iter().filter(too_long).count();
    let done = report.requests["done"];
    assert!(refused > 10 && done > 100, "{refused} refused, {done} done");
}

#[test]
fn stock_trading_keeps_money_and_shares_under_every_fault() {
    let settings = ClusterSettings {
        trades: true,
        ..ClusterSettings::default()
    };
    assert_clean(&settings, 0..50);
    let is_order = |deed: &&Deed| match (&deed.request.work, &deed.returned) {
        (Work::Transaction(operations), Some((_, Answer::Done { .. }))) => operations
            .iter()
            .any(|operation| matches!(operation, Operation::Add(..))),
        _ => false,
    };
    let orders = |seed| {
        run(&settings, seed, None, TraceMode::Nothing)
            .history
            .deeds
            .iter()
            .filter(is_order)
            .count()
    };
    let orders: usize = (0..5).map(orders).sum();
    assert!(orders > 100, "{orders} orders were carried out");
}

#[test]
fn without_fronts_clients_ask_nodes_and_nothing_is_lost() {
    let settings = ClusterSettings {
        fronts: 0,
        ..ClusterSettings::default()
    };
    assert_clean(&settings, 0..30);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let runs = [(); 2].map(|()| run(&ClusterSettings::default(), seed, None, TraceMode::Trace));
        let [first, second] = runs.map(|report| format!("{report:?}"));
        assert!(first == second, "seed {seed}");
    }
}
