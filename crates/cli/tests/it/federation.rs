//! `punctual cluster` on the command line: exit codes, the exact words, and nodes as processes.

/// A federation of processes.
#[cfg(target_os = "linux")]
mod run {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use punctual_server::resp::Reply;
    use punctual_testing::{TestChild, wait_ok, wait_until};

    use crate::common::serving::Client;
    use crate::common::{BOUND, punctual, refused, told};

    fn command(folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["cluster", "run"]).args(arguments).env("TMPDIR", folder);
        command.stdin(Stdio::null());
        command
    }

    fn files(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    /// A run that goes on until it is ended, and where its balancers are, then its nodes.
    fn started(folder: &Path) -> (TestChild, Vec<String>, Vec<String>) {
        started_by(folder, &[])
    }

    fn started_by(folder: &Path, arguments: &[&str]) -> (TestChild, Vec<String>, Vec<String>) {
        let mut command = command(folder, arguments);
        command.process_group(0);
        let mut child = punctual_testing::start(command.stdout(Stdio::piped()), BOUND).unwrap();
        let mut lines = BufReader::new(child.stdout().unwrap()).lines();
        let line = lines.find_map(|line| {
            line.ok()?
                .strip_prefix("redis-cli reaches the federation at ")
                .map(str::to_owned)
        });
        let line = line.expect("it runs");
        let (addresses, _) = line.split_once(" (").expect("what replicas do");
        let (balancers, nodes) = addresses.split_once(", and each node alone at ").expect("nodes");
        let addresses = |text: &str| -> Vec<String> { text.split(", ").map(str::to_owned).collect() };
        // What it prints at its end is read by none, and fits into the pipe.
        std::mem::forget(lines);
        (child, addresses(balancers), addresses(nodes))
    }

    /// The processes that one has started, and those that these have.
    fn offspring(parent: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            if after_name.split(' ').nth(1) == Some(&parent.to_string()) {
                found.insert(pid);
            }
        }
        found
    }

    /// The process that removes the run's files is stopped as the run is killed: the kernel has it go on, by SIGHUP.
    #[test]
    fn a_run_that_is_killed_while_its_sweeper_is_stopped_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (child, ..) = started(folder.path());
        let sweeps = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.contains("\0sweep\0"))
        };
        let sweeper = offspring(child.id()).into_iter().find(sweeps).unwrap();
        // SAFETY: plain numbers; it is a child of a process that has not ended.
        unsafe { libc::kill(sweeper as i32, libc::SIGSTOP) };
        wait_until("it is stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{sweeper}/stat")).unwrap();
            stat.contains(") T ")
        });
        drop(child);
        wait_until("its files are removed", || files(folder.path()) == 0);
    }

    /// To the run alone, or, as a terminal does, to its whole process group.
    fn leaves_nothing_behind(signal: i32, to_group: bool) {
        let folder = tempfile::tempdir().unwrap();
        let (child, ..) = started(folder.path());
        wait_until("nodes, balancers, and one that removes their files", || {
            offspring(child.id()).len() == 6
        });
        let processes = offspring(child.id());
        assert_eq!(files(folder.path()), 1);
        // SAFETY: plain numbers; the child has not been waited for.
        unsafe {
            libc::kill(
                if to_group {
                    -(child.id() as i32)
                } else {
                    child.id() as i32
                },
                signal,
            )
        };
        wait_until("its processes end", || {
            processes.iter().all(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            })
        });
        wait_until("its files are removed", || files(folder.path()) == 0);
    }

    #[test]
    fn a_run_that_is_killed_leaves_nothing_behind() {
        leaves_nothing_behind(libc::SIGKILL, false);
    }

    #[test]
    fn a_run_that_is_interrupted_leaves_nothing_behind() {
        leaves_nothing_behind(libc::SIGINT, false);
    }

    #[test]
    fn a_run_whose_terminal_is_closed_leaves_nothing_behind() {
        leaves_nothing_behind(libc::SIGHUP, true);
    }

    /// The first signal has the run end in order, and a second one ends it at once; whichever comes first.
    #[test]
    fn a_second_signal_leaves_nothing_behind() {
        ends_by(libc::SIGINT);
    }

    /// timeout(1) signals a program, and then its group.
    #[test]
    fn an_echo_of_the_signal_leaves_the_end_in_order() {
        // An echo only where the run sees both within 200 ms, which a busy machine may not let it.
        wait_ok("an echo", || match ends_by(libc::SIGTERM).code() {
            Some(0) => Ok(()),
            other => Err(other),
        });
    }

    /// Ends a run by SIGTERM and, a moment later, by `second`.
    fn ends_by(second: i32) -> std::process::ExitStatus {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, ..) = started(folder.path());
        for signal in [libc::SIGTERM, second] {
            // SAFETY: plain numbers; the child has not been waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let status = child.wait().unwrap();
        wait_until("its files are removed", || files(folder.path()) == 0);
        status
    }

    #[test]
    fn only_folders_of_runs_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("punctual-federation-own");
        let sweep = |folder: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
            command.args(["process", "sweep"]).arg(folder).stdin(Stdio::null());
            punctual_testing::output(&mut command, BOUND).unwrap().status.code()
        };
        std::fs::create_dir_all(own.join("node-0")).unwrap();
        std::fs::write(own.join("letter"), "mine").unwrap();
        assert_eq!(sweep(folder.path()), Some(2), "a name of another program");
        assert_eq!(sweep(&own), Some(2), "a file of another program");
        assert!(own.join("letter").exists());
        std::fs::remove_file(own.join("letter")).unwrap();
        assert_eq!(sweep(&own), Some(0));
        assert!(!own.exists());
    }

    #[test]
    fn a_store_that_is_full_refuses_values_and_all_nodes_go_on() {
        let (folder, settings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = settings.path().join("small.toml");
        std::fs::write(&file, "store_bytes_max = 16777216\n").unwrap();
        let (child, _, nodes) = started_by(folder.path(), &[file.to_str().unwrap()]);
        let clients = nodes.iter().map(|node| Client::of(TcpStream::connect(node).unwrap()));
        let mut clients: Vec<Client> = clients.collect();
        let mut ask = |node: usize, words: &str| {
            clients[node].send(words);
            clients[node].try_reply().expect("a reply: the node lives")
        };
        let mut at_master = |words: &str| {
            let mut nodes = (0..3).cycle();
            wait_ok(words, || {
                match ask(nodes.next().unwrap(), &format!("DEADLINE 10000 {words}")) {
                    // Also unknown where the master changed meanwhile; both requests may be made again.
                    Reply::Error(text) if text.starts_with("LATE ") || text.starts_with("UNKNOWN ") => Err(text),
                    Reply::Error(text) => Ok(Err(text)),
                    _ => Ok(Ok(())),
                }
            })
        };
        let value = "v".repeat(100_000);
        let refused =
            (0..300).find_map(|number| at_master(&format!("SET big/{number} {value}")).err().zip(Some(number)));
        let (text, count) = refused.expect("300 values of 100 kB are more than 16 MiB");
        assert!(
            text.starts_with("REFUSED ") && text.contains("delete records"),
            "{text}"
        );
        assert!((100..200).contains(&count), "{count}");
        for number in 0..10 {
            at_master(&format!("DEL big/{number}")).unwrap();
        }
        at_master("SET small value").unwrap();
        for node in 0..3 {
            comes_to(|| ask(node, "GET small"), &Reply::bulk("value"));
        }
        drop(child);
        wait_until("its files are removed", || files(folder.path()) == 0);
    }

    fn comes_to(mut ask: impl FnMut() -> Reply, wanted: &Reply) {
        wait_ok(&format!("{wanted:?}"), || match ask() {
            found if found == *wanted => Ok(()),
            found => Err(found),
        });
    }

    /// Whichever node they are set on, all have them, and know how old they are at most. And what nodes tell is seen.
    #[test]
    fn temporal_objects_are_set_on_any_node_and_nodes_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (child, balancers, nodes) = started(folder.path());
        let clients = nodes
            .iter()
            .chain(&balancers[..1])
            .map(|node| Client::of(TcpStream::connect(node).unwrap()));
        let mut clients: Vec<Client> = clients.collect();
        let mut ask = |node: usize, words: &str| {
            clients[node].send(words);
            clients[node].try_reply().expect("a reply")
        };
        // The second and the third take the object over.
        for source in 0..3 {
            let value = format!("at-{source}");
            comes_to(
                || ask(source, &format!("DEADLINE 20000 TSET pose {value}")),
                &Reply::Simple("OK".into()),
            );
            for node in 0..3 {
                let mut age = 0;
                let mut read = || match ask(node, "GETFRESH pose 3600000") {
                    Reply::Array(found) => {
                        let Some(Reply::Integer(told)) = found.get(1) else {
                            panic!("{found:?}")
                        };
                        age = *told;
                        found[0].clone()
                    }
                    other => other,
                };
                comes_to(&mut read, &Reply::bulk(&value));
                assert!(age > 0, "time has passed since then");
                let Reply::Error(stale) = ask(node, "GETFRESH pose 0") else {
                    panic!("it is older")
                };
                assert!(stale.starts_with("STALE age-ms="), "{stale}");
            }
        }
        assert_eq!(
            ask(2, "TSET pose older AGE 3600000"),
            Reply::Null,
            "a younger one is there"
        );
        assert!(matches!(ask(0, "GETFRESH none 5"), Reply::Error(text) if text.contains("no temporal object")));
        assert!(matches!(ask(0, "POST / HTTP/1.1"), Reply::Error(text) if text.contains("HTTP")));

        let Reply::Bulk(info) = ask(1, "INFO federation temporal") else {
            panic!("INFO")
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        assert!(info.contains("objects:1\r\n") && !info.contains("# Peers"), "{info}");
        // A balancer tells of those that it sent to no node, because a millisecond is less than the way takes.
        let late = ask(3, "DEADLINE 1 GET pose");
        assert!(
            matches!(&late, Reply::Error(text) if text.starts_with("LATE reason=expired")),
            "{late:?}"
        );
        let Reply::Bulk(passed) = ask(3, "INFO") else {
            panic!("INFO")
        };
        let passed = String::from_utf8_lossy(&passed).into_owned();
        assert!(passed.contains("role:balancer\r\n"), "{passed}");
        for name in ["queries_late_expired:", "late_at_balancer:"] {
            let count = passed.lines().find_map(|line| line.strip_prefix(name));
            assert!(count.is_some_and(|count| count != "0"), "no {name} in {passed}");
        }
        let page = info.lines().find_map(|line| line.strip_prefix("metrics:")).unwrap();
        wait_until("the page has figures", || {
            let mut stream = TcpStream::connect(page).unwrap();
            // The server drops a reader that asks nothing for half a second; a busy machine may delay this test longer.
            let mut text = String::new();
            let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
            let answered = asked.and_then(|()| stream.read_to_string(&mut text));
            answered.is_ok()
                && text.contains("punctual_node_object_age_seconds{key=\"pose\"}")
                && text.contains("punctual_node_epoch ")
        });

        let (json, html) = (folder.path().join("seen.json"), folder.path().join("seen.html"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command
            .args(["top", "--duration", "2s"])
            .args(&nodes)
            .arg(&balancers[0]);
        command.arg("--json").arg(&json).arg("--html").arg(&html);
        // Two seconds may be too short for an answer on a machine that is busy: it watches again.
        wait_ok("figures of a node", || {
            let watched = punctual_testing::output(&mut command, BOUND).unwrap();
            if !watched.status.success() {
                return Err(format!("{watched:?}"));
            }
            let (lines, _) = told(watched);
            assert!(lines.contains(" epoch ") || lines.contains("no answer yet"), "{lines}");
            let seen: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
            assert_eq!(seen["nodes"].as_array().unwrap().len(), 4);
            let mut nodes = seen["nodes"].as_array().unwrap().iter().take(3);
            if nodes.any(|node| node["figures"]["objects"] == "1") {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        });
        assert!(std::fs::read_to_string(html).unwrap().contains("<svg"));
        drop(child);
        wait_until("its files are removed", || {
            std::fs::read_dir(folder.path())
                .unwrap()
                .flatten()
                .all(|entry| !entry.path().is_dir())
        });
    }

    #[test]
    fn a_cluster_ends_after_its_duration_and_its_report_has_all_processes() {
        let folder = tempfile::tempdir().unwrap();
        let html = tempfile::NamedTempFile::new().unwrap();
        let shown = html.path().to_str().unwrap();
        let arguments = [
            "--nodes",
            "1",
            "--balancers",
            "1",
            "--duration",
            "1s",
            "--json",
            "-",
            "--html",
            shown,
        ];
        let mut command = command(folder.path(), &arguments);
        let (json, said) = told(punctual_testing::output(&mut command, BOUND).unwrap());
        assert!(said.contains("redis-cli reaches the federation at "), "{said}");
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["nodes"].as_array().unwrap().len(), 2, "{report}");
        assert!(std::fs::read_to_string(html.path()).unwrap().contains("<svg"));
        assert_eq!(files(folder.path()), 0, "nothing is left behind");
    }

    /// The report is written though the command fails.
    #[test]
    fn a_node_that_dies_ends_the_cluster_and_the_report_is_written() {
        let (folder, result) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let json = result.path().join("r.json");
        let (mut child, ..) = started_by(folder.path(), &["--json", json.to_str().unwrap()]);
        let is_node = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.contains("\0node\0"))
        };
        let node = offspring(child.id()).into_iter().find(is_node).unwrap();
        // SAFETY: plain numbers; it is a child of a process that has not ended.
        unsafe { libc::kill(node as i32, libc::SIGKILL) };
        assert_eq!(child.wait().unwrap().code(), Some(2));
        let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!(report["nodes"].as_array().unwrap().len(), 5, "{report}");
        wait_until("its files are removed", || files(folder.path()) == 0);
    }

    #[test]
    fn where_no_node_is_nothing_is_seen() {
        let [free] = punctual_testing::reserved_ports();
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{free}");
        let error = refused(folder.path(), &["top", "--duration", "1s", &address]);
        assert!(error.contains(&address), "{error}");
        // The kernel takes connections for a program that never accepts them.
        let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = silent.local_addr().unwrap().to_string();
        // Lines say the same meanwhile.
        let output = punctual(folder.path(), &["top", "--plain", "--duration", "1s", &address]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&address) && error.contains("no answer"), "{error}");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.toml"), "nodes = 0\n").unwrap();
        let error = refused(folder.path(), &["cluster", "run", "run.toml"]);
        assert!(error.contains("run.toml") && error.contains("1 to 16 nodes"), "{error}");
        std::fs::write(folder.path().join("small.toml"), "store_bytes_max = 1\n").unwrap();
        let error = refused(folder.path(), &["cluster", "run", "small.toml"]);
        assert!(error.contains("small.toml:1: store_bytes_max"), "{error}");
        let error = refused(
            folder.path(),
            &["cluster", "balance", "--listen", "192.0.2.1:7400", "127.0.0.1:1"],
        );
        assert!(error.contains("listen on 127.0.0.1"), "{error}");
        let error = refused(folder.path(), &["process", "node"]);
        assert!(error.contains("punctual cluster run"), "{error}");
    }
}

