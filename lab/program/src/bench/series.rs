//! Consecutive runs for one comparison: shared settings, and an early end by the user.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_runtime::SETTLING;
use punctual_runtime::report::{Progress, RunReport, Sample};
use punctual_scenario::RunRequest;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use punctual_cli::args::Change;
use punctual_cli::commands::failures;
use punctual_files::failure::Failure;
use punctual_files::scenario::Loaded;
use punctual_files::toml::Override;

/// Exit code that a shell reports for a program ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Handles Ctrl-C and SIGTERM: the first ends the series in order, with the results so far; the second ends the process
/// at once, and the guardian process restores the machine.
#[derive(Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// [`Failure::Internal`] if a handler cannot be installed.
    pub fn listen() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag cleared and passes, the second finds it set.
            flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, asked.clone())
                .and_then(|_| flag::register(signal, asked.clone()))
                .map_err(|error| Failure::Internal(format!("signals: {error}")))?;
        }
        Ok(Interrupt { asked })
    }

    /// Whether the user asked to end the series.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// The answer to a run's progress callback.
    pub fn answer(&self) -> ControlFlow<()> {
        if self.asked() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Carries out a run; `None` if the user broke it off, because figures of shorter runs do not compare. Ends early after
/// a sample that is `enough`.
///
/// # Errors
/// The reason why the run did not begin, or was broken off.
pub fn perform(
    request: &RunRequest,
    loaded: &Loaded,
    interrupt: &Interrupt,
    enough: impl Fn(&Sample) -> bool,
) -> Result<Option<RunReport>, Failure> {
    let finished = punctual_scenario::run(request, &mut |progress| match progress {
        Progress::Sample(sample) if enough(sample) => ControlFlow::Break(()),
        _ => interrupt.answer(),
    });
    if interrupt.asked() {
        tell("stopped; this run does not count");
        return Ok(None);
    }
    finished
        .map(|finished| Some(finished.report))
        .map_err(|error| failures::of_run(error, loaded))
}

/// The overrides of `change`, and before them this bench's own defaults, which outrank the scenario's values; `--set`
/// outranks the defaults.
pub fn overrides(defaults: &[(&str, &str)], change: &Change) -> Vec<Override> {
    let defaults = defaults.iter().map(|(key, value)| Override {
        written: format!("{key}={value}, the default of this bench"),
        key: key.to_string(),
        value: value.to_string(),
    });
    defaults.chain(change.overrides(None)).collect()
}

/// Refuses runs that end before any means are taken.
///
/// # Errors
/// [`Failure::Input`] with the shortest duration that is long enough.
pub fn check_length(loaded: &Loaded) -> Result<(), Failure> {
    let (duration, settled) = (loaded.scenario.duration, loaded.scenario.control.warm_up + SETTLING);
    if duration > settled {
        return Ok(());
    }
    Err(Failure::of(format!(
        "{}: duration: a run of {duration} ends before means are taken, {settled} after its start ({SETTLING} after control.warm_up): give a longer --duration",
        loaded.shown()
    )))
}

/// Prints a line of the series' progress. A closed standard error does not end the series.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_files::scenario;
    use punctual_units::Nanos;

    #[test]
    fn what_is_asked_for_outranks_the_defaults() {
        let defaults = [("duration", "30s"), ("control.warm_up", "1s")];
        let duration = |change: Change| {
            let loaded = scenario::load(None, &overrides(&defaults, &change)).unwrap();
            loaded.scenario.duration
        };
        assert_eq!(duration(Change::default()), Nanos::from_secs(30));
        let set = vec![Override::parse("duration=40s").unwrap()];
        assert_eq!(
            duration(Change {
                set: set.clone(),
                ..Change::default()
            }),
            Nanos::from_secs(40)
        );
        let option = Some("50s".to_string());
        assert_eq!(
            duration(Change {
                set,
                duration: option,
                ..Change::default()
            }),
            Nanos::from_secs(50)
        );
    }

    #[test]
    fn a_run_without_means_is_refused() {
        let load = |duration| scenario::load(None, &[Override::of_option("--duration", "duration", duration)]).unwrap();
        assert!(check_length(&load("7001ms")).is_ok());
        let told = check_length(&load("7s")).unwrap_err().to_string();
        assert!(
            told.contains("a run of 7.00 s") && told.contains("--duration"),
            "{told}"
        );
    }
}
