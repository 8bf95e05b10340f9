//! Schedules that an enemy of the argument in crates/federation/src/lib.rs would choose, every message in our hands.

use std::sync::Arc;

use crate::common;

use common::{Client, Table, add, found, identity, list};
use punctual_federation::action::{Event, LogAnswer};
use punctual_federation::copying::COPY_EVERY;
use punctual_federation::entry::Body;
use punctual_federation::ids::{FederationId, NodeId, Revision};
use punctual_federation::liveness::{EXCUSE_MAX, SUSPECT_AFTER};
use punctual_federation::message::{
    Answer, Fate, Message, Operation, Output, Reason, Refusal, Reign, Standing, Stop, Work,
};
use punctual_federation::takeover::{LISTEN, STEP};
use punctual_logs::{CommitLog, HistoryId, LogError, LogState, Memory};
use punctual_store::batch::Image;
use punctual_units::Nanos;

const SECOND: Nanos = Nanos::from_secs(1);
const MOMENT: Nanos = Nanos::from_millis(20);
/// Until a node that is not heard is suspected, and the slowest of three has taken over.
const TAKEOVER: Nanos = Nanos::from_millis(400);

/// Three nodes with a master.
fn federation(log_entries_max: u64) -> (Table, usize) {
    let mut table = Table::new(3, log_entries_max);
    table.pass(TAKEOVER);
    let master = the_master(&table);
    (table, master)
}

fn the_master(table: &Table) -> usize {
    let masters = table.masters();
    assert_eq!(masters.len(), 1, "{masters:?}");
    masters[0]
}

fn fate(answer: Option<Answer>) -> Fate {
    match answer {
        Some(Answer::Done {
            output: Output::Fate(fate),
            ..
        }) => fate,
        other => panic!("{other:?}"),
    }
}

fn reigns(table: &Table) -> Vec<u64> {
    let reigns = table
        .entries
        .iter()
        .filter(|entry| matches!(entry.body, Body::Reign(_)));
    reigns.map(|entry| entry.id.epoch.0).collect()
}

#[test]
fn of_two_takeovers_at_once_one_begins_a_reign() {
    let (mut table, first) = federation(100);
    let others: Vec<usize> = (0..3).filter(|number| *number != first).collect();
    table.hold_appends = others.iter().copied().collect();
    table.crash(first);
    table.pass(TAKEOVER);
    let waiting: Vec<usize> = table.held.iter().map(|(from, ..)| *from).collect();
    assert!(others.iter().all(|other| waiting.contains(other)), "{waiting:?}");
    // Every copy that either has sent arrives now, the latest first.
    table.hold_appends.clear();
    table.held.reverse();
    table.release_appends();
    table.pass(TAKEOVER);
    the_master(&table);
    assert_eq!(reigns(&table), [1, 2]);
}

/// An append of the old master has no answer when the next reign begins: it arrives before the record of that reign or
/// after. Either way it is told apart, for ever.
#[test]
fn an_append_that_is_under_way_during_a_takeover_is_in_the_log_or_never_will_be() {
    for arrives_before in [true, false] {
        let (mut table, first) = federation(100);
        let mut client = Client::open(&mut table, first, 1);
        table.hold_appends.insert(first);
        let request = client.sends(&mut table, first, add(7), Nanos::from_millis(100));
        table.settle();
        assert_eq!(table.held.len(), 1);
        if arrives_before {
            table.cut_from_log.insert(first); // the answer is lost
            let (from, ticket, ask) = table.held[0].clone();
            table.cut_from_log.remove(&first);
            table.ask_log(usize::MAX, ticket, ask); // a copy, whose answer goes nowhere
            assert_eq!(from, first);
        }
        table.cut_from_log.insert(first);
        table.pass(SUSPECT_AFTER);
        assert_eq!(client.hears(&table, &request), Some(Answer::Unknown));
        table.pass(TAKEOVER);
        let masters = table.masters();
        let second = *masters
            .iter()
            .find(|number| **number != first)
            .expect("another took over");
        let expected = match arrives_before {
            true => Fate::Committed(Revision(3)), // after the reign and the session
            false => Fate::NotExecuted,
        };
        let outcome = client.asks(&mut table, second, Work::Outcome(request.id));
        assert_eq!(fate(outcome), expected);
        // The old master hears of it all at last, and every copy of its append arrives once more.
        table.cut_from_log.clear();
        table.hold_appends.clear();
        table.release_appends();
        table.pass(TAKEOVER);
        assert_eq!(the_master(&table), second);
        let times = table.logged().iter().filter(|id| **id == request.id).count();
        assert_eq!(times, usize::from(arrives_before), "arrives before: {arrives_before}");
        let again = client.asks(&mut table, second, Work::Outcome(request.id));
        assert_eq!(fate(again), expected);
    }
}