/// Nodes as programs of their own, by their files.
#[cfg(target_os = "linux")]
mod members {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};

    use punctual_server::resp::Reply;
    use punctual_testing::{TestChild, reserved_ports, wait_for, wait_ok, wait_until};

    use crate::common::certificates::{Authority, connect};
    use crate::common::serving::{Client, end};
    use crate::common::{BOUND, refused};

    /// A program that runs, and the lines that it says.
    struct ChildProgram {
        child: TestChild,
        said: Receiver<String>,
    }

    fn start(folder: &Path, arguments: &[&str]) -> ChildProgram {
        start_telling(folder, arguments, Stdio::inherit())
    }

    /// With its errors as `errors` says.
    fn start_telling(folder: &Path, arguments: &[&str], errors: Stdio) -> ChildProgram {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(errors);
        let mut child = punctual_testing::start(&mut command, BOUND).unwrap();
        let lines = BufReader::new(child.stdout().unwrap()).lines();
        let (tell, said) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        ChildProgram { child, said }
    }

    impl ChildProgram {
        fn says(&self, part: &str) -> String {
            loop {
                match self.said.recv_timeout(BOUND) {
                    Ok(line) if line.contains(part) => return line,
                    Ok(_) => {}
                    Err(error) => panic!("{part}: {error}"),
                }
            }
        }

        /// It is asked to leave, and does.
        fn leaves(mut self) {
            end(&self.child);
            self.says("has left");
            assert!(self.child.wait().unwrap().success());
        }
    }

    fn file(node: usize, ports: &[u16; 6], certificate: &str, password: &str) -> String {
        let (nodes, clients) = ports.split_at(3);
        let places: Vec<String> = nodes.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        format!(
            "[server]\nlisten = \"127.0.0.1:{}\"\n[store]\npath = \"store-{node}\"\n[[user]]\nname = \"robot\"\n\
             password = \"{password}\"\nmay = [\"read\", \"write\"]\nkeys = [\"arm/\"]\n[federation]\nname = \"plant\"\n\
             node = {node}\nnodes = [{}]\nlog = \"unix:log.socket\"\n[federation.tls]\ncertificate = \
             \"{certificate}.pem\"\nkey = \"{certificate}.key\"\nclients = \"authority.pem\"\n",
            clients[node],
            places.join(", ")
        )
    }

    fn client(port: u16) -> Client {
        Client::of(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    fn hashed(folder: &Path) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(["serve", "--hash", "1000"]).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Asks both nodes, and says whether it is so.
    type Check = Box<dyn FnMut(&mut [Client; 2]) -> bool>;

    /// Two nodes; tasks in one of them set what both read, beside the load, and read what the other one's client sets.
    #[test]
    fn tasks_of_a_node_set_and_read_what_all_nodes_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ports = reserved_ports::<4>();
        let node = |node: usize, more: &str| {
            let text = format!(
                "[server]\nlisten = \"127.0.0.1:{}\"\n{}[store]\npath = \"store-{node}\"\n[federation]\nname = \
                 \"plant\"\nnode = {node}\nnodes = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\nlog = \
                 \"unix:log.socket\"\n{more}",
                ports[node],
                if more.is_empty() {
                    ""
                } else {
                    "record = \"decisions.json\"\n"
                },
                ports[2],
                ports[3]
            );
            std::fs::write(folder.join(format!("{node}.toml")), text).unwrap();
        };
        let tasks = "[tasks]\nscenario = \"robot.toml\"\nreads = [\"goal\"]\n[[tasks.sets]]\ntask = \
                     \"steer\"\nobject = \"arm/steer\"\n";
        node(0, &format!("[federation.backlog]\ntarget = \"100ms\"\n{tasks}"));
        node(1, "");
        let robot = "[goal]\nmin_fresh = 0.0\n[control]\ncontroller = \"open\"\nwarm_up = \"0s\"\n[store]\nobjects = \
                     100\n[trace]\nsensors = 4\nperiod = [\"20ms\", \"50ms\"]\n[[task]]\nname = \"steer\"\nclass = \
                     \"real-time\"\nperiod = \"10ms\"\ndeadline = \"10ms\"\ncompute = \"100us\"\ndata = \"100us\"\n";
        std::fs::write(folder.join("robot.toml"), robot).unwrap();
        let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
        log.says("not replicated");
        let nodes = [0, 1].map(|node: usize| start(folder, &["serve", &format!("{node}.toml")]));
        nodes.iter().for_each(|node| drop(node.says("serves")));
        let mut clients = [0, 1].map(|at| client(ports[at]));
        let mut wait = |what: &str, mut is_so: Check| wait_until(what, || is_so(&mut clients));
        // What the task sets is the federation's: the other node has it, and later numbers of it.
        let number = |client: &mut Client| match client.ask("GETFRESH arm/steer 60000") {
            Reply::Array(found) => match &found[0] {
                Reply::Bulk(value) => String::from_utf8(value.clone()).unwrap().parse::<u64>().ok(),
                other => panic!("{other:?}"),
            },
            _ => None,
        };
        for at in [0, 1] {
            let mut first = None;
            wait(
                "the task's numbers go on",
                Box::new(move |clients| match (first, number(&mut clients[at])) {
                    (Some(first), Some(now)) => now > first,
                    (_, now) => {
                        first = now;
                        false
                    }
                }),
            );
        }
        wait(
            "it is set",
            Box::new(|clients| clients[1].ask("TSET goal 1.5") == Reply::ok()),
        );
        // Its lateness is told with its requests, and by what watches nodes.
        let info = |client: &mut Client| match client.ask("INFO") {
            Reply::Bulk(text) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        };
        wait(
            "its jobs are told",
            Box::new(move |clients| {
                let text = info(&mut clients[0]);
                assert!(text.contains("bound_law:waits\r\ndelay_target_us:100000\r\n"), "{text}");
                let jobs = text
                    .split("task0:name=steer,")
                    .nth(1)
                    .and_then(|line| line.split("jobs=").nth(1));
                let jobs = jobs.and_then(|jobs| jobs.split(',').next()?.parse::<u64>().ok());
                jobs.is_some_and(|jobs| jobs > 0)
            }),
        );
        assert!(!info(&mut clients[1]).contains("task0"));
        let [address, other] = [ports[0], ports[1]].map(|port| format!("127.0.0.1:{port}"));
        let watch = [
            "top",
            &address,
            &other,
            "--plain",
            "--duration",
            "1s",
            "--json",
            "seen.json",
        ];
        // A second may be too short for an answer on a machine that is busy: it watches again.
        wait_ok("the task is seen", || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
            let watched = punctual_testing::output(command.args(watch).current_dir(folder), BOUND).unwrap();
            let seen = || std::fs::read_to_string(folder.join("seen.json")).unwrap();
            if watched.status.success() && seen().contains("name=steer") {
                Ok(())
            } else {
                Err(watched)
            }
        });
        let [mut zero, one] = nodes;
        end(&zero.child);
        zero.says("steer");
        assert!(zero.child.wait().unwrap().success());
        one.leaves();
        let mut replay = Command::new(env!("CARGO_BIN_EXE_punctual"));
        let replay = replay.args(["replay", "decisions.json"]).current_dir(folder);
        assert!(punctual_testing::output(replay, BOUND).unwrap().status.success());
    }

    #[test]
    fn nodes_believe_certificates_and_clients_are_users() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let authority = Authority::new(folder);
        let ports = reserved_ports::<6>();
        let password = hashed(folder);
        for node in 0..3 {
            let name = format!("node-{node}");
            authority.sign(folder, &name, [2020, 2090]);
            std::fs::write(
                folder.join(format!("{node}.toml")),
                file(node, &ports, &name, &password),
            )
            .unwrap();
        }
        let start_log = || {
            let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
            log.says("not replicated");
            log
        };
        let log = start_log();
        let in_use = refused(folder, &["cluster", "log", "commits", "--listen", "other.socket"]);
        assert!(in_use.contains("commits"), "{in_use}");
        let start_node = |node: usize| start(folder, &["serve", &format!("{node}.toml")]);
        let nodes = [0, 1, 2].map(start_node);
        nodes.iter().for_each(|node| drop(node.says("serves")));

        let mut clients = [3, 4, 5].map(|at| client(ports[at]));
        for client in &mut clients {
            assert!(client.error("GET arm/1").starts_with("NOAUTH"));
            assert!(client.error("AUTH robot wrong").starts_with("WRONGPASS"));
            assert_eq!(client.ask("AUTH robot secret"), Reply::ok());
            assert!(client.error("GET leg/1").starts_with("NOPERM"));
            assert!(client.error("INFO").starts_with("NOPERM"));
        }
        // What the master has written is read at each node.
        let at = set_at_master(&mut clients, "DEADLINE 10000 SET arm/1 up");
        for client in &mut clients {
            comes_to(client, "GET arm/1", &Reply::bulk("up"));
        }

        // Without the log reads go on at each node, and of a transaction the truth is told; with it all goes on.
        drop(log);
        for _ in 0..20 {
            for client in &mut clients {
                assert_eq!(client.ask("DEADLINE 10000 GET arm/1"), Reply::bulk("up"));
            }
            let told = clients[at].error("DEADLINE 100 SET arm/1 down");
            assert!(told.starts_with("LATE") || told.starts_with("UNKNOWN"), "{told}");
        }
        let log = start_log();
        set_at_master(&mut clients, "DEADLINE 1000 SET arm/2 up");
        drop(clients);

        // A certificate of another authority.
        let [first, second, third] = nodes;
        third.leaves();
        let foreign = folder.join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        Authority::new(&foreign).sign(folder, "node-2", [2020, 2090]);
        let third = start_node(2);
        third.says("the way to node 0 is closed");
        first.says("a connection of a peer was ended");
        // Nor does it leave in order: it does not know where the log ends, and what it has is the log's.
        drop(third);
        second.leaves();
        first.leaves();
        end(&log.child);
    }

    /// The log is lost, and all stores but a backup of one: the federation goes on from there.
    #[test]
    fn a_federation_begins_anew_from_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ports = reserved_ports::<4>();
        for node in [0, 1] {
            let text = format!(
                "[server]\nlisten = \"127.0.0.1:{}\"\n[store]\npath = \"store-{node}\"\n[federation]\nname = \
                 \"plant\"\nnode = {node}\nnodes = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\nlog = \"unix:log.socket\"\n",
                ports[node], ports[2], ports[3]
            );
            std::fs::write(folder.join(format!("{node}.toml")), text).unwrap();
        }
        let log = || {
            let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
            log.says("not replicated");
            log
        };
        let (commits, first) = (log(), start(folder, &["serve", "0.toml"]));
        first.says("serves");
        let mut one = client(ports[0]);
        for number in 1..=5 {
            comes_to(
                &mut one,
                &format!("DEADLINE 10000 SET arm/{number} {number}"),
                &Reply::ok(),
            );
        }
        ends_with(folder, 0, &["store", "backup", "store-0", "copy"]);
        // More than the new log will have: a node whose last entry the master of a busy machine has trimmed is given
        // all records anew, whatever it has.
        for _ in 0..50 {
            comes_to(&mut one, "DEADLINE 10000 SET later 1", &Reply::ok());
        }
        first.leaves();
        end(&commits.child);
        drop(commits);
        let found = ["cluster", "found", "plant", "--log", "commits", "--from"];
        let told = ends_with(folder, 2, &[&found[..], &["copy"]].concat());
        assert!(told.contains("there is a log already"), "{told}");
        std::fs::remove_file(folder.join("commits")).unwrap();
        let told = ends_with(folder, 2, &[&found[..], &["nothing"]].concat());
        assert!(told.contains("nothing"), "{told}");
        let told = ends_with(folder, 2, &found[..5]);
        assert!(told.contains("--from STORE"), "{told}");
        std::fs::rename(folder.join("store-0"), folder.join("further")).unwrap();
        let told = ends_with(folder, 0, &[&found[..], &["copy"]].concat());
        assert!(told.contains("begins behind revision"), "{told}");

        std::fs::rename(folder.join("copy"), folder.join("store-0")).unwrap();
        let commits = log();
        let nodes = [0, 1].map(|node| start(folder, &["serve", &format!("{node}.toml")]));
        nodes.iter().for_each(|node| drop(node.says("serves")));
        for port in [ports[0], ports[1]] {
            let mut client = client(port);
            comes_to(&mut client, "GET arm/5", &Reply::bulk("5"));
            comes_to(&mut client, "GET later", &Reply::Null);
        }
        let mut front = [ports[0], ports[1]].map(client);
        wait_until("there is a master", || {
            let mut clients = front.iter_mut();
            clients.any(|client| client.ask("DEADLINE 10000 INCR arm/5") == Reply::Integer(6))
        });
        front
            .iter_mut()
            .for_each(|client| comes_to(client, "GET arm/5", &Reply::bulk("6")));
        let [first, second] = nodes;
        second.leaves();
        // A node tells a store that goes further than the backup, and changes none of its records.
        std::fs::remove_dir_all(folder.join("store-1")).unwrap();
        std::fs::rename(folder.join("further"), folder.join("store-1")).unwrap();
        let records = || {
            let told = ends_with(folder, 0, &["store", "export", "store-1"]);
            let records = told.lines().filter(|line| line.starts_with("data "));
            let records: Vec<String> = records.map(str::to_owned).collect();
            assert!(records.iter().any(|record| record.contains("later")), "{told}");
            records
        };
        let before = records();
        let told = ends_with(folder, 2, &["serve", "1.toml"]);
        assert!(told.contains("move the store away"), "{told}");
        assert_eq!(records(), before);
        first.leaves();
        end(&commits.child);
    }

    /// The same file, with a certificate for clients and a user that watches.
    fn closed(node: usize, ports: &[u16; 6], password: &str) -> String {
        let name = format!("node-{node}");
        let users = format!(
            "[tls]\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n[[user]]\nname = \"watcher\"\npassword = \
             \"{password}\"\nmay = [\"server\"]\n[store]"
        );
        file(node, ports, &name, password).replacen("[store]", &users, 1)
    }

    fn front(nodes: &[u16], shown: &str, to_nodes: &str, password: &str) -> String {
        let places: Vec<String> = nodes.iter().map(|port| format!("\"localhost:{port}\"")).collect();
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n[tls]\ncertificate = \"{shown}.pem\"\nkey = \"{shown}.key\"\n\
             [[user]]\nname = \"robot\"\npassword = \"{password}\"\nmay = [\"read\", \"write\"]\nkeys = [\"arm/\", \
             \"counter:\"]\n[federation]\nnodes = [{}]\n[federation.tls]\ncertificate = \"{to_nodes}.pem\"\nkey = \
             \"{to_nodes}.key\"\nclients = \"authority.pem\"\n",
            places.join(", ")
        )
    }

    /// How it ends, and what it has said by then: no password.
    fn ends(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(arguments).current_dir(folder);
        let output = punctual_testing::output(&mut command, BOUND).unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let said = said.concat();
        assert!(!said.contains("secret") && !said.contains("quite another"), "{said}");
        (output.status.code(), said)
    }

    fn ends_with(folder: &Path, code: i32, arguments: &[&str]) -> String {
        let (found, said) = ends(folder, arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        said
    }

    #[test]
    fn balancers_and_watchers_show_certificates_and_are_users() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        let authority = Authority::new(folder);
        for (name, years) in [
            ("node-0", [2020, 2090]),
            ("node-1", [2020, 2090]),
            ("front", [2020, 2090]),
            ("old", [2020, 2021]),
            // As where this machine's clock is set back.
            ("early", [2080, 2090]),
        ] {
            authority.sign(folder, name, years);
        }
        let foreign = folder.join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        Authority::new(&foreign).sign(folder, "foreign", [2020, 2090]);
        let (ports, password) = (reserved_ports::<6>(), hashed(folder));
        write("right", "secret\n");
        write("wrong", "quite another\n");
        let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
        log.says("not replicated");
        let nodes = [0, 1].map(|node| {
            write(&format!("{node}.toml"), &closed(node, &ports, &password));
            start(folder, &["serve", &format!("{node}.toml")])
        });
        nodes.iter().for_each(|node| drop(node.says("serves")));

        // A reading of one node is read at the other, which tells that it came.
        let come = |port: u16, user: &str| {
            let mut client = Client::over(connect(&format!("127.0.0.1:{port}"), folder, None));
            assert_eq!(client.ask(&format!("AUTH {user} secret")), Reply::ok());
            client
        };
        let (mut source, mut peer) = (come(ports[3], "robot"), come(ports[4], "robot"));
        let mut watcher = come(ports[4], "watcher");
        wait_ok("a reading comes", || {
            let set = source.ask("DEADLINE 10000 TSET arm/pose 7");
            assert!(
                set == Reply::ok() || matches!(&set, Reply::Error(late) if late.starts_with("LATE")),
                "{set:?}"
            );
            let Reply::Bulk(text) = watcher.ask("INFO") else {
                return Err(String::new());
            };
            let told = String::from_utf8_lossy(&text).into_owned();
            let peer0 = told.lines().find(|line| line.starts_with("peer0:"));
            let told = peer0.unwrap_or_default().to_owned();
            if told.contains("readings_taken=") && !told.contains("readings_taken=0") {
                Ok(())
            } else {
                Err(told)
            }
        });
        wait_until(
            "the reading is read",
            || matches!(peer.ask("GETFRESH arm/pose 60000"), Reply::Array(found) if found[0] == Reply::bulk("7")),
        );

        // What a balancer cannot start with.
        for (name, said) in [
            ("old", "old.pem: the certificate expired"),
            ("early", "early.pem: the certificate is valid in"),
        ] {
            write("wrong.toml", &front(&ports[..2], name, "front", &password));
            let told = ends_with(folder, 2, &["cluster", "balance", "--file", "wrong.toml"]);
            assert!(told.contains(said) && told.contains("clock"), "{told}");
            let text = closed(0, &ports, &password).replace("node-0.pem", &format!("{name}.pem"));
            write("wrong.toml", &text.replace("node-0.key", &format!("{name}.key")));
            let told = ends_with(folder, 2, &["serve", "wrong.toml"]);
            assert!(told.contains(said) && told.contains("clock"), "{told}");
        }
        let open = front(&ports[..2], "front", "front", &password).replacen("127.0.0.1:0", "0.0.0.0:0", 1);
        let users = open.find("[[user]]").unwrap()..open.find("[federation]").unwrap();
        write("open.toml", &[&open[..users.start], &open[users.end..]].concat());
        let told = ends_with(folder, 2, &["cluster", "balance", "--file", "open.toml"]);
        assert!(told.contains("without users"), "{told}");
        write("bad.toml", "[federation]\nnodes = [\"here\"]\nnode = 1\n");
        let told = ends_with(folder, 2, &["cluster", "balance", "--file", "bad.toml"]);
        assert!(
            told.contains("bad.toml:2: federation.nodes") && told.contains("federation.node: unknown"),
            "{told}"
        );

        // A client comes by TLS, as a user, and reaches the nodes, which believe the balancer's certificate.
        write("front.toml", &front(&ports[..2], "front", "front", &password));
        let front_runs = start(folder, &["cluster", "balance", "--file", "front.toml"]);
        let line = front_runs.says("clients reach the federation at");
        let address = line.rsplit(' ').next().unwrap().to_owned();
        let line = front_runs.says("figures on http://");
        let page = line
            .rsplit("//")
            .next()
            .unwrap()
            .trim_end_matches("/metrics")
            .to_owned();
        let come = || Client::over(connect(&address, folder, None));
        let mut client = come();
        assert!(client.error("GET arm/1").starts_with("NOAUTH"));
        assert!(client.error("AUTH robot wrong").starts_with("WRONGPASS"));
        assert_eq!(client.ask("AUTH robot secret"), Reply::ok());
        assert!(client.error("GET leg/1").starts_with("NOPERM"));
        comes_to(&mut client, "DEADLINE 10000 SET arm/1 up", &Reply::ok());
        comes_to(&mut client, "GET arm/1", &Reply::bulk("up"));
        wait_ok("a transaction is counted", || {
            let mut stream = TcpStream::connect(&page).unwrap();
            // Likewise for those that ask within half a second.
            let mut text = String::new();
            let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
            let answered = asked.and_then(|()| stream.read_to_string(&mut text));
            let done = "punctual_balancer_requests_total{kind=\"transaction\",outcome=\"done\"} ";
            if answered.is_ok() && text.contains(done) && !text.contains(&format!("{done}0\n")) {
                Ok(())
            } else {
                Err(text)
            }
        });
        // Without TLS there is no answer; another authority is not believed.
        let mut plain = Client::of(TcpStream::connect(&address).unwrap());
        plain.send("PING");
        assert_ne!(plain.try_reply(), Some(Reply::Simple("PONG".into())));
        let mut doubtful = connect(&address, &foreign, None);
        doubtful.write_all(b"PING\r\n").unwrap_err();

        // A balancer with a certificate of another authority is kept out, and says so.
        write("foreign.toml", &front(&ports[..1], "front", "foreign", &password));
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command
            .args(["cluster", "balance", "--file", "foreign.toml"])
            .current_dir(folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut kept_out = punctual_testing::start(&mut command, BOUND).unwrap();
        nodes[0].says("a connection of a peer was ended");
        let mut told = BufReader::new(kept_out.stderr().unwrap()).lines();
        let told = told.next().unwrap().unwrap();
        assert!(told.contains(&format!("127.0.0.1:{}", ports[0])), "{told}");
        drop(kept_out);

        // A new certificate is shown to clients that come; one that has expired is not taken.
        let shown = |client: &mut Client<_>| {
            let tls: &mut crate::common::certificates::Tls = &mut client.stream;
            tls.conn.peer_certificates().unwrap()[0].to_vec()
        };
        let before = shown(&mut client);
        authority.sign(folder, "front", [2020, 2091]);
        front_runs.says("certificate read again");
        wait_until("the new certificate is shown", || {
            let mut next = come();
            assert_eq!(next.ask("AUTH robot secret"), Reply::ok());
            shown(&mut next) != before
        });
        authority.sign(folder, "front", [2020, 2021]);
        front_runs.says("certificate kept as it was");
        assert_eq!(come().ask("AUTH robot secret"), Reply::ok());

        // Commands that watch a node, and load a balancer.
        let node = format!("localhost:{}", ports[3]);
        // A second may be too short for an answer on a machine that is busy: it watches again.
        let watch = |more: &[&str], code, part: &str| {
            let arguments = ["top", &node, "--duration", "1s", "--plain", "--json", "-"];
            let arguments = [&arguments[..], more].concat();
            wait_ok(&format!("{arguments:?}: {code}, {part}"), || {
                let (found, said) = ends(folder, &arguments);
                if found == Some(code) && said.contains(part) {
                    Ok(())
                } else {
                    Err((found, said))
                }
            });
        };
        let closed = ["--authority", "authority.pem", "--user", "watcher", "--password-file"];
        watch(&[&closed[..], &["wrong"]].concat(), 2, "WRONGPASS");
        watch(&["--authority", "authority.pem"], 2, "NOAUTH");
        watch(&["--user", "watcher", "--password-file", "right"], 2, "127.0.0.1");
        watch(&["--authority", "foreign/authority.pem"], 2, "certificate");
        watch(&[&closed[..], &["right"]].concat(), 0, "serving");
        end(&front_runs.child);
        nodes.into_iter().for_each(|node| drop(node.child));
        end(&log.child);
    }

    #[test]
    fn a_file_that_no_node_can_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ports = reserved_ports::<6>();
        let hash = hashed(folder);
        let good = file(1, &ports, "node", &hash);
        let refused = |text: &str| {
            std::fs::write(folder.join("x.toml"), text).unwrap();
            refused(folder, &["serve", "x.toml"])
        };
        for (from, to, said) in [
            ("node = 1", "node = 3", "federation.node"),
            ("name = \"plant\"", "name = \"\"", "federation.name"),
            ("unix:log.socket", "log.socket", "federation.log"),
            ("clients = \"authority.pem\"", "", "federation.tls"),
            ("certificate = \"node.pem\"", "certificate = \"none.pem\"", "none.pem"),
            (
                "[federation.tls]",
                "durability = \"x\"\n[federation.tls]",
                "federation.durability",
            ),
        ] {
            assert!(good.contains(from), "{from}");
            let told = refused(&good.replacen(from, to, 1));
            assert!(told.contains(said), "{to}: {told}");
        }
        let without_tls = good.split("[federation.tls]").next().unwrap();
        let open = without_tls.replacen("node = 1", "node = 1\nlisten = \"0.0.0.0:0\"", 1);
        assert!(
            refused(&open).contains("could take part as a node"),
            "{}",
            refused(&open)
        );
        let users = without_tls.find("[[user]]").unwrap()..without_tls.find("[federation]").unwrap();
        let mut open = without_tls.replacen("listen = \"127.0.0.1", "listen = \"0.0.0.0", 1);
        open.replace_range(users.start - 2..users.end - 2, "");
        assert!(refused(&open).contains("without users"), "{}", refused(&open));
    }

    /// A node of two without users and TLS.
    fn open_file(folder: &Path, name: &str, node: usize, ports: [u16; 2], client: u16, store: &str) -> String {
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{client}\"\n[store]\npath = \"{store}\"\n[federation]\nname = \
             \"plant\"\nnode = {node}\nnodes = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\nlog = \"unix:log.socket\"\n",
            ports[0], ports[1]
        );
        std::fs::write(folder.join(name), &text).unwrap();
        text
    }

    fn logs(folder: &Path) -> ChildProgram {
        let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
        log.says("not replicated");
        log
    }

    /// Asks until the reply is as wanted: a master may change on a busy machine, and tells so by `LATE`.
    fn comes_to<S: Read + Write>(client: &mut Client<S>, words: &str, wanted: &Reply) {
        wait_ok(&format!("{words}: {wanted:?}"), || match client.ask(words) {
            found if found == *wanted => Ok(()),
            found => Err(found),
        });
    }

    /// Asks one node after the other until the master has carried out `words`; returns its index.
    fn set_at_master(clients: &mut [Client], words: &str) -> usize {
        let mut nodes = (0..clients.len()).cycle();
        wait_ok(words, || {
            let node = nodes.next().unwrap();
            match clients[node].ask(words) {
                reply if reply == Reply::ok() => Ok(node),
                reply => Err(reply),
            }
        })
    }

    fn signal(running: &ChildProgram, signal: i32) {
        // SAFETY: plain numbers, of a child that has not been waited for.
        unsafe { libc::kill(running.child.id() as i32, signal) };
    }

    fn killed(running: ChildProgram) {
        signal(&running, libc::SIGKILL);
        drop(running.child);
    }

    /// What it says as it ends with 2.
    fn fails(folder: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        let output = punctual_testing::output(command.args(arguments).current_dir(folder), BOUND).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        said
    }

    /// The records take more than any message, the log keeps less than comes while they are copied, and the node that
    /// is given them is killed meanwhile.
    #[test]
    fn a_node_without_records_is_given_a_store_of_any_size() {
        const RECORDS: usize = 200;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ports = reserved_ports::<4>();
        let names = ["0.toml", "1.toml"];
        for node in [0, 1] {
            let text = open_file(
                folder,
                names[node],
                node,
                [ports[2], ports[3]],
                ports[node],
                &format!("store-{node}"),
            );
            std::fs::write(folder.join(names[node]), format!("{text}log_entries_max = 40\n")).unwrap();
        }
        let value = |number: usize| format!("{number}").repeat(100_000 / format!("{number}").len());
        let set = |client: &mut Client, number: usize, value: &str| {
            comes_to(
                client,
                &format!("DEADLINE 10000 SET large/{number} {value}"),
                &Reply::ok(),
            );
        };
        let (commits, first) = (logs(folder), start(folder, &["serve", names[0]]));
        first.says("serves");
        let mut one = client(ports[0]);
        (0..RECORDS).for_each(|number| set(&mut one, number, &value(number)));

        let figure = |client: &mut Client, name: &str| match client.ask("INFO federation") {
            Reply::Bulk(text) => {
                let text = String::from_utf8(text).unwrap();
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.expect("a figure of that name").trim().to_owned()
            }
            found => panic!("{found:?}"),
        };
        // The node that is given the records, in the middle of that: the one that gives them is stopped.
        let try_half = || {
            let second = start(folder, &["serve", names[1]]);
            second.says("is given the records by others");
            let mut other = client(ports[1]);
            // One that goes on with a part may need less.
            wait_until("records are copied", || {
                figure(&mut other, "copied_bytes").parse::<u64>().unwrap() >= 5 << 20
                    || figure(&mut other, "standing") == "serving"
            });
            signal(&first, libc::SIGSTOP);
            if figure(&mut other, "standing") == "copying" {
                return Some((second, other));
            }
            // The machine put this test off for as long as the copy took.
            signal(&first, libc::SIGCONT);
            killed(second);
            std::fs::remove_dir_all(folder.join("store-1")).unwrap();
            None
        };
        let half_given = || wait_for(|| "a copy that goes on".into(), try_half);
        let (second, mut other) = half_given();
        let refused = other.ask("DEADLINE 1000 GET large/1");
        assert!(format!("{refused:?}").contains("LATE"), "{refused:?}");
        killed(second);
        signal(&first, libc::SIGCONT);
        let part = fails(folder, &["cluster", "found", "x", "--log", "new", "--from", "store-1"]);
        assert!(part.contains("a part of a node's records"), "{part}");
        let inspected = ends_with(folder, 0, &["store", "inspect", "store-1", "--json", "-"]);
        // The text on standard error follows.
        let mut inspected = serde_json::Deserializer::from_str(&inspected).into_iter::<serde_json::Value>();
        assert_eq!(inspected.next().unwrap().unwrap()["part"], true);
        let part = fails(folder, &["serve", "--store", "store-1"]);
        assert!(part.contains("a part of a node's records"), "{part}");

        let (second, mut other) = half_given();
        signal(&second, libc::SIGSTOP);
        signal(&first, libc::SIGCONT);
        let mut written = 0;
        // Some while the node is stopped, fewer than the log keeps, and what comes while the node is given the rest.
        wait_until("the copy ends", || {
            if written >= 20 && figure(&mut other, "standing") == "serving" {
                return true;
            }
            set(&mut one, (written * 7) % RECORDS, &format!("new-{written}"));
            written += 1;
            if written == 20 {
                signal(&second, libc::SIGCONT);
            }
            false
        });
        comes_to(&mut one, "DEADLINE 10000 SET last 1", &Reply::ok());
        comes_to(&mut other, "GET last", &Reply::bulk("1"));
        for number in 0..RECORDS {
            let newest = (0..written).rev().find(|written| (written * 7) % RECORDS == number);
            let wanted = newest.map_or_else(|| value(number), |written| format!("new-{written}"));
            comes_to(&mut other, &format!("GET large/{number}"), &Reply::bulk(&wanted));
        }
        [first, second].into_iter().for_each(ChildProgram::leaves);
        end(&commits.child);
    }

    /// A service manager starts it again and again: each time it ends at once, says why and what to do, and what runs
    /// beside goes on.
    #[test]
    fn what_a_node_cannot_start_with_ends_it_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let [zero, one, at_zero, at_one, free, metrics] = reserved_ports::<6>();
        let errors = |name: &str| Stdio::from(std::fs::File::create(folder.join(name)).unwrap());
        let log = logs(folder);
        let good = open_file(folder, "0.toml", 0, [zero, one], at_zero, "store-0");
        let with_page = good.replace("[store]", &format!("metrics = \"127.0.0.1:{metrics}\"\n[store]"));
        std::fs::write(folder.join("0.toml"), with_page).unwrap();
        let node = start_telling(folder, &["serve", "0.toml"], errors("node"));
        node.says("is the master");
        let mut asking = client(at_zero);
        comes_to(&mut asking, "SET a 1", &Reply::ok());

        let other = open_file(folder, "1.toml", 1, [zero, one], at_one, "store-1");
        std::fs::create_dir_all(folder.join("garbage")).unwrap();
        std::fs::write(folder.join("garbage/data.mdb"), "this is no database".repeat(500)).unwrap();
        let listen = |port: u16| format!("node = 1\nlisten = \"127.0.0.1:{port}\"");
        let taken = "another program listens there";
        let cases = [
            (
                format!("listen = \"127.0.0.1:{at_one}\""),
                format!("listen = \"127.0.0.1:{at_zero}\""),
                taken,
            ),
            ("node = 1".into(), listen(zero), taken),
            (
                "[store]".into(),
                format!("metrics = \"127.0.0.1:{metrics}\"\n[store]"),
                "name a free port of this machine",
            ),
            ("store-1".into(), "store-0".into(), "store-0"),
            ("store-1".into(), "garbage".into(), "garbage"),
            ("store-1".into(), "0.toml".into(), "0.toml"),
            ("\"plant\"".into(), "\"ship\"".into(), "belongs to federation"),
            ("node = 1".into(), "node = 2".into(), "federation.node"),
            ("node = 1".into(), "node = \"one\"".into(), "federation.node"),
        ];
        for (number, (from, to, said)) in cases.iter().enumerate() {
            assert!(other.contains(from.as_str()), "{from}");
            let name = format!("wrong-{number}.toml");
            // A store of its own, where the case is not about that.
            let text = other
                .replacen(from.as_str(), to, 1)
                .replace("store-1", &format!("store-{name}"));
            std::fs::write(folder.join(&name), text).unwrap();
            for _ in 0..2 {
                let told = fails(folder, &["serve", &name]);
                assert!(told.contains(said), "{to}: {told}");
            }
        }
        let mut newer = std::fs::read(folder.join("commits")).unwrap();
        newer[8] += 1;
        std::fs::write(folder.join("newer"), &newer).unwrap();
        std::fs::write(folder.join("text"), "no log at all, but for its name and its length").unwrap();
        for (file, socket, said) in [
            ("commits", "free.socket", "another process has this log open"),
            ("newer", "free.socket", "update this program"),
            ("text", "free.socket", "this is no log"),
            ("none/log", "free.socket", "none/log"),
            ("new", "log.socket", taken),
            ("new", "0.toml", "there is something else"),
            ("new", "none/socket", "name a socket in a folder"),
        ] {
            let told = fails(folder, &["cluster", "log", file, "--listen", socket]);
            assert!(told.contains(said), "{file} at {socket}: {told}");
        }
        assert!(
            !folder.join("text.lock").exists() && !folder.join("new.lock").exists(),
            "a lock beside a file that is no log"
        );
        assert_eq!(
            std::fs::read(folder.join("newer")).unwrap(),
            newer,
            "it is left as it was"
        );
        let at = format!("127.0.0.1:{at_zero}");
        let told = fails(
            folder,
            &["cluster", "balance", "--listen", &at, &format!("127.0.0.1:{zero}")],
        );
        assert!(told.contains(taken), "{told}");

        // Of two processes of one name, one is told by their peers to end.
        let peer = start(folder, &["serve", "1.toml"]);
        peer.says("serves");
        let twice = open_file(folder, "twice.toml", 0, [zero, one], free, "store-twice");
        let [apart] = reserved_ports::<1>();
        let twice = twice.replace("node = 0", &format!("node = 0\nlisten = \"127.0.0.1:{apart}\""));
        std::fs::write(folder.join("twice.toml"), twice).unwrap();
        // The later one, unless the machine was busy and the first one silent for a while.
        let mut both = [
            (node, "node", at_zero),
            (
                start_telling(folder, &["serve", "twice.toml"], errors("twice")),
                "twice",
                free,
            ),
        ];
        let gone = wait_for(
            || "one of both ends".into(),
            || {
                both.iter_mut()
                    .position(|(node, ..)| node.child.ended().unwrap().is_some())
            },
        );
        assert_eq!(both[gone].0.child.wait().unwrap().code(), Some(2));
        let told = std::fs::read_to_string(folder.join(both[gone].1)).unwrap();
        assert!(told.contains("another process is node 0 already"), "{told}");
        comes_to(&mut client(both[1 - gone].2), "GET a", &Reply::bulk("1"));
        peer.leaves();
        let [first, second] = both;
        if gone == 0 { second.0 } else { first.0 }.leaves();
        end(&log.child);
    }

    /// The log's file is full again and again: nothing that was acknowledged is gone, and the master makes room.
    #[test]
    fn a_log_with_little_room_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let [zero, one, at_zero, at_one] = reserved_ports::<4>();
        // Files of at most 1 MiB; beyond, a write fails in place of a signal.
        let limited = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" cluster log commits --listen log.socket";
        let mut command = Command::new("bash");
        command
            .args(["-c", limited, env!("CARGO_BIN_EXE_punctual")])
            .current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut log = punctual_testing::start(&mut command, BOUND).unwrap();
        wait_until("the log listens", || folder.join("log.socket").exists());
        let nodes = [(0, at_zero), (1, at_one)].map(|(node, at)| {
            let (name, store) = (format!("{node}.toml"), format!("store-{node}"));
            open_file(folder, &name, node, [zero, one], at, &store);
            start(folder, &["serve", &name])
        });
        nodes.iter().for_each(|node| drop(node.says("serves")));
        let mut clients = [at_zero, at_one].map(client);
        let value = "v".repeat(50_000);
        for number in 0..45 {
            set_at_master(&mut clients, &format!("DEADLINE 5000 SET big/{number} {value}"));
        }
        for words in ["GET big/0", "GET big/44"] {
            clients
                .iter_mut()
                .for_each(|client| comes_to(client, words, &Reply::bulk(&value)));
        }
        assert!(log.ended().unwrap().is_none());
        assert!(std::fs::metadata(folder.join("commits")).unwrap().len() <= 1 << 20);
        nodes.into_iter().for_each(|node| drop(node.child));
        end(&log);
    }

    /// The smallest file of docs/guide/reference/node-file.md, with this machine's addresses.
    #[test]
    fn five_lines_make_a_node() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let docs = include_str!("../../../../docs/guide/reference/node-file.md");
        let (_, rest) = docs.split_once("```toml\n# five.node.toml\n").unwrap();
        let text = rest.split("```").next().unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        let [peers, clients] = reserved_ports::<2>();
        let text = text.replace(
            "\"127.0.0.1:7400\", \"127.0.0.1:7401\"",
            &format!("\"127.0.0.1:{peers}\""),
        );
        std::fs::write(folder.join("node.toml"), text).unwrap();
        let log = start(folder, &["cluster", "log", "commits", "--listen", "log"]);
        log.says("not replicated");
        let node = start(
            folder,
            &["serve", "node.toml", "--listen", &format!("127.0.0.1:{clients}")],
        );
        node.says("is the master");
        comes_to(&mut client(clients), "SET a 1", &Reply::ok());
        assert!(folder.join("punctual.store").exists());
        node.leaves();
        end(&log.child);
    }

    /// It is killed and started again at once, time and again: what it leaves does not grow, nothing that was
    /// acknowledged is gone, and the other node goes on. It is behind what the log keeps, so it gets copies.
    #[test]
    fn a_node_that_restarts_for_ever_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let [zero, one, at_zero, at_one] = reserved_ports::<4>();
        let log = logs(folder);
        for (node, at) in [(0, at_zero), (1, at_one)] {
            let text = open_file(
                folder,
                &format!("{node}.toml"),
                node,
                [zero, one],
                at,
                &format!("store-{node}"),
            );
            std::fs::write(folder.join(format!("{node}.toml")), text + "log_entries_max = 4\n").unwrap();
        }
        let node = start(folder, &["serve", "0.toml"]);
        node.says("is the master");
        let mut client = client(at_zero);
        for round in 1..=8 {
            let other = start(folder, &["serve", "1.toml"]);
            // Killed at any place of its start, or as it serves.
            if round % 2 == 0 {
                other.says("serves");
            }
            killed(other);
            for number in 0..6 {
                comes_to(&mut client, &format!("SET {round}/{number} 1"), &Reply::ok());
            }
        }
        let other = start(folder, &["serve", "1.toml"]);
        other.says("serves");
        let mut found = Client::of(TcpStream::connect(("127.0.0.1", at_one)).unwrap());
        for round in 1..=8 {
            comes_to(&mut found, &format!("GET {round}/5"), &Reply::bulk("1"));
        }
        // `checked` is there from a kill while the store was checked, until that was done.
        let known = ["data.mdb", "lock.mdb", "owner.pid", "checked"];
        let left = std::fs::read_dir(folder.join("store-1")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let more: Vec<String> = names.filter(|name| !known.contains(&name.as_str())).collect();
        assert!(more.is_empty(), "{more:?}");
        assert_eq!(
            std::fs::read_dir(folder).unwrap().count(),
            8,
            "files, the log's three, its socket, stores"
        );
        other.leaves();
        node.leaves();
        end(&log.child);
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn a_node_keeps_its_log_in_an_etcd_that_was_made_its_own() {
        use punctual_testing::etcd::{EtcdProgram, Members};
        let program = match EtcdProgram::find() {
            Ok(program) => program,
            Err(why) => return println!("skipped: no etcd ({why})"),
        };
        let folder = tempfile::tempdir().unwrap();
        let members = Members::start(&program, folder.path(), 1, BOUND, |program| Command::new(program)).unwrap();
        let log = members.address("plant").to_string();
        let [peers, clients] = reserved_ports::<2>();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{clients}\"\n[store]\npath = \"store\"\n[federation]\nname = \"plant\"\nnode = \
             0\nnodes = [\"127.0.0.1:{peers}\"]\nlog = \"{log}\"\n"
        );
        std::fs::write(folder.path().join("node.toml"), text).unwrap();
        let mut early = Command::new(env!("CARGO_BIN_EXE_punctual"));
        early.args(["serve", "node.toml"]).current_dir(folder.path());
        let early = punctual_testing::output(&mut early, BOUND).unwrap();
        let said = String::from_utf8_lossy(&early.stderr).into_owned();
        assert!(
            early.status.code() == Some(2) && said.contains("cluster found"),
            "{said}"
        );
        for _ in 0..2 {
            start(folder.path(), &["cluster", "found", "plant", "--log", &log]).says("the log of federation plant");
        }
        let other = refused(folder.path(), &["cluster", "found", "ship", "--log", &log]);
        assert!(other.contains("belongs to federation"), "{other}");
        for count in 1..3 {
            let node = start(folder.path(), &["serve", "node.toml"]);
            node.says("is the master");
            assert_eq!(
                client(clients).ask("INCR count"),
                Reply::Integer(count),
                "it has what was there"
            );
            node.leaves();
        }
    }
}
