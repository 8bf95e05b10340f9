//! The store: one keyspace, two kinds of records, and a write lock that serves by deadline.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use punctual_os::{MappedMedium, Os};
use punctual_units::{Nanos, ObjectId, ObjectName, Revision, Seq, Share, Time};

use crate::batch::{is_reserved, read_created, read_revision, read_upto};
use crate::engine::{Durability, Engine, EngineError, KEY_MAX_LEN, KeyRange, Read, Table};
use crate::expiry::{Expiry, TermView};
use crate::group::Group;
use crate::permit::{Denied, HeldBy, Permit, PermitQueue, WAITERS_MAX};
use crate::readers::Readers;
use crate::records::MergedRecords;
use crate::sensors::{Sensors, in_memory};
use crate::shared::Change;
use crate::temporal::{
    ClockOrigin, Installation, MappedObjects, ObjectSpec, Objects, Sample, Slot, decode, on_clock_of_ages,
};
use crate::transaction::{ReadTransaction, WriteTransaction};
use crate::updates::AdmissionOptions;
use crate::watch::Watches;
use crate::{Deadline, LockHolder, StoreError, UpdateMode, Value};

/// The longest value of a temporal object, in bytes: the path of updates keeps some dozens of buffers of this length.
pub const OBJECT_LEN_MAX: usize = 64 << 20;
/// Most bytes that the values of one temporal object take in memory, its history included.
pub const OBJECT_BYTES_MAX: usize = 1 << 30;

/// Settings with which a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The temporal objects. The engine keeps the value of an object that is left out, for when it is listed again.
    pub objects: Vec<ObjectSpec>,
    /// Path of updates into temporal objects. [Memory-first](UpdateMode::MemoryFirst): into memory, and from there to
    /// the engine by [group commit](Store::commit_group); each object is linearizable by itself, a transaction that
    /// reads several sees each as it is at that moment. [Transaction](UpdateMode::Transaction): each in a write
    /// transaction of its own with its expiry for a deadline; temporal objects are part of every snapshot, and all
    /// transactions are serializable.
    pub update_mode: UpdateMode,
    /// File on tmpfs or persistent memory that gets each memory-first update before its offer is acknowledged, in place
    /// of group commits at intervals; [`Store::medium`] says what the update survives. Made where it is missing; for
    /// the objects listed here, none created later. Its values go before those of the engine, which gets them by
    /// [`flush`](Store::flush). A forked child must not offer. By default none.
    pub mapped: Option<PathBuf>,
    /// Time for which a group commit waits for the write lock behind more urgent writers before it is the most urgent
    /// itself; also the interval at which the caller should flush the store.
    pub group_interval: Nanos,
    /// Whether a transaction first installs the updates that were pending when it began; see [`crate::sensors`].
    pub helping: bool,
    /// Longest wait for the write lock; a transaction with an earlier firm deadline waits only until that. A put or
    /// delete that another thread is committing waits for that commit.
    pub lock_wait_max: Nanos,
    /// Bounds on the admission and shedding of updates.
    pub admission: AdmissionOptions,
    /// The origin of the clock's instants, to compare them with those of earlier runs.
    pub clock_origin: ClockOrigin,
    /// Whether the records come from the log of a federation, entry by entry: only [`apply`](Store::apply) changes
    /// them, and write transactions are refused. For memory-first stores. A store to which an entry was applied stays
    /// replicated.
    pub replicated: bool,
    /// Most temporal objects that may be [registered](Store::register) while the store is open, or
    /// [created](crate::batch::BatchTransaction::create) in a replicated one, over all runs; 0 by default. Room for
    /// their names is kept from the start.
    pub created_max: usize,
    /// Age at which a snapshot is ended, so that it keeps no more from reuse; the reader's next call fails. 10 s by
    /// default. `None`: only firm deadlines and a full quota end snapshots, and a forgotten one lets the store grow up
    /// to its quota. See [`readers`](crate::readers).
    pub reader_life_max: Option<Nanos>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            objects: Vec::new(),
            update_mode: UpdateMode::MemoryFirst,
            mapped: None,
            group_interval: Nanos::from_millis(100),
            helping: true,
            lock_wait_max: Nanos::from_secs(1),
            admission: AdmissionOptions::default(),
            clock_origin: ClockOrigin::UNKNOWN,
            replicated: false,
            created_max: 0,
            reader_life_max: Some(Nanos::from_secs(10)),
        }
    }
}

