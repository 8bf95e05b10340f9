//! `checks/node.rs`, with the modules of the command that read files of nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_cli::serve;

#[path = "../checks/node.rs"]
mod check;

fuzz_target!(|case: &[u8]| {
    check::check(case);
});
