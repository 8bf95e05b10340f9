//! `punctual store` as a user has it: beside a program that writes the store, and on what is no store.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{folder_with, punctual, refused, told};
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, Engine, Table, Write};
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_testing::TestChild;
use punctual_units::{Clock, Nanos, SensorId, Seq};

const CHILD: &str = "STORE_TEST_CHILD";
const RECORDS: u32 = 100;

/// Not a test: a program that writes its store until its input ends. Each transaction writes all records anew.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let durability = if directory.ends_with("volatile") {
        Durability::Volatile
    } else {
        Durability::NoMetaSync
    };
    let options = LmdbOptions {
        durability,
        quota: 64 << 20,
        ..LmdbOptions::default()
    };
    let engine = options.open(&directory).expect("a store");
    let pose = ObjectSpec {
        key: b"pose".to_vec(),
        avi: Nanos::from_secs(1),
        period: Nanos::from_millis(100),
        max_len: 16,
        history: 1,
    };
    let origin = punctual_os::linux::clock_origin();
    let options = StoreOptions {
        // Commands that a busy machine holds up are not ended for their age.
        reader_life_max: None,
        clock_origin: origin.map_or(ClockOrigin::UNKNOWN, |name| ClockOrigin::named(name.as_bytes())),
        ..StoreOptions::from([pose])
    };
    let store = Store::open(engine, LinuxOs, options).expect("a store");
    store.offer(SensorId(0), Seq(1), LinuxOs.now(), b"1.5 m").expect("room");
    write(&store, 0);
    store.commit_group().expect("a commit");
    println!("\nready");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for round in 1.. {
            if over.load(std::sync::atomic::Ordering::Relaxed) {
                return println!("wrote {round} rounds");
            }
            write(&store, round);
            // Without rest, a command that a busy machine holds up would be ended for what its snapshot keeps.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
}

fn write(store: &Store<punctual_engines::Lmdb, LinuxOs>, round: u32) {
    let mut transaction = store.write_transaction(Deadline::NONE).expect("the lock");
    for number in 0..RECORDS {
        let value = format!("round {round} ").repeat(1 + (number * 7 + round) as usize % 40);
        transaction
            .put(format!("record {number:03}").as_bytes(), value.as_bytes())
            .expect("room");
    }
    transaction.commit().expect("a commit");
}

