//! `punctual-lab bench controllers`: one scenario under several controllers, repeated and compared.
//!
//! Every controller runs once in each repetition, so that a disturbance of minutes affects all of them alike. The order
//! is rotated from one repetition to the next, so that no controller always runs after the same other one. Within a
//! repetition all have the same seed, and thus see the same readings and draws.

mod table;

use punctual_loop::ModelDocument;
use punctual_platform::KnobId;
use punctual_scenario::{ControllerSource, RunRequest, check_controller};
use punctual_workload::{ControllerKind, Goal};
use serde::Serialize;

use super::series::{Interrupt, check_length, overrides, perform, tell};
use crate::args::Controllers;
use crate::args::kind;
use punctual_cli::args::Controller;
use punctual_cli::commands::{failures, print, run};
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_files::toml::Override;
use punctual_report::output::OutputFile;
use table::{ControllerRun, Row};

/// Default duration of a run: means over 23 s with the usual warm-up of 2 s.
const DURATION: (&str, &str) = ("duration", "30s");

/// The JSON output: everything that was measured.
#[derive(Debug, Serialize)]
struct Comparison {
    scenario: String,
    platform: &'static str,
    goal: Goal,
    duration_s: f64,
    /// Number of repetitions asked for; fewer are complete if the user or a failure ended the bench.
    repetitions: u32,
    /// In the order of the table's columns.
    controllers: Vec<ControllerKind>,
    /// Model learnt on this machine, with `--identify`.
    model: Option<ModelDocument>,
    /// Runs in chronological order.
    runs: Vec<ControllerRun>,
    table: Vec<Row>,
}

/// Carries out `punctual-lab bench controllers`.
pub fn controllers(arguments: &Controllers) -> Result<(), Failure> {
    let change = &arguments.change;
    let plain = overrides(&[DURATION], change);
    let loaded = scenario::load(arguments.scenario.as_deref(), &plain)?;
    check_length(&loaded)?;
    let output = OutputFile::report(arguments.json.as_ref())?;
    let kinds: Vec<ControllerKind> = arguments.controllers.iter().copied().map(kind).collect();
    let columns = columns(arguments, &plain)?;
    let platform = arguments.simulated.request(&loaded, change)?.platform;
    let interrupt = Interrupt::listen()?;
    let model = match arguments.identify && is_controlled(&kinds) {
        true => Some(learn(arguments, &interrupt)?),
        false => None,
    };
    let source = match &model {
        Some(model) => Some(ControllerSource::Model(model.clone())),
        None if is_controlled(&kinds) => run::given_controller(arguments.model.as_deref(), &loaded, platform)?,
        None => None,
    };
    let series = Series {
        arguments,
        columns: &columns,
        source,
        interrupt,
    };
    series.check()?;
    tell(&announcement(&loaded, &kinds, arguments.repetitions));
    let mut runs = Vec::new();
    let ended = series.measure(&mut runs);
    if runs.is_empty() {
        return ended.and(Err(Failure::of(
            "stopped before a run was complete; nothing was measured",
        )));
    }
    let comparison = Comparison {
        scenario: loaded.scenario.name.clone(),
        platform: platform.name(),
        goal: loaded.scenario.goal,
        duration_s: loaded.scenario.duration.as_secs_f64(),
        repetitions: arguments.repetitions,
        table: table::table(&kinds, &runs),
        controllers: kinds,
        model,
        runs,
    };
    print(&told(&comparison))?;
    // Results from before a failure are worth keeping; the failure still decides the exit code.
    output.map_or(Ok(()), |file| file.json(&comparison)).and(ended)
}

/// The comparison for people: the table, then the conclusion about the goal.
fn told(comparison: &Comparison) -> String {
    let Comparison {
        goal,
        controllers,
        runs,
        ..
    } = comparison;
    let header = runs.first().map(|run| &run.header);
    let machine = header.map_or("", |header| &header.machine);
    let clock = header.and_then(|header| header.offered(KnobId::CLOCK));
    let mut text = format!(
        "\n{} on {} ({machine}), {} repetitions of {:.1} s; median (least to most) over the repetitions\n\n",
        comparison.scenario, comparison.platform, comparison.repetitions, comparison.duration_s
    );
    text += &table::text(controllers, clock, &comparison.table);
    text.push('\n');
    for (column, kind) in controllers.iter().enumerate() {
        let runs: Vec<&ControllerRun> = runs.iter().filter(|run| run.column == column).collect();
        text += &format!("{:<6}{}\n", kind.name(), table::verdict(goal, &runs));
    }
    text
}

fn is_controlled(kinds: &[ControllerKind]) -> bool {
    kinds.iter().any(|kind| *kind != ControllerKind::Open)
}

/// The scenario under each controller, loaded as by `run --controller`: settings that the file leaves open, such as the
/// pace, follow the controller.
fn columns(arguments: &Controllers, plain: &[Override]) -> Result<Vec<Loaded>, Failure> {
    let under = |controller: &Controller| {
        let name = kind(*controller).name();
        let mut overrides = plain.to_vec();
        overrides.push(Override::of_option("--controllers", "control.controller", name));
        scenario::load(arguments.scenario.as_deref(), &overrides)
    };
    arguments.controllers.iter().map(under).collect()
}

