//! The `punctual-lab` command: measurements of this machine, experiments of papers, and the radio.

mod args;
mod bench;
mod claims;
mod cluster;
mod dual;
mod experiment;
mod fault;
mod movie;
mod mpsoc;
mod page;
mod profiles;
mod radio;
mod referees;
mod simulated;

use std::process::ExitCode;

use args::{Arguments, LabCommand, LabRun};
use punctual_cli::args::Change;
use punctual_files::failure::Failure;
use punctual_files::scenario::Loaded;
use radio::scenario::RadioKinds;

fn main() -> ExitCode {
    let arguments = punctual_cli::arguments::<Arguments>();
    punctual_cli::exit_code(arguments.and_then(|arguments| perform(&arguments.command.joined())))
}

fn perform(command: &LabCommand) -> Result<(), Failure> {
    let typed = punctual_cli::command_line("punctual-lab");
    match command {
        LabCommand::Bench(what) => bench::bench(what, &typed),
        LabCommand::Experiment(experiment) => experiment::experiment(experiment, &typed),
        LabCommand::Radio(radio) => radio::radio(radio, &typed),
        LabCommand::Cluster(what) => cluster::cluster(what, &typed),
        LabCommand::Process(what) => cluster::process(what),
        LabCommand::Run(LabRun { run, simulated }) => {
            let make = |loaded: &Loaded, change: &Change| simulated.request(loaded, change);
            punctual_cli::commands::run::run(run, Some(&RadioKinds), &make, &typed)
        }
        LabCommand::Serve(arguments) => punctual_cli::serve::serve(arguments),
        LabCommand::Pipeline(what) => punctual_cli::commands::pipeline::pipeline(what),
        LabCommand::Replay(replay) => punctual_cli::commands::replay::replay(replay),
        LabCommand::Profile(profile) => punctual_cli::commands::profile::profile(profile, &typed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
