//! The `punctual` command.

mod args;
mod failure;
#[cfg(test)]
mod fixture;
mod output;
mod page;
mod plain;
mod scenario;
mod summary;
mod trace;
mod verdict;
mod view;
mod watch;

fn main() {
    let _ = scenario::load(None, &[]);
}