/// Learns a model for every run, with both knobs moving.
fn learn(arguments: &Controllers, interrupt: &Interrupt) -> Result<ModelDocument, Failure> {
    let mut overrides = arguments.change.overrides(Some(Controller::Mimo));
    let duration = &arguments.identify_duration;
    overrides.push(Override::of_option("--identify-duration", "duration", duration));
    let loaded = scenario::load(arguments.scenario.as_deref(), &overrides)?;
    let request = RunRequest {
        store_path: None,
        mapped: None,
        ..arguments.simulated.request(&loaded, &arguments.change)?
    };
    tell(&format!("learning a model for {}", loaded.scenario.duration));
    let identified = punctual_scenario::identify(&request, &mut |_| interrupt.answer());
    if interrupt.asked() {
        return Err(Failure::of("stopped before a model was learnt; nothing was measured"));
    }
    let (model, _) = identified.map_err(|error| failures::of_run(error, &loaded))?;
    for (what, r2) in r_squared(&model) {
        tell(&format!("R^2 of {what}: {r2:.3}"));
    }
    for kind in arguments.controllers.iter().copied().map(kind) {
        model.check_fit(kind).map_err(Failure::of)?;
    }
    Ok(model)
}

fn r_squared(model: &ModelDocument) -> Vec<(String, f64)> {
    let outputs = model.mimo.iter().flat_map(|model| model.outputs());
    let both = outputs.map(|output| format!("{output}, for mimo"));
    let one = model
        .tardiness
        .outputs()
        .iter()
        .map(|output| format!("{output}, for qod and clock"));
    let models = model.mimo.iter().chain([&model.tardiness]);
    let fits = models.filter_map(|arx| arx.fit());
    both.chain(one)
        .zip(fits.flat_map(|fit| fit.r2.iter().copied()))
        .collect()
}

fn announcement(loaded: &Loaded, kinds: &[ControllerKind], repetitions: u32) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let runs = kinds.len() as u64 * u64::from(repetitions);
    let (duration, total) = (loaded.scenario.duration, loaded.scenario.duration * runs);
    format!(
        "{} under {}: {repetitions} repetitions, {runs} runs of {duration}, {:.1} min and what it takes to start them",
        loaded.scenario.name,
        names.join(", "),
        total.as_secs_f64() / 60.0
    )
}

/// Indices of the controllers in the order of `repetition`: rotated, so that over all repetitions each runs equally
/// often at each position.
fn order(repetition: u32, controllers: usize) -> impl Iterator<Item = usize> {
    (0..controllers).map(move |place| (place + repetition as usize) % controllers)
}

struct Series<'a> {
    arguments: &'a Controllers,
    columns: &'a [Loaded],
    source: Option<ControllerSource>,
    interrupt: Interrupt,
}

impl Series<'_> {
    /// Refuses before the first run anything that a later run would refuse.
    fn check(&self) -> Result<(), Failure> {
        let refused = |loaded: &Loaded| {
            let checked = check_controller(&self.request(0, loaded)?);
            checked.map_err(|error| failures::of_run(error, loaded))
        };
        self.columns.iter().try_for_each(refused)
    }

    /// Adds every complete run to `runs`, until all are done or the user ends the series.
    fn measure(&self, runs: &mut Vec<ControllerRun>) -> Result<(), Failure> {
        for repetition in 0..self.arguments.repetitions {
            for column in order(repetition, self.columns.len()) {
                let loaded = &self.columns[column];
                let request = self.request(repetition, loaded)?;
                let Some(report) = perform(&request, loaded, &self.interrupt, |_| false)? else {
                    return Ok(());
                };
                let run = ControllerRun::new(repetition, column, report);
                tell(&format!(
                    "{} of {}: {}",
                    repetition + 1,
                    self.arguments.repetitions,
                    run.line()
                ));
                runs.push(run);
            }
        }
        Ok(())
    }

    /// The request of a repetition. Synthetic readings are drawn from its seed, as by `punctual run --seed`.
    fn request(&self, repetition: u32, loaded: &Loaded) -> Result<RunRequest, Failure> {
        let mut scenario = loaded.scenario.clone();
        scenario.seed = scenario.seed.wrapping_add(u64::from(repetition));
        let seeded = Loaded {
            scenario,
            model: None,
            store_path: None,
            mapped: None,
            ..loaded.clone()
        };
        Ok(RunRequest {
            controller: self.source.clone(),
            ..self.arguments.simulated.request(&seeded, &self.arguments.change)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_law_stands_equally_often_in_each_place(controllers in 1usize..6, rounds in 1u32..5) {
            let mut places = vec![vec![0; controllers]; controllers];
            for repetition in 0..rounds * controllers as u32 {
                let order: Vec<usize> = order(repetition, controllers).collect();
                prop_assert_eq!(order.len(), controllers);
                for (place, column) in order.into_iter().enumerate() {
                    places[column][place] += 1;
                }
            }
            prop_assert!(places.iter().flatten().all(|times| *times == rounds), "{:?}", places);
        }
    }

    #[test]
    fn the_order_is_rotated() {
        let orders: Vec<Vec<usize>> = (0..4).map(|repetition| order(repetition, 3).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }
}
