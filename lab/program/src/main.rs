//! The `punctual-lab` command: measurements of this machine, experiments of papers, and the radio.

mod args;
mod bench;
mod claims;
mod cluster;
mod dual;
mod experiment;
mod movie;
mod mpsoc;
mod page;
mod profiles;
mod radio;
mod referees;

use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser;
use punctual_cli::failure::Failure;

fn main() -> ExitCode {
    punctual_cli::exit_code(perform(&Arguments::parse().command))
}

fn perform(command: &Command) -> Result<(), Failure> {
    let typed = punctual_cli::command_line("punctual-lab");
    match command {
        Command::Bench(what) => bench::bench(what, &typed),
        Command::Experiment(experiment) => experiment::experiment(experiment, &typed),
        Command::Radio(radio) => radio::radio(radio, &typed),
        Command::Cluster(what) => cluster::cluster(what, &typed),
        Command::Process(what) => punctual_cli::cluster::process(what),
        Command::Serve(arguments) => punctual_cli::serve::serve(arguments),
        Command::Pipeline(what) => punctual_cli::commands::pipeline::pipeline(what),
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