/// Lets time pass, in which peers learn at once that the log is silent for the master or answers it again.
fn pass_and_compare(table: &mut Table, master: usize, span: Nanos) {
    let end = table.now + span;
    while table.now < end {
        table.pass(Nanos(1)); // one step
        let is_silent = table.node(master).said(table.now).log_silent;
        assert!((0..3).all(|number| table.node(number).commits(table.now) != is_silent));
    }
}

/// A log whose disk is busy answers no node for a while, or late: a takeover would gain nothing.
#[test]
fn a_log_that_is_silent_for_all_nodes_changes_no_master() {
    let (mut table, first) = federation(100);
    let mut client = Client::open(&mut table, first, 1);
    let epoch = table.node(first).reign().epoch;
    for (stall, is_late) in (0..30).flat_map(|stall| [(stall, false), (stall, true)]) {
        if is_late {
            table.hold_appends.insert(first);
        }
        let request = client.sends(&mut table, first, add(1), SECOND * 2);
        if is_late {
            table.settle();
        }
        table.cut_from_log.extend(0..3);
        pass_and_compare(&mut table, first, SUSPECT_AFTER * 2 + Nanos::from_millis(7 * stall));
        assert!(table.node(first).said(table.now).log_silent);
        table.cut_from_log.clear();
        table.hold_appends.clear();
        table.release_appends();
        // The append was given up: its answer says nothing yet.
        assert!(table.node(first).said(table.now).log_silent);
        pass_and_compare(&mut table, first, SECOND);
        assert_eq!(
            (the_master(&table), table.node(first).reign().epoch),
            (first, epoch),
            "{stall}, {is_late}"
        );
        let answer = client.hears(&table, &request);
        assert!(matches!(answer, Some(Answer::Done { .. })), "{answer:?}");
    }
}

/// A candidate that does not run hears no master say that the log answers again: it reads that first.
#[test]
fn a_candidate_that_is_starved_while_it_listens_changes_no_master() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    let slave = (0..3).find(|number| *number != master).expect("three nodes");
    let epoch = table.node(master).reign().epoch;
    for (away, since) in [160, 300, 1_000]
        .map(|away| (0..16).map(move |step| (away, step * 7)))
        .into_iter()
        .flatten()
    {
        table.cut_from_log.extend(0..3);
        client.sends(&mut table, master, add(1), SECOND);
        table.pass(SUSPECT_AFTER * 2 + Nanos::from_millis(since));
        table.cut_from_log.clear();
        table.pass(Nanos::from_millis(since));
        table.starved.insert(slave);
        table.pass(Nanos::from_millis(away));
        table.starved.remove(&slave);
        // The log's answers are read before what peers have sent.
        table.deaf.insert(slave);
        table.pass(MOMENT);
        table.deaf.remove(&slave);
        table.pass(SECOND);
        assert_eq!(
            (the_master(&table), table.node(master).reign().epoch),
            (master, epoch),
            "{since} ms, then {away} ms"
        );
    }
}

#[test]
fn a_session_goes_on_over_two_failovers_with_an_unknown_in_between() {
    let (mut table, first) = federation(100);
    let mut client = Client::open(&mut table, first, 1);
    client.asks(&mut table, first, add(1)).expect("an answer");
    table.crash(first);
    table.pass(TAKEOVER);
    let second = the_master(&table);
    table.hold_appends.insert(second);
    let lost = client.sends(&mut table, second, add(2), Nanos::from_millis(50));
    table.pass(Nanos::from_millis(60));
    assert_eq!(client.hears(&table, &lost), Some(Answer::Unknown));
    table.crash(second);
    table.pass(TAKEOVER);
    let third = the_master(&table);
    // Its client asks the last node, which knows of the first two from the log alone.
    let outcome = client.asks(&mut table, third, Work::Outcome(lost.id));
    assert_eq!(fate(outcome), Fate::NotExecuted);
    client.asks(&mut table, third, add(3)).expect("an answer");
    table.release_appends(); // of a node that is gone
    let seen = client.session.seen();
    assert_eq!(found(client.asks(&mut table, third, list(false))), [1, 3]);
    assert_eq!(found(client.asks(&mut table, third, list(true))), [1, 3]);
    assert!(client.session.seen() >= seen);
}

