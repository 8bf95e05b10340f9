//! Classifies errors of runs into those of the user and those of the program.

use punctual_runtime::RuntimeError;
use punctual_scenario::RunError;

use punctual_files::failure::Failure;
use punctual_files::scenario::Loaded;

/// Failure for a run that was refused or broke off; messages name the source of `loaded`.
pub fn of_run(error: RunError, loaded: &Loaded) -> Failure {
    let in_file = |what: String| Failure::of(format!("{}: {what}", loaded.shown()));
    match error {
        RunError::Problem(problem) => Failure::of(format!("{}: {problem}", loaded.place_of(&problem.key))),
        RunError::Demand(_)
        | RunError::Mismatch(_)
        | RunError::Runtime(RuntimeError::Mismatch(_))
        | RunError::Allocation(_) => in_file(error.to_string()),
        RunError::Runtime(RuntimeError::Stopped) | RunError::MachineModel(_) => Failure::Internal(error.to_string()),
        error if error.is_disk_full() => Failure::of(format!(
            "{error}; or keep the stores elsewhere: the scenario's with --set store.path=FOLDER, temporary ones with \
             TMPDIR=FOLDER in the environment"
        )),
        error => Failure::of(error),
    }
}