/// Options with these objects, and the defaults otherwise.
impl<const N: usize> From<[ObjectSpec; N]> for StoreOptions {
    fn from(objects: [ObjectSpec; N]) -> StoreOptions {
        StoreOptions {
            objects: objects.into(),
            ..StoreOptions::default()
        }
    }
}

/// A value that is fresh enough, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness<V> {
    /// The value is not older than the bound.
    Fresh {
        /// Bytes of the value.
        value: V,
        /// Age of the value when it was read.
        age: Nanos,
    },
    /// The object has a value, but an older one than the bound allows.
    Stale {
        /// Age of the value; [`Nanos::MAX`] if unknown.
        age: Nanos,
        /// Sampling instant, see [`Sample::sampled_at`]; `None` for a value kept from before a restart of the machine.
        sampled_at: Option<Time>,
    },
    /// The object has no value yet.
    NotFound,
}

impl<V> Freshness<V> {
    /// The same answer with another value.
    pub fn map<T>(self, change: impl FnOnce(V) -> T) -> Freshness<T> {
        match self {
            Freshness::Fresh { value, age } => Freshness::Fresh {
                value: change(value),
                age,
            },
            Freshness::Stale { age, sampled_at } => Freshness::Stale { age, sampled_at },
            Freshness::NotFound => Freshness::NotFound,
        }
    }

    /// The value, if it is fresh; `None` otherwise.
    pub fn value(&self) -> Option<&V> {
        match self {
            Freshness::Fresh { value, .. } => Some(value),
            Freshness::Stale { .. } | Freshness::NotFound => None,
        }
    }
}

impl<V> Freshness<V> {
    /// Compares a reading's age at `now` with `max_age`.
    pub(crate) fn of(reading: Option<(Sample, V)>, max_age: Nanos, now: Time) -> Self {
        let Some((sample, value)) = reading else {
            return Freshness::NotFound;
        };
        let age = sample.age(now);
        // An unknown age is stale, whatever the bound.
        match sample.sampled_at {
            Some(_) if age <= max_age => Freshness::Fresh { value, age },
            sampled_at => Freshness::Stale { age, sampled_at },
        }
    }
}

