//! `punctual-lab cluster run`: processes of a cluster under load and faults; exit codes, and what is checked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use punctual_testing::{TestChild, wait_ok, wait_until};

use crate::common::certificates::Authority;
use crate::common::{BOUND, lab, refused, told};

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command.args(["cluster", "run"]).args(arguments).env("TMPDIR", folder);
    command.stdin(Stdio::null());
    command
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn nothing_acknowledged_is_lost_and_each_request_has_one_answer_when_the_master_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &["--duration", "3s", "--rate", "60", "--json", "-"]);
    let (json, said) = told(punctual_testing::output(&mut command, BOUND).unwrap());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(said.contains("redis-cli reaches the federation at "), "{said}");
    let faults = report["checked"].as_object().unwrap();
    assert!(
        faults.len() >= 7 && faults.values().all(|count| *count == 0),
        "{report}"
    );
    assert_eq!(report["outages"][0]["fault"], "killed", "{report}");
    let answers = report["answers"].as_object().unwrap();
    let each: u64 = answers.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(each > 0 && report["load"]["offered"].as_u64() == Some(each), "{report}");
    assert_eq!(report["log"]["replicated"], false);
    assert_eq!(files(folder.path()), 0, "nothing is left behind");
}

/// Starts a program, and returns it with its first line that has `part`.
fn started(command: &mut Command, part: &str) -> (TestChild, String) {
    let mut child = punctual_testing::start(command.stdin(Stdio::null()).stdout(Stdio::piped()), BOUND).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains(part)).expect("it runs");
    // Later lines are few, and fit into the pipe.
    std::mem::forget(lines);
    (child, line)
}

/// No process has the folder in its command line, and the folder is empty.
fn nothing_is_left(folder: &Path) {
    let shown = folder.to_str().unwrap();
    wait_until("its processes end, and its files are removed", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        files(folder) == 0 && !lines.any(|line| line.contains(shown))
    });
}

/// Process ids of the processes that this one has started.
fn children(parent: u32) -> Vec<String> {
    let of = format!("/proc/{parent}/task/{parent}/children");
    let all = std::fs::read_to_string(of).unwrap_or_default();
    all.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_run_that_is_interrupted_says_so_and_leaves_nothing_behind() {
    let (folder, result) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let json = result.path().join("r.json");
    let run = ["--rate", "20", "--duration", "600s", "--json", json.to_str().unwrap()];
    let (mut run, _) = started(&mut command(folder.path(), &run), "redis-cli reaches");
    // SAFETY: plain numbers; the child has not been waited for.
    unsafe { libc::kill(run.id() as i32, libc::SIGINT) };
    assert!(run.wait().unwrap().success());
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["interrupted"], true, "{report}");
    nothing_is_left(folder.path());
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["--rate", "20", "--duration", "600s"];
    let (run, _) = started(&mut command(folder.path(), &run), "redis-cli reaches");
    wait_until("nodes, balancers, the load, and one that removes their files", || {
        children(run.id()).len() == 7
    });
    let processes = children(run.id());
    drop(run);
    nothing_is_left(folder.path());
    wait_until("the processes end", || {
        processes.iter().all(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        })
    });
}

