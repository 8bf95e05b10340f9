//! `punctual-lab experiment`: a paper's evaluation, from its claims to the table.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual_evaluation::claims::{Claims, Reasons, reasons};
use punctual_evaluation::{
    ExperimentError, Outcome, Settings, Subject, chronos, controllers, dna, dps, experiments, find, mig, qedb,
};

use super::cluster::{
    self,
    chronos::{ENDED, Measuring},
};
use super::{claims, dual, mpsoc, page, simulated};
use crate::args::Experiment;
use punctual_cli::args::{Change, Platform};
use punctual_cli::commands::{failures, print, run};
use punctual_files::failure::Failure;
use punctual_files::{document, scenario};
use punctual_report::output::OutputFile;

/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Default number of an experiment's seeds, and of a scenario's repetitions.
const SEEDS: u32 = 10;
const REPETITIONS: u32 = 5;

/// Carries out `punctual-lab experiment`.
pub fn experiment(arguments: &Experiment, command: &str) -> Result<(), Failure> {
    if arguments.name == "list" {
        return print(&list());
    }
    let experiment = find(&arguments.name).map_err(refused)?;
    // First of all: the processes of measured pipelines run this command again.
    mig::measured::serve_if_told().map_err(Failure::of)?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    let outcome = if arguments.platform == Platform::Linux && mig::parts(&arguments.name).is_some() {
        of_pipelines(arguments)?
    } else if arguments.platform == Platform::Linux && chronos::parts(&arguments.name).is_some() {
        of_processes(arguments)?
    } else if arguments.platform == Platform::Linux || arguments.scenario.is_some() {
        with_scenario(arguments)?
    } else {
        with_machines(arguments, &experiment)?
    };
    print(&claims::table(&outcome))?;
    for failure in &outcome.failures {
        print(&format!("could not be run: {failure}\n"))?;
    }
    if let Some(file) = json {
        let text = serde_json::to_string(&outcome).map_err(|error| Failure::Internal(error.to_string()))?;
        file.text(&(text + "\n"))?;
    }
    html.map_or(Ok(()), |file| file.text(&page::experiment(&outcome, command)))?;
    ended(&outcome)
}

/// # Errors
/// If a signal ended the experiment: what was printed is not all of it.
fn ended(outcome: &Outcome) -> Result<(), Failure> {
    match outcome.failures.iter().any(|failure| failure == ENDED) {
        true => Err(Failure::of(ENDED)),
        false => Ok(()),
    }
}

/// Runs the experiment on simulated machines, and compares it with the claims.
fn with_machines(arguments: &Experiment, experiment: &punctual_evaluation::Experiment) -> Result<Outcome, Failure> {
    let dual = dual::of(arguments)?;
    let mpsoc = mpsoc::of(arguments)?;
    let film = dual.as_ref().map(|(_, ground)| ground.play.film);
    let shipped = experiment.shipped()[0];
    let shipped = film.map_or(shipped.to_string(), |film| film.named(shipped));
    let claims = given_claims(arguments, &shipped)?;
    let settings = Settings {
        machines: if dual.is_some() || mpsoc.is_some() {
            Vec::new()
        } else {
            machines(arguments, experiment)?
        },
        profiles: profiles(arguments, experiment)?,
        seed: arguments.seed,
        seeds: arguments
            .seeds
            .unwrap_or(if runs_profiles(experiment) { 1 } else { SEEDS }),
        sets: arguments.sets,
        claims,
        reasons: match is_shipped(arguments) {
            true => shipped_reasons(experiment.shipped()[1])?,
            // Texts written for the shipped machines may be untrue of another one.
            false => Reasons::new(),
        },
        workers: None,
    };
    let teller = Teller::new();
    let told = |what: &str| teller.tell(what);
    let outcome = match (dual, mpsoc) {
        (Some((parts, ground)), _) => dps::run(&parts, &ground, &settings, &told),
        (None, Some((parts, machine))) => mig::run(&parts, &machine, &settings, &told),
        (None, None) => (experiment.run)(&settings, &told),
    };
    let outcome = outcome.map_err(refused)?;
    teller.done();
    Ok(outcome)
}

