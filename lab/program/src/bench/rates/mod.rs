//! `punctual-lab bench rates`: the highest rate of sensor updates held with nothing shed, in each update mode.
//!
//! Without control, every update is admitted, so that a machine with too many updates can only be late. The rate is
//! raised by copies of the sensors ([`search`]) until a run shows that it is not held ([`judge`]). Both modes take
//! turns, so that a disturbance of minutes affects both; a rate that is not held is tried once more.

mod judge;
mod search;

use punctual_runtime::SETTLING;
use punctual_runtime::report::{RunHeader, RunReport, Summary};
use punctual_scenario::RunRequest;
use punctual_units::Nanos;
use punctual_workload::{ControllerKind, UpdateMode, Volume};
use serde::Serialize;

use punctual_evaluation::claims::{Premise, Verdict};

use super::series::{Interrupt, check_length, overrides, perform, tell};
use crate::args::Rates;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_report::columns::columns;
use punctual_report::output::OutputFile;
use punctual_report::summary::{count, figure};
use search::Search;

/// 1 s of warm-up, 5 s of settling, during which no means are taken, and 4 s of means. A shorter run would have no
/// means; the search takes about 20 runs.
const DEFAULTS: [(&str, &str); 2] = [("duration", "10s"), ("control.warm_up", "1s")];
/// Largest number of copies of the sensors that a scenario accepts.
const COPIES_MAX: u32 = 1000;
/// Largest number of sensors in all. A run with 204,800 took 226 MB of memory; the store, its file and the stream grow
/// in proportion.
const SENSORS_MAX: u32 = 1 << 18;
/// Attempts at a rate: disturbances can only lower the result, so a rate that was held once is held, and a single
/// failed run may be due to a disturbance.
const TRIES_MAX: u32 = 2;
/// The ratio of the two rates that is wanted.
const RATIO_GOAL: f64 = 20.0;

/// The JSON output: everything that was measured.
#[derive(Debug, Serialize)]
struct RatesReport {
    scenario: String,
    platform: &'static str,
    duration_s: f64,
    /// Upper bound on the mean tardiness (response time / deadline).
    tardiness_goal: f64,
    modes: Vec<Mode>,
    /// The rate of memory-first divided by that of transaction; `None` if either is unknown.
    ratio: Option<f64>,
}

/// Results for one update mode.
#[derive(Debug, Serialize)]
struct Mode {
    update_mode: &'static str,
    /// The highest held rate, in updates per second; `None` if even the fewest sensors were too many.
    held_updates_per_s: Option<f64>,
    /// Whether no rate is known not to be held, so that the highest held rate is only a lower bound.
    is_lower_bound: bool,
    /// Tries in chronological order.
    tries: Vec<Try>,
    #[serde(skip)]
    search: Search,
    #[serde(skip)]
    mode: UpdateMode,
}

/// A run at one rate, and its verdict.
#[derive(Debug, Serialize)]
struct Try {
    /// Reasons why the rate is not held; empty if it is.
    failings: Vec<String>,
    /// Verdict on the claim that the rate is held.
    outcome: Verdict,
    /// The premise of the verdict that failed, if one did.
    failed_premise: Option<Premise>,
    header: RunHeader,
    summary: Summary,
}

/// Carries out `punctual-lab bench rates`.
pub fn rates(arguments: &Rates) -> Result<(), Failure> {
    let loaded = scenario::load(arguments.scenario.as_deref(), &overrides(&DEFAULTS, &arguments.change))?;
    check_length(&loaded)?;
    let output = OutputFile::report(arguments.json.as_ref())?;
    let mut request = arguments.simulated.request(&loaded, &arguments.change)?;
    request.scenario.control.kind = ControllerKind::Open;
    (request.store_path, request.mapped) = (None, None);
    check_sensors_speak(&request, &loaded)?;

    let prober = Prober {
        request,
        loaded: &loaded,
        interrupt: Interrupt::listen()?,
    };
    let bound = copies_max(prober.request.trace.sensors.len());
    let mut modes = [
        Mode::new("transaction", UpdateMode::Transaction, bound),
        Mode::new("memory-first", UpdateMode::MemoryFirst, bound),
    ];
    let ended = prober.search(&mut modes);
    if modes.iter().all(|mode| mode.tries.is_empty()) {
        return ended.and(Err(Failure::of(
            "stopped before a run was complete; nothing was measured",
        )));
    }
    let report = RatesReport {
        scenario: loaded.scenario.name.clone(),
        platform: prober.request.platform.name(),
        duration_s: loaded.scenario.duration.as_secs_f64(),
        tardiness_goal: loaded.scenario.goal.tasks.nominal(),
        ratio: ratio(&modes),
        modes: modes.into(),
    };
    print(&told(&report))?;
    // Results from before a failure are worth keeping; the failure still decides the exit code.
    output.map_or(Ok(()), |file| file.json(&report)).and(ended)
}

/// Largest number of copies to try, for a trace of `sensors` sensors.
fn copies_max(sensors: usize) -> u32 {
    let sensors = u32::try_from(sensors).unwrap_or(u32::MAX).max(1);
    (SENSORS_MAX / sensors).clamp(1, COPIES_MAX)
}

