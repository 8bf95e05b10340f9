//! The shared library once more, built with the tests: see Cargo.toml.
#![allow(non_camel_case_types)]

#[path = "../src/code.rs"]
mod code;
#[path = "../src/handles.rs"]
mod handles;
#[path = "../src/rows.rs"]
mod rows;
#[path = "../src/store.rs"]
mod store;
#[path = "../src/watch.rs"]
mod watch;
