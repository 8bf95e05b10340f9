//! The check finds what it is for.

use punctual_federation::entry::{Body, Entry, LoggedTransaction};
use punctual_federation::ids::{BatchId, Boot, Epoch, FederationId, Member, NodeId, RequestId, Revision, SessionId};
use punctual_logs::{CommitLog, Local};
use punctual_store::batch::WriteSet;

use super::super::load::Fate;
use super::audit::{Audit, AuditedLog, Clients, Disagreements, compare};

const OURS: FederationId = FederationId(1);

fn id(number: u64) -> RequestId {
    RequestId {
        session: SessionId(1),
        number,
    }
}

fn entry(node: u32, epoch: u64, body: Body) -> Vec<u8> {
    let member = Member {
        node: NodeId(node),
        boot: Boot(1),
    };
    let epoch = Epoch(epoch);
    let id = BatchId {
        member,
        epoch,
        number: 1,
    };
    Entry { id, body }.encode(OURS)
}

fn batch(node: u32, epoch: u64, numbers: &[u64]) -> Vec<u8> {
    let logged = |number: &u64| LoggedTransaction {
        id: id(*number),
        set: WriteSet::default(),
        events: Vec::new(),
    };
    entry(node, epoch, Body::Batch(numbers.iter().map(logged).collect()))
}

fn audit(entries: &[Vec<u8>]) -> Audit {
    let folder = tempfile::tempdir().unwrap();
    let mut log = AuditedLog::new(Local::open(&folder.path().join("log")).unwrap(), OURS);
    let identity = punctual_logs::Identity {
        federation: OURS,
        format: punctual_logs::FORMAT,
        history: punctual_logs::LogHistory::default(),
    };
    log.open(identity).unwrap();
    for (last, entry) in entries.iter().enumerate() {
        log.append(Revision(last as u64), entry).unwrap();
    }
    log.audit.clone()
}

fn told(fates: &[Fate]) -> Clients {
    let mut clients = Clients::default();
    (1..)
        .zip(fates)
        .for_each(|(number, fate)| clients.take(id(number), *fate));
    clients
}

const DONE: Fate = Fate::Acknowledged { returned: 1, right: 1 };

#[test]
fn what_agrees_is_not_complained_of() {
    let log = audit(&[
        entry(0, 1, Body::Reign(Default::default())),
        batch(0, 1, &[1, 2]),
        entry(1, 2, Body::Reign(Default::default())),
        batch(1, 2, &[3]),
    ]);
    let told = told(&[DONE, Fate::Committed, DONE, Fate::NotExecuted, Fate::NeverExecuted]);
    assert_eq!(compare(&log, &told), Disagreements::default());
}

#[test]
fn each_planted_fault_is_found() {
    let reign = || entry(0, 1, Body::Reign(Default::default()));
    let found = |entries: &[Vec<u8>], fates: &[Fate]| compare(&audit(entries), &told(fates));
    let none = Disagreements::default;

    let lost = found(&[reign()], &[DONE, Fate::Committed]);
    assert_eq!(
        lost,
        Disagreements {
            acknowledged_lost: 2,
            ..none()
        }
    );
    let twice = found(&[reign(), batch(0, 1, &[1]), batch(0, 1, &[1])], &[DONE]);
    assert_eq!(
        twice,
        Disagreements {
            executed_twice: 1,
            ..none()
        }
    );
    let late = found(&[reign(), batch(0, 1, &[1])], &[Fate::NotExecuted]);
    assert_eq!(
        late,
        Disagreements {
            executed_though_late: 1,
            ..none()
        }
    );
    let missing = found(&[reign()], &[Fate::Missing]);
    assert_eq!(
        missing,
        Disagreements {
            answers_missing: 1,
            ..none()
        }
    );
    let wrong = Fate::Acknowledged { returned: 1, right: 2 };
    let wrong = found(&[reign(), batch(0, 1, &[1])], &[wrong]);
    assert_eq!(
        wrong,
        Disagreements {
            wrong_answers: 1,
            ..none()
        }
    );
    // A deposed master, one of another start of the node, and a reign that begins twice.
    let deposed = [reign(), entry(1, 2, Body::Reign(Default::default())), batch(0, 1, &[1])];
    assert_eq!(
        found(&deposed, &[DONE]),
        Disagreements {
            double_masters: 1,
            ..none()
        }
    );
    let again = [reign(), entry(1, 1, Body::Reign(Default::default()))];
    assert_eq!(
        found(&again, &[]),
        Disagreements {
            double_masters: 1,
            ..none()
        }
    );
    assert_eq!(
        found(&[b"?".to_vec()], &[]),
        Disagreements {
            double_masters: 1,
            ..none()
        }
    );
}
