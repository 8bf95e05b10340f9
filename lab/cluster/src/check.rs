//! Checks that a history keeps the federation's promises. The log is the serial order, so it is replayed, and every
//! answer is compared.
//!
//! The replay implements the meaning of transactions in this file; it shares only names with the code that nodes
//! execute.
//!
//! 1. **The log.** Terms (`Reign`) follow one another; every batch belongs to the term in which it stands; no request
//!    is there twice; the records written by each transaction are those that its operations write on the records at its
//!    position, given the readings that the log holds for it: each reading is one that its source made, and fresh by
//!    the bound of its age.
//! 2. **Answers.** An acknowledged transaction is in the log where its answer says. Every read found the records at its
//!    position. A request that was refused or answered as late is not in the log. The reported fate of a request agrees
//!    with the log.
//! 3. **Real time.** An answer of the master reflects everything that any answer showed before the request was made.
//! 4. **Sessions.** A client never sees a revision older than one that it has seen.
//! 5. **Market.** Where clients trade, no money and no share is lost or made, and no user has less than nothing.
//! 6. **Nodes.** The records of every node, each time they are inspected, are those of the log up to its revision.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry, LoggedTransaction};
use punctual_federation::ids::{RequestId, Revision};
use punctual_federation::message::{Answer, Fate, Key, Operation, Output, Position, RESERVED, Reign, Value, Work};
use punctual_store::batch::TemporalRead;
use punctual_units::{Nanos, Time};

use super::Violation;
use super::history::{Deed, History, NodeImage, is_sensor};
use super::label::{of_fate, of_values};
use super::market;
use super::sensing::HORIZON;

type Model = BTreeMap<Key, Value>;

/// An executed request, as its answer reports it.
struct ExecutedRequest<'h> {
    deed: &'h Deed,
    output: &'h Output,
    position: Position,
    revision: Revision,
    returned: Time,
}

fn done(deed: &Deed) -> Option<ExecutedRequest<'_>> {
    let (returned, answer) = deed.returned.as_ref()?;
    let Answer::Done {
        output,
        position,
        revision,
    } = answer
    else {
        return None;
    };
    Some(ExecutedRequest {
        deed,
        output,
        position: *position,
        revision: *revision,
        returned: *returned,
    })
}

/// Checks a whole history.
///
/// # Errors
/// `Violation`: the first broken promise.
pub fn check(history: &History) -> Result<(), Violation> {
    let places = check_log(history)?;
    for deed in &history.deeds {
        check_place(deed, &places)?;
    }
    Replay::new(history).run()?;
    history
        .deeds
        .iter()
        .filter_map(done)
        .try_for_each(|done| check_readings(history, &done))?;
    check_real_time(&history.deeds)?;
    check_sessions(&history.deeds)
}

fn broken<T>(at: Time, what: String) -> Result<T, Violation> {
    Err(Violation { at, what })
}

/// Whether the request has a session; requests without one cannot be distinguished.
fn named(id: RequestId) -> bool {
    id.session.0 != 0
}

/// Checks the log by itself, and returns the position of each request.
fn check_log(history: &History) -> Result<BTreeMap<RequestId, Position>, Violation> {
    let mut reign = Reign::default();
    let mut places = BTreeMap::new();
    for (revision, entry) in (1..).map(Revision).zip(&history.log) {
        let at = history.logged(revision);
        check_reign(&mut reign, revision, entry, at)?;
        let Body::Batch(transactions) = &entry.body else {
            continue;
        };
        for (index, logged) in (0..).zip(transactions) {
            let position = Position { revision, index };
            if let Some(before) = places.insert(logged.id, position)
                && named(logged.id)
            {
                let (id, first) = (logged.id, before.revision);
                return broken(
                    at,
                    format!("request {id} is in the log twice: at {first} and at {revision}"),
                );
            }
        }
    }
    Ok(places)
}