/// A real-time key/value store on an engine.
///
/// ```
/// use punctual_engines::Memory;
/// use punctual_store::temporal::ObjectSpec;
/// use punctual_store::{Deadline, Freshness, Store, StoreOptions};
/// use punctual_testing::VirtualOs;
/// use punctual_units::{Clock, Nanos, SensorId, Seq};
///
/// let avi = Nanos::from_millis(500);
/// let room = ObjectSpec { key: b"room/1".into(), avi, period: Nanos::from_millis(200), max_len: 16, history: 1 };
/// let os = VirtualOs::new(1); // on Linux: `LinuxOs`
/// let options = StoreOptions { objects: vec![room], ..StoreOptions::default() };
/// let store = Store::open(Memory::default(), os.clone(), options)?;
/// store.offer(SensorId(0), Seq(1), os.now(), b"21.5 C")?;
///
/// let mut transaction = store.write_transaction(Deadline::firm(os.now() + Nanos::from_millis(50)))?;
/// if let Freshness::Fresh { value, .. } = transaction.get_fresh(b"room/1", avi)? {
///     let reading = value.into_owned();
///     transaction.put(b"last reading", &reading)?;
/// }
/// let split = transaction.commit()?;
/// assert_eq!(split.response(), Nanos::ZERO); // this clock stands still until a thread sleeps
/// assert_eq!(store.get(b"last reading")?.as_deref(), Some(&b"21.5 C"[..]));
/// # Ok::<(), punctual_store::StoreError>(())
/// ```
pub struct Store<E, O: Os> {
    pub(crate) engine: E,
    pub(crate) os: O,
    pub(crate) update_mode: UpdateMode,
    pub(crate) group_interval: Nanos,
    helping: bool,
    lock_wait_max: Nanos,
    pub(crate) clock_origin: ClockOrigin,
    pub(crate) permits: PermitQueue<O>,
    pub(crate) objects: Objects,
    pub(crate) sensors: Sensors<O>,
    pub(crate) group: Group,
    /// The file that the values of temporal objects are in, if there is one.
    pub(crate) mapped: Option<MappedObjects>,
    pub(crate) readers: Readers,
    pub(crate) watches: Watches<O>,
    pub(crate) expiry: Expiry,
    /// Changes whose threads wait for the write lock, in order of arrival.
    pub(crate) noted: O::Lock<Vec<Arc<Change>>>,
    pub(crate) replicated: bool,
    /// Revision of the last entry of the log that was applied.
    pub(crate) revision: AtomicU64,
    /// Last key up to which records are here; changed with the write lock held.
    pub(crate) upto: Mutex<Option<Vec<u8>>>,
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Opens a store on `engine`, for threads of `os`, and loads its temporal objects. A loaded value's age is known if
    /// the clock of `os` has the origin of the clock that sampled it; otherwise the value is stale until its sensor
    /// reports. Sequence numbers begin anew.
    ///
    /// # Errors
    /// [`StoreError::DuplicateObject`], [`StoreError::ReservedKey`], [`StoreError::ObjectKey`],
    /// [`StoreError::ObjectSize`], [`StoreError::ValueTooLong`], [`StoreError::NotMemoryFirst`],
    /// [`StoreError::TooManyObjects`], [`StoreError::Mapped`], [`StoreError::CannotMap`],
    /// [`StoreError::Part`], [`StoreError::Engine`].
    pub fn open(engine: E, os: O, options: StoreOptions) -> Result<Self, StoreError> {
        let StoreOptions {
            objects: specs,
            update_mode,
            mapped,
            group_interval,
            helping,
            lock_wait_max,
            admission,
            clock_origin,
            replicated,
            created_max,
            reader_life_max,
        } = options;
        specs.iter().try_for_each(check_spec)?;
        if let Some(reserved) = specs.iter().find(|spec| is_reserved(&spec.key)) {
            return Err(StoreError::ReservedKey {
                key: reserved.key.clone(),
            });
        }
        let in_memory = update_mode == UpdateMode::MemoryFirst;
        let objects = Objects::new(&specs, in_memory, created_max)
            .map_err(|key| StoreError::DuplicateObject { key: key.into() })?;
        let (revision, upto, created, expiry) = {
            let snapshot = engine.snapshot()?;
            let path = engine.path();
            let (revision, created) = (read_revision(&snapshot, path)?, read_created(&snapshot, path)?);
            let replicated = replicated || revision > Revision::ZERO;
            let mut expiry = Expiry::new(&snapshot, clock_origin, replicated, os.since_boot())?;
            if engine.is_written_elsewhere() {
                expiry.look_always();
            }
            (revision, read_upto(&snapshot)?, created, expiry)
        };
        if upto.is_some() && !replicated {
            let path = engine.path().to_path_buf();
            return Err(StoreError::Part { path });
        }
        let replicated = replicated || revision > Revision::ZERO;
        if replicated && update_mode == UpdateMode::Transaction {
            return Err(StoreError::NotMemoryFirst);
        }
        let mapped = match mapped {
            Some(_) if replicated || created_max > 0 || !in_memory => return Err(StoreError::CannotMap),
            Some(path) => Some(MappedObjects::open(&os, &path, &specs, clock_origin)?),
            None => None,
        };
        let store = Store {
            engine,
            replicated,
            revision: AtomicU64::new(revision.0),
            upto: Mutex::new(upto),
            update_mode,
            group_interval,
            helping,
            lock_wait_max,
            clock_origin,
            permits: PermitQueue::new(os.clone()),
            sensors: Sensors::new(&os, &specs, admission, update_mode),
            group: Group::new(objects.len() + created_max),
            mapped,
            readers: Readers::new(reader_life_max),
            watches: Watches::new(),
            expiry,
            noted: os.new_lock(Vec::with_capacity(WAITERS_MAX)), // no allocation under the lock
            objects,
            os,
        };
        let mut specs = specs;
        for creation in created {
            store.check_creation(&creation, std::iter::empty())?;
            store.add_object(&creation);
            specs.push(creation.spec);
        }
        store.load(&specs)?;
        // The first stamp of a clock may take long: take it here, not in the first transaction.
        store.os.stamp();
        Ok(store)
    }

