//! Without the feature `allocation`: types without values, because nothing can be split.

use punctual_platform::{Offers, Plan};
use punctual_units::{Hertz, TaskId, Time};
use serde::{Deserialize, Serialize};

use crate::document::Mismatch;

/// Inputs of a split: none exist without the feature `allocation`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SplitOptions {}

/// The jobs of one core, where that matters for a split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CoreJobs {}

#[derive(Clone, Debug)]
pub(crate) enum Splitting {}

impl Splitting {
    pub(crate) fn new(options: &SplitOptions, _: &Offers, _: Time) -> Result<Splitting, Mismatch> {
        match *options {}
    }

    pub(crate) fn plan(&self) -> Plan {
        match *self {}
    }

    pub(crate) fn forecast(&mut self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn due(&self) -> Option<Time> {
        match *self {}
    }

    pub(crate) fn look(&mut self, _: Time) -> Option<bool> {
        match *self {}
    }

    pub(crate) fn ended(&mut self, _: TaskId, _: Time) {
        match *self {}
    }

    pub(crate) fn decide(&mut self, _: &[CoreJobs], _: bool, _: Hertz, _: Time) -> Option<Plan> {
        match *self {}
    }
}