fn check_reign(reign: &mut Reign, revision: Revision, entry: &Entry, at: Time) -> Result<(), Violation> {
    let (epoch, member) = (entry.id.epoch, entry.id.member);
    match entry.body {
        Body::Reign(history) if epoch.0 == reign.epoch.0 + 1 => {
            *reign = Reign {
                epoch,
                master: Some(member),
                history,
            };
            Ok(())
        }
        Body::Batch(_) if epoch == reign.epoch && Some(member) == reign.master => Ok(()),
        _ => {
            let now = reign.epoch;
            broken(
                at,
                format!("entry {revision} of {member} in reign {epoch} stands in reign {now}"),
            )
        }
    }
}

/// Checks whether a request is in the log exactly where, and only if, its answer says so.
fn check_place(deed: &Deed, places: &BTreeMap<RequestId, Position>) -> Result<(), Violation> {
    let Some((returned, answer)) = &deed.returned else {
        return Ok(());
    };
    let id = deed.request.id;
    let place = places.get(&id).filter(|_| named(id));
    match answer {
        Answer::Late { reason, .. } if place.is_some() => broken(
            *returned,
            format!("request {id} was said to be late ({reason}), and is in the log"),
        ),
        Answer::Refused(refusal) if place.is_some() => broken(
            *returned,
            format!("request {id} was refused ({refusal}), and is in the log"),
        ),
        Answer::Done {
            output: Output::Fate(fate),
            ..
        } => check_fate(*returned, deed, *fate, places),
        Answer::Done { position, .. } if writes(&deed.request.work) && named(id) && place != Some(position) => broken(
            *returned,
            format!(
                "request {id} was acknowledged at {position}, and is {}",
                where_is(place)
            ),
        ),
        _ => Ok(()),
    }
}

fn check_fate(at: Time, deed: &Deed, fate: Fate, places: &BTreeMap<RequestId, Position>) -> Result<(), Violation> {
    let of = match deed.request.work {
        Work::Outcome(of) => of,
        _ => deed.request.id, // the request came a second time
    };
    let place = places.get(&of).map(|position| position.revision);
    let right = match fate {
        Fate::Committed(revision) => place == Some(revision),
        Fate::NotExecuted => place.is_none(),
        Fate::Forgotten => false, // clients here ask before their next request, and are fewer than the nodes remember
    };
    match right {
        true => Ok(()),
        false => broken(
            at,
            format!(
                "request {of} was said to be {}, and is {}",
                of_fate(fate),
                where_is(place.as_ref())
            ),
        ),
    }
}

fn where_is(place: Option<&impl std::fmt::Display>) -> String {
    place.map_or("not in the log".to_owned(), |place| format!("in the log at {place}"))
}

/// Whether a request changes records wherever it is executed.
fn writes(work: &Work) -> bool {
    let Work::Transaction(operations) = work else {
        return false;
    };
    let reads = |operation: &Operation| {
        matches!(
            operation,
            Operation::Get(_) | Operation::Expect(..) | Operation::Fresh(..)
        )
    };
    !operations.iter().all(reads)
}

/// Readings of temporal objects, in the order in which a transaction asked for them.
enum Readings<'h> {
    /// Readings in the log.
    Logged(std::slice::Iter<'h, TemporalRead>),
    /// Readings among all values of an answer: a transaction that writes nothing is not in the log.
    Said(&'h [Option<Value>]),
}

impl Readings<'_> {
    /// Returns the next reading, of `object`, if it is at most `max_age` old; `before` values were read before it. An
    /// object that does not exist has no reading.
    fn next(&mut self, object: &Key, max_age: Nanos, before: usize) -> Option<Value> {
        match self {
            Readings::Said(found) => found.get(before).cloned().flatten(),
            Readings::Logged(reads) => {
                let mut here = reads.clone();
                let read = here.next().filter(|read| read.key == *object)?;
                *reads = here;
                read.value.clone().filter(|_| read.age <= max_age.min(HORIZON))
            }
        }
    }
}

