//! In place of readings from Zenoh, in a program that was built without.

use std::sync::Arc;

use punctual_node::process::Listening;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::scenario::Section;

const WITHOUT: &str = "this program was built without Zenoh: build it with `cargo build --release --features zenoh`, or \
                       leave it out";

/// There is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZenohFile {}

/// There is none.
pub enum Source {}

/// Complains about what is there.
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
