//! A request is executed at most once, and what is said of it stays true: against a model that remembers everything.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use punctual_federation::ids::{RequestId, Revision, SessionId};
use punctual_federation::message::{Fate, Operation, Output, Refusal, Value, Work};
use punctual_federation::records::{RecordAccess, SESSIONS_MAX, Undo, perform};
use punctual_store::temporal::Creation;
use punctual_units::Nanos;

#[derive(Clone, Debug, Default)]
struct Map(BTreeMap<Vec<u8>, Value>);

impl RecordAccess for Map {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Value>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn fresh(&self, key: &[u8], _: Nanos) -> Result<Option<Value>, Infallible> {
        self.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Undo<Infallible>> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Undo<Infallible>> {
        self.0.remove(key);
        Ok(())
    }

    fn create(&mut self, _: &Creation) -> Result<(), Undo<Infallible>> {
        Ok(())
    }
}

fn id(session: SessionId, number: u64) -> RequestId {
    RequestId { session, number }
}

fn open(map: &mut Map) -> SessionId {
    match perform(map, RequestId::default(), &Work::Open, Revision(1)) {
        Ok(Output::Session(session)) => session,
        other => panic!("{other:?}"),
    }
}

fn add(number: u64) -> Work {
    Work::Transaction(vec![Operation::Append(b"list".to_vec(), vec![number as u8])])
}

proptest! {
    /// Transactions arrive late and twice, and clients ask for outcomes: each is in the list at most once, and every
    /// fate that was told is still true at the end.
    #[test]
    fn a_transaction_is_executed_at_most_once(steps in prop::collection::vec((1..20_u64, any::<bool>()), 0..60)) {
        let mut map = Map::default();
        let session = open(&mut map);
        let mut told = Vec::new();
        for (revision, (number, ask)) in (2..).zip(steps) {
            let work = if ask { Work::Outcome(id(session, number)) } else { add(number) };
            match perform(&mut map, id(session, number), &work, Revision(revision)) {
                Ok(Output::Fate(fate)) => told.push((number, fate)),
                Ok(Output::Values(_)) => told.push((number, Fate::Committed(Revision(revision)))),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        let list = map.0.get(&b"list"[..]).cloned().unwrap_or_default();
        for (number, fate) in told {
            let times = list.iter().filter(|done| u64::from(**done) == number).count();
            match fate {
                Fate::Committed(_) => prop_assert_eq!(times, 1),
                Fate::NotExecuted => prop_assert_eq!(times, 0),
                Fate::Forgotten => prop_assert!(times <= 1),
            }
        }
    }
}

#[test]
fn a_session_that_was_forgotten_is_refused_and_its_transactions_are_not_executed_again() {
    let mut map = Map::default();
    let first = open(&mut map);
    perform(&mut map, id(first, 1), &add(1), Revision(2)).unwrap();
    for _ in 0..SESSIONS_MAX {
        open(&mut map);
    }
    let again = perform(&mut map, id(first, 1), &add(1), Revision(3));
    assert_eq!(again, Err(Undo::Refused(Refusal::NoSession { session: first })));
    let outcome = perform(&mut map, id(first, 2), &Work::Outcome(id(first, 1)), Revision(3));
    assert_eq!(outcome, Ok(Output::Fate(Fate::Forgotten)));
    assert!((map.0.len() as u64) < SESSIONS_MAX + 4); // what is kept does not grow
}

#[test]
fn a_transaction_whose_record_is_not_as_expected_is_refused() {
    let mut map = Map::default();
    let session = open(&mut map);
    let key = b"door".to_vec();
    let work = Work::Transaction(vec![
        Operation::Put(b"other".to_vec(), b"x".to_vec()),
        Operation::Expect(key.clone(), Some(b"open".to_vec())),
    ]);
    let refused = perform(&mut map, id(session, 1), &work, Revision(2));
    assert_eq!(refused, Err(Undo::Refused(Refusal::Unexpected { key })));
}