/// Executes operations on records: the records afterwards and the values read; `None` where the transaction aborts.
fn interpret(
    model: &Model,
    operations: &[Operation],
    mut readings: Readings<'_>,
) -> Option<(Model, Vec<Option<Value>>)> {
    let mut after = model.clone();
    let mut found = Vec::new();
    for operation in operations {
        match operation {
            Operation::Fresh(object, max_age) => found.push(readings.next(object, *max_age, found.len())),
            Operation::Save {
                object,
                max_age,
                record,
            } => _ = after.insert(record.clone(), readings.next(object, *max_age, found.len())?),
            // No client here sends commands.
            Operation::Create(_) | Operation::Run(_) => {}
            Operation::Get(key) => found.push(after.get(key).cloned()),
            Operation::Add(key, by) => {
                let text = after
                    .get(key)
                    .map_or(Some("0"), |value| std::str::from_utf8(value).ok());
                let sum = text.and_then(|text| text.parse::<i64>().ok()?.checked_add(*by))?;
                let sum = sum.to_string().into_bytes();
                after.insert(key.clone(), sum.clone());
                found.push(Some(sum));
            }
            Operation::Put(key, value) => _ = after.insert(key.clone(), value.clone()),
            Operation::Append(key, value) => after.entry(key.clone()).or_default().extend(value),
            Operation::Delete(key) => _ = after.remove(key),
            Operation::Expect(key, expected) if after.get(key) != expected.as_ref() => return None,
            Operation::Expect(..) => {}
        }
    }
    Some((after, found))
}

/// The records without the federation's own.
fn of_clients(model: &Model) -> impl Iterator<Item = (&Key, &Value)> {
    model.iter().filter(|(key, _)| key.first() != Some(&RESERVED))
}

/// Replays the log; at every position the reads made there are compared.
struct Replay<'h> {
    history: &'h History,
    model: Model,
    by_id: BTreeMap<RequestId, &'h Deed>,
    reads: BTreeMap<Position, Vec<ExecutedRequest<'h>>>,
    looks: BTreeMap<Revision, Vec<&'h NodeImage>>,
}