struct Owner {
    child: TestChild,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Owner {
    fn of(directory: &Path) -> Owner {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "store::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = punctual_testing::start(&mut command, common::BOUND).expect("the child starts");
        let lines = BufReader::new(child.stdout().expect("piped")).lines();
        let mut owner = Owner { child, lines };
        owner.said("ready");
        owner
    }

    fn said(&mut self, begin: &str) {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        assert!(
            lines.any(|line| line.starts_with(begin)),
            "the child ended without {begin}"
        );
    }

    fn end(mut self) {
        drop(self.child.stdin());
        self.said("wrote");
        assert!(self.child.wait().expect("an end").success());
    }
}

/// What the records of an export say of their round: one and the same.
fn round_in(export: &str) -> u32 {
    let mut rounds = export.lines().filter(|line| line.starts_with("data")).map(|line| {
        let value = line.rsplit(' ').next().expect("a value");
        let round = value.split("%20").nth(1).expect("a round");
        round.parse::<u32>().expect("a number")
    });
    let first = rounds.next().expect("a record");
    assert_eq!(
        rounds.by_ref().filter(|round| *round == first).count() as u32,
        RECORDS - 1,
        "more than one round"
    );
    first
}

#[test]
fn all_commands_read_beside_a_program_that_writes() {
    let folder = folder_with(&[]);
    let owner = Owner::of(&folder.path().join("live"));
    let run = |arguments: &[&str]| told(punctual(folder.path(), arguments)).0;
    let inspected = run(&["store", "inspect", "live"]);
    assert!(
        inspected.contains(&format!("open in     process {}\n", owner.child.id())),
        "{inspected}"
    );
    assert!(inspected.contains("records     100, and 1 temporal"), "{inspected}");
    assert!(
        inspected.contains("pose                                    5 "),
        "{inspected}"
    );
    assert!(!inspected.contains("unknown"), "{inspected}");
    let json: serde_json::Value =
        serde_json::from_str(&run(&["store", "inspect", "live", "--json", "-"])).expect("JSON");
    assert_eq!(json["quota_bytes"], 64 << 20);
    assert_eq!(json["reserve_bytes"], 8 << 20);
    assert!(
        json["temporal"][0]["age_ns"].as_u64().is_some_and(|age| age > 0),
        "{json}"
    );
    let mut before = 0;
    for number in 0..5 {
        assert!(run(&["store", "verify", "live"]).starts_with("live: sound: commit "));
        let copy = format!("copy {number}");
        run(&["store", "backup", "live", &copy]);
        run(&["store", "verify", &copy]);
        let round = round_in(&run(&["store", "export", &copy]));
        assert!(round >= before, "{round} after {before}");
        run(&["store", "export", "live", "export.txt"]);
        let imported = format!("imported {number}");
        run(&["store", "import", &imported, "export.txt"]);
        let text = fs::read_to_string(folder.path().join("export.txt")).expect("text");
        assert_eq!(run(&["store", "export", &imported]), text);
        before = round_in(&text);
    }
    let pid = owner.child.id();
    let in_use = refused(folder.path(), &["store", "compact", "live"]);
    assert!(
        in_use.starts_with("live: ") && in_use.contains(&format!("process {pid}")),
        "{in_use}"
    );
    assert!(before > 0, "the program did not write meanwhile");
    owner.end();
    let compacted = run(&["store", "compact", "live"]);
    assert!(
        compacted.contains("live: kept 101 records") && compacted.contains("on the medium: "),
        "{compacted}"
    );
    run(&["store", "verify", "live"]);
    assert!(run(&["store", "inspect", "live"]).contains("open in     no process\n"));
}

#[test]
fn the_doctor_looks_at_stores_that_are_named_and_at_those_of_this_folder() {
    let folder = folder_with(&[
        ("node.toml", "[store]\npath = \"live\"\n"),
        ("other.toml", "[store]\npath = \"nowhere\"\n"),
    ]);
    let owner = Owner::of(&folder.path().join("live"));
    fs::create_dir(folder.path().join("empty")).expect("a folder");
    let rows = |arguments: &[&str], code: i32| {
        let output = punctual(folder.path(), &[&["doctor"], arguments].concat());
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(code), "{said}");
        let rows = said
            .lines()
            .filter(|line| line.get(10..).is_some_and(|rest| rest.starts_with("store ")));
        (rows.map(str::to_owned).collect::<Vec<_>>(), said.clone())
    };
    let pid = owner.child.id();
    let (rows_now, said) = rows(&["--store", "empty"], 2);
    let [empty, live] = &rows_now[..] else { panic!("{said}") };
    assert!(empty.starts_with("missing") && empty.contains("empty: "), "{empty}");
    for part in [
        "offered",
        "live: format 2",
        &format!("open in process {pid}, which is alive"),
        "% of its quota of 64",
    ] {
        assert!(live.contains(part), "{part}: {live}");
    }
    owner.end();
    told(punctual(folder.path(), &["store", "verify", "live"]));
    let (rows_now, said) = rows(&[], 0);
    let [live] = &rows_now[..] else { panic!("{said}") };
    for part in [
        "open in no process",
        "no readers",
        "all records checked within the last hour",
    ] {
        assert!(live.contains(part), "{part}: {live}");
    }
    // Damage is a finding, and a failure only for the store that the command names.
    let data = folder.path().join("live/data.mdb");
    let mut bytes = fs::read(&data).expect("a file");
    bytes[16] ^= 1;
    fs::write(&data, bytes).expect("room");
    for (arguments, code) in [(&[][..], 0), (&["--store", "live"], 1)] {
        let (rows_now, said) = rows(arguments, code);
        assert!(
            rows_now[0].starts_with("refused") && said.contains("After damage"),
            "{said}"
        );
    }
}

#[test]
fn a_volatile_store_in_use_is_read_and_said_to_be_one() {
    let folder = folder_with(&[]);
    let owner = Owner::of(&folder.path().join("volatile"));
    let (said, _) = told(punctual(folder.path(), &["store", "inspect", "volatile"]));
    assert!(said.contains("durability  volatile: "), "{said}");
    told(punctual(folder.path(), &["store", "backup", "volatile", "copy"]));
    let (said, _) = told(punctual(folder.path(), &["store", "inspect", "copy"]));
    assert!(said.contains("durability  what was synced"), "{said}");
    owner.end();
}

/// A store that no process has open.
fn closed(folder: &Path, name: &str, records: u32) {
    let engine = LmdbOptions::default().open(folder.join(name)).expect("a store");
    let mut transaction = engine.write().expect("a transaction");
    for number in 0..records {
        let value = vec![number as u8; 1_000];
        transaction
            .put(Table::Data, &number.to_be_bytes(), &value)
            .expect("room");
    }
    transaction.commit().expect("a commit");
}

