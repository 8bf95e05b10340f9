//! Beside a real etcd, where there is one.

use std::path::{Path, PathBuf};
use std::process::Command;

use punctual_testing::etcd::{EtcdProgram, Members};
use punctual_testing::{WAIT_MAX, reserved_ports, wait_for, wait_ok};
use tempfile::TempDir;

use super::*;
use crate::FORMAT;

const OURS: Identity = Identity {
    federation: FederationId(7),
    format: FORMAT,
    history: LogHistory {
        id: HistoryId(9),
        base: Revision::ZERO,
        parent: HistoryId(0),
    },
};

/// So many members, and their folder; `None`: there is no etcd here, which is said.
fn members(count: usize) -> Option<(Members, TempDir)> {
    let program = match EtcdProgram::find() {
        Ok(program) => program,
        Err(why) => {
            println!("skipped: no etcd ({why})");
            return None;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let members = Members::start(&program, folder.path(), count, WAIT_MAX, |program| {
        Command::new(program)
    });
    Some((members.unwrap(), folder))
}

/// The address of a log in these members; they are started by another copy of this crate, whose types are others.
fn place(members: &Members, name: &str) -> Address {
    members.address(name).to_string().parse().unwrap()
}

/// Asks until there is an answer.
fn sure<T>(mut ask: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    wait_for(
        || "an answer".into(),
        || match ask() {
            Err(LogError::NoAnswer) => None,
            answer => Some(answer),
        },
    )
}

fn at(last: u64) -> LogState {
    LogState {
        last: Revision(last),
        history: OURS.history,
        trimmed: Revision::ZERO,
        bytes: 8 * last,
    }
}

fn opened(address: &Address) -> Etcd {
    let mut log = Etcd::new(address, true).unwrap();
    sure(|| log.open(OURS)).unwrap();
    log
}

/// Appends entries until `upto`, each of which is its own revision; one that is not answered is looked for.
fn append(log: &mut Etcd, upto: u64) {
    let mut last = sure(|| log.open(OURS)).unwrap().last;
    while last.0 < upto {
        let entry = last.next().0.to_be_bytes();
        last = match log.append(last, &entry) {
            Ok(AppendResult::At(at)) => at,
            Ok(AppendResult::Lost { last }) => last, // an earlier try of the same
            Err(LogError::NoAnswer) => last,
            Err(error) => panic!("{error}"),
        };
    }
}

/// Watches until it has all up to `upto`; the revisions, as they came.
fn watch(log: &mut Etcd, mut after: Revision, upto: u64) -> Vec<u64> {
    let mut came = Vec::new();
    wait_ok("all entries", || {
        for record in sure(|| log.await_from(after, 100, Duration::from_millis(100))).unwrap() {
            assert_eq!(*record.bytes, record.revision.0.to_be_bytes());
            after = record.revision;
            came.push(after.0);
        }
        if after.0 >= upto { Ok(()) } else { Err(came.clone()) }
    });
    came
}

#[test]
fn each_place_is_of_one_federation_in_a_format_that_its_nodes_read() {
    let Some((members, _folder)) = members(1) else { return };
    let address = place(&members, "a/b");
    let mut node = Etcd::new(&address, false).unwrap();
    assert_eq!(sure(|| node.open(OURS)), Err(LogError::Gone), "a node claims nothing");
    assert_eq!(sure(|| node.append(Revision::ZERO, b"x")), Err(LogError::Gone));
    let mut log = opened(&address);
    append(&mut log, 3);
    assert_eq!(sure(|| node.open(OURS)), Ok(at(3)));
    let other = Identity {
        federation: FederationId(8),
        ..OURS
    };
    let mut stranger = Etcd::new(&address, true).unwrap();
    let refused = LogError::OtherFederation {
        found: OURS.federation,
        expected: other.federation,
    };
    assert_eq!(sure(|| stranger.open(other)), Err(refused.clone()));
    assert_eq!(
        sure(|| stranger.append(Revision(3), b"x")),
        Err(refused),
        "it is not let in"
    );
    // A place of its own begins behind a backup, and stays as it is when that is said once more.
    let restored = place(&members, "a/c");
    let history = LogHistory {
        id: HistoryId(10),
        base: Revision(41),
        parent: HistoryId(9),
    };
    for history_asked in [history, OURS.history] {
        let mut log = Etcd::new(&restored, true).unwrap();
        let identity = Identity {
            history: history_asked,
            ..OURS
        };
        let opened = sure(|| log.open(identity)).unwrap();
        assert_eq!((opened.last, opened.history), (Revision(41), history));
    }
    let (mut begun, trimmed) = (opened(&restored), Revision(41));
    append(&mut begun, 43);
    assert_eq!(
        sure(|| begun.read_from(Revision(3), 1)),
        Err(LogError::Compacted { trimmed })
    );
    assert_eq!(sure(|| begun.read_from(trimmed, 9)).unwrap().records.len(), 2);
    let mut early = Etcd::new(&address, true).unwrap();
    assert_eq!(
        early.append(Revision(3), b"x"),
        Err(LogError::NoAnswer),
        "it was not opened"
    );
    // One whose opening had no answer opens before anything else.
    early.asked = Some(OURS);
    assert_eq!(sure(|| early.read_from(Revision(3), 1)).unwrap().last, Revision(3));
    // Another name is another place, also one that begins alike.
    let mut beside = opened(&place(&members, "a/b2"));
    assert_eq!(sure(|| beside.open(OURS)), Ok(at(0)));
    let newer = Identity {
        format: FORMAT + 1,
        ..OURS
    };
    assert_eq!(sure(|| log.open(newer)), Ok(at(3)));
    let found = LogError::NewerFormat {
        found: FORMAT + 1,
        supported: FORMAT,
    };
    assert_eq!(sure(|| node.open(OURS)), Err(found));
}

#[test]
fn a_log_that_was_removed_is_gone_and_nothing_is_appended_to_what_took_its_place() {
    let Some((members, _folder)) = members(1) else { return };
    let address = place(&members, "x");
    let (mut log, mut node) = (opened(&address), opened(&address));
    append(&mut log, 5);
    sure(|| log.remove()).unwrap();
    assert_eq!(sure(|| node.append(Revision(5), b"x")), Err(LogError::Gone));
    assert_eq!(sure(|| node.read_from(Revision(2), 9)), Err(LogError::Gone));
    assert_eq!(
        sure(|| node.await_from(Revision(2), 9, Duration::ZERO)),
        Err(LogError::Gone)
    );
    let other = Identity {
        federation: FederationId(8),
        ..OURS
    };
    // Another history of the same federation, which has as many entries.
    let history = LogHistory {
        id: HistoryId(10),
        ..OURS.history
    };
    let identity = Identity { history, ..OURS };
    sure(|| log.open(identity)).unwrap();
    for last in 0..5 {
        sure(|| log.append(Revision(last), b"other")).unwrap();
    }
    assert_eq!(sure(|| node.append(Revision(5), b"x")), Err(LogError::Gone));
    sure(|| log.remove()).unwrap();
    assert_eq!(sure(|| log.open(other)), Ok(at(0)));
    let taken = |error| {
        matches!(
            error,
            LogError::OtherFederation {
                found: FederationId(8),
                ..
            }
        )
    };
    assert!(taken(sure(|| node.append(Revision::ZERO, b"x")).unwrap_err()));
    assert!(taken(sure(|| node.read_from(Revision(2), 9)).unwrap_err()));
}

/// Its history takes more room than its quota, which no trim alone frees; one member is not there.
#[test]
fn an_etcd_without_space_is_given_room() {
    let Ok(program) = EtcdProgram::find() else { return };
    for dead in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let mut members = Members::start(&program, folder.path(), 3, WAIT_MAX, |program| {
            let mut command = Command::new(program);
            command.arg("--quota-backend-bytes=20000000");
            command
        })
        .unwrap();
        let mut log = opened(&place(&members, "full"));
        let (mut last, entry) = (Revision::ZERO, vec![7; 900_000]);
        let mut appends = |log: &mut Etcd, count: u64| {
            let until = last.0 + count;
            while last.0 < until {
                match log.append(last, &entry) {
                    Ok(AppendResult::At(at) | AppendResult::Lost { last: at }) => last = at,
                    Err(LogError::NoAnswer) => {}
                    Err(error) => return (last, Err(error)),
                }
            }
            (last, Ok(()))
        };
        let (end, appended) = appends(&mut log, 12);
        appended.unwrap();
        sure(|| log.trim(end)).unwrap();
        let (end, full) = appends(&mut log, 100);
        assert_eq!(full, Err(LogError::NoRoom));
        members.kill(dead);
        wait_ok("room again", || {
            sure(|| log.trim(end))?;
            appends(&mut log, 1).1
        });
        for _ in 0..3 {
            let (end, appended) = appends(&mut log, 3);
            appended.unwrap();
            sure(|| log.trim(end)).unwrap();
        }
    }
}

#[test]
fn an_entry_that_another_program_has_removed_is_not_passed_over() {
    let Some((members, _folder)) = members(1) else { return };
    let mut log = opened(&place(&members, "x"));
    append(&mut log, 5);
    let delete = Delete {
        key: log.entry_key(Revision(3)),
        range_end: Bytes::new(),
    };
    sure(|| log.ask::<_, EmptyResponse>(messages::DELETE, &delete)).unwrap();
    assert_eq!(sure(|| log.read_from(Revision(1), 9)), Err(LogError::Gone));
    assert_eq!(sure(|| log.read_from(Revision(3), 9)).unwrap().records.len(), 2);
}

#[test]
fn a_watch_goes_on_where_it_was_and_is_told_what_was_compacted() {
    let Some((members, _folder)) = members(1) else { return };
    let address = place(&members, "x");
    let (mut log, mut follower) = (opened(&address), opened(&address));
    append(&mut log, 200);
    assert_eq!(watch(&mut follower, Revision::ZERO, 200), (1..=200).collect::<Vec<_>>());
    // From another revision than the last, back and forth.
    assert_eq!(
        watch(&mut follower, Revision(150), 200),
        (151..=200).collect::<Vec<_>>()
    );
    append(&mut log, 210);
    assert_eq!(
        watch(&mut follower, Revision(205), 210),
        (206..=210).collect::<Vec<_>>()
    );
    // Entries that are trimmed are still in etcd's history, in which a watch goes on.
    follower.watch.stream = None;
    append(&mut log, 220);
    sure(|| log.trim(Revision(215))).unwrap();
    assert_eq!(
        watch(&mut follower, Revision(210), 220),
        (211..=220).collect::<Vec<_>>()
    );
    // Once etcd has forgotten them, it needs a copy.
    follower.watch.stream = None;
    append(&mut log, 230);
    for upto in [226, 228] {
        log.compacted.0 = Instant::now().checked_sub(COMPACT_EVERY).unwrap();
        sure(|| log.trim(Revision(upto))).unwrap();
    }
    let trimmed = Revision(228);
    let told = sure(
        || match follower.await_from(Revision(220), 9, Duration::from_millis(100)) {
            Ok(none) if none.is_empty() => Err(LogError::NoAnswer),
            told => told,
        },
    );
    assert_eq!(told, Err(LogError::Compacted { trimmed }));
    assert_eq!(watch(&mut follower, trimmed, 230), [229, 230]);
}

#[test]
fn the_longest_entries_fit_and_are_read_in_order() {
    let Some((members, _folder)) = members(1) else { return };
    let mut log = opened(&place(&members, "x"));
    let mut last = Revision::ZERO;
    while last.0 < 20 {
        let entry = vec![last.0 as u8; ENTRY_BYTES_MAX];
        last = match sure(|| log.append(last, &entry)).unwrap() {
            AppendResult::At(at) => at,
            AppendResult::Lost { last } => last,
        };
    }
    let read = sure(|| log.read_from(Revision(1), 100)).unwrap();
    assert_eq!((read.records.len(), read.last), (19, Revision(20)));
    for record in read.records {
        let right = record
            .bytes
            .iter()
            .all(|byte| u64::from(*byte) + 1 == record.revision.0);
        assert!(right && record.bytes.len() == ENTRY_BYTES_MAX);
    }
    let len = ENTRY_BYTES_MAX + 1;
    assert_eq!(log.append(last, &vec![0; len]), Err(LogError::EntryTooLong { len }));
}

#[test]
fn a_log_in_three_members_goes_on_without_one_and_a_wiped_one_is_not_let_back() {
    let Some((mut members, _folder)) = members(3) else {
        return;
    };
    let address = place(&members, "x");
    let (mut log, mut follower) = (opened(&address), opened(&address));
    let (mut upto, mut seen) = (0, 0);
    for round in 0..3 {
        let leader = members.leader().unwrap().unwrap_or_default();
        members.kill(leader);
        upto += 20;
        append(&mut log, upto);
        assert_eq!(
            watch(&mut follower, Revision(seen), upto),
            (seen + 1..=upto).collect::<Vec<_>>()
        );
        seen = upto;
        if round == 2 {
            std::fs::remove_dir_all(members.data(leader)).unwrap();
        }
        members.restart(leader).unwrap();
        if round < 2 {
            members.await_leader(WAIT_MAX).unwrap();
        }
    }
    // etcd itself refuses a member that has forgotten what it voted for.
    let refused = wait_for(|| "the wiped member is refused".into(), || members.look().err());
    let said = refused.to_string();
    assert!(said.contains("ended by itself"), "{said}");
    append(&mut log, upto + 20);
    let all = sure(|| follower.read_from(Revision::ZERO, usize::MAX)).unwrap();
    assert_eq!(all.records.len() as u64, upto + 20);
}

#[test]
fn versions_are_told_apart() {
    for (version, right) in [
        ("3.6.0", true),
        ("3.7.0-rc.0", true),
        ("3.10.1", true),
        ("4.0.0", true),
        ("3.5.21", false),
        ("3.4.23", false),
        ("2.6.9", false),
        ("", false),
        ("x.y", false),
    ] {
        assert_eq!(is_new_enough(version), right, "{version}");
    }
}

#[test]
fn what_cannot_be_reached_is_named() {
    let [free] = reserved_ports();
    let address: Address = format!("etcd://127.0.0.1:{free}").parse().unwrap();
    let mut log = Etcd::new(&address, true).unwrap();
    let error = log.check().unwrap_err().to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{free}")) && error.contains("start etcd there"),
        "{error}"
    );
    assert_eq!(log.open(OURS), Err(LogError::NoAnswer));
    let address = format!("etcds://127.0.0.1:{free}?ca=/nowhere/ca.pem");
    let error = Etcd::new(&address.parse().unwrap(), true).err().unwrap().to_string();
    assert!(error.contains("/nowhere/ca.pem") && error.contains("PEM"), "{error}");
}

