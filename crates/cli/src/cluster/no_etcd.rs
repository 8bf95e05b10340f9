//! Stands in for etcd in a build without it.

use std::path::Path;

use punctual_federation::ids::Revision;
use punctual_logs::Identity;
use punctual_logs::socket::LogServer;

use punctual_files::failure::Failure;

const WITHOUT: &str = "this program was built without etcd: build it with `cargo build --release --features etcd`";

pub fn log_in_etcd(_: &str, _: &Path) -> Result<LogServer, String> {
    Err(WITHOUT.into())
}

pub fn found(_: &str, _: Identity, _: bool) -> Result<Revision, Failure> {
    Err(Failure::of(WITHOUT))
}