#[test]
fn the_log_is_trimmed_beside_a_joiner_that_copies() {
    let (mut table, master) = federation(4);
    let mut client = Client::open(&mut table, master, 1);
    let gone = (0..3).find(|number| *number != master).expect("three nodes");
    table.crash(gone);
    let mut byte = 0;
    let mut write = |table: &mut Table, count| {
        for _ in 0..count {
            byte += 1;
            client.asks(table, master, add(byte)).expect("an answer");
        }
    };
    write(&mut table, 60);
    table.pass(SECOND);
    assert!(table.log.trimmed() > Revision(30), "{}", table.log.trimmed());
    // It comes back with nothing, and is promised a copy that is made at once and arrives late.
    table.hold_copies = true;
    table.start(gone, Default::default(), Revision::ZERO, 3);
    table.pass(TAKEOVER);
    let (source, peer, _) = table.copies.remove(0);
    let old = std::sync::Arc::new(table.image(source));
    write(&mut table, 60);
    table.pass(SECOND);
    assert!(
        table.log.trimmed() > old.revision,
        "the log no longer has what follows the copy"
    );
    let message = punctual_federation::message::Message::Copied(old);
    table.tell(peer.0 as usize, Event::Message(NodeId(source as u32), message));
    table.hold_copies = false;
    table.pass(SECOND + SECOND);
    assert_eq!(table.node(gone).applied(), table.node(master).applied());
    assert_eq!(table.image(gone), table.image(master));
}

/// A federation has lost its log, and begins anew from a backup; nodes come with the stores that they had.
#[test]
fn a_store_that_goes_further_than_the_backup_stops_its_node_and_one_that_does_not_goes_on() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    let (mut backups, mut byte) = (Vec::new(), 0);
    for _ in 0..4 {
        byte += 1;
        client.asks(&mut table, master, add(byte)).expect("an answer");
        backups.push(table.image(master));
    }
    let [older, backup, further, furthest] = backups.try_into().expect("four");
    for is_known in [true, false] {
        begin_anew(&[&older, &backup, &further, &furthest], master, is_known);
    }
}

/// With `is_known` the log says which history it is, as logs of older versions do not: then names and terms alone tell
/// two histories of the same master apart, as long as the log has the entry behind the store's last one.
fn begin_anew([older, backup, further, furthest]: &[&Image; 4], master: usize, is_known: bool) {
    let start = |table: &mut Table, number, image: &Image| {
        table.start(number, image.records.iter().cloned().collect(), image.revision, 3);
    };
    let (mut table, _) = federation(100);
    (0..3).for_each(|number| table.crash(number));
    let mut begun = identity(2 * u64::from(is_known));
    (begun.history.base, begun.history.parent) = (backup.revision, HistoryId(1));
    table.log = Memory::default();
    table.log.open(begun).expect("a new log");
    start(&mut table, master, backup);
    table.pass(TAKEOVER + SECOND);
    assert_eq!(
        table.masters(),
        [master],
        "one whose last entry the log has trimmed goes on"
    );
    assert_eq!(table.log.last(), further.revision, "the record of its reign");
    let (one, other) = ((master + 1) % 3, (master + 2) % 3);
    let cases = [
        (further, "otherwise"),
        (furthest, "not yet"),
        (further, "trimmed"),
        (furthest, "beyond"),
    ];
    for (stale, why) in &cases[..3 + usize::from(is_known)] {
        if *why == "beyond" {
            let mut client = Client::open(&mut table, master, 3);
            (0..9).for_each(|byte| drop(client.asks(&mut table, master, add(byte))));
            table.log.trim(table.log.last()).expect("memory");
            assert!(table.log.trimmed() > stale.revision.next());
        }
        if *why == "trimmed" {
            let mut client = Client::open(&mut table, master, 2);
            client.asks(&mut table, master, add(9)).expect("an answer");
            table.log.trim(further.revision).expect("memory");
        }
        start(&mut table, one, stale);
        table.pass(SECOND);
        let at = stale.revision;
        assert_eq!(table.node(one).stopped(), Some(&Stop::OtherHistory { at }), "{why}");
        assert_eq!(table.image(one), ***stale, "and nothing is changed");
        table.crash(one);
    }
    start(&mut table, other, older);
    table.pass(TAKEOVER + SECOND);
    if !is_known {
        let at = older.revision;
        assert_eq!(table.node(other).stopped(), Some(&Stop::UnknownHistory { at }));
        assert_eq!(table.image(other), **older, "a store with a number, and a log without");
        return;
    }
    assert_eq!(table.node(other).stopped(), None);
    assert_eq!(table.image(other), table.image(master), "an older one is given a copy");
    table.tell(
        other,
        Event::Opened(LogState {
            history: identity(3).history,
            ..LogState::default()
        }),
    );
    let at = table.node(other).applied();
    let why = "the log is replaced while its nodes run";
    assert_eq!(table.node(other).stopped(), Some(&Stop::OtherHistory { at }), "{why}");
}