/// Certificates of a test, which expire with it.
mod tls {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    fn certificates(folder: &Path) -> [PathBuf; 3] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        let authority = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
        let ours = params.signed_by(&key, &authority).unwrap();
        let files = ["ca.pem", "our.pem", "our.key"].map(|name| folder.join(name));
        for (file, pem) in files.iter().zip([ca.pem(), ours.pem(), key.serialize_pem()]) {
            fs::write(file, pem).unwrap();
        }
        files
    }

    #[test]
    fn etcd_and_its_client_show_each_other_certificates() {
        let Ok(program) = EtcdProgram::find() else {
            println!("skipped: no etcd (see the other tests)");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let [ca, cert, key] = certificates(folder.path());
        let [client, peer] = reserved_ports();
        let url = format!("https://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program.path);
        command
            .args(["--name", "m", "--data-dir"])
            .arg(folder.path().join("data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("m={peer}"), "--log-level", "panic"]);
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&ca);
        command.arg("--cert-file").arg(&cert).arg("--key-file").arg(&key);
        struct EtcdChild(std::process::Child);
        impl Drop for EtcdChild {
            fn drop(&mut self) {
                drop(self.0.kill());
                drop(self.0.wait());
            }
        }
        let _kept = EtcdChild(command.spawn().unwrap());
        let [ca, cert, key] = [ca, cert, key].map(|path| path.display().to_string());
        let ours = format!("etcds://127.0.0.1:{client}?ca={ca}&cert={cert}&key={key}");
        let mut log = Etcd::new(&ours.parse().unwrap(), true).unwrap();
        wait_ok("etcd answers", || log.check());
        assert_eq!(sure(|| log.open(OURS)), Ok(at(0)));
        let without = format!("etcds://127.0.0.1:{client}?ca={ca}");
        let mut stranger = Etcd::new(&without.parse().unwrap(), false).unwrap();
        assert!(matches!(stranger.check(), Err(EtcdError::Unreachable { .. })));
        let plain = format!("etcd://127.0.0.1:{client}");
        let mut plain = Etcd::new(&plain.parse().unwrap(), false).unwrap();
        assert!(matches!(plain.check(), Err(EtcdError::Unreachable { .. })));
    }
}