impl<'h> Replay<'h> {
    fn new(history: &'h History) -> Replay<'h> {
        let mut reads: BTreeMap<Position, Vec<ExecutedRequest<'h>>> = BTreeMap::new();
        for done in history.deeds.iter().filter_map(done) {
            reads.entry(done.position).or_default().push(done);
        }
        let mut looks: BTreeMap<Revision, Vec<&NodeImage>> = BTreeMap::new();
        for look in &history.looks {
            looks.entry(look.image.revision).or_default().push(look);
        }
        Replay {
            by_id: history.deeds.iter().map(|deed| (deed.request.id, deed)).collect(),
            history,
            model: Model::new(),
            reads,
            looks,
        }
    }

    fn run(mut self) -> Result<(), Violation> {
        self.look(Revision::ZERO)?;
        for (revision, entry) in (1..).map(Revision).zip(&self.history.log) {
            self.read(Position { revision, index: 0 })?;
            match &entry.body {
                Body::Reign(_) => self.apply(&punctual_federation::records::sets(entry)[0].changes),
                Body::Batch(transactions) => self.batch(revision, transactions)?,
            }
            self.look(revision)?;
        }
        self.read(Position::after(self.history.last()))?;
        match (self.reads.pop_first(), self.looks.pop_first()) {
            (Some((position, reads)), _) => broken(
                reads[0].returned,
                format!("an answer from {position}, where the log has nothing"),
            ),
            (_, Some((revision, looks))) => {
                let NodeImage { node, at, .. } = looks[0];
                broken(
                    *at,
                    format!("node {node} is at revision {revision}, which the log does not have"),
                )
            }
            _ => Ok(()),
        }
    }

    fn batch(&mut self, revision: Revision, transactions: &[LoggedTransaction]) -> Result<(), Violation> {
        for (index, logged) in (0..).zip(transactions) {
            if index > 0 {
                self.read(Position { revision, index })?;
            }
            self.check_writes(revision, logged)?;
            self.apply(&logged.set.changes);
            if let Err(wrong) = market::check(&self.model) {
                let at = self.history.logged(revision);
                return broken(at, format!("after request {} at {revision}: {wrong}", logged.id));
            }
        }
        self.read(Position {
            revision,
            index: transactions.len() as u32,
        })
    }

    fn apply(&mut self, changes: &BTreeMap<Key, Option<Value>>) {
        for (key, value) in changes {
            match value {
                Some(value) => self.model.insert(key.clone(), value.clone()),
                None => self.model.remove(key),
            };
        }
    }

    /// Checks that a transaction wrote the records that its operations write here.
    fn check_writes(&self, revision: Revision, logged: &LoggedTransaction) -> Result<(), Violation> {
        let Some(deed) = self.by_id.get(&logged.id).filter(|_| named(logged.id)) else {
            return Ok(());
        };
        let Work::Transaction(operations) = &deed.request.work else {
            return Ok(());
        };
        self.check_logged_readings(revision, logged)?;
        let mut written = self.model.clone();
        for (key, value) in &logged.set.changes {
            match value {
                Some(value) => written.insert(key.clone(), value.clone()),
                None => written.remove(key),
            };
        }
        let readings = Readings::Logged(logged.set.read.iter());
        let right = interpret(&self.model, operations, readings)
            .is_some_and(|(after, _)| of_clients(&after).eq(of_clients(&written)));
        match right {
            true => Ok(()),
            false => broken(
                deed.invoked,
                format!("request {} at {revision} did not write what it says", logged.id),
            ),
        }
    }

    /// Checks that a transaction's readings in the log were made by their sources.
    fn check_logged_readings(&self, revision: Revision, logged: &LoggedTransaction) -> Result<(), Violation> {
        for TemporalRead { key, value, .. } in &logged.set.read {
            let sampled = |value: &Value| is_sampled(self.history, key, value);
            if !value.as_ref().is_none_or(sampled) {
                let (id, key) = (logged.id, key.escape_ascii());
                let at = self.history.logged(revision);
                return broken(
                    at,
                    format!("request {id} at {revision} read of {key} what its source never said"),
                );
            }
        }
        Ok(())
    }

    /// The readings that the transaction of `done` got.
    fn readings<'d>(&self, done: &ExecutedRequest<'d>) -> Readings<'d>
    where
        'h: 'd,
    {
        let entry = usize::try_from(done.position.revision.0)
            .ok()
            .and_then(|at| self.history.log.get(at.wrapping_sub(1)));
        let logged = entry.and_then(|entry| match &entry.body {
            Body::Batch(batch) => batch.get(done.position.index as usize),
            Body::Reign(_) => None,
        });
        match (logged.filter(|logged| logged.id == done.deed.request.id), done.output) {
            (Some(logged), _) => Readings::Logged(logged.set.read.iter()),
            (None, Output::Values(found)) => Readings::Said(found),
            (None, _) => Readings::Said(&[]),
        }
    }

    /// Compares all reads at `position`.
    fn read(&mut self, position: Position) -> Result<(), Violation> {
        for done in self.reads.remove(&position).unwrap_or_default() {
            let Output::Values(found) = done.output else {
                continue;
            };
            let right = match &done.deed.request.work {
                Work::Query { keys, .. } => Some(self.queried(keys, found)),
                Work::Transaction(operations) => {
                    interpret(&self.model, operations, self.readings(&done)).map(|(_, found)| found)
                }
                _ => None, // the request reads no record
            };
            if right.as_ref() != Some(found) {
                let id = done.deed.request.id;
                let should = right.map_or("that it is undone".to_owned(), |right| of_values(&right));
                return broken(
                    done.returned,
                    format!(
                        "request {id} at {position} found {}; the log says {should}",
                        of_values(found)
                    ),
                );
            }
        }
        Ok(())
    }

