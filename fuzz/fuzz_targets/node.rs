//! `checks/node.rs` on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/node.rs"]
mod check;

fuzz_target!(|case: &[u8]| {
    check::check(case);
});
