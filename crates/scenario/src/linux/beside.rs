//! The tasks of a scenario beside a server, in one process and without an end.
//!
//! Differences from a run of its own: the caller opens the store, which is the server's as well where that is possible;
//! the clock is the machine's own or is left alone, because an emulated one would slow down the server's calls of the
//! store; ordinary objects that are there stay; and nothing ends it but the returned handle.

use std::path::PathBuf;
use std::sync::Arc;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_platform::linux::ClockPreference;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_runtime::linux::Runtime;
use punctual_runtime::report::Watch;
use punctual_store::updates::SensorSpec;
use punctual_store::{Store, StoreError, StoreOptions};

use super::{
    Emulated, Fill, ScenarioEngine, ScenarioStore, StoreLocation, engine_options, fill, prepare, stage, store_options,
};
use crate::run::{RunError, RunRequest, setup};

/// Reads a temporal object of the node. It must not wait.
pub type ReadCallback = Arc<dyn Fn() + Send + Sync>;
/// Sets a temporal object of the node to the number of a job, from 0. It must not wait.
pub type Set = Arc<dyn Fn(u64) -> Result<(), StoreError> + Send + Sync>;
/// Readings of the node for tasks that read sensors, besides the scenario's own.
pub(crate) type Reads = Arc<[ReadCallback]>;
/// Objects that a task sets at the end of each of its jobs, by the task's name.
pub(crate) type Sets = Vec<(String, Set)>;

/// The store of a node that has tasks, and its engine.
pub type NodeStore = ScenarioStore;
/// Engine of a node's store.
pub type NodeEngine = ScenarioEngine;

/// A store that was opened for tasks, with the node's readings and objects for them.
pub struct OpenedStore {
    pub store: Arc<NodeStore>,
    /// Whether the scenario's recording feeds its sensors; otherwise they wait for other readings.
    pub is_fed: bool,
    /// Readings of the node for tasks that read sensors, besides the scenario's own.
    pub reads: Arc<[ReadCallback]>,
    /// Objects that a task sets at the end of each of its jobs, by the task's name.
    pub sets: Vec<(String, Set)>,
}

impl OpenedStore {
    pub(super) fn alone(store: Arc<NodeStore>) -> OpenedStore {
        OpenedStore {
            store,
            is_fed: true,
            reads: Reads::default(),
            sets: Vec::new(),
        }
    }
}

/// Requirements of the scenario on its store.
pub struct Needs {
    /// How the scenario wants its store: its sensors are the first objects, and all others come after them.
    pub options: StoreOptions,
    /// Where the store of a run would be, and how it would be opened.
    own: (PathBuf, LmdbOptions),
    emulated: Arc<EmulatedClock>,
}

impl Needs {
    /// A store on `engine`, as tasks see it.
    ///
    /// # Errors
    /// As of [`Store::open`].
    pub fn store(&self, engine: Lmdb, options: StoreOptions) -> Result<NodeStore, StoreError> {
        Store::open(Emulated::new(engine, Arc::clone(&self.emulated)), LinuxOs, options)
    }

    /// The store that a run of the scenario would have: where the scenario says, or a temporary one.
    ///
    /// # Errors
    /// As of [`Store::open`].
    pub fn own(&self) -> Result<NodeStore, StoreError> {
        let (path, options) = &self.own;
        self.store(options.open(path)?, self.options.clone())
    }
}

/// Starts the tasks of the request's scenario.
///
/// # Errors
/// [`RunError`]. Whatever was changed on the machine has been restored.
pub fn beside(
    request: &RunRequest,
    open: &mut dyn FnMut(&Needs) -> Result<OpenedStore, StoreError>,
    watch: Watch,
) -> Result<Runtime<NodeEngine>, RunError> {
    let setup = setup(request)?;
    let opened =
        |sensors: &[SensorSpec], place: &StoreLocation<'_>, emulated: &Arc<EmulatedClock>, watch: Watch<'_>| {
            let store = &setup.scenario().store;
            let opened = open(&Needs {
                options: store_options(&setup, sensors, None),
                own: (place.main(), engine_options(&setup, store.map_bytes)),
                emulated: Arc::clone(emulated),
            })?;
            fill(&opened.store, store, Fill::Missing, watch)?;
            Ok(opened)
        };
    let (runtime, mut options, notes) = prepare(&setup, ClockPreference::Real, opened, watch)?;
    // The server answers between jobs, too.
    options.regulator.idle_clock = false;
    notes.iter().try_for_each(|note| stage(watch, note))?;
    stage(watch, "starting")?;
    Ok(runtime.start(options)?)
}