/// Measures moving stages on this machine.
fn of_pipelines(arguments: &Experiment) -> Result<Outcome, Failure> {
    let parts = mig::parts(&arguments.name).unwrap_or_default();
    let claims = given_claims(arguments, mig::measured::CLAIMS)?;
    if arguments.scenario.is_some() || !arguments.machines.is_empty() {
        let name = &arguments.name;
        let why = format!("{name} --platform linux measures this machine; leave out --scenario and --machines");
        return Err(Failure::of(why));
    }
    let settings = Settings {
        machines: Vec::new(),
        profiles: Vec::new(),
        seed: arguments.seed,
        seeds: arguments.seeds.unwrap_or(1),
        sets: arguments.sets,
        claims,
        reasons: shipped_reasons(mig::measured::REASONS)?,
        workers: None,
    };
    let teller = Teller::new();
    let outcome = mig::measured::run(&parts, &settings, &|what: &str| teller.tell(what));
    let outcome = outcome.map_err(refused)?;
    teller.done();
    Ok(outcome)
}

/// Measures nodes and balancers as processes of this machine.
fn of_processes(arguments: &Experiment) -> Result<Outcome, Failure> {
    let parts = chronos::parts(&arguments.name).unwrap_or_default();
    if arguments.scenario.is_some() || !arguments.machines.is_empty() {
        let name = &arguments.name;
        let why = format!("{name} --platform linux measures this machine; leave out --scenario and --machines");
        return Err(Failure::of(why));
    }
    let settings = Settings {
        machines: Vec::new(),
        profiles: Vec::new(),
        seed: arguments.seed,
        seeds: arguments.seeds.unwrap_or(1),
        sets: arguments.sets,
        claims: given_claims(arguments, chronos::measured::CLAIMS)?,
        reasons: shipped_reasons(chronos::measured::REASONS)?,
        workers: None,
    };
    let teller = Teller::new();
    let measuring = Measuring::new(arguments.duration)?;
    let mut measure = |trials: &[chronos::measured::Trial], seed, tell: punctual_evaluation::Progress| {
        measuring.run(trials, seed, &|what| tell(what))
    };
    let setting = cluster::chronos::setting(arguments.duration);
    let told = |what: &str| teller.tell(what);
    let outcome = chronos::measured::run(&parts, &settings, setting, &told, &mut measure).map_err(refused)?;
    teller.done();
    Ok(outcome)
}

/// Runs a scenario, on this machine or on the simulated one.
fn with_scenario(arguments: &Experiment) -> Result<Outcome, Failure> {
    let (transient, laws) = (qedb::Part::Transient.name(), controllers::EXPERIMENT.name);
    if ![transient, laws].contains(&arguments.name.as_str()) {
        return Err(Failure::of(format!(
            "{}: only {transient} and {laws} run with a scenario; leave out --platform and --scenario",
            arguments.name
        )));
    }
    let change = Change {
        platform: arguments.platform,
        seed: Some(arguments.seed.to_string()),
        ..Change::default()
    };
    let loaded = scenario::load(arguments.scenario.as_deref(), &change.overrides(None))?;
    let request = run::request(&loaded, &change)?;
    let teller = Teller::new();
    let repetitions = arguments.seeds.unwrap_or(REPETITIONS);
    let tell = |what: &str| teller.tell(what);
    let outcome = if arguments.name == laws {
        controllers::on_machine(&request, controllers::Course::default(), repetitions, &tell)
    } else {
        qedb::disturbed(&request, qedb::Course::default(), repetitions, &tell)
    };
    let outcome = outcome.map_err(|error| failures::of_run(error, &loaded))?;
    teller.done();
    Ok(outcome)
}

/// Whether the runs are those for which the shipped reasons were written.
fn is_shipped(arguments: &Experiment) -> bool {
    arguments.machines.is_empty() && arguments.profiles.is_none()
}

fn list() -> String {
    experiments()
        .iter()
        .map(|experiment| format!("{:<18} {}\n", experiment.name, experiment.about))
        .collect()
}

fn refused(error: ExperimentError) -> Failure {
    Failure::of(error)
}

/// The claims of the command line, else the shipped ones.
fn given_claims(arguments: &Experiment, shipped: &str) -> Result<Claims, Failure> {
    match &arguments.claims {
        Some(path) => document::load(path, "a claims file", Claims::parse),
        None => Claims::parse(shipped, "claims").map_err(Failure::input),
    }
}

