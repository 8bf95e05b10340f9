//! Temporal objects that a batch creates, and the count of boots that makes their names unique.

use std::path::Path;

use punctual_os::Os;

use super::BatchTransaction;
use super::apply::{RESERVED, is_reserved};
use super::writes::creation_bytes;
use crate::engine::{Engine, EngineError, KEY_MAX_LEN, Read, Table, Write, prefix_range};
use crate::store::{Store, check_spec};
use crate::temporal::Creation;
use crate::{Deadline, StoreError};

const OBJECT: &[u8] = b"\0punctual/object/";
const BOOT: &[u8] = b"\0punctual/boot";

impl<E: Engine, O: Os> BatchTransaction<'_, '_, E, O> {
    /// Creates a temporal object, which exists once the batch is applied. An existing object of the same key and
    /// specification is taken over by its own source after a restart (but not under an older name), or by another
    /// source; the numbers of its updates then begin at 1 again.
    ///
    /// # Errors
    /// [`StoreError::DuplicateObject`], [`StoreError::ReservedKey`], [`EngineError::KeyLength`],
    /// [`StoreError::ObjectSize`];
    /// [`StoreError::TooManyObjects`] beyond [`created_max`](crate::StoreOptions::created_max);
    /// [`StoreError::BatchFull`] if the longest value would not fit into a batch; [`StoreError::DeadlinePassed`].
    pub fn create(&mut self, creation: Creation) -> Result<(), StoreError> {
        self.now()?;
        self.store.check_creation(&creation, self.view.creations())?;
        let account = self.account.get_mut();
        let bytes = account.bytes + creation_bytes(&creation);
        let transactions = self.view.base.kept.len() + 1;
        self.bounds
            .admit(transactions, bytes.saturating_add(creation.spec.max_len))?;
        account.bytes = bytes;
        self.view.created.push(creation);
        Ok(())
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Counts a start of this node in the store: returns the count before plus 1, or `at_least` if that is more. A node
    /// calls it once when it starts, and uses the answer in the names that it makes until it ends. With the time of day
    /// as `at_least`, a node that has lost its store goes on counting.
    ///
    /// # Errors
    /// Those of a [write transaction](Store::write_transaction).
    pub fn count_boot(&self, at_least: u64) -> Result<u64, StoreError> {
        let now = self.os.now();
        let (permit, _) = self.permit(Deadline::soft(now), now)?;
        let mut transaction = self.engine.write()?;
        let last = match transaction.get(Table::Temporal, BOOT)? {
            None => 0,
            Some(bytes) => match (*bytes).try_into() {
                Ok(number) => u64::from_le_bytes(number),
                Err(_) => return Err(corrupt(self.engine.path(), "its count of boots is not a number")),
            },
        };
        let boot = last.saturating_add(1).max(at_least);
        transaction.put(Table::Temporal, BOOT, &boot.to_le_bytes())?;
        transaction.commit()?;
        drop(permit);
        Ok(boot)
    }

    /// Checks whether an object may be created after those that the store has, and `others`.
    pub(crate) fn check_creation<'c>(
        &self,
        creation: &Creation,
        others: impl Iterator<Item = &'c Creation>,
    ) -> Result<(), StoreError> {
        let Creation { made, spec } = creation;
        let key = &spec.key;
        let created = self.objects.created();
        if key.is_empty() || key.len() > KEY_MAX_LEN {
            return Err(EngineError::KeyLength { len: key.len() }.into());
        }
        check_spec(spec)?;
        if is_reserved(key) {
            return Err(StoreError::ReservedKey { key: key.clone() });
        }
        let (mut twice, mut more) = (self.objects.made(*made).is_some(), 0);
        for other in others {
            more += usize::from(created.find(&other.spec.key).is_none());
            twice |= other.spec.key == *key || other.made == *made;
        }
        let taken_over = created.creation(key).is_some_and(|before| goes_on(&before, creation));
        let unknown = self.objects.find(key).is_none();
        if twice || !(unknown || taken_over) {
            return Err(StoreError::DuplicateObject { key: key.clone() });
        }
        let max = created.room();
        if unknown && created.len() + more >= max {
            return Err(StoreError::TooManyObjects { max });
        }
        Ok(())
    }

    /// Writes a record for each creation, under the index that the object will have.
    pub(super) fn write_created(
        &self,
        transaction: &mut E::Write<'_>,
        created: &[&Creation],
    ) -> Result<(), StoreError> {
        let objects = self.objects.created();
        let mut next = objects.len();
        for (at, creation) in created.iter().enumerate() {
            self.check_creation(creation, created[..at].iter().copied())?;
            let place = objects.find(&creation.spec.key).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            let encoded = postcard::to_stdvec(creation).expect("numbers and bytes can be encoded");
            transaction.put(Table::Temporal, &place_key(place), &encoded)?;
        }
        Ok(())
    }

    /// Adds a created object to memory, after it was checked and its record committed.
    pub(crate) fn add_object(&self, creation: &Creation) {
        // Within the mutex, as installs are: no update under the name before may come in between.
        self.sensors.with(|_| self.objects.created().add(creation));
    }
}

/// Whether `now` continues the object of `before`: its source creates it again, or another source takes it over.
fn goes_on(before: &Creation, now: &Creation) -> bool {
    let is_later = before.made.source != now.made.source || before.made < now.made;
    before.spec == now.spec && is_later
}

fn place_key(place: usize) -> Vec<u8> {
    debug_assert!(OBJECT.starts_with(RESERVED));
    [OBJECT, &(place as u32).to_be_bytes()].concat()
}

/// The created objects in a snapshot, by index.
pub(crate) fn read_created(read: &impl Read, path: &Path) -> Result<Vec<Creation>, StoreError> {
    let mut end = Vec::new();
    let records = read.scan(Table::Temporal, prefix_range(OBJECT, &mut end))?;
    let decoded = records.map(|record| {
        let (_, value) = record?;
        postcard::from_bytes(&value).map_err(|_| corrupt(path, "a created object has a record that is none"))
    });
    decoded.collect()
}

fn corrupt(path: &Path, reason: &str) -> StoreError {
    StoreError::Engine(EngineError::Corrupt {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    })
}
