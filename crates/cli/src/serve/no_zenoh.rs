//! Stands in for readings from Zenoh in a build without it.

use std::sync::Arc;

use punctual_node::process::Listening;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::scenario::Section;

const WITHOUT: &str = "this program was built without Zenoh: build it with `cargo build --release --features zenoh`, or \
                       leave it out";

/// Has no value: a build without Zenoh reads no such settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZenohFile {}

/// Has no value: a build without Zenoh opens no session.
pub enum Source {}

/// Reports Zenoh's keys as errors.
pub fn read(top: &mut Section<'_, '_>) -> Option<ZenohFile> {
    for key in ["zenoh", "zenoh_session"] {
        if top.has(key) {
            top.complain(key, WITHOUT);
        }
    }
    None
}

pub fn start(file: &ZenohFile, _: &mut Listening) -> Result<Arc<Source>, Failure> {
    match *file {}
}

impl Source {
    pub fn look(&self) {
        match *self {}
    }

    pub fn close(&self) -> bool {
        match *self {}
    }
}
