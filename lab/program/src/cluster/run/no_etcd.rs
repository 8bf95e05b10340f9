//! Stands in for etcd as the log of a run in a build without it.

use std::path::Path;

use punctual_federation::ids::FederationId;

use super::log::Backing;
use crate::args::LogKind;
use punctual_files::failure::Failure;

const WITHOUT: &str =
    "this program was built without etcd: build it with `cargo build --release -p punctual-lab --features etcd`";

pub(super) fn open(_: &LogKind, _: &Path, _: FederationId) -> Result<Box<dyn Backing>, Failure> {
    Err(Failure::of(WITHOUT))
}
