//! The `punctual` command.

mod failure;
mod scenario;

fn main() {
    let _ = scenario::load(None, &[]);
}
