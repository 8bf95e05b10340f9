//! `punctual serve` as a process: kills, ends in order, files, users, TLS, tasks, bad input. Answers to clients are
//! tested in virtual time (`lab/cluster/tests/hosts`).

#![cfg(target_os = "linux")]

use crate::common;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::serving::{Client, TestServer, bulk, encoded, end, serve, serve_telling, try_serve};
use common::{BOUND, folder_with, refused};
use punctual_server::resp::Reply;
use punctual_testing::{wait_for, wait_ok, wait_until};

#[test]
fn acknowledged_writes_are_there_after_a_kill_and_after_an_end_in_order() {
    let folder = folder_with(&[]);
    let mut written = 0;
    for round in 0..4 {
        let mut served = serve(folder.path(), &["--durability", "durable"]);
        let mut client = served.client();
        for key in 0..written {
            assert_eq!(
                client.ask(&format!("GET key/{key}")),
                bulk(&key.to_string()),
                "round {round}"
            );
        }
        // Pipelined, so that commits hold several.
        for _ in 0..20 {
            let batch = written..written + 20;
            batch
                .clone()
                .for_each(|key| client.send(&format!("SET key/{key} {key}")));
            for _ in batch {
                assert_eq!(client.reply(), Reply::ok());
                written += 1;
            }
        }
        if round == 2 {
            client.ask("TSET pose 7");
            end(&served.child);
            assert!(served.child.wait().expect("it ends").success());
        } else {
            served.child.kill().expect("a kill");
            served.child.wait().expect("it is killed");
        }
    }
    let served = serve(folder.path(), &[]);
    // The object of an earlier run, flushed at its end.
    assert_eq!(served.client().ask("GET pose"), bulk("7"));
}

/// A client that has asked for 64 MiB and reads none of it, and another one.
fn slow_and_other(served: &TestServer) -> (Client, Client) {
    let (mut slow, mut other) = (served.client(), served.client());
    let value = "x".repeat(1 << 20);
    assert_eq!(other.ask(&format!("SET long {value}")), Reply::ok());
    (0..64).for_each(|_| slow.send("GET long"));
    (slow, other)
}