    /// Values that a query finds here. Readings are not in the log: [`check_readings`] checks them.
    fn queried(&self, keys: &[Key], found: &[Option<Value>]) -> Vec<Option<Value>> {
        let of = |(at, key): (usize, &Key)| match is_sensor(key) {
            true => found.get(at).cloned().flatten(),
            false => self.model.get(key).cloned(),
        };
        keys.iter().enumerate().map(of).collect()
    }

    /// Compares the records of nodes that were inspected at `revision`.
    fn look(&mut self, revision: Revision) -> Result<(), Violation> {
        for look in self.looks.remove(&revision).unwrap_or_default() {
            let records = look.image.records.iter().map(|(key, value)| (key, value));
            let upto = look.image.upto.as_ref();
            let is_here = |(key, _): &(&Key, &Value)| upto.is_none_or(|upto| *key <= upto);
            if !records.eq(self.model.iter().filter(is_here)) {
                let node = look.node;
                return broken(
                    look.at,
                    format!("the records of node {node} are not those of revision {revision}"),
                );
            }
        }
        Ok(())
    }
}

fn is_sampled(history: &History, object: &Key, reading: &Value) -> bool {
    let sampled = history.sampled.get(object);
    sampled.is_some_and(|sampled| sampled.contains(reading))
}

/// Checks that the readings in an answer were made by their sources. Their freshness is checked when they are read.
fn check_readings(history: &History, done: &ExecutedRequest<'_>) -> Result<(), Violation> {
    let Output::Values(found) = done.output else {
        return Ok(());
    };
    let keys: Vec<&Key> = match &done.deed.request.work {
        Work::Query { keys, .. } => keys.iter().collect(),
        Work::Transaction(operations) => operations.iter().filter_map(read_key).collect(),
        _ => Vec::new(), // the request reads no record
    };
    for (key, value) in keys.into_iter().zip(found) {
        if let Some(value) = value
            && is_sensor(key)
            && !is_sampled(history, key, value)
        {
            let (id, key) = (done.deed.request.id, key.escape_ascii());
            return broken(
                done.returned,
                format!("request {id} was told of {key} what its source never said"),
            );
        }
    }
    Ok(())
}

/// The key whose value an operation returns to its client.
fn read_key(operation: &Operation) -> Option<&Key> {
    match operation {
        Operation::Get(key) | Operation::Add(key, _) | Operation::Fresh(key, _) => Some(key),
        _ => None,
    }
}

/// Checks that an answer of the master reflects all that was answered before its request was made.
fn check_real_time(deeds: &[Deed]) -> Result<(), Violation> {
    let mut answers: Vec<_> = deeds.iter().filter_map(done).collect();
    answers.sort_by_key(|done| done.returned);
    let mut shown = answers.iter().peekable();
    let mut seen = Revision::ZERO;
    let mut asked: Vec<_> = answers
        .iter()
        .filter(|done| done.deed.request.work.for_master())
        .collect();
    asked.sort_by_key(|done| done.deed.invoked);
    for done in asked {
        while let Some(before) = shown.next_if(|before| before.returned < done.deed.invoked) {
            seen = seen.max(before.revision);
        }
        let after = done.revision > seen || (done.revision == seen && !writes(&done.deed.request.work));
        let repeated = matches!(
            (&done.deed.request.work, done.output),
            (Work::Transaction(_), Output::Fate(_))
        );
        if !after && !repeated {
            let (id, at) = (done.deed.request.id, done.revision);
            return broken(
                done.returned,
                format!("request {id} was executed at {at}, after {seen} had been shown"),
            );
        }
    }
    Ok(())
}

/// Checks that no client sees an older revision after a newer one.
fn check_sessions(deeds: &[Deed]) -> Result<(), Violation> {
    let mut seen: BTreeMap<u32, Revision> = BTreeMap::new();
    for done in deeds.iter().filter_map(done) {
        let before = seen.entry(done.deed.client).or_default();
        if done.revision < *before {
            let (client, at) = (done.deed.client, done.revision);
            return broken(done.returned, format!("client {client} saw {before}, and then {at}"));
        }
        *before = done.revision;
    }
    Ok(())
}