/// A new log that begins with `backup`.
fn replace_log(table: &mut Table, backup: Revision) -> LogState {
    let mut begun = identity(2);
    (begun.history.base, begun.history.parent) = (backup, HistoryId(1));
    table.log = Memory::default();
    table.log.open(begun).expect("a new log")
}

#[test]
fn no_copy_is_of_a_store_of_another_history() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    client.asks(&mut table, master, add(1)).expect("an answer");
    let backup = table.image(master);
    (2..9).for_each(|byte| drop(client.asks(&mut table, master, add(byte))));
    let further = table.image(master);
    (0..3).for_each(|number| table.crash(number));
    let start = |table: &mut Table, number, image: &Image| {
        table.start(number, image.records.iter().cloned().collect(), image.revision, 3);
    };
    let (stale, empty) = ((master + 1) % 3, (master + 2) % 3);
    // The log has told it nothing but that of before.
    table.cut_from_log.insert(stale);
    start(&mut table, stale, &further);
    replace_log(&mut table, backup.revision);
    start(&mut table, master, &backup);
    table.start(empty, Default::default(), Revision::ZERO, 3);
    table.pass(SECOND * 3);
    assert_eq!(table.image(stale), further);
    assert_eq!(table.image(empty), table.image(master));
    assert_eq!(table.node(empty).stopped(), None);
    // Nodes of older versions make such copies.
    table.crash(empty);
    table.crash(master);
    table.start(empty, Default::default(), Revision::ZERO, 3);
    table.pass(SECOND);
    table.tell(
        empty,
        Event::Message(NodeId(stale as u32), Message::Copied(Arc::new(further))),
    );
    table.pass(SECOND);
    assert_eq!(table.node(empty).applied(), Revision::ZERO);
    table.tell(
        empty,
        Event::Installed(
            backup.revision.next(),
            Reign {
                history: HistoryId(1),
                ..Reign::default()
            },
        ),
    );
    let at = backup.revision.next();
    assert_eq!(table.node(empty).stopped(), Some(&Stop::OtherHistory { at }));
}

/// The log is replaced under a master, or under one that is about to be the master.
#[test]
fn nodes_that_run_while_their_log_begins_anew_name_its_history() {
    for reigns in [true, false] {
        let (mut table, master) = federation(100);
        let mut client = Client::open(&mut table, master, 1);
        client.asks(&mut table, master, add(1)).expect("an answer");
        table.pass(SECOND);
        if !reigns {
            table.hold_appends.extend(0..3);
            table.crash(master);
            table.pass(TAKEOVER);
            assert_eq!(table.held.is_empty(), reigns, "one tries to take over");
        }
        let base = table.log.last();
        let opened = replace_log(&mut table, base);
        for number in 0..3 {
            table.tell(number, Event::Opened(opened));
        }
        table.held.clear();
        table.hold_appends.clear();
        table.pass(TAKEOVER + SECOND);
        let [new] = table.masters()[..] else {
            panic!("{:?}", table.masters())
        };
        let mut client = Client::open(&mut table, new, 2);
        client.asks(&mut table, new, add(2)).expect("an answer");
        table.pass(SECOND);
        let image = table.image(new);
        assert!(image.revision > base);
        for number in 0..3 {
            table.crash(number);
            table.start(number, image.records.iter().cloned().collect(), image.revision, 3);
            table.pass(SECOND);
            assert_eq!(table.node(number).stopped(), None, "a master before: {reigns}");
            assert_eq!(table.node(number).reign().history, HistoryId(2));
        }
    }
}

/// Nodes 0 to 2, of which one has lost its records, and a client of the master's that adds to records of its own.
fn with_an_empty_node(records: u8) -> (Table, usize, usize, Client) {
    let (mut table, master) = federation(4);
    let mut client = Client::open(&mut table, master, 1);
    let gone = (0..3).find(|number| *number != master).expect("three nodes");
    table.crash(gone);
    for byte in 0..records {
        let put = Work::Transaction(vec![Operation::Put(vec![b'k', byte], vec![byte])]);
        client.asks(&mut table, master, put).expect("an answer");
    }
    table.pass(SECOND);
    assert!(table.log.trimmed() > Revision(10), "{}", table.log.trimmed());
    table.start(gone, Default::default(), Revision::ZERO, 3);
    (table, master, gone, client)
}

