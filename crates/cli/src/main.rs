//! The `punctual` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    punctual_cli::main(None)
}