    fn load(&self, specs: &[ObjectSpec]) -> Result<(), StoreError> {
        for (object, spec) in self.objects.ids().zip(specs) {
            let mapped = self.mapped.as_ref().and_then(|mapped| mapped.record(object));
            if let Some(record) = mapped {
                let (sample, value) = self.loaded(spec, &record)?;
                self.load_value(object, sample, &value);
            } else if let Some((sample, value)) = self.kept(spec)? {
                self.load_value(object, sample, &value);
                self.group.committed(object, Seq(0), Durability::Volatile);
            }
        }
        Ok(())
    }

    /// The value that the engine has kept of an object.
    pub(crate) fn kept(&self, spec: &ObjectSpec) -> Result<Option<(Sample, Vec<u8>)>, StoreError> {
        let snapshot = self.engine.snapshot()?;
        let record = snapshot.get(Table::Temporal, &spec.key)?;
        record.map(|record| self.loaded(spec, &record)).transpose()
    }

    /// A value of an earlier run, from its record.
    fn loaded(&self, spec: &ObjectSpec, record: &[u8]) -> Result<(Sample, Vec<u8>), StoreError> {
        let (sample, value) = self.decoded(&spec.key, record)?;
        let (key, len, max_len) = (&spec.key, value.len(), spec.max_len);
        if len > max_len {
            return Err(StoreError::ValueTooLong {
                key: key.clone(),
                len,
                max_len,
            });
        }
        let now = self.os.since_boot();
        let sample = Sample {
            seq: Seq(0),
            sampled_at: sample.sampled_at.filter(|at| *at <= now),
        };
        Ok((sample, value.to_vec()))
    }

    /// Installs a value in memory, and before that in the mapped file. The caller keeps other installs out of the slot.
    #[inline]
    pub(crate) fn install_one(&self, object: ObjectId, slot: &Slot, sample: Sample, value: &[u8]) -> Installation {
        if let Some(mapped) = &self.mapped
            && slot.sample().is_none_or(|latest| sample.seq > latest.seq)
        {
            mapped.write(object, sample, value, 0);
        }
        self.objects.installs().install_one(slot, sample, value)
    }

    /// Puts a value from an earlier run into the slot. One caller at a time: at the opening, or within the mutex.
    pub(crate) fn load_value(&self, object: ObjectId, sample: Sample, value: &[u8]) {
        if let Some(slot) = self.objects.slot(object) {
            let value = match self.update_mode {
                UpdateMode::MemoryFirst => (slot, sample, value),
                UpdateMode::Transaction => in_memory(slot, sample, value),
            };
            self.objects.installs().install([value]);
            self.objects.note(object, sample);
        }
    }