#[test]
fn a_copy_in_images_ends_beside_a_log_that_keeps_less_than_comes_meanwhile() {
    let (mut table, master, gone, mut client) = with_an_empty_node(60);
    // Each image is of another revision, and each record is changed, removed or added while they come.
    let (mut byte, mut copying) = (0_u8, 0);
    while table.node(gone).applied() < table.node(master).applied() || byte < 200 {
        byte = byte.checked_add(1).expect("the copy ends");
        let operation = match byte % 3 {
            0 => Operation::Delete(vec![b'k', byte % 60]),
            _ => Operation::Put(vec![b'k', byte % 70], vec![byte]),
        };
        client
            .asks(&mut table, master, Work::Transaction(vec![operation]))
            .expect("an answer");
        table.pass(COPY_EVERY);
        copying += u32::from(table.node(gone).standing() == Standing::Copying);
    }
    assert!(copying > 10, "{copying}");
    table.pass(SECOND);
    assert_eq!(table.node(gone).standing(), Standing::Serving);
    assert_eq!(table.image(gone), table.image(master));
}

#[test]
fn a_node_with_a_part_of_the_records_answers_nothing_and_does_not_reign() {
    let (mut table, master, gone, mut client) = with_an_empty_node(60);
    table.hold_copies = true;
    table.pass(TAKEOVER);
    let (source, peer, after) = table.copies.remove(0);
    table.copy(source, peer, after);
    table.settle();
    assert_eq!(table.node(gone).standing(), Standing::Copying);
    let query = client.sends(&mut table, gone, list(false), SECOND);
    let late = client.hears(&table, &query);
    assert!(matches!(late, Some(Answer::Late { .. })), "{late:?}");
    // All others are gone: no node reigns, rather than the one that has a part.
    (0..3)
        .filter(|number| *number != gone)
        .for_each(|number| table.crash(number));
    table.pass(SECOND);
    assert_eq!(table.masters(), [0; 0]);
    // One is back with all records: it reigns, and the copy goes on where it was.
    table.hold_copies = false;
    let (records, revision) = {
        let entries = table.entries.clone();
        let mut records = std::collections::BTreeMap::new();
        for set in entries
            .iter()
            .flat_map(|entry| punctual_federation::records::sets(entry))
        {
            for (key, value) in set.changes {
                match value {
                    Some(value) => records.insert(key, value),
                    None => records.remove(&key),
                };
            }
        }
        (records, Revision(entries.len() as u64))
    };
    table.start(master, records, revision, 3);
    table.pass(SECOND + SECOND);
    assert_eq!(the_master(&table), master);
    assert_eq!(table.node(gone).standing(), Standing::Serving);
    assert_eq!(table.image(gone), table.image(master));
}

#[test]
fn a_master_that_is_told_to_pause_while_an_append_is_unknown_answers_first() {
    let (mut table, first) = federation(100);
    let mut client = Client::open(&mut table, first, 1);
    table.hold_appends.insert(first);
    let request = client.sends(&mut table, first, add(1), SECOND);
    table.settle();
    table.tell(first, Event::Pause);
    // Nothing new, and where to go: there is no other master yet.
    let mut other = Client::open_later(2);
    let refused = other.sends(&mut table, first, Work::Open, SECOND);
    let late = other.hears(&table, &refused);
    assert!(
        matches!(
            late,
            Some(Answer::Late {
                reason: Reason::NoMaster,
                ..
            })
        ),
        "{late:?}"
    );
    table.pass(MOMENT);
    assert_eq!(the_master(&table), first, "it still has a transaction");
    table.hold_appends.clear();
    table.release_appends();
    table.pass(MOMENT);
    let answer = client.hears(&table, &request);
    assert!(matches!(answer, Some(Answer::Done { .. })), "{answer:?}");
    table.pass(TAKEOVER);
    let second = the_master(&table);
    assert_ne!(second, first);
    assert_eq!(table.node(first).standing(), Standing::Paused);
    let refused = client.sends(&mut table, first, add(2), SECOND);
    let node = Some(NodeId(second as u32));
    let late = client.hears(&table, &refused);
    assert!(
        matches!(late, Some(Answer::Late { reason: Reason::NoMaster, node: named, .. }) if named == node),
        "{late:?}"
    );
    let query = client.sends(&mut table, first, list(false), SECOND);
    let late = client.hears(&table, &query);
    assert!(
        matches!(
            late,
            Some(Answer::Late {
                reason: Reason::Backlog,
                node: Some(_),
                ..
            })
        ),
        "{late:?}"
    );
    // It follows the log all the while, and serves again when it is told to.
    client.asks(&mut table, second, add(3)).expect("an answer");
    table.tell(first, Event::Resume);
    table.pass(MOMENT);
    assert_eq!(found(client.asks(&mut table, first, list(false))), [1, 3]);
}

