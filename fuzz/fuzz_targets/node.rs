//! `checks/node.rs`, with the command's modules that read files of nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/bounded.rs"]
mod bounded;
#[path = "../../crates/cli/src/builtin.rs"]
mod builtin;
#[path = "../checks/node.rs"]
mod check;
#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src"]
mod federation {
    #[path = "federation/membership.rs"]
    pub mod membership;
}
#[path = "../../crates/cli/src/scenario/mod.rs"]
mod scenario;
#[path = "../../crates/cli/src"]
mod serve {
    #[path = "serve/file.rs"]
    pub mod file;
    #[path = "serve"]
    pub mod tasks {
        #[path = "tasks/file.rs"]
        pub mod file;
    }
}
#[path = "../../crates/cli/src/size.rs"]
mod size;

fuzz_target!(|case: &[u8]| {
    check::check(case);
});