    /// Begins a read-only transaction. The snapshot is taken, and time counts, from its first call on; updates that are
    /// pending now are installed first, see [`crate::sensors`].
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`].
    #[inline]
    pub fn read_transaction(&self, deadline: Deadline) -> Result<ReadTransaction<'_, E, O>, StoreError> {
        ReadTransaction::begin(self, deadline)
    }

    /// Begins a write transaction: waits for its turn among all writers, earliest deadline first.
    ///
    /// # Errors
    /// [`StoreError::Replicated`], [`StoreError::DeadlinePassed`], [`StoreError::LockTimeout`],
    /// [`StoreError::NestedWrite`], [`StoreError::TooManyWaiters`], [`StoreError::Engine`].
    pub fn write_transaction(&self, deadline: Deadline) -> Result<WriteTransaction<'_, E, O>, StoreError> {
        WriteTransaction::begin(self, deadline, None)
    }

    /// Begins a read-only transaction without a deadline.
    ///
    /// # Errors
    /// Those of [`read_transaction`](Store::read_transaction).
    #[inline]
    pub fn begin_read(&self) -> Result<ReadTransaction<'_, E, O>, StoreError> {
        self.read_transaction(Deadline::NONE)
    }

    /// Begins a write transaction without a deadline: served behind all that have one.
    ///
    /// # Errors
    /// Those of [`write_transaction`](Store::write_transaction).
    pub fn begin_write(&self) -> Result<WriteTransaction<'_, E, O>, StoreError> {
        self.write_transaction(Deadline::NONE)
    }

    /// Runs `body` on a snapshot, without a deadline.
    ///
    /// # Errors
    /// The error of the store or of `body`.
    pub fn view<T>(
        &self,
        body: impl FnOnce(&ReadTransaction<'_, E, O>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        body(&self.begin_read()?)
    }

    /// Runs `body` in a write transaction without a deadline and commits it. An error that is not the store's is passed
    /// through by [`StoreError::other`].
    ///
    /// ```
    /// # use punctual_engines::Memory;
    /// # use punctual_store::{Store, StoreOptions};
    /// # use punctual_testing::VirtualOs;
    /// # let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
    /// store.update(|tx| {
    ///     tx.put("door", "open")?;
    ///     tx.table("visits")?.put("today", "1")
    /// })?;
    /// assert_eq!(store.view(|tx| tx.get("door"))?.as_deref(), Some(&b"open"[..]));
    /// # Ok::<(), punctual_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The error of the store or of `body`; nothing has changed then.
    pub fn update<T>(
        &self,
        body: impl FnOnce(&mut WriteTransaction<'_, E, O>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut transaction = self.begin_write()?;
        let answer = body(&mut transaction)?;
        transaction.commit()?;
        Ok(answer)
    }

    /// The value of the temporal object `key` if it is not older than `max_age`, in a transaction of its own.
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`], and those of [`get`](Store::get).
    pub fn get_fresh(&self, key: impl AsRef<[u8]>, max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        let fresh = self.begin_read()?.get_fresh(key, max_age)?;
        Ok(fresh.map(Value::into_owned))
    }

    /// The temporal object with `key`: a handle for [`read`](Store::read).
    pub fn object(&self, key: &[u8]) -> Option<ObjectId> {
        self.objects.find(key)
    }

    /// The temporal object that was created under this name.
    pub fn object_made(&self, made: ObjectName) -> Option<ObjectId> {
        self.objects.made(made)
    }

    /// The keys of all temporal objects that were created, and the present name of each.
    pub fn created(&self) -> Vec<(Vec<u8>, ObjectName)> {
        self.objects.created().names_by_key()
    }

    /// Number of temporal objects, created ones included.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Copies the latest value of `object` into `value`; `None` if it has none yet.
    ///
    /// In memory-first mode this touches nothing but the object's slot: no lock, no system call, and no memory is
    /// allocated if `value` has room. In transaction mode it is a read transaction.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`]; in transaction mode also those of [`get`](Store::get).
    #[inline]
    pub fn read(&self, object: ObjectId, value: &mut Vec<u8>) -> Result<Option<Sample>, StoreError> {
        let slot = self.slot(object)?;
        match self.update_mode {
            UpdateMode::MemoryFirst => Ok(self.objects.read(slot, value)),
            UpdateMode::Transaction => self.temporal_into(&self.snapshot(Deadline::NONE)?, object, value),
        }
    }