#[test]
fn a_master_alone_that_is_told_to_pause_reigns_on_when_it_is_told_to_go_on() {
    let mut table = Table::new(1, 100);
    table.pass(TAKEOVER);
    let mut client = Client::open(&mut table, 0, 1);
    table.tell(0, Event::Pause);
    table.pass(TAKEOVER);
    let late = client.asks(&mut table, 0, add(1));
    assert!(matches!(late, Some(Answer::Late { .. })), "{late:?}");
    table.tell(0, Event::Resume);
    assert!(matches!(client.asks(&mut table, 0, add(2)), Some(Answer::Done { .. })));
    assert_eq!(reigns(&table), [1]);
}

#[test]
fn a_node_that_leaves_during_a_takeover_leaves_the_reign_to_others() {
    let (mut table, first) = federation(100);
    let others: Vec<usize> = (0..3).filter(|number| *number != first).collect();
    table.hold_appends = others.iter().copied().collect();
    table.crash(first);
    table.pass(Nanos::from_millis(5));
    let leaver = table.held[0].0; // it has asked for the reign already
    table.tell(leaver, Event::Leave);
    table.hold_appends.clear();
    table.release_appends(); // and gets it
    table.pass(TAKEOVER);
    let stays = *others.iter().find(|other| **other != leaver).expect("two others");
    assert_eq!(the_master(&table), stays);
    assert!(table.places[leaver].as_ref().is_some_and(|place| place.left));
    let reigns = reigns(&table);
    assert!(reigns.is_sorted_by(|one, next| one + 1 == *next), "{reigns:?}");
}

#[test]
fn a_master_that_leaves_is_ended_only_when_no_client_waits_for_it() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    table.hold_appends.insert(master);
    let request = client.sends(&mut table, master, add(1), SECOND);
    table.settle();
    table.tell(master, Event::Leave);
    table.pass(SUSPECT_AFTER);
    let left = |table: &Table| table.places[master].as_ref().is_some_and(|place| place.left);
    assert!(!left(&table));
    table.hold_appends.clear();
    table.release_appends();
    table.pass(TAKEOVER);
    assert!(left(&table));
    assert!(client.hears(&table, &request).is_some());
    assert_ne!(the_master(&table), master);
}

/// Its peers hear it as ever, and reach the log that it does not reach: without a word of it they would wait for ever.
#[test]
fn a_master_that_the_log_does_not_answer_gives_way() {
    gives_way(false);
}

/// Its calls are answered once it has given them up.
#[test]
fn a_master_that_the_log_answers_too_late_gives_way() {
    gives_way(true);
}

/// Its reads are answered again, and its appends are not: a read alone does not end a silence that peers know of.
#[test]
fn a_master_that_can_only_read_again_gives_way() {
    let (mut table, first) = federation(100);
    let mut client = Client::open(&mut table, first, 1);
    table.hold_appends.insert(first);
    client.sends(&mut table, first, add(1), SECOND);
    table.settle();
    table.cut_from_log.extend(0..3);
    table.pass(SUSPECT_AFTER * 2);
    table.cut_from_log.clear();
    table.pass(SUSPECT_AFTER + LISTEN);
    assert_ne!(the_master(&table), first);
}

fn gives_way(is_late: bool) {
    let (mut table, first) = federation(100);
    let mut client = Client::open(&mut table, first, 1);
    table.cut_from_log.insert(first);
    let request = client.sends(&mut table, first, add(1), SECOND);
    table.settle();
    let begin = table.now;
    while table.masters() == [first] && table.now.since(begin) < SECOND {
        if is_late {
            table.tell(first, Event::Log(0, Ok(LogAnswer::Trimmed)));
        }
        table.pass(Nanos(1)); // one step
    }
    // The silent master counts as one of the nodes that go before.
    let (took, least) = (table.now.since(begin), SUSPECT_AFTER + LISTEN);
    assert!(took >= least && took <= least + STEP * 2, "{took}");
    table.pass(SECOND);
    let second = table.masters().into_iter().find(|number| *number != first);
    let second = second.expect("another node took over");
    assert!(matches!(
        client.hears(&table, &request),
        Some(Answer::Unknown | Answer::Late { .. })
    ));
    assert_eq!(
        fate(client.asks(&mut table, second, Work::Outcome(request.id))),
        Fate::NotExecuted
    );
    table.cut_from_log.clear();
    table.pass(SECOND);
    assert_eq!(the_master(&table), second);
}