/// The load comes to a balancer by TLS, and logs in.
#[test]
fn a_load_trusts_an_authority_and_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = ["--rate", "1", "--duration", "600s"];
    let (_cluster, line) = started(&mut command(here, &run), "`punctual cluster balance` reaches nodes at");
    let nodes: Vec<String> = line
        .rsplit(" at ")
        .next()
        .unwrap()
        .split(' ')
        .map(|node| format!("\"{node}\""))
        .collect();
    Authority::new(here).sign(here, "front", [2020, 2090]);
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command.current_dir(here);
        command
    };
    let mut hash = program();
    hash.args(["serve", "--hash", "1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut hash = hash.spawn().unwrap();
    hash.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let password = String::from_utf8(hash.wait_with_output().unwrap().stdout).unwrap();
    let file = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[tls]\ncertificate = \"front.pem\"\nkey = \"front.key\"\n[[user]]\nname = \
         \"robot\"\npassword = \"{}\"\nmay = [\"read\", \"write\"]\nkeys = [\"counter:\"]\n[federation]\nnodes = [{}]\n",
        password.trim(),
        nodes.join(", ")
    );
    for (name, text) in [
        ("front.toml", file.as_str()),
        ("right", "secret\n"),
        ("wrong", "quite another\n"),
    ] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(here.join(name), text).unwrap();
        std::fs::set_permissions(here.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let mut balance = program();
    balance.args(["process", "balance", "--file", "front.toml"]);
    let (_balancer, line) = started(&mut balance, "clients reach the federation at");
    let address = line.rsplit(' ').next().unwrap();
    let load = |password: &str| {
        let login = [
            "--authority",
            "authority.pem",
            "--user",
            "robot",
            "--password-file",
            password,
        ];
        let offered = ["--rate", "50", "--clients", "4", "--duration", "1s"];
        lab(here, &[&["cluster", "load", address][..], &login, &offered].concat())
    };
    let (text, _) = told(load("right"));
    assert!(text.contains("offered"), "{text}");
    let refused = load("wrong");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(
        error.contains("WRONGPASS") && !error.contains("quite another"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), &["cluster", "run", "--fault", "leader"]);
    assert!(error.contains("no leader to be killed"), "{error}");
    let error = refused(folder.path(), &["cluster", "run", "--rate", "nan"]);
    assert!(error.contains("rate"), "{error}");
    let error = refused(folder.path(), &["cluster", "run", "--work", "2s"]);
    assert!(error.contains("work: a request costs a node at most"), "{error}");
    // The kernel takes connections for a program that never accepts them.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let error = refused(folder.path(), &["cluster", "load", "--clients", "4", &address]);
    assert!(error.contains(&address) && error.contains("no answer"), "{error}");
    let traders = [
        "cluster",
        "load",
        "--workload",
        "stock",
        "--clients",
        "2001",
        "127.0.0.1:1",
    ];
    let error = refused(folder.path(), &traders);
    assert!(error.contains("at most 2000 --clients"), "{error}");
    let error = refused(folder.path(), &["process", "load", "--writes", "2", "127.0.0.1:1"]);
    assert!(error.contains("--writes: a share"), "{error}");
    // Without the right to make network namespaces, the superuser's is taken away.
    let mut cut = command(folder.path(), &["--fault", "cut", "--duration", "1s"]);
    // SAFETY: a plain system call with numbers. Other users have no such right.
    unsafe {
        cut.pre_exec(|| {
            const CAP_SYS_ADMIN: libc::c_ulong = 21;
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
            Ok(())
        });
    }
    let output = punctual_testing::output(&mut cut, BOUND).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no network namespace") && said.contains("CAP_SYS_ADMIN"),
        "{said}"
    );
}

#[test]
fn a_log_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |log: &str| refused(folder.path(), &["cluster", "run", "--log", log]);
    for log in ["file", "http://127.0.0.1:2379", ""] {
        let error = run(log);
        assert!(error.contains("etcd://HOST:PORT"), "{log}: {error}");
    }
    #[cfg(not(feature = "etcd"))]
    for log in ["etcd", "etcd://127.0.0.1:1"] {
        let error = run(log);
        assert!(
            error.contains("without etcd") && error.contains("--features etcd"),
            "{error}"
        );
    }
    #[cfg(feature = "etcd")]
    for (log, what) in [
        ("etcd://127.0.0.1", "HOST:PORT"),
        ("etcd://127.0.0.1:1", "start etcd there"),
        ("etcds://127.0.0.1:1?ca=none.pem", "none.pem"),
    ] {
        let error = run(log);
        assert!(error.contains(what), "{log}: {error}");
    }
    assert_eq!(files(folder.path()), 0, "nothing is left behind");
}

#[cfg(feature = "etcd")]
mod etcd {
    use std::os::unix::fs::PermissionsExt;

    use punctual_testing::etcd::{EtcdProgram, Members};

    use super::*;

    fn program() -> Option<EtcdProgram> {
        let program = EtcdProgram::find();
        if let Err(why) = &program {
            println!("skipped: no etcd ({why})");
        }
        program.ok()
    }

    fn checked(folder: &Path, arguments: &[&str]) -> serde_json::Value {
        let mut command = command(folder, arguments);
        let (json, _) = told(punctual_testing::output(&mut command, BOUND).unwrap());
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        let faults = report["checked"].as_object().unwrap();
        assert!(faults.values().all(|count| *count == 0), "{report}");
        assert_eq!(report["log"]["replicated"], true);
        assert!(report["log"]["entries"].as_u64().unwrap() > 0);
        report
    }