    /// Number and sampling instant of the latest value of `object`; `None` if it has none yet.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`].
    pub fn sample(&self, object: ObjectId) -> Result<Option<Sample>, StoreError> {
        Ok(self.objects.sample(self.slot(object)?))
    }

    /// Number of reads of `object`, by handle or by key, since the store was opened.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`].
    pub fn reads(&self, object: ObjectId) -> Result<u64, StoreError> {
        Ok(self.slot(object)?.reads())
    }

    /// The share of all temporal objects that are fresh at `now`; 1 if there are none.
    pub fn fresh_share(&self, now: Time) -> Share {
        self.objects.fresh_share(on_clock_of_ages(now, &self.os))
    }

    /// Number of admitted updates that wait for their installation; 0 where updates are installed at once.
    pub fn pending_updates(&self) -> u64 {
        match self.update_mode {
            UpdateMode::MemoryFirst => 0,
            UpdateMode::Transaction => self.sensors.outstanding() as u64,
        }
    }

    /// Interval of group commits to the engine; `None` where each update is a transaction of its own, or in a
    /// [mapped](StoreOptions::mapped) file.
    pub fn group_interval(&self) -> Option<Nanos> {
        let is_grouped = self.update_mode == UpdateMode::MemoryFirst && self.mapped.is_none();
        is_grouped.then_some(self.group_interval)
    }

    /// The path of updates into temporal objects.
    pub fn update_mode(&self) -> UpdateMode {
        self.update_mode
    }

    /// Medium of the [mapped](StoreOptions::mapped) file, if there is one: it says what an acknowledged offer survives.
    pub fn medium(&self) -> Option<MappedMedium> {
        self.mapped.as_ref().map(|mapped| mapped.memory.medium())
    }

    /// The durability level of a commit that has returned.
    pub fn durability(&self) -> Durability {
        self.engine.durability()
    }

    /// The operating system whose clock and threads the store uses.
    pub fn os(&self) -> &O {
        &self.os
    }

    /// The storage engine below this store.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Acquires the write lock, for a transaction that asks at `now`; returns the guard and the wait.
    pub(crate) fn permit(&self, deadline: Deadline, now: Time) -> Result<(Permit<'_, O>, Nanos), StoreError> {
        self.permit_by(deadline, Time::MAX, now)
    }

    /// As `permit`, waiting until `latest` at most.
    pub(crate) fn permit_by(
        &self,
        deadline: Deadline,
        latest: Time,
        now: Time,
    ) -> Result<(Permit<'_, O>, Nanos), StoreError> {
        if let Some(permit) = self.permits.try_acquire(now) {
            return Ok((permit, Nanos::ZERO));
        }
        let patience = deadline.patience(now, self.lock_wait_max).min(latest.since(now));
        let answer = self.permits.acquire(deadline.at(), self.os.now() + patience);
        let then = self.os.now();
        if matches!(answer, Err(Denied::Nested)) {
            return Err(StoreError::NestedWrite); // whatever the deadline: the caller is at fault
        }
        deadline.check(then)?;
        match answer {
            Ok(permit) => Ok((permit, then.since(now))),
            Err(Denied::TimedOut(HeldBy { thread, held, longest })) => {
                let name = self.os.thread_name(thread);
                let holder = LockHolder {
                    thread,
                    name,
                    held,
                    longest,
                };
                Err(StoreError::LockTimeout {
                    waited: patience,
                    holder,
                })
            }
            Err(Denied::Nested) => Err(StoreError::NestedWrite),
            Err(Denied::Crowded) => Err(StoreError::TooManyWaiters),
        }
    }

    /// Number of updates that a transaction which begins now must install first.
    #[inline]
    pub(crate) fn to_install_first(&self) -> usize {
        if self.helping { self.sensors.outstanding() } else { 0 }
    }

