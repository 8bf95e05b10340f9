//! How a program opens its store: folder or memory, guarantee, quota, objects, clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_os::Os;

use crate::engine::{Durability, Engine, EngineError};
use crate::store::{Store, StoreOptions};
use crate::temporal::{ClockOrigin, ObjectSpec};
use crate::{StoreError, UpdateMode};

/// An engine that a [`StoreBuilder`] opens.
pub trait OpenEngine: Engine + Sized {
    /// Settings of the engine in a folder.
    type Options: Default;

    /// Opens the engine in `folder`. `durability` and `quota` (in bytes) replace those of `options`.
    ///
    /// # Errors
    /// Failures of the engine; [`EngineError::Setting`] for an engine that keeps nothing in folders.
    fn in_folder(
        folder: &Path,
        options: Self::Options,
        durability: Option<Durability>,
        quota: Option<usize>,
    ) -> Result<Self, EngineError>;

    /// An empty engine in memory.
    fn in_memory() -> Self;
}

/// A store under construction; [`open`](StoreBuilder::open) opens it.
#[must_use = "the store is opened by `open`"]
pub struct StoreBuilder<E: OpenEngine, O: Os> {
    /// Folder of the store; `None` for one in memory.
    folder: Option<PathBuf>,
    engine: Option<E::Options>,
    durability: Option<Durability>,
    quota: Option<usize>,
    os: O,
    options: StoreOptions,
}

impl<E: OpenEngine, O: Os + Default> Store<E, O> {
    /// Begins a store in `folder`, which is created if it is missing.
    pub fn builder(folder: impl AsRef<Path>) -> StoreBuilder<E, O> {
        StoreBuilder::new(Some(folder.as_ref().to_path_buf()), O::default())
    }

    /// Begins a store in memory, which is gone with the program: for tests, and for data that need not survive it. Its
    /// write transactions copy all records when they change the first: for some thousand records.
    pub fn in_memory() -> StoreBuilder<E, O> {
        StoreBuilder::new(None, O::default())
    }
}

impl<E: OpenEngine, O: Os> StoreBuilder<E, O> {
    fn new(folder: Option<PathBuf>, os: O) -> Self {
        StoreBuilder {
            folder,
            engine: None,
            durability: None,
            quota: None,
            os,
            options: StoreOptions::default(),
        }
    }

    /// Sets the guarantee of a commit that has returned; durable by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the most bytes that puts take in the store's file, at least 1 MiB; 1 GiB by default.
    pub fn quota(mut self, bytes: usize) -> Self {
        self.quota = Some(bytes);
        self
    }

    /// Adds a temporal object. Sensor i feeds the i-th object.
    pub fn object(mut self, object: ObjectSpec) -> Self {
        self.options.objects.push(object);
        self
    }

    /// Sets the path of sensor readings into temporal objects: memory-first by default.
    pub fn update_mode(mut self, mode: UpdateMode) -> Self {
        self.options.update_mode = mode;
        self
    }

    /// Keeps the objects' values in a file on tmpfs or persistent memory, in place of group commits; see
    /// [`StoreOptions::mapped`].
    pub fn mapped(mut self, file: impl AsRef<Path>) -> Self {
        self.options.mapped = Some(file.as_ref().to_path_buf());
        self
    }

    /// Replaces the clock and the threads' system: a virtual one in tests. Its instants are compared with those of
    /// earlier runs where its origin has a name, on Linux within one boot, unless [`origin`](StoreBuilder::origin) says
    /// otherwise.
    pub fn clock<C: Os>(self, os: C) -> StoreBuilder<E, C> {
        StoreBuilder {
            folder: self.folder,
            engine: self.engine,
            durability: self.durability,
            quota: self.quota,
            os,
            options: self.options,
        }
    }

    /// Names the origin that the clock's instants count from: values and lives of earlier runs with this origin keep
    /// their ages.
    pub fn origin(mut self, origin: ClockOrigin) -> Self {
        self.options.clock_origin = origin;
        self
    }

    /// Replaces the engine's settings; [`durability`](StoreBuilder::durability) and [`quota`](StoreBuilder::quota) hold
    /// beside them.
    pub fn engine(mut self, options: E::Options) -> Self {
        self.engine = Some(options);
        self
    }

    /// Changes any other setting of the store.
    ///
    /// ```
    /// # use {punctual_engines::Memory, punctual_os::LinuxOs};
    /// # type Store = punctual_store::Store<Memory, LinuxOs>;
    /// let store = Store::in_memory().set(|options| options.created_max = 10).open()?;
    /// # Ok::<(), punctual_store::StoreError>(())
    /// ```
    pub fn set(mut self, change: impl FnOnce(&mut StoreOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens the store, and loads its temporal objects.
    ///
    /// # Errors
    /// [`EngineError::Setting`] for a quota, a durability or settings of the engine in memory, which has none; those of
    /// [`Store::open`], for example if the folder is in use by another program, damaged or read-only.
    pub fn open(self) -> Result<Arc<Store<E, O>>, StoreError> {
        let mut options = self.options;
        let engine = match &self.folder {
            Some(folder) => {
                if options.clock_origin == ClockOrigin::UNKNOWN
                    && let Some(name) = self.os.clock_origin()
                {
                    options.clock_origin = ClockOrigin::named(name.as_bytes());
                }
                E::in_folder(folder, self.engine.unwrap_or_default(), self.durability, self.quota)?
            }
            None => {
                let durability = self
                    .durability
                    .map(|level| ("durability", format!("{level:?}").to_lowercase()));
                let quota = self.quota.map(|bytes| ("quota", format!("{bytes} bytes")));
                let settings = self.engine.map(|_| ("engine", "set in memory".to_owned()));
                if let Some((setting, value)) = durability.or(quota).or(settings) {
                    let (path, remedy) = ("(memory)".into(), "leave it out, or open the store in a folder");
                    return Err(StoreError::Engine(EngineError::Setting {
                        path,
                        setting,
                        value,
                        remedy,
                    }));
                }
                E::in_memory()
            }
        };
        Ok(Arc::new(Store::open(engine, self.os, options)?))
    }
}