#[test]
fn what_is_no_store_is_refused_by_each_command() {
    let folder = folder_with(&[
        ("file", "x"),
        ("empty/x", ""),
        ("text/data.mdb", &"this is no database".repeat(500)),
    ]);
    let path = folder.path();
    for name in ["pipe", "zero"] {
        fs::create_dir(path.join(name)).expect("a folder");
    }
    let fifo = std::ffi::CString::new(path.join("pipe/data.mdb").to_str().expect("text")).expect("no zero");
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    std::os::unix::fs::symlink("/dev/zero", path.join("zero/data.mdb")).expect("a link");
    for command in ["inspect", "verify", "export", "backup", "compact"] {
        let run = |store: &str| {
            let more: &[&str] = if command == "backup" { &["to"] } else { &[] };
            let output = punctual(path, &[&["store", command, store], more].concat());
            assert!(output.stdout.is_empty(), "{command} {store}");
            assert_eq!(
                fs::read_dir(path).expect("a folder").count(),
                5,
                "{command} {store} leaves nothing"
            );
            (output.status.code(), String::from_utf8(output.stderr).expect("text"))
        };
        for store in ["none", "file", "empty"] {
            let (code, said) = run(store);
            assert_eq!(code, Some(2), "{command}: {said}");
            assert!(
                said.starts_with(&format!("{store}: there is no store")),
                "{command}: {said}"
            );
        }
        for store in ["pipe", "zero"] {
            let (code, said) = run(store);
            assert_eq!(code, Some(2), "{command}: {said}");
            assert!(said.starts_with(&format!("{store}/data.mdb: ")), "{command}: {said}");
            assert!(said.contains("no ordinary file"), "{command}: {said}");
        }
        let (code, said) = run("text");
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.contains("has no LMDB mark"), "{command}: {said}");
    }
}

#[test]
fn damage_is_found_with_1_and_a_newer_format_is_refused_with_2() {
    let folder = folder_with(&[]);
    closed(folder.path(), "x", 100);
    let file = folder.path().join("x/data.mdb");
    let whole = fs::read(&file).expect("a file");
    let at = whole
        .windows(1_000)
        .position(|window| window == [77; 1_000])
        .expect("the value")
        + 500;
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    fs::write(&file, &damaged).expect("a file");
    told(punctual(folder.path(), &["store", "verify", "x", "--structure"]));
    for command in [
        &["verify", "x"][..],
        &["export", "x", "x.txt"],
        &["backup", "x", "y"],
        &["compact", "x"],
    ] {
        let output = punctual(folder.path(), &[&["store"], command].concat());
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("M is not what was written"), "{said}");
    }
    assert!(fs::read(&file).expect("a file") == damaged, "left as it was");
    // The format stands behind its name.
    let mut newer = whole;
    let name = newer
        .windows(6)
        .rposition(|window| window == b"format")
        .expect("a format");
    newer[name + 6] = 3;
    let other = newer
        .windows(6)
        .position(|window| window == b"format")
        .expect("a format");
    newer[other + 6] = 3;
    fs::write(&file, &newer).expect("a file");
    for command in [
        &["inspect", "x"][..],
        &["verify", "x"],
        &["export", "x"],
        &["backup", "x", "y"],
        &["compact", "x"],
    ] {
        let said = refused(folder.path(), &[&["store"], command].concat());
        assert!(said.contains("format 3") && said.contains("format 2"), "{said}");
    }
    assert!(fs::read(&file).expect("a file") == newer, "left as it was");
}

#[test]
fn an_import_that_is_none_is_refused_in_bounded_time_and_leaves_nothing() {
    let folder = folder_with(&[
        ("cut.txt", "punctual store export 1\nchecksums yes\ndata 1 1 a"),
        ("taken/x", ""),
    ]);
    let path = folder.path();
    let fifo = std::ffi::CString::new(path.join("pipe").to_str().expect("text")).expect("no zero");
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let cases = [
        ("store import new pipe", "pipe: is no ordinary file"),
        ("store import new /dev/zero", "/dev/zero: is no ordinary file"),
        ("store import new cut.txt", "cut.txt: line 3: "),
        ("store import taken cut.txt", "taken: "),
        ("store inspect none", "none: there is no store"),
    ];
    let mut list = common::refusals(path, &cases);
    // What never ends, where a pipe was asked for.
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_punctual");
    command
        .args(["-c", &format!("{binary} store import new - < /dev/zero")])
        .current_dir(path);
    let output = punctual_testing::output(&mut command, common::BOUND).expect("a shell");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("standard input: line 1: "), "{said}");
    list += &format!("$ punctual store import new - < /dev/zero\n{said}");
    insta::assert_snapshot!("store", list);
    assert_eq!(fs::read_dir(path).expect("a folder").count(), 3);
}

/// Runs the program with room for files of so many bytes only.
fn cramped(folder: &Path, arguments: &[&str], bytes: u64) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(arguments).current_dir(folder);
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: two plain system calls. Beyond the limit, a write fails in place of a signal.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    command.stdin(Stdio::null()).output().expect("the program starts")
}