#[test]
fn what_cannot_start_says_why() {
    let folder = folder_with(&[("node.toml", "[server]\nthreads = 0\nport = 5\n"), ("file", "")]);
    let here = folder.path();
    let far = refused(here, &["serve", "--listen", "0.0.0.0:0"]);
    assert!(far.contains("without users") && far.contains("127.0.0.1"), "{far}");
    let wrong = refused(here, &["serve", "node.toml"]);
    assert!(wrong.contains("node.toml:2: server.threads: "), "{wrong}");
    assert!(wrong.contains("node.toml:3: server.port: unknown key"), "{wrong}");
    assert!(refused(here, &["serve", "none.toml"]).contains("no such file; name the file of a node"));
    let served = serve(here, &["--durability", "volatile"]);
    let taken = refused(here, &["serve", "--listen", &served.address, "--store", "other"]);
    assert!(taken.contains("another program listens there"), "{taken}");
    let in_use = refused(here, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(in_use.contains("is in use by process"), "{in_use}");
    refused(here, &["serve", "--listen", "127.0.0.1:0", "--store", "file/below"]);
    std::fs::create_dir_all(here.join("others/lost+found")).unwrap();
    std::fs::write(here.join("others/passwd"), "root").unwrap();
    let others = refused(here, &["serve", "--listen", "127.0.0.1:0", "--store", "others"]);
    assert!(others.contains("others: holds files, and no store"), "{others}");
    assert_eq!(std::fs::read_dir(here.join("others")).unwrap().count(), 2);
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let file = "[server]\nlisten = \"127.0.0.1:0\"\nunix_socket = \"here\"\nunix_socket_mode = \"620\"\n[store]\n\
                durability = \"volatile\"\n";
    let folder = folder_with(&[
        ("node.toml", file),
        ("text", ""),
        ("wrong.toml", "[server]\nunix_socket_mode = \"8\"\n"),
    ]);
    let (at, path) = (folder.path(), folder.path().join("here"));
    let mut served = serve(at, &["node.toml", "--listen", "127.0.0.1:0"]);
    assert!(served.next_line().ends_with("here"));
    assert_eq!(std::fs::metadata(&path).expect("a socket").mode() & 0o777, 0o620);
    let stream = UnixStream::connect(&path).expect("it listens");
    stream.set_read_timeout(Some(BOUND)).expect("a bound");
    let mut client = Client::over(stream);
    assert_eq!(client.ask("SET a 1"), Reply::ok());
    assert_eq!(served.client().ask("GET a"), bulk("1"));
    let Reply::Bulk(list) = client.ask("CLIENT LIST") else {
        panic!("text")
    };
    assert!(String::from_utf8_lossy(&list).contains("here:0 "), "{list:?}");
    let other = ["serve", "--listen", "127.0.0.1:0", "--store", "other", "--unix-socket"];
    let named = |file| refused(at, &[&other[..], &[file]].concat());
    assert!(named("here").contains("another program listens there"));
    assert!(named("text").contains("this file is no socket"));
    assert!(refused(at, &["serve", "wrong.toml"]).contains("server.unix_socket_mode: up to three octal digits"));
    end(&served.child);
    served.rest();
    assert!(!path.exists() && at.join("text").exists());
}

/// What waits in the queue, the objects that clients make, the room of the store: each is refused at its bound.
#[test]
fn each_bound_of_the_file_is_kept() {
    let node = "[server]\nthreads = 1\nqueue_max = 1\n[store]\ndurability = \"volatile\"\nmap_bytes = 4194304\n\
                verify = \"none\"\n[temporal]\nobjects_max = 2\nmax_bytes = 8\nvalidity = \"1h\"\n";
    let folder = folder_with(&[("node.toml", node)]);
    let served = serve(folder.path(), &["node.toml"]);
    let mut client = served.client();
    assert_eq!(client.ask("TSET a 1"), Reply::ok());
    assert_eq!(client.ask("TSET b 12345678"), Reply::ok());
    assert!(client.error("TSET b 123456789").starts_with("ERR "));
    assert!(client.error("TSET c 1").starts_with("ERR "), "a third object");
    assert!(matches!(client.ask("GETFRESH a 3000000"), Reply::Array(_)));
    let value = "x".repeat(1 << 20);
    let refused = (0..8).find_map(|key| match client.ask(&format!("SET key{key} {value}")) {
        Reply::Error(error) => Some(error),
        _ => None,
    });
    assert!(
        refused
            .as_ref()
            .is_some_and(|error| error.contains("quota of 4194304 bytes is met")),
        "8 MiB into 4: {refused:?}"
    );
    assert_eq!(client.ask("FLUSHDB"), Reply::ok());
    let max = Reply::Array(["maxmemory", "4194304"].map(bulk).to_vec());
    assert_eq!(client.ask("CONFIG GET maxmemory"), max);
    // One thread, one place in the queue: of many at the same time some find none, and are told when to come again.
    let mut others: Vec<_> = (0..20).map(|_| served.client()).collect();
    wait_until("one of 20 finds no room in a queue of 1", || {
        others.iter_mut().for_each(|other| other.send("DBSIZE"));
        let replies: Vec<_> = others.iter_mut().map(Client::reply).collect();
        let late = |reply: &Reply| matches!(reply, Reply::Error(error) if error.starts_with("LATE reason=backlog"));
        replies.iter().any(late)
    });
    wait_until("the bytes are counted", || {
        let Reply::Bulk(info) = client.ask("INFO") else {
            panic!("text")
        };
        let info = String::from_utf8(info).expect("text");
        assert!(!info.contains("late_backlog:0\r\n"), "{info}");
        info.contains("maxmemory:4194304\r\n")
    });
}

/// A server with a client that asks for 64 MiB and reads none of it.
fn with_a_slow_reader(drain_max: &str) -> (tempfile::TempDir, TestServer, Client) {
    let node = format!("[server]\nstalled_max = \"1h\"\ndrain_max = \"{drain_max}\"\n");
    let folder = folder_with(&[("node.toml", &node)]);
    let served = serve(folder.path(), &["node.toml"]);
    let (slow, mut other) = slow_and_other(&served);
    // As many as fit into sockets are on their way.
    wait_until("replies wait for their reader", || {
        let Reply::Bulk(list) = other.ask("CLIENT LIST") else {
            panic!("text")
        };
        let list = String::from_utf8(list).expect("text");
        list.lines()
            .any(|line| line.split(' ').any(|word| word.starts_with("omem=") && word.len() > 10))
    });
    (folder, served, slow)
}

/// What a client does not take holds the end of a server up for `drain_max`, and no longer.
#[test]
fn a_server_that_ends_waits_for_a_slow_reader_so_long_and_no_longer() {
    let (_folder, mut served, _slow) = with_a_slow_reader("200ms");
    end(&served.child);
    assert!(served.child.wait().expect("it ends by itself").success());
}

/// A client that reads nothing keeps a server that ends in order from its end for as long as it may; a second signal
/// ends it at once, and what was acknowledged is there.
#[test]
fn a_second_signal_ends_at_once() {
    let (folder, mut served, _slow) = with_a_slow_reader("1h");
    end(&served.child);
    // It takes no connection any more: the first signal has come.
    wait_until("no connection is accepted", || {
        std::net::TcpStream::connect(&served.address).is_err()
    });
    assert!(
        served.child.ended().expect("a child").is_none(),
        "it waits for its client"
    );
    // One of the same kind that comes soon belongs to the first, as that of timeout(1) does.
    // SAFETY: a plain number, of a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(served.child.id() as i32, libc::SIGINT) }, 0);
    let status = served.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(128 + libc::SIGINT));
    let served = serve(folder.path(), &[]);
    assert_eq!(served.client().ask("STRLEN long"), Reply::Integer(1 << 20));
}