/// Refuses sensors that may not have sent a first update before fresh shares count.
fn check_sensors_speak(request: &RunRequest, loaded: &Loaded) -> Result<(), Failure> {
    let slowest = request.trace.sensors.iter().map(|sensor| sensor.period).max();
    let speedup = request.scenario.sensors.speedup;
    // The last copy starts up to a second of trace time after the first.
    let spoken = (slowest.unwrap_or_default() + Nanos::from_secs(1)).scaled(1.0 / speedup);
    let settled = request.scenario.control.warm_up + SETTLING;
    if spoken <= settled {
        return Ok(());
    }
    let warm_up = spoken.saturating_sub(SETTLING).0.div_ceil(Nanos::from_secs(1).0);
    Err(Failure::of(format!(
        "{}: control.warm_up: some sensors have not spoken before {spoken}, but means are taken from {settled} on: --set control.warm_up={warm_up}s --duration {}s",
        loaded.shown(),
        warm_up + 9
    )))
}

/// Tries rates of one scenario.
struct Prober<'a> {
    request: RunRequest,
    loaded: &'a Loaded,
    interrupt: Interrupt,
}

impl Prober<'_> {
    /// Searches in all modes by turns, until all are done or the user ends it.
    fn search(&self, modes: &mut [Mode]) -> Result<(), Failure> {
        while modes.iter().any(|mode| mode.search.next().is_some()) {
            for mode in &mut *modes {
                if let Some(copies) = mode.search.next()
                    && !self.try_copies(mode, copies)?
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Tries a number of copies, twice if the first try fails; returns whether the search may go on.
    fn try_copies(&self, mode: &mut Mode, copies: u32) -> Result<bool, Failure> {
        let mut request = self.request.clone();
        request.scenario.store.update_mode = mode.mode;
        request.scenario.sensors.volume = Volume::Replicas(copies);
        let mut held = false;
        for _ in 0..TRIES_MAX {
            let Some(report) = perform(&request, self.loaded, &self.interrupt, judge::is_hopeless)? else {
                return Ok(false);
            };
            let hopeless = report.samples.iter().any(judge::is_hopeless);
            let tried = self.judged(report, copies);
            tell(&format!("{:<13} {copies:>4} x  {}", mode.update_mode, tried.line()));
            held = tried.outcome == Verdict::Holds;
            mode.tries.push(tried);
            if held || hopeless {
                break;
            }
        }
        mode.learn(copies, held);
        Ok(true)
    }

    fn judged(&self, report: RunReport, copies: u32) -> Try {
        let elapsed = Nanos::from_secs_f64(report.samples.last().map_or(0.0, |last| last.t_s));
        let speedup = self.request.scenario.sensors.speedup;
        let due = judge::due(&self.request.trace, speedup, copies, elapsed);
        let failings = judge::failings(&report);
        let premise = judge::failed_premise(&report.summary, due, &failings);
        Try::new(failings, premise, report)
    }
}

impl Mode {
    fn new(update_mode: &'static str, mode: UpdateMode, bound: u32) -> Mode {
        Mode {
            update_mode,
            held_updates_per_s: None,
            is_lower_bound: false,
            tries: Vec::new(),
            search: Search::new(bound),
            mode,
        }
    }

    /// Records whether these copies are held. Those whose verdict has no premise end the search, but show nothing.
    fn learn(&mut self, copies: u32, held: bool) {
        self.search.learn(copies, held);
        self.held_updates_per_s = self.highest_held().map(|tried| tried.header.load.updates_per_s);
        let refuted = |tried: &Try| tried.outcome == Verdict::DoesNotHold;
        self.is_lower_bound = !self.lowest_failed().is_some_and(refuted);
    }

    fn highest_held(&self) -> Option<&Try> {
        self.last_with(self.search.held()?)
    }

    fn lowest_failed(&self) -> Option<&Try> {
        self.last_with(self.search.failed()?)
    }

    fn last_with(&self, copies: u32) -> Option<&Try> {
        self.tries.iter().rfind(|tried| tried.header.load.replicas == copies)
    }

    /// The mode's cells in the table, and the text behind them.
    fn row(&self) -> (Vec<String>, String) {
        let (held, failed) = (self.highest_held(), self.lowest_failed());
        let alone = held
            .or(failed)
            .map(|tried| format!("{:.1} us", tried.header.load.update_us));
        let at_least = if self.is_lower_bound { ">= " } else { "" };
        let mut why = match failed {
            Some(tried) => vec![tried.why()],
            None if self.search.is_bound_held() => vec!["the bound of the search".into()],
            None => Vec::new(),
        };
        if self.search.next().is_some() {
            why.push("the search ended early".into());
        }
        let cells = vec![
            self.update_mode.into(),
            held.map_or("none".into(), |tried| format!("{at_least}{}", tried.rate())),
            alone.unwrap_or("-".into()),
            failed.map_or("-".into(), Try::rate),
        ];
        (cells, why.join(", "))
    }
}

impl Try {
    fn new(failings: Vec<String>, failed_premise: Option<Premise>, report: RunReport) -> Try {
        Try {
            outcome: Verdict::of(failings.is_empty(), failed_premise.as_ref()),
            failings,
            failed_premise,
            header: report.header,
            summary: report.summary,
        }
    }

    /// Why the rate is not held, or not judged.
    fn why(&self) -> String {
        let premise = self
            .failed_premise
            .as_ref()
            .map(|premise| format!("not judged: {premise}"));
        premise
            .iter()
            .chain(&self.failings)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn rate(&self) -> String {
        let load = &self.header.load;
        format!("{}/s ({} x)", count(load.updates_per_s.round() as u64), load.replicas)
    }

    fn line(&self) -> String {
        let rate = count(self.header.load.updates_per_s.round() as u64);
        let verdict = match self.outcome {
            Verdict::Holds => format!("held, tardiness {}", figure(self.summary.tardiness_mean)),
            Verdict::DoesNotHold => format!("not held: {}", self.why()),
            _ => self.why(),
        };
        format!("{rate:>9} updates/s  {verdict}")
    }
}

/// The rate of memory-first divided by that of transaction; `None` if either is unknown, or transaction's is only a
/// lower bound. A lower bound itself if memory-first's rate is one.
fn ratio(modes: &[Mode; 2]) -> Option<f64> {
    let [transaction, memory_first] = modes;
    if transaction.is_lower_bound {
        return None;
    }
    Some(memory_first.held_updates_per_s? / transaction.held_updates_per_s?)
}

fn told(report: &RatesReport) -> String {
    let machine = report.modes.iter().flat_map(|mode| &mode.tries).next();
    let mut text = format!(
        "\n{} on {} ({}), controller open, runs of {:.1} s\n{}\n\n",
        report.scenario,
        report.platform,
        machine.map_or("", |tried| &tried.header.machine),
        report.duration_s,
        judge::conditions(report.tardiness_goal),
    );
    let heading = ["update mode", "highest rate held", "one update alone", "not held"].map(String::from);
    let (mut rows, mut ends) = (vec![heading.to_vec()], vec!["because".to_string()]);
    for (cells, end) in report.modes.iter().map(Mode::row) {
        rows.push(cells);
        ends.push(end);
    }
    for (line, end) in columns(&rows).lines().zip(ends) {
        text += format!("{line}   {end}").trim_end();
        text.push('\n');
    }
    if let Some(ratio) = report.ratio {
        let at_least = if report.modes.iter().any(|mode| mode.is_lower_bound) {
            "at least "
        } else {
            ""
        };
        let is_met = if ratio >= RATIO_GOAL { "met" } else { "NOT met" };
        text += &format!(
            "\nmemory-first holds {at_least}{ratio:.1} times the rate of transaction ({RATIO_GOAL} asked: {is_met})\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_report::fixture;

    /// A mode of which `held` of `copies` copies were held.
    fn mode(name: &'static str, bound: u32, threshold: u32) -> Mode {
        let mut mode = Mode::new(name, UpdateMode::MemoryFirst, bound);
        while let Some(copies) = mode.search.next() {
            let mut report = fixture::report();
            report.header.load.replicas = copies;
            report.header.load.updates_per_s = 5500.0 * f64::from(copies);
            let held = copies <= threshold;
            let failings = if held { vec![] } else { vec!["tardiness 0.91".into()] };
            mode.tries.push(Try::new(failings, None, report));
            mode.learn(copies, held);
        }
        mode
    }

    fn told_of(modes: [Mode; 2]) -> String {
        let report = RatesReport {
            scenario: "fire-rescue".into(),
            platform: "linux",
            duration_s: 10.0,
            tardiness_goal: 0.85,
            ratio: ratio(&modes),
            modes: modes.into(),
        };
        told(&report).lines().skip(4).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn both_modes_stand_side_by_side() {
        let found = told_of([mode("transaction", 256, 9), mode("memory-first", 256, 300)]);
        let not_found = told_of([mode("transaction", 256, 0), mode("memory-first", 256, 9)]);
        insta::assert_snapshot!("rates", format!("{found}\n\nno rate held:\n{not_found}"));
        assert_eq!(ratio(&[mode("transaction", 4, 9), mode("memory-first", 8, 9)]), None);
    }

    #[test]
    fn a_rate_that_is_not_judged_bounds_nothing() {
        let mut mode = mode("memory-first", 256, 9);
        assert!(!mode.is_lower_bound);
        let failed = mode.search.failed().unwrap();
        let mut report = fixture::report();
        report.header.load.replicas = failed;
        let premise = Premise::unless(false, "a quiet machine", || "none".into());
        mode.tries.push(Try::new(Vec::new(), premise, report));
        mode.learn(failed, false);
        assert!(mode.is_lower_bound);
        let (_, why) = mode.row();
        assert_eq!(why, "not judged: needed is a quiet machine; found: none");
    }

    #[test]
    fn copies_are_bounded_by_memory_and_by_what_a_scenario_takes() {
        assert_eq!([1024, 8, 1_000_000, 0].map(copies_max), [256, 1000, 1, 1000]);
    }
}