#[test]
fn a_full_disk_leaves_what_was_there_and_nothing_else() {
    let folder = folder_with(&[]);
    closed(folder.path(), "x", 1_000);
    let file = folder.path().join("x/data.mdb");
    let whole = fs::read(&file).expect("a file");
    told(punctual(folder.path(), &["store", "export", "x", "x.txt"]));
    let commands: [&[&str]; 4] = [
        &["backup", "x", "y"],
        &["export", "x", "y.txt"],
        &["import", "y", "x.txt"],
        &["compact", "x"],
    ];
    for command in commands {
        let output = cramped(folder.path(), &[&["store"], command].concat(), 300_000);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(
            said.contains("no room left") || said.contains("cannot be written"),
            "{command:?}: {said}"
        );
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("one").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["x", "x.txt"], "{command:?}");
        assert!(fs::read(&file).expect("a file") == whole, "{command:?}");
    }
    told(punctual(folder.path(), &["store", "verify", "x"]));
}

#[test]
fn no_output_replaces_a_store() {
    let folder = folder_with(&[("x.model.json", "{}"), ("notes", "mine")]);
    closed(folder.path(), "x", 10);
    let file = folder.path().join("x/data.mdb");
    let whole = fs::read(&file).expect("a file");
    for (arguments, why) in [
        (
            &["store", "export", "x", "x/data.mdb"][..],
            "x is the folder of a store",
        ),
        (
            &["store", "inspect", "x", "--json", "x/data.mdb"],
            "x is the folder of a store",
        ),
        (&["doctor", "--json", "x/data.mdb"], "x is the folder of a store"),
        (&["doctor", "--json", "notes"], "is no JSON report"),
        (&["store", "export", "x", "notes"], "is no export of a store"),
        (
            &["store", "inspect", "x", "--json", "x.model.json"],
            ".model.json is for models",
        ),
    ] {
        let said = refused(folder.path(), arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    assert!(fs::read(&file).expect("a file") == whole);
    assert_eq!(fs::read_to_string(folder.path().join("notes")).expect("a file"), "mine");
}

#[test]
fn doctor_and_inspect_agree_on_a_truncated_and_on_an_empty_store() {
    let folder = folder_with(&[]);
    // The last commits take the free pages of the first: the roots stay where the file is cut, and leaves are lost.
    for records in [10, 1_000, 1, 1] {
        closed(folder.path(), "x", records);
    }
    let file = fs::File::options()
        .write(true)
        .open(folder.path().join("x/data.mdb"))
        .expect("a file");
    let len = file.metadata().expect("its length").len();
    for (len, code, why) in [
        (len * 9 / 10, 1, "truncated"),
        (len / 2, 1, "corrupt"),
        (0, 2, "the store's data.mdb is empty"),
    ] {
        file.set_len(len).expect("a shorter file");
        let said = [["store", "inspect", "x"], ["doctor", "--store", "x"]].map(|command| {
            let output = punctual(folder.path(), &command);
            assert_eq!(output.status.code(), Some(code), "{command:?}");
            String::from_utf8(output.stderr).expect("text")
        });
        assert!(said[0] == said[1] && said[0].contains(why), "{said:?}");
    }
}

/// Another user may read the store, and has no part in its table of readers.
#[test]
fn the_store_of_another_user_is_read_while_it_is_not_written_over() {
    // SAFETY: takes and returns plain numbers.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only the superuser can run a program as another user");
        return;
    }
    let folder = folder_with(&[]);
    let path = folder.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    closed(path, "x", 100);
    let binary = path.join("punctual");
    punctual_testing::copy_program(env!("CARGO_BIN_EXE_punctual").as_ref(), &binary);
    let as_another = |arguments: &[&str]| {
        let mut command = Command::new(&binary);
        command
            .args(arguments)
            .current_dir(path)
            .uid(65_534)
            .gid(65_534)
            .stdin(Stdio::null());
        let output = command.output().expect("the program starts");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        (output.status.code(), text)
    };
    fs::set_permissions(path.join("x/data.mdb"), fs::Permissions::from_mode(0o600)).expect("its mode");
    let (code, said) = as_another(&["store", "inspect", "x"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("x/data.mdb: ") && said.contains("Permission denied"),
        "{said}"
    );
    fs::set_permissions(path.join("x/data.mdb"), fs::Permissions::from_mode(0o644)).expect("its mode");
    for command in ["inspect", "verify", "export"] {
        assert_eq!(as_another(&["store", command, "x"]).0, Some(0), "{command}");
    }
    let (code, said) = as_another(&["store", "compact", "x"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("write permission"), "{said}");
    let (code, said) = as_another(&["store", "backup", "x", "y"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot be written"), "{said}");
    let mut left: Vec<_> = fs::read_dir(path)
        .expect("a folder")
        .map(|entry| entry.expect("one").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["punctual", "x"]);
}