#[test]
fn a_batch_that_is_too_long_for_the_log_is_split_and_one_transaction_too_long_alone_is_refused() {
    let (mut table, master) = federation(100);
    let mut clients: Vec<_> = (1..=9).map(|number| Client::open(&mut table, master, number)).collect();
    table.set_entry_bytes_max(600);
    let put = |client: u64, len| {
        // Alone it is too long with its event, and not without.
        let key = format!("record {client:0200}").into_bytes();
        Work::Transaction(vec![Operation::Put(key, vec![client as u8; len])])
    };
    // They wait while the first is under way, and are one batch then.
    table.hold_appends.insert(master);
    let mut requests = Vec::new();
    for client in &mut clients {
        let len = if client.number == 5 { 2_000 } else { 150 };
        let work = put(client.number, len);
        requests.push(client.sends(&mut table, master, work, SECOND));
    }
    table.settle();
    assert_eq!(table.held.len(), 1);
    table.hold_appends.clear();
    table.release_appends();
    table.pass(MOMENT);
    for (client, request) in clients.iter_mut().zip(&requests) {
        let answer = client.hears(&table, request);
        let refused = matches!(answer, Some(Answer::Refused(Refusal::WritesTooLong { len })) if len > 2_000);
        assert_eq!(refused, client.number == 5, "{answer:?}");
        assert!(refused || matches!(answer, Some(Answer::Done { .. })), "{answer:?}");
    }
    let logged = table.logged();
    for (client, request) in clients.iter().zip(&requests) {
        let times = logged.iter().filter(|id| *id == &request.id).count();
        assert_eq!(times, usize::from(client.number != 5), "request {}", request.id);
    }
    // The log as it is says what was executed.
    let last = table.node(master).applied();
    assert!((0..3).all(|number| table.node(number).applied() == last && table.image(number) == table.image(master)));
}

/// What is trimmed is on the disks of all nodes that live; of those far behind, on the master's own at least.
#[test]
fn the_log_is_trimmed_to_what_is_on_disk() {
    for (log_entries_max, slave_counts) in [(1_000, true), (4, false)] {
        let (mut table, master) = federation(log_entries_max);
        let mut client = Client::open(&mut table, master, 1);
        let slave = (0..3).find(|number| *number != master).expect("three nodes");
        table.pass(SECOND);
        let before = table.log.trimmed();
        let written = |table: &mut Table, client: &mut Client| {
            for byte in 0..40 {
                client.asks(table, master, add(byte)).expect("an answer");
            }
            table.pass(SECOND);
        };
        table.hold_syncs.insert(slave);
        written(&mut table, &mut client);
        let behind = table.log.trimmed();
        let kept = table.node(master).applied().0 - behind.0;
        match slave_counts {
            true => assert!(behind.0 <= before.0 + 2, "{before} to {behind}, and a disk has less"),
            false => assert!(
                kept <= log_entries_max + 1,
                "{kept} entries are kept for a node that is behind"
            ),
        }
        table.release_syncs();
        table.pass(SECOND);
        let behind = table.log.trimmed();
        table.hold_syncs.insert(master);
        written(&mut table, &mut client);
        let after = table.log.trimmed();
        assert!(
            after.0 <= behind.0 + 2,
            "{behind} to {after}, and the master's own disk has less"
        );
        let written_since = table.node(master).applied().0 - after.0;
        assert!(written_since >= 40, "{written_since}");
        table.release_syncs();
        table.pass(SECOND);
        let end = table.log.trimmed();
        assert!(end > after, "{after} to {end}, although every disk has more");
    }
}

/// A replica that did not run has missed heartbeats, which its master sent: it hears them before it suspects.
#[test]
fn a_node_that_was_starved_suspects_no_other() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    let slave = (0..3).find(|number| *number != master).expect("three nodes");
    let epoch = table.node(master).reign().epoch;
    for away in [150, 250, 1_000, 3_000] {
        table.starved.insert(slave);
        table.pass(Nanos::from_millis(away));
        table.starved.remove(&slave);
        // The log's answers are read before what peers have sent.
        table.deaf.insert(slave);
        table.pass(Nanos::from_millis(60));
        table.deaf.remove(&slave);
        table.pass(SECOND);
        assert_eq!(
            (the_master(&table), table.node(master).reign().epoch),
            (master, epoch),
            "after {away} ms"
        );
        client.asks(&mut table, master, add(1)).expect("an answer");
    }
}

/// A node that is starved again and again hears nothing of a master that does not run either, and takes over.
#[test]
fn a_node_that_is_starved_again_and_again_replaces_a_dead_master() {
    let mut table = Table::new(2, 100);
    table.pass(TAKEOVER);
    let master = the_master(&table);
    let slave = 1 - master;
    table.starved.insert(master);
    let begin = table.now;
    while !table.masters().contains(&slave) {
        table.starved.insert(slave);
        table.pass(Nanos::from_millis(120));
        table.starved.remove(&slave);
        table.pass(Nanos(1));
        let took = table.now.since(begin);
        assert!(took <= EXCUSE_MAX + SECOND, "{took}");
    }
}

