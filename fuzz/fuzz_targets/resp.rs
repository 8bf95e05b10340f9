//! `checks/resp.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/mod.rs"]
mod checks;

fuzz_target!(|case: &[u8]| {
    checks::resp::check(case);
});