fn shipped_reasons(text: &str) -> Result<Reasons, Failure> {
    reasons(text, "reasons").map_err(|faults| Failure::Internal(faults.join("; ")))
}

/// Whether the experiment runs programs with profiles: its task sets then serve as replications.
fn runs_profiles(experiment: &punctual_evaluation::Experiment) -> bool {
    dna::EXPERIMENTS.iter().any(|other| other.name == experiment.name)
}

/// The profiles of the command line, else the shipped ones; empty if the experiment uses none.
fn profiles(
    arguments: &Experiment,
    experiment: &punctual_evaluation::Experiment,
) -> Result<Vec<dna::ProfileSet>, Failure> {
    if !runs_profiles(experiment) {
        return match &arguments.profiles {
            None => Ok(Vec::new()),
            Some(_) => Err(Failure::of(format!(
                "{}: only dna-* run programs with profiles; leave out --profiles",
                experiment.name
            ))),
        };
    }
    match &arguments.profiles {
        Some(folder) => super::profiles::folder(folder),
        None => dna::shipped().map_err(|error| Failure::Internal(error.to_string())),
    }
}

/// The machines of the command line, else the calibrated ones; all of those for the paper that they were fitted to.
fn machines(arguments: &Experiment, experiment: &punctual_evaluation::Experiment) -> Result<Vec<Subject>, Failure> {
    if chronos::parts(experiment.name).is_some() {
        return match arguments.machines.as_slice() {
            [] => Ok(Vec::new()),
            _ => Err(Failure::of(format!(
                "{}: queues are simulated, not a machine; leave out --machines",
                experiment.name
            ))),
        };
    }
    if arguments.machines.is_empty() {
        let fitted = qedb::EXPERIMENTS.iter().any(|other| other.name == experiment.name);
        let most = if fitted { usize::MAX } else { qedb::FIRST_MACHINES };
        return Ok(qedb::ensemble().into_iter().take(most).collect());
    }
    arguments.machines.iter().map(|path| machine(path)).collect()
}

/// Reads a machine file. A machine of the ensemble keeps the job that it was calibrated with; any other runs the
/// paper's.
fn machine(path: &Path) -> Result<Subject, Failure> {
    let machine = simulated::load(path)?;
    let known = qedb::ensemble().into_iter().find(|subject| subject.machine == machine);
    Ok(known.unwrap_or(Subject {
        machine,
        job: qedb::JobTimes::PAPER,
    }))
}

/// Reports the experiment's progress on standard error: again and again on the same line of a terminal, else now and
/// then.
struct Teller {
    terminal: bool,
    begun: Instant,
    told: Mutex<Instant>,
}

impl Teller {
    fn new() -> Teller {
        let begun = Instant::now();
        Teller {
            terminal: std::io::stderr().is_terminal(),
            begun,
            told: Mutex::new(begun),
        }
    }

    fn tell(&self, what: &str) {
        // Another thread is reporting right now.
        let Ok(mut told) = self.told.try_lock() else { return };
        let every = if self.terminal {
            TELL_EVERY / 10
        } else {
            TELL_EVERY * 10
        };
        if told.elapsed() < every {
            return;
        }
        *told = Instant::now();
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(std::io::stderr(), "{before}{what}{after}");
    }

    fn done(&self) {
        let before = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(
            std::io::stderr(),
            "{before}took {:.1} s",
            self.begun.elapsed().as_secs_f64()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_that_a_signal_ends_does_not_succeed() {
        let settings = Settings {
            machines: Vec::new(),
            profiles: Vec::new(),
            seed: 1,
            seeds: 1,
            sets: 1,
            claims: Claims::parse(chronos::measured::CLAIMS, "claims").unwrap(),
            reasons: Reasons::new(),
            workers: None,
        };
        let of = |failure: &'static str| {
            let parts = [chronos::Part::Delay];
            let mut measure = |_: &[_], _, _: punctual_evaluation::Progress| vec![Err(failure.to_owned())];
            let outcome = chronos::measured::run(&parts, &settings, Vec::new(), &|_| {}, &mut measure).unwrap();
            ended(&outcome).map_err(|failure| failure.exit_code())
        };
        assert_eq!([of(ENDED), of("no master")], [Err(2), Ok(())]);
    }
}