/// The candidate makes room for the record of its term, whatever the third node lacks.
#[test]
fn a_full_log_stops_no_takeover() {
    let (mut table, master) = federation(1_000);
    let mut client = Client::open(&mut table, master, 1);
    let lags = (0..3).find(|number| *number != master).expect("three nodes");
    table.hold_syncs.insert(lags);
    client.asks(&mut table, master, add(1)).expect("an answer");
    table.pass(MOMENT * 10);
    let before = table.log.trimmed();
    table.log_is_full = true;
    table.crash(master);
    table.pass(SECOND);
    assert!(table.log.trimmed() > before, "{before:?}");
    table.log_is_full = false;
    table.pass(TAKEOVER);
    assert_ne!(the_master(&table), master);
}

/// The master says so, and trims whatever a node lacks; no node takes over, and what waits is committed with room.
#[test]
fn a_full_log_is_waited_for() {
    let (mut table, master) = federation(1_000);
    let mut client = Client::open(&mut table, master, 1);
    client.asks(&mut table, master, add(1)).expect("an answer");
    table
        .hold_syncs
        .insert((0..3).find(|number| *number != master).expect("three nodes"));
    client.asks(&mut table, master, add(2)).expect("an answer");
    table.log_is_full = true;
    assert!(!table.node(master).log_is_full());
    let lost = client.sends(&mut table, master, add(3), Nanos::from_millis(50));
    let epoch = table.node(master).reign().epoch;
    table.pass(SECOND);
    assert!(table.node(master).log_is_full());
    assert!((0..3).all(|number| !table.node(number).commits(table.now)));
    assert_eq!(client.hears(&table, &lost), Some(Answer::Unknown));
    assert_eq!(found(client.asks(&mut table, master, list(false))), [1, 2]);
    assert_eq!(table.log.trimmed(), table.node(master).applied(), "a node lags");
    table.log_is_full = false;
    table.pass(SECOND);
    assert!((0..3).all(|number| table.node(number).commits(table.now)));
    assert_eq!((the_master(&table), table.node(master).reign().epoch), (master, epoch));
    assert!(matches!(
        fate(client.asks(&mut table, master, Work::Outcome(lost.id))),
        Fate::Committed(_)
    ));
}

#[test]
fn the_last_node_goes_on_alone_and_without_the_log_it_still_answers_queries() {
    let (mut table, master) = federation(100);
    let mut client = Client::open(&mut table, master, 1);
    client.asks(&mut table, master, add(1)).expect("an answer");
    let last = (0..3).find(|number| *number != master).expect("three nodes");
    for gone in (0..3).filter(|number| *number != last) {
        table.crash(gone);
    }
    table.pass(TAKEOVER);
    assert_eq!(the_master(&table), last);
    client.asks(&mut table, last, add(2)).expect("an answer");
    table.cut_from_log.insert(last);
    let lost = client.sends(&mut table, last, add(3), Nanos::from_millis(50));
    table.pass(SECOND);
    assert_eq!(client.hears(&table, &lost), Some(Answer::Unknown));
    assert_eq!(found(client.asks(&mut table, last, list(false))), [1, 2]);
    table.cut_from_log.clear();
    table.pass(SECOND);
    let outcome = fate(client.asks(&mut table, last, Work::Outcome(lost.id)));
    let held = table.logged().contains(&lost.id);
    assert_eq!(held, matches!(outcome, Fate::Committed(_)), "{outcome:?}");
}

/// A newer version of the program has written to the log, or its address leads to another federation's.
#[test]
fn a_master_whose_log_is_not_for_it_stops_and_loses_nothing() {
    let (federation_of_log, ours) = (FederationId(2), FederationId(1));
    for error in [
        LogError::NewerFormat { found: 2, supported: 1 },
        LogError::OtherFederation {
            found: federation_of_log,
            expected: ours,
        },
    ] {
        let (mut table, first) = federation(100);
        let mut client = Client::open(&mut table, first, 1);
        table.hold_appends.insert(first);
        let request = client.sends(&mut table, first, add(1), SECOND);
        table.settle();
        let (_, ticket, _) = table.held[0];
        table.tell(first, Event::Log(ticket, Err(error.clone())));
        assert_eq!(table.node(first).stopped(), Some(&Stop::Log(error)));
        // Whether the append arrives is not known, and it does.
        assert_eq!(client.hears(&table, &request), Some(Answer::Unknown));
        table.hold_appends.clear();
        table.release_appends();
        table.pass(TAKEOVER);
        let second = table.masters().into_iter().find(|number| *number != first);
        let second = second.expect("another node takes over");
        let outcome = client.asks(&mut table, second, Work::Outcome(request.id));
        assert!(matches!(fate(outcome), Fate::Committed(_)));
        assert_eq!(found(client.asks(&mut table, second, list(true))), [1]);
    }
}