    #[test]
    fn nothing_acknowledged_is_lost_when_etcds_leader_is_killed_with_the_master() {
        if program().is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let run = [
            "--log",
            "etcd",
            "--duration",
            "4s",
            "--rate",
            "60",
            "--fault",
            "both",
            "--json",
            "-",
        ];
        let report = checked(folder.path(), &run);
        assert_eq!(
            report["outages"][0]["fault"], "killed with the log's leader",
            "{report}"
        );
        assert!(report["log"]["takeovers"].as_u64().unwrap() >= 2, "{report}");
        assert_eq!(files(folder.path()), 0, "nothing is left behind");
    }

    #[test]
    fn an_etcd_that_runs_is_taken_and_left_as_it_was() {
        let Some(program) = program() else { return };
        let folder = tempfile::tempdir().unwrap();
        let members = Members::start(&program, folder.path(), 1, BOUND, |program| Command::new(program)).unwrap();
        let address = members.address("robots/1");
        let (at, runs) = (address.to_string(), tempfile::tempdir().unwrap());
        for _ in 0..2 {
            checked(
                runs.path(),
                &["--log", &at, "--duration", "2s", "--rate", "60", "--json", "-"],
            );
        }
        assert_eq!(files(runs.path()), 0, "nothing is left behind");
        // What another one has there is refused, and stays.
        use punctual_logs::{CommitLog, Etcd, FORMAT, FederationId, Identity, LogHistory};
        let other = Identity {
            federation: FederationId(1),
            format: FORMAT,
            history: LogHistory::default(),
        };
        let mut log = Etcd::new(&address, true).unwrap();
        wait_ok("the log is open", || log.open(other));
        let error = refused(runs.path(), &["cluster", "run", "--log", &at]);
        for part in ["another run", "etcd://HOST:PORT/NAME", "etcdctl del --prefix robots/1/"] {
            assert!(error.contains(part), "{error}");
        }
        let mut node = Etcd::new(&address, false).unwrap();
        wait_ok("the log is open", || node.open(other));
        // Three members that a run would start are not to be had from an old program.
        let old = folder.path().join("etcd");
        std::fs::write(&old, "#!/bin/sh\necho 'etcd Version: 3.4.23'\n").unwrap();
        std::fs::set_permissions(&old, PermissionsExt::from_mode(0o755)).unwrap();
        let mut run = command(runs.path(), &["--log", "etcd"]);
        let output = punctual_testing::output(run.env("PUNCTUAL_ETCD", &old), BOUND).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("3.4.23") && said.contains("at least 3.6"), "{said}");
    }

    #[test]
    fn a_run_with_members_that_is_killed_leaves_nothing_behind() {
        if program().is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(folder.path(), &["--log", "etcd", "--rate", "20", "--duration", "600s"]);
        let (child, _) = started(&mut command, "redis-cli reaches");
        drop(child);
        nothing_is_left(folder.path());
    }
}

/// Seven tables, sources of prices and orders of clients at once, on a store alone.
#[test]
fn stock_trading_loses_neither_money_nor_shares() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    serve
        .current_dir(here)
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "market"]);
    let (_server, line) = started(&mut serve, "serving");
    let address = line
        .split(' ')
        .find_map(|word| word.trim_end_matches(';').parse::<std::net::SocketAddr>().ok());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_string();
    let offered = [
        "--workload",
        "stock",
        "--stocks",
        "100",
        "--clients",
        "8",
        "--rate",
        "400",
        "--duration",
        "1s",
    ];
    let answered = |kind: &serde_json::Value| kind["timely"].as_u64().unwrap() + kind["overdue"].as_u64().unwrap();
    // On a busy machine a second may be too short for an answer of each kind.
    wait_ok("each kind is answered", || {
        let (json, _) = told(lab(
            here,
            &[&["cluster", "load", &address][..], &offered, &["--json", "-"]].concat(),
        ));
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["conserved"], true, "{report}");
        assert_eq!(report["at_end"]["shares"], 100 * 1_000_000 + 8 * 50 * 100);
        let kinds = report["kinds"].as_object().unwrap();
        assert_eq!(kinds.len(), 4, "{report}");
        let all = kinds.values().all(|kind| answered(kind) > 0);
        if all { Ok(()) } else { Err(report) }
    });
}