/// What a node's file keeps of a password.
fn hash(password: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(["serve", "--hash", "1000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = punctual_testing::start(&mut command, BOUND).expect("the program starts");
    let mut input = child.stdin().expect("its input");
    input
        .write_all(format!("{password}\n").as_bytes())
        .expect("it takes a line");
    drop(input);
    let output = child.output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// A node with a user that may do all, and one that reads what begins with `room/`.
fn with_users(more: &str) -> (tempfile::TempDir, [String; 2]) {
    let hashes = [hash("all of it"), hash("a part")];
    let node = format!(
        "[server]\n{more}\n[store]\ndurability = \"volatile\"\n[[user]]\nname = \"owner\"\npassword = \"{}\"\nmay = \
         [\"read\", \"write\", \"channels\", \"server\"]\nkeys = [\"\"]\n[[user]]\nname = \"guest\"\npassword = \
         \"{}\"\nmay = [\"read\", \"channels\"]\nkeys = [\"room/\"]\n",
        hashes[0], hashes[1]
    );
    (folder_with(&[("node.toml", &node)]), hashes)
}

/// What a client is told, byte for byte, until the server ends the connection.
fn told(served: &TestServer, requests: &[&[&str]]) -> String {
    let mut client = served.client();
    for request in requests {
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        client.stream.write_all(&encoded(&words)).expect("it takes a request");
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut client.stream, &mut bytes).expect("replies");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Neither the password nor its hash is in anything that a client is told, nor in what the server prints.
#[test]
fn no_secret_is_told() {
    let (folder, hashes) = with_users("stalled_max = \"1h\"");
    // Other machines may reach it, because there are users.
    let arguments = ["node.toml", "--listen", "0.0.0.0:0"];
    let mut served = serve_telling(folder.path(), &arguments, Stdio::piped());
    let mut all = told(
        &served,
        &[
            &["AUTH", "owner", "not all of it"],
            &["HELLO", "2", "AUTH", "owner", "not all of it"],
            &["AUTH", "all of it"],
        ],
    );
    assert_eq!(all.matches("-WRONGPASS").count(), 3, "{all}");
    // One that is wrong, and one that is right; what is looked for below has to be found where it is.
    all += &told(
        &served,
        &[
            &["AUTH", "owner", "not all of it"],
            &["AUTH", "owner", "all of it"],
            &["CLIENT", "SETNAME", "planted-word"],
            &["INFO"],
            &["CONFIG", "GET", "*"],
            &["CLIENT", "LIST"],
            &["CLIENT", "INFO"],
            &["COMMAND", "INFO", "auth"],
            &["COMMAND", "DOCS", "auth"],
            &["ACL", "WHOAMI"],
            &["ACL", "LIST"],
            &["CONFIG", "SET", "requirepass", "secret"],
            &["QUIT"],
        ],
    );
    end(&served.child);
    all += &served.rest();
    assert!(served.child.wait().expect("it ends").success());
    for planted in ["name=planted-word", "redis_version", "wrong_passwords:4", "serving "] {
        assert!(all.contains(planted), "not looked at: {planted}: {all}");
    }
    let text = |bytes: &str| bytes.split('$').next_back().expect("a hash").to_owned();
    for secret in [
        "all of it".to_owned(),
        text(&hashes[0]),
        text(&hashes[1]),
        "pbkdf2".to_owned(),
    ] {
        assert!(!all.contains(&secret), "{secret}: {all}");
    }
    let error = refused(folder.path(), &["serve", "--hash", "5"]);
    assert!(error.contains("--hash: 5 is out of range"), "{error}");
}

/// One page of figures, from a port of its own.
fn figures(served: &TestServer) -> String {
    let line = served.lines.iter().find(|line| line.starts_with("figures on http://"));
    let address = line.and_then(|line| line.strip_prefix("figures on http://")?.strip_suffix("/metrics"));
    let ask = |request: &str| {
        // The server drops a reader that asks nothing for half a second; a busy machine may delay this test longer.
        wait_ok("a page", || {
            let mut stream = std::net::TcpStream::connect(address.expect("its address")).expect("it listens");
            stream.set_read_timeout(Some(BOUND)).expect("a bound");
            let mut page = String::new();
            let sent = stream.write_all(request.as_bytes());
            let told = sent.and_then(|()| std::io::Read::read_to_string(&mut stream, &mut page));
            if told.is_ok() && !page.is_empty() {
                Ok(page)
            } else {
                Err(told)
            }
        })
    };
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 405"));
    ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn value(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name}: {page}"))
}

#[test]
fn figures_are_told_on_a_port_of_their_own() {
    let node = "[server]\nmetrics = \"127.0.0.1:0\"\nthreads = 1\n[store]\ndurability = \"volatile\"\n[[object]]\n\
                key = \"quiet\"\n";
    let folder = folder_with(&[("node.toml", node)]);
    let mut served = serve(folder.path(), &["node.toml"]);
    let line = served.next_line();
    served.lines.push(line);
    let mut client = served.client();
    (0..5).for_each(|key| assert_eq!(client.ask(&format!("DEADLINE 60000 SET key{key} 1")), Reply::ok()));
    assert_eq!(client.ask("GET key1"), bulk("1"));
    assert_eq!(client.ask("TSET pose 1 AGE 5000"), Reply::ok());
    let page = wait_ok("the event loop reports its connection", || {
        let page = figures(&served);
        if value(&page, "punctual_connections") == 1.0 {
            Ok(page)
        } else {
            Err(page)
        }
    });
    assert!(page.starts_with("HTTP/1.0 200 OK\r\n"));
    assert_eq!(value(&page, "punctual_requests_total{outcome=\"timely\"}"), 5.0);
    assert_eq!(value(&page, "punctual_requests_total{outcome=\"carried_out\"}"), 7.0);
    assert_eq!(value(&page, "punctual_objects"), 2.0);
    assert_eq!(value(&page, "punctual_objects_without_value"), 1.0);
    assert!(value(&page, "punctual_object_age_seconds{key=\"pose\"}") >= 5.0);
    assert_eq!(value(&page, "punctual_memory_bytes_max"), f64::from(1 << 30));
    // Each line is a comment or a sample.
    let (_, body) = page.split_once("\r\n\r\n").expect("a body");
    for line in body.lines() {
        let is_sample = line
            .rsplit_once(' ')
            .is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(
            line.starts_with("# HELP ") || line.starts_with("# TYPE ") || is_sample,
            "{line}"
        );
    }
    let Reply::Bulk(info) = client.ask("INFO") else {
        panic!("text")
    };
    let info = String::from_utf8(info).expect("text");
    let sections: Vec<&str> = info.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let expected = [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Latency",
        "Replication",
        "CPU",
    ];
    assert_eq!(sections[..8], expected);
    assert!(
        info.contains("late_in_queue:0\r\n") && info.contains("late_lock_us:0\r\n"),
        "{info}"
    );
    let far = folder_with(&[("node.toml", "[server]\nmetrics = \"0.0.0.0:9121\"\n")]);
    let error = refused(far.path(), &["serve", "node.toml"]);
    assert!(error.contains("server.metrics: expected an address"), "{error}");
}

mod tls {
    use std::fs;
    use std::io::{Read, Write};
    use std::path::Path;
    use std::process::Command;

    use punctual_testing::wait_until;

    use super::common::certificates::{self, Authority, Tls};
    use super::common::serving::{TestServer, encoded, serve};
    use super::common::{BOUND, folder_with, refused};

    fn connect(served: &TestServer, folder: &Path, own: Option<&str>) -> Tls {
        certificates::connect(&served.address, folder, own)
    }

    /// The reply to a request that is answered with so many bytes.
    fn ask(tls: &mut Tls, request: &[&[u8]], length: usize) -> std::io::Result<Vec<u8>> {
        tls.write_all(&encoded(request))?;
        let mut reply = vec![0; length];
        tls.read_exact(&mut reply)?;
        Ok(reply)
    }

    const YEARS: [i32; 2] = [2020, 2090];
    const NODE: &str = "[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\n";

    #[test]
    fn a_store_is_served_by_tls() {
        let folder = folder_with(&[("node.toml", NODE)]);
        let authority = Authority::new(folder.path());
        authority.sign(folder.path(), "node", YEARS);
        let served = serve(folder.path(), &["node.toml", "--durability", "volatile"]);
        let mut client = connect(&served, folder.path(), None);
        assert_eq!(ask(&mut client, &[b"SET", b"a", b"1"], 5).expect("a reply"), b"+OK\r\n");
        // Longer than what TLS keeps at a time, each way.
        let long: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(
            ask(&mut client, &[b"SET", b"long", &long], 5).expect("a reply"),
            b"+OK\r\n"
        );
        let reply = ask(&mut client, &[b"GET", b"long"], long.len() + 12).expect("a reply");
        assert_eq!(&reply[..10], b"$3000000\r\n");
        assert!(reply[10..].starts_with(&long));
        // Many at a time, in their order.
        let mut pipelined = Vec::new();
        (0..5_000).for_each(|_| pipelined.extend(encoded(&[b"INCR", b"n"])));
        client.write_all(&pipelined).expect("it takes bytes");
        let expected: String = (1..=5_000).map(|n| format!(":{n}\r\n")).collect();
        let mut found = vec![0; expected.len()];
        client.read_exact(&mut found).expect("replies");
        assert_eq!(found, expected.into_bytes());
        // Redis' own client, where it is installed and speaks TLS.
        let port = served.address.rsplit(':').next().expect("a port");
        let mut cli = Command::new("redis-cli");
        cli.args(["--tls", "--cacert", "authority.pem", "-p", port, "GET", "a"])
            .current_dir(folder.path());
        match punctual_testing::output(&mut cli, BOUND) {
            Ok(output) if output.status.success() => assert_eq!(output.stdout, b"1\n"),
            _ => println!("skipped: no redis-cli that speaks TLS"),
        }
        // No words in clear: the connection ends, and others are served.
        let mut plain = served.client();
        plain.stream.write_all(b"PING\r\n").expect("it takes bytes");
        let mut rest = Vec::new();
        let _ = plain.stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"+PONG"));
        assert_eq!(ask(&mut client, &[b"PING"], 7).expect("a reply"), b"+PONG\r\n");
    }

    #[test]
    fn certificates_are_checked_and_read_again() {
        let mutual = format!("{NODE}clients = \"authority.pem\"\n");
        let folder = folder_with(&[("node.toml", NODE), ("mutual.toml", &mutual)]);
        let here = folder.path();
        let missing = refused(here, &["serve", "node.toml", "--listen", "127.0.0.1:0"]);
        assert!(missing.contains("node.pem: cannot be read"), "{missing}");
        let authority = Authority::new(here);
        for (years, expected) in [([2001, 2002], "the certificate expired"), ([2089, 2090], "is valid in")] {
            authority.sign(here, "node", years);
            let told = refused(here, &["serve", "node.toml", "--listen", "127.0.0.1:0"]);
            assert!(told.contains("node.pem: ") && told.contains(expected), "{told}");
        }
        authority.sign(here, "other", YEARS);
        authority.sign(here, "node", YEARS);
        fs::copy(here.join("other.key"), here.join("node.key")).expect("a file");
        let told = refused(here, &["serve", "node.toml", "--listen", "127.0.0.1:0"]);
        assert!(told.contains("do not belong together"), "{told}");
        fs::write(here.join("node.key"), "no key").expect("a file");
        let told = refused(here, &["serve", "node.toml", "--listen", "127.0.0.1:0"]);
        assert!(told.contains("there is no private key in it"), "{told}");

        // Only clients with a certificate of the authority.
        authority.sign(here, "node", YEARS);
        let served = serve(here, &["mutual.toml", "--durability", "volatile"]);
        let ping: &[&[u8]] = &[b"PING"];
        assert!(ask(&mut connect(&served, here, None), ping, 7).is_err());
        assert_eq!(
            ask(&mut connect(&served, here, Some("other")), ping, 7).expect("a reply"),
            b"+PONG\r\n"
        );
        drop(served);

        // Another certificate while it runs: those that begin get it, those that have begun go on.
        let mut served = serve(here, &["node.toml", "--durability", "volatile"]);
        let shown = |tls: &mut Tls| {
            ask(tls, ping, 7).expect("a reply");
            tls.conn.peer_certificates().expect("certificates")[0].to_vec()
        };
        let mut before = connect(&served, here, None);
        let first = shown(&mut before);
        authority.sign(here, "node", YEARS);
        // SAFETY: a plain number, of a child that has not been waited for.
        unsafe { libc::kill(served.child.id() as i32, libc::SIGHUP) };
        wait_until("the new certificate is shown", || {
            shown(&mut connect(&served, here, None)) != first
        });
        assert_eq!(shown(&mut before), first);
        // By itself, too; and what is none leaves the former one.
        let second = shown(&mut connect(&served, here, None));
        authority.sign(here, "node", [2001, 2002]);
        // SAFETY: as above.
        unsafe { libc::kill(served.child.id() as i32, libc::SIGHUP) };
        // A look may come between the two files; this is told of both only.
        while !served.next_line().contains("node.pem: the certificate expired") {}
        assert_eq!(shown(&mut connect(&served, here, None)), second);
        authority.sign(here, "node", YEARS);
        wait_until("a changed certificate is found without a signal", || {
            shown(&mut connect(&served, here, None)) != second
        });
    }
}

/// A task of 100 Hz with four sensors, and what beyond that a test asks for.
fn scenario(more: &str) -> String {
    format!(
        "[goal]\nmin_fresh = 0.0\n[control]\ncontroller = \"open\"\nwarm_up = \"0s\"\n[store]\nobjects = 100\n[trace]\n\
         sensors = 4\nperiod = [\"20ms\", \"50ms\"]\n[[task]]\nname = \"steer\"\nclass = \"real-time\"\nperiod = \
         \"10ms\"\ndeadline = \"10ms\"\ncompute = \"100us\"\ndata = \"100us\"\nwrites = 1\n{more}"
    )
}

/// A node with tasks, which set `arm/steer` and read `goal`.
const WITH_TASKS: &str = "[server]\nrecord = \"decisions.json\"\nmetrics = \"127.0.0.1:0\"\n[store]\npath = \"store\"\ndurability = \
                          \"volatile\"\nmap_bytes = 67108864\n[[object]]\nkey = \"arm/steer\"\nvalidity = \"1h\"\n\
                          [[object]]\nkey = \"goal\"\n[tasks]\nscenario = \"robot.toml\"\nreads = [\"goal\"]\n\
                          [[tasks.sets]]\ntask = \"steer\"\nobject = \"arm/steer\"\n";

/// The reading of a temporal object that has one.
fn reading(client: &mut Client, key: &str) -> Option<Vec<u8>> {
    match client.ask(&format!("GETFRESH {key} 3600000")) {
        Reply::Array(found) => match &found[0] {
            Reply::Bulk(value) => Some(value.clone()),
            other => panic!("{other:?}"),
        },
        Reply::Error(_) | Reply::Null | Reply::NullArray => None,
        other => panic!("{other:?}"),
    }
}

/// Asks until there is an answer.
fn until<T>(ask: impl FnMut() -> Option<T>) -> T {
    wait_for(|| "an answer".into(), ask)
}

#[test]
fn tasks_run_beside_the_server_on_its_store() {
    let folder = folder_with(&[("node.toml", WITH_TASKS), ("robot.toml", &scenario(""))]);
    let mut served = serve(folder.path(), &["node.toml"]);
    let line = served.next_line();
    served.lines.push(line);
    let mut client = served.client();
    // What a task sets is as if by TSET: its jobs are numbered, and go on.
    let number = |client: &mut Client| {
        let value = String::from_utf8(reading(client, "arm/steer")?).expect("text");
        Some(value.parse::<u64>().expect("a job's number"))
    };
    let first = until(|| number(&mut client));
    until(|| number(&mut client).filter(|later| *later > first));
    // What the recording feeds is there for clients, and so are the records that tasks write.
    assert_eq!(until(|| reading(&mut client, "sens00000003")).len(), 64);
    assert_eq!(client.ask("STRLEN objt00000042"), Reply::Integer(100));
    // Beside requests, whose store it is.
    assert_eq!(client.ask("TSET goal 1.5"), Reply::ok());
    for number in 0..200 {
        assert_eq!(client.ask(&format!("SET key{number} 1")), Reply::ok());
    }
    let jobs = until(|| {
        let text = match client.ask("INFO tasks") {
            Reply::Bulk(text) => String::from_utf8(text).expect("text"),
            other => panic!("{other:?}"),
        };
        let line = text
            .lines()
            .find(|line| line.starts_with("task0:name=steer,"))?
            .to_owned();
        let jobs = line
            .split("jobs=")
            .nth(1)?
            .split(',')
            .next()?
            .parse::<u64>()
            .expect("a count");
        (jobs > 0).then_some(jobs)
    });
    let page = figures(&served);
    assert!(
        value(&page, "punctual_task_jobs_total{task=\"steer\"}") >= jobs as f64,
        "{page}"
    );
    assert!(
        value(&page, "punctual_requests_total{outcome=\"carried_out\"}") >= 200.0,
        "{page}"
    );
    // It ends in order, and tells what the tasks came to; what they left is there for the next start.
    end(&served.child);
    let told = served.rest();
    assert!(served.child.wait().expect("it ends").success());
    assert!(told.contains("steer"), "{told}");
    let replayed = common::told(common::punctual(folder.path(), &["replay", "decisions.json"])).0;
    let decisions = replayed.split(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert!(
        decisions.is_some_and(|count| count > 0) && replayed.contains("identical"),
        "{replayed}"
    );
    let again = serve(folder.path(), &["node.toml"]);
    let restarted = until(|| reading(&mut again.client(), "arm/steer"));
    assert!(!restarted.is_empty());
}

#[test]
fn a_node_whose_tasks_cannot_run_says_why() {
    let robot = scenario("");
    let with = |robot: &str, node: &str| {
        let folder = folder_with(&[("node.toml", node), ("robot.toml", robot)]);
        refused(folder.path(), &["serve", "node.toml", "--listen", "127.0.0.1:0"])
    };
    for (robot, node, expected) in [
        // A scenario with an end, with stages, with a store of its own, none, and none that is one.
        (
            format!("duration = \"5s\"\n{robot}"),
            WITH_TASKS.into(),
            "robot.toml:1: duration: ",
        ),
        (
            robot.replace("objects = 100", "path = \"x\""),
            WITH_TASKS.into(),
            "store.path: ",
        ),
        (
            robot.replace("objects = 100", "temporal = \"mapped:x\""),
            WITH_TASKS.into(),
            "store.temporal: ",
        ),
        (
            robot.clone(),
            WITH_TASKS.replace("robot.toml", "none.toml"),
            "none.toml: no such file",
        ),
        (robot.replace("100us", "1parsec"), WITH_TASKS.into(), "robot.toml:"),
        // Names that clash or are not there.
        (
            robot.clone(),
            WITH_TASKS.replace("\"goal\"\n[tasks]", "\"sens00000001\"\n[tasks]"),
            "sens00000001",
        ),
        (
            robot.clone(),
            WITH_TASKS.replace("reads = [\"goal\"]", "reads = [\"gaol\"]"),
            "tasks: there is no object gaol",
        ),
        (
            robot.clone(),
            WITH_TASKS.replace("task = \"steer\"", "task = \"stear\""),
            "has no task stear",
        ),
        (
            robot.clone(),
            WITH_TASKS.replace("scenario = ", "scenarios = "),
            "tasks.scenario: name the scenario",
        ),
        // An object that does not take what a task sets.
        (
            robot.clone(),
            WITH_TASKS.replace("\"1h\"", "\"1h\"\nmax_bytes = 8"),
            "arm/steer: a task sets it",
        ),
    ] {
        let told = with(&robot, &node);
        assert!(told.contains(expected), "{expected}: {told}");
    }
    // A value that is longer than the object was when it was written.
    let folder = folder_with(&[("node.toml", WITH_TASKS), ("robot.toml", &robot)]);
    let mut served = serve(folder.path(), &["node.toml"]);
    until(|| reading(&mut served.client(), "sens00000000"));
    end(&served.child);
    served.rest();
    let shorter = robot.replace("sensors = 4", "sensors = 4\nvalue_bytes = 16");
    std::fs::write(folder.path().join("robot.toml"), shorter).expect("a file");
    let error = serve_telling_error(folder.path());
    assert!(error.contains("sens0000000"), "{error}");
}

/// What a server says that does not come to serving; it may have told before what it does.
fn serve_telling_error(folder: &std::path::Path) -> String {
    let output = common::punctual(folder, &["serve", "node.toml", "--listen", "127.0.0.1:0"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{error}");
    error
}

/// Two nodes want the same core for their tasks alone: the second one is told; once the first is killed, it has it.
#[test]
fn two_nodes_do_not_have_one_exclusive_core() {
    let cores = punctual_platform::linux::cores::usable(&punctual_platform::linux::KernelTree::default());
    let (Some(last), 2..) = (cores.last(), cores.len()) else {
        return eprintln!("skipped: there is one core");
    };
    let _machine = punctual_testing::machine();
    if let Err(holder) = punctual_testing::free_cores() {
        return eprintln!("skipped: {holder}");
    }
    let robot = scenario(&format!("[exclusive]\ncores = [{}]\n", last.0)).replace("real-time", "exclusive");
    let [one, two] = [(); 2].map(|()| folder_with(&[("node.toml", WITH_TASKS), ("robot.toml", &robot)]));
    // Another program may have taken the core since.
    let Some(mut first) = try_serve(one.path(), &["node.toml"], Stdio::inherit()) else {
        return eprintln!("skipped: no exclusive core is to be had");
    };
    let kept = punctual_platform::linux::recovery::look(&punctual_platform::linux::recovery::folder());
    let process = first.child.id();
    if !kept.is_ok_and(|found| {
        found
            .holders
            .iter()
            .any(|it| it.process == process as i32 && !it.exclusive.is_empty())
    }) {
        return eprintln!("skipped: no exclusive core is to be had");
    }
    // The server's own threads are off it.
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    for task in tasks {
        let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default();
        let of = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let (name, allowed) = (of("Name:"), of("Cpus_allowed_list:"));
        if name.starts_with("serve-") {
            let ends_there = allowed.split([',', '-']).any(|core| core == last.0.to_string());
            assert!(!ends_there, "{name} may run on {allowed}");
        }
    }
    let told = serve_telling_error(two.path());
    // Where the core is kept by a group of its own, the second one is not even shown it.
    let names = told.contains(&process.to_string()) || told.contains("this process may use");
    assert!(told.contains("exclusive.cores") && names, "{told}");
    assert_eq!(first.client().ask("SET a 1"), Reply::ok());
    first.child.kill().expect("it ends");
    if let Err(holder) = punctual_testing::free_cores() {
        assert!(!holder.contains(&process.to_string()), "{holder}");
        return;
    }
    if let Some(mut second) = try_serve(two.path(), &["node.toml"], Stdio::inherit()) {
        end(&second.child);
        second.rest();
    }
}
