//! What fuzz targets check of any bytes. Two programs take these files in: the targets, which libFuzzer drives, and the
//! tests of the command (`crates/cli/src/fuzz_tests.rs`), which change seeds at random on the stable compiler.
//!
//! Each check takes a case apart ([`source`]), panics where a promise is broken, and says what the case came to.

pub mod log;
pub mod peer;
pub mod resp;
pub mod source;
