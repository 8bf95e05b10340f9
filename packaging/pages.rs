//! Writes the manual pages of `punctual` and its completions for bash, zsh and fish, all made from its parser, into the
//! folder that the first argument names.

use std::{env, fs, io};

use clap::CommandFactory;
use clap_complete::Shell;
use punctual_cli::args::Arguments;

fn main() -> io::Result<()> {
    let folder = env::args_os()
        .nth(1)
        .ok_or_else(|| io::Error::other("name a folder to write to"))?;
    fs::create_dir_all(&folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Arguments::command(), "punctual", &folder)?;
    }
    clap_mangen::generate_to(Arguments::command(), &folder)
}
