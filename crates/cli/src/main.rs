//! The `punctual` command.

mod args;
mod failure;
#[cfg(test)]
mod fixture;
mod output;
mod plain;
mod scenario;
mod summary;
mod trace;
mod verdict;

fn main() {
    let _ = scenario::load(None, &[]);
}