    #[inline]
    pub(crate) fn slot(&self, object: ObjectId) -> Result<&Slot, StoreError> {
        self.objects
            .slot(object)
            .ok_or_else(|| StoreError::UnknownObject(object))
    }

    /// Calls `look` with the value of `key`, of a plain record or a temporal object.
    #[inline(always)]
    pub(crate) fn value_with<T>(
        &self,
        read: &impl Read,
        terms: TermView,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, StoreError> {
        match self.objects.find(key) {
            None if self.is_due(terms, read, key)? => Ok(None),
            None => Ok(read.get_with(Table::Data, key, look)?),
            Some(object) => Ok(self.temporal(read, object)?.map(|(_, value)| look(&value))),
        }
    }

    /// The sample and the value of the temporal object `key`.
    pub(crate) fn reading(&self, read: &impl Read, key: &[u8]) -> Result<Option<(Sample, Value)>, StoreError> {
        match self.objects.find(key) {
            Some(object) => self.temporal(read, object),
            None => Err(StoreError::NotTemporal { key: key.to_vec() }),
        }
    }

    pub(crate) fn temporal(&self, read: &impl Read, object: ObjectId) -> Result<Option<(Sample, Value)>, StoreError> {
        let mut value = Vec::with_capacity(self.slot(object)?.max_len());
        let sample = self.temporal_into(read, object, &mut value)?;
        Ok(sample.map(|sample| (sample, Value::from(value))))
    }

    /// Copies the value of a temporal object into `value`; returns its sample.
    pub(crate) fn temporal_into(
        &self,
        read: &impl Read,
        object: ObjectId,
        value: &mut Vec<u8>,
    ) -> Result<Option<Sample>, StoreError> {
        let slot = self.slot(object)?;
        if self.update_mode == UpdateMode::MemoryFirst {
            return Ok(self.objects.read(slot, value));
        }
        slot.count_read();
        value.clear();
        let key = self.objects.key(object);
        let found = read.get_with(Table::Temporal, key, |record| {
            let (sample, content) = self.decoded(key, record)?;
            value.extend_from_slice(content);
            Ok(sample)
        });
        found?.transpose()
    }

    /// Calls `visit` with plain records and temporal objects in the order of their keys, until it breaks; with the
    /// sample of each temporal value.
    pub(crate) fn scan_readings(
        &self,
        read: &impl Read,
        terms: TermView,
        range: KeyRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8], Option<Sample>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut records = MergedRecords::new(self, read, terms, range, &[]);
        while records.step(false)? {
            let (key, value, sample) = records.record();
            if visit(key, value, sample).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn decoded<'r>(&self, key: &[u8], record: &'r [u8]) -> Result<(Sample, &'r [u8]), StoreError> {
        decode(record, self.clock_origin).ok_or_else(|| {
            let path = self.engine.path().to_path_buf();
            let reason = format!("temporal object {} has a record that is too short", key.escape_ascii());
            StoreError::Engine(EngineError::Corrupt { path, reason })
        })
    }
}

/// Refuses an object whose key no engine could keep, because each group commit with it would fail, or whose values take
/// more memory than [`OBJECT_BYTES_MAX`].
pub(crate) fn check_spec(spec: &ObjectSpec) -> Result<(), StoreError> {
    if !(1..=KEY_MAX_LEN).contains(&spec.key.len()) {
        return Err(StoreError::ObjectKey { key: spec.key.clone() });
    }
    if (spec.avi, spec.period) == (Nanos::ZERO, Nanos::ZERO) {
        return Err(StoreError::ObjectTime { key: spec.key.clone() });
    }
    let ObjectSpec {
        key, max_len, history, ..
    } = spec;
    let bytes = max_len.saturating_add(64).saturating_mul(history.saturating_add(1));
    if *max_len > OBJECT_LEN_MAX || bytes > OBJECT_BYTES_MAX {
        return Err(StoreError::ObjectSize {
            key: key.clone(),
            max_len: *max_len,
            history: *history,
        });
    }
    Ok(())
}
