//! `punctual experiment`: a paper's evaluation, from its claims to the table.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual_experiments::claims::{Claims, Reasons};
use punctual_experiments::{ExperimentError, Settings, Subject, experiments, find, qedb};
use punctual_sim::MachineModel;

use crate::args::Experiment;
use crate::failure::Failure;
use crate::output::Output;
use crate::{claims, page};

/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Carries out `punctual experiment`.
pub fn experiment(arguments: &Experiment, command: &str) -> Result<(), Failure> {
    if arguments.name == "list" {
        return super::print(&list());
    }
    let experiment = find(&arguments.name).map_err(refused)?;
    let (file, text) = match &arguments.claims {
        Some(path) => (path.display().to_string(), read(path)?),
        None => ("claims".into(), qedb::CLAIMS.to_string()),
    };
    let at = |error: &dyn std::fmt::Display| Failure::input([format!("{file}: {error}")]);
    let settings = Settings {
        machines: machines(arguments)?,
        seed: arguments.seed,
        seeds: arguments.seeds,
        claims: Claims::parse(&text).map_err(|error| at(&error))?,
        reasons: reasons()?,
        workers: None,
    };
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let html = Output::prepare_some(arguments.html.as_ref())?;
    let teller = Teller::new();
    let outcome = (experiment.run)(&settings, &|what| teller.tell(what)).map_err(|error| match error {
        ExperimentError::Claims(error) => at(&error),
        error => refused(error),
    })?;
    teller.done();
    super::print(&claims::table(&outcome))?;
    for failure in &outcome.failures {
        super::print(&format!("could not be run: {failure}\n"))?;
    }
    if let Some(file) = json {
        let text = serde_json::to_string(&outcome).map_err(|error| Failure::Internal(error.to_string()))?;
        file.text(&(text + "\n"))?;
    }
    html.map_or(Ok(()), |file| file.text(&page::experiment(&outcome, command)))
}

fn list() -> String {
    experiments().iter().map(|experiment| format!("{:<18} {}\n", experiment.name, experiment.about)).collect()
}

fn refused(error: ExperimentError) -> Failure {
    Failure::input([error.to_string()])
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::input([format!("{}: cannot be read: {}", path.display(), error.kind())]))
}

fn reasons() -> Result<Reasons, Failure> {
    toml::from_str(qedb::REASONS).map_err(|error| Failure::Internal(error.to_string()))
}

/// The machines of the command line, else those that were calibrated.
fn machines(_arguments: &Experiment) -> Result<Vec<Subject>, Failure> {
    Ok(vec![Subject {
        machine: MachineModel::exynos5422_a15(),
        job: qedb::Work::PAPER,
    }])
}

/// Tells how far the experiment is, on standard error: over and over on the same line of a terminal, else now and then.
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
        // Another thread is telling, or something was told just now.
        let Ok(mut told) = self.told.try_lock() else { return };
        let every = if self.terminal { TELL_EVERY / 10 } else { TELL_EVERY * 10 };
        if told.elapsed() < every {
            return;
        }
        *told = Instant::now();
        let (before, after) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(std::io::stderr(), "{before}{what}{after}");
    }

    fn done(&self) {
        let before = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{before}took {:.1} s", self.begun.elapsed().as_secs_f64());
    }
}
