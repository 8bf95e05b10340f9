//! `punctual serve`: commands over a socket against a model, two clients, deadlines, kills, and all that is bad input.

#![cfg(target_os = "linux")]

use crate::common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::model::{answers_as_the_model, seed};
use common::serving::{Client, TestServer, bulk, encoded, end, serve, serve_telling, try_serve};
use common::{BOUND, folder_with, refused};
use punctual_server::resp::Reply;
use punctual_testing::{wait_for, wait_ok, wait_until};

/// Pipelined, split at random bytes, in and out of transactions.
#[test]
fn commands_answer_as_the_model_does() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut client = served.client();
    let (first, rounds) = (seed(), 300);
    for round in 0..rounds {
        assert_eq!(client.ask("FLUSHDB"), Reply::ok());
        assert!(
            answers_as_the_model(&mut client, first.wrapping_add(round), ""),
            "nothing has a deadline"
        );
    }
}

#[test]
fn two_clients_see_each_other_and_a_transaction_that_met_another_does_nothing() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let (mut one, mut other) = (served.client(), served.client());
    assert_eq!(one.ask("SET a 1"), Reply::ok());
    assert_eq!(other.ask("GET a"), bulk("1"));
    assert_eq!(one.ask("WATCH a b"), Reply::ok());
    assert_eq!(one.ask("MULTI"), Reply::ok());
    assert_eq!(one.ask("INCR a"), Reply::Simple("QUEUED".into()));
    assert_eq!(other.ask("SET b 5"), Reply::ok());
    assert_eq!(one.ask("EXEC"), Reply::NullArray);
    assert_eq!(other.ask("GET a"), bulk("1"));
    // Nothing is watched any more.
    one.ask("MULTI");
    one.ask("INCR a");
    assert_eq!(one.ask("EXEC"), Reply::Array(vec![Reply::Integer(2)]));
    one.ask("MULTI");
    assert!(one.error("NOPE").starts_with("ERR unknown command 'NOPE'"));
    assert!(one.error("EXEC").starts_with("EXECABORT"));
    assert_eq!(one.error("EXEC"), "ERR EXEC without MULTI");
    // A failed command of a transaction leaves the others.
    one.ask("MULTI");
    one.ask("SET t text");
    one.ask("INCR t");
    one.ask("SET u 1");
    let wrong = Reply::Error("ERR value is not an integer or out of range".into());
    assert_eq!(one.ask("EXEC"), Reply::Array(vec![Reply::ok(), wrong, Reply::ok()]));
}

#[test]
fn changed_keys_and_channels_are_heard() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let (mut hears, mut says) = (served.client(), served.client());
    let heard = |words: &[&str]| Reply::Array(words.iter().map(|word| bulk(word)).collect());
    let begun = |word: &str, name: &str, count| Reply::Array(vec![bulk(word), bulk(name), Reply::Integer(count)]);
    assert_eq!(hears.ask("SUBSCRIBE news"), begun("subscribe", "news", 1));
    assert_eq!(
        hears.ask("PSUBSCRIBE __keyspace@0__:room/*"),
        begun("psubscribe", "__keyspace@0__:room/*", 2)
    );
    assert_eq!(says.ask("PUBLISH news hello"), Reply::Integer(1));
    assert_eq!(hears.reply(), heard(&["message", "news", "hello"]));
    assert_eq!(says.ask("PUBLISH weather rain"), Reply::Integer(0));
    says.ask("SET room/1 warm");
    says.ask("SET shed cold");
    says.ask("DEL room/1");
    let pattern = "__keyspace@0__:room/*";
    assert_eq!(
        hears.reply(),
        heard(&["pmessage", pattern, "__keyspace@0__:room/1", "set"])
    );
    assert_eq!(
        hears.reply(),
        heard(&["pmessage", pattern, "__keyspace@0__:room/1", "del"])
    );
    assert!(hears.error("GET a").contains("are allowed in this context"));
    assert_eq!(hears.ask("PING"), heard(&["pong", ""]));
    assert_eq!(hears.ask("UNSUBSCRIBE"), begun("unsubscribe", "news", 1));
    assert_eq!(hears.ask("PUNSUBSCRIBE"), begun("punsubscribe", pattern, 0));
    assert_eq!(hears.ask("GET shed"), bulk("cold"));
    // With RESP3, replies and messages stand side by side.
    assert!(matches!(hears.ask("HELLO 3"), Reply::Map(_)));
    hears.send("SUBSCRIBE news");
    assert!(matches!(hears.reply(), Reply::Push(_)));
    assert_eq!(hears.ask("GET shed"), bulk("cold"));
}

#[test]
fn readings_have_ages_and_requests_have_deadlines() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut client = served.client();
    let ageless = client.ask("GETFRESH pose 1000");
    assert!(
        matches!(&ageless, Reply::Error(why) if why.contains("no temporal object")),
        "{ageless:?}"
    );
    assert_eq!(client.ask("TSET pose 1.5 AGE 500"), Reply::ok());
    match client.ask("GETFRESH pose 86400000") {
        Reply::Array(found) => {
            assert_eq!(found[0], bulk("1.5"));
            assert!(matches!(found[1], Reply::Integer(500..)), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
    let stale = client.error("GETFRESH pose 499");
    assert!(stale.starts_with("STALE age-ms="), "{stale}");
    // An older value does not take the place of a newer one.
    assert_eq!(client.ask("TSET pose 0 AGE 3600000"), Reply::Null);
    assert_eq!(client.ask("GET pose"), bulk("1.5"));
    assert!(client.error("SET pose 2").contains("temporal object"));
    client.ask("SET plain 1");
    assert!(client.error("TSET plain 1").contains("ordinary record"));

    assert_eq!(client.ask("DEADLINE 60000 SET a 1"), Reply::ok());
    assert_eq!(client.ask("DEADLINE 60000 GET a"), bulk("1"));
    for wrong in [
        "DEADLINE 0 GET a",
        "DEADLINE -1 GET a",
        "DEADLINE 86400001 GET a",
        "DEADLINE x GET a",
    ] {
        assert!(client.error(wrong).starts_with("ERR a deadline is"), "{wrong}");
    }
    for absurd in [
        "-1",
        "nan",
        "inf",
        "1e308",
        "1.5",
        "9223372036854775808",
        "99999999999999999999",
    ] {
        for words in [
            format!("DEADLINE {absurd} GET a"),
            format!("CLIENT DEADLINE {absurd}"),
            format!("GETFRESH pose {absurd}"),
            format!("TSET pose 2 AGE {absurd}"),
        ] {
            assert!(client.error(&words).starts_with("ERR "), "{words}");
        }
    }
    assert!(
        client
            .error("CLIENT DEADLINE 86400001")
            .starts_with("ERR a deadline is")
    );
    assert_eq!(client.ask("GET pose"), bulk("1.5"));
    assert!(
        client
            .error("DEADLINE 5 DEADLINE 5 GET a")
            .starts_with("ERR DEADLINE is said once")
    );
    assert!(client.error("DEADLINE 5").starts_with("ERR wrong number"));
    assert_eq!(client.ask("CLIENT DEADLINE 60000"), Reply::ok());
    assert_eq!(client.ask("INCR a"), Reply::Integer(2));
    assert_eq!(client.ask("CLIENT DEADLINE 0"), Reply::ok());
}

/// While the store is busy for longer than a request has time, that request is told so and not carried out.
#[test]
fn what_is_late_is_not_carried_out() {
    let folder = folder_with(&[(
        "node.toml",
        "[server]\nthreads = 1\n[store]\ndurability = \"volatile\"\n",
    )]);
    let served = serve(folder.path(), &["node.toml"]);
    let (mut busy, mut client) = (served.client(), served.client());
    for from in 0..20 {
        let mut request = vec![b"MSET".to_vec()];
        for key in 0..1000 {
            request.extend([format!("key/{from}/{key}").into_bytes(), b"x".to_vec()]);
        }
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        busy.stream.write_all(&encoded(&words)).expect("it takes a request");
        assert_eq!(busy.reply(), Reply::ok());
    }
    // Each counts 20,000 keys: far more than a millisecond in all, on the one thread there is. They are written at
    // once, so that they are read at once and are one job: a request in between has an earlier deadline.
    let counts = 10;
    let asked = encoded(&[b"DBSIZE"]).repeat(counts);
    let mut late = 0;
    for round in 0..50 {
        busy.stream.write_all(&asked).expect("it takes requests");
        let key = format!("late/{round}");
        match client.ask(&format!("DEADLINE 1 SET {key} 1")) {
            Reply::Error(error) => {
                assert!(error.starts_with("LATE reason=expired retry-after-ms="), "{error}");
                late += 1;
                assert_eq!(client.ask(&format!("EXISTS {key}")), Reply::Integer(0), "{key}");
            }
            done => {
                assert_eq!(done, Reply::ok());
                assert_eq!(client.ask(&format!("EXISTS {key}")), Reply::Integer(1), "{key}");
            }
        }
        (0..counts).for_each(|_| assert!(matches!(busy.reply(), Reply::Integer(_))));
        if late >= 3 {
            break;
        }
    }
    assert!(
        late > 0,
        "no request was late behind {counts} counts of 20000 keys, 50 times"
    );
    let Reply::Bulk(info) = client.ask("INFO stats") else {
        panic!("text")
    };
    let info = String::from_utf8(info).expect("text");
    assert!(info.contains(&format!("late_expired:{late}\r\n")), "{info}");
}

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

#[test]
fn terms_end_and_are_told() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let (mut client, mut hears) = (served.client(), served.client());
    hears.ask("SUBSCRIBE __keyevent@0__:expired");
    assert_eq!(client.ask("SET a 1 PX 30"), Reply::ok());
    let told = ["message", "__keyevent@0__:expired", "a"].map(bulk);
    assert_eq!(hears.reply(), Reply::Array(told.to_vec()));
    assert_eq!(client.ask("SET b 1 EX 1000"), Reply::ok());
    assert!(matches!(client.ask("PTTL b"), Reply::Integer(1..=1_000_000)));
    wait_until("the term ends", || client.ask("GET a") == Reply::Null);
    assert_eq!(client.ask("TTL a"), Reply::Integer(-2));
    assert_eq!(client.ask("EXISTS a"), Reply::Integer(0));
    assert_eq!(client.ask("SETNX a 2"), Reply::Integer(1));
    assert_eq!(client.ask("TTL a"), Reply::Integer(-1));
    assert_eq!(client.ask("EXPIRE a -1"), Reply::Integer(1));
    assert_eq!(client.ask("GET a"), Reply::Null);
    assert_eq!(client.ask("EXPIRE b 100 GT"), Reply::Integer(0));
    assert_eq!(client.ask("EXPIRE b 2000 GT"), Reply::Integer(1));
    assert_eq!(client.ask("PERSIST b"), Reply::Integer(1));
    for wrong in ["SET a 1 EX 0", "SET a 1 PX -5", "SET a 1 EX 9223372036854775807"] {
        assert!(
            client
                .error(wrong)
                .starts_with("ERR invalid expire time in 'set' command"),
            "{wrong}"
        );
    }
}

#[test]
fn a_scan_finds_each_key_that_stays_once() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let (mut client, mut other) = (served.client(), served.client());
    (0..500).for_each(|key| {
        client.ask(&format!("SET key/{key} 1"));
    });
    let (mut cursor, mut found) = ("0".to_owned(), BTreeMap::new());
    for round in 0.. {
        let Reply::Array(page) = client.ask(&format!("SCAN {cursor} MATCH key/* COUNT 7")) else {
            panic!("a page")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &page[..] else {
            panic!("{page:?}")
        };
        for key in keys {
            *found.entry(format!("{key:?}")).or_insert(0) += 1;
        }
        cursor = String::from_utf8(next.clone()).expect("a number");
        // Others come and go meanwhile.
        other.ask(&format!("SET other/{round} 1"));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 500);
    assert!(found.values().all(|count| *count == 1));
    assert!(client.error("SCAN 999999").contains("begin with 0"));
    assert_eq!(client.error("SCAN x"), "ERR invalid cursor");
}

#[test]
fn clients_are_told_about_themselves_and_the_server() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut client = served.client();
    let Reply::Map(hello) = client.ask("HELLO 3 SETNAME me") else {
        panic!("a map")
    };
    assert!(hello.contains(&(bulk("proto"), Reply::Integer(3))));
    assert_eq!(client.ask("CLIENT GETNAME"), bulk("me"));
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME tests"), Reply::ok());
    let Reply::Verbatim(list) = client.ask("CLIENT LIST") else {
        panic!("text")
    };
    assert!(list.contains("name=me") && list.contains("lib-name=tests"), "{list}");
    client.ask("GET none");
    wait_until("the keys are counted", || {
        client.ask("SET a 1 EX 100");
        let Reply::Verbatim(info) = client.ask("INFO") else {
            panic!("text")
        };
        let there = ["keyspace_misses:1\r\n", "used_cpu_user:", "role:master\r\n"];
        assert!(there.iter().all(|line| info.contains(line)), "{info}");
        let keys = "\r\ndb0:keys=1,expires=1,avg_ttl=";
        info.contains(keys) && info.contains("maxmemory:1073741824\r\n")
    });
    let max = (bulk("maxmemory"), bulk("1073741824"));
    assert_eq!(client.ask("CONFIG GET maxmemory"), Reply::Map(vec![max]));
    let mut other = served.client();
    let Reply::Integer(id) = other.ask("CLIENT ID") else {
        panic!("a number")
    };
    assert_eq!(client.ask(&format!("CLIENT KILL ID {id}")), Reply::Integer(1));
    assert_eq!(other.try_reply(), None);
    other = served.client();
    other.ask("HELLO 3");
    let muted = [
        "CLIENT REPLY SKIP",
        "SET a 2",
        "CLIENT REPLY OFF",
        "GET a",
        "SUBSCRIBE a",
        "CLIENT REPLY ON",
    ];
    muted.iter().for_each(|request| other.send(request));
    // A push is no reply.
    assert!(matches!(other.reply(), Reply::Push(_)));
    assert_eq!(other.reply(), Reply::ok());
    assert_eq!(other.ask("GET a"), bulk("2"));
    assert!(client.error("HELLO 4").starts_with("NOPROTO"));
    assert!(client.error("AUTH secret").starts_with("ERR this server has no users"));
    assert_eq!(client.ask("ACL WHOAMI"), bulk("default"));
    assert!(
        client
            .error("HELLO 2 AUTH me secret")
            .starts_with("ERR this server has no users")
    );
    assert!(matches!(client.ask("CONFIG GET save"), Reply::Map(found) if found.len() == 1));
    assert_eq!(client.ask("SELECT 0"), Reply::ok());
    assert_eq!(client.error("SELECT 1"), "ERR DB index is out of range");
    assert_eq!(
        client.ask("COMMAND GETKEYS MSET a 1 b 2"),
        Reply::Array(vec![bulk("a"), bulk("b")])
    );
    assert!(matches!(client.ask("COMMAND COUNT"), Reply::Integer(50..)));
    assert_eq!(client.ask("WAIT 0 10"), Reply::Integer(0));
    assert_eq!(client.ask("RESET"), Reply::Simple("RESET".into()));
    assert_eq!(client.ask("CLIENT GETNAME"), Reply::Null);
    assert_eq!(client.ask("QUIT"), Reply::ok());
    assert_eq!(client.try_reply(), None);
    // Half closed: what came before is answered.
    let mut client = served.client();
    client
        .stream
        .write_all(b"PING\r\nPING hello\r\n")
        .expect("it takes bytes");
    client.stream.shutdown(Shutdown::Write).expect("half");
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    assert_eq!(client.reply(), bulk("hello"));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn bad_input_ends_a_connection_and_nothing_else() {
    let node = "[server]\nstalled_max = \"300ms\"\nconnections_max = 3\n[store]\ndurability = \"volatile\"\n";
    let folder = folder_with(&[("node.toml", node)]);
    let served = serve(folder.path(), &["node.toml"]);
    for wrong in [
        "*1000000\r\n",
        "*-99999999999999999999\r\n",
        "*1\r\n$99999999\r\n",
        "*1\r\n+PING\r\n",
        "*1\r\n$4\r\nPINGxx",
        "SET \"a\r\n",
        "*1\r\n$-5\r\n",
    ] {
        let mut client = served.client();
        client.ask("PING");
        client
            .stream
            .write_all(b"*1\r\n$4\r\nPING\r\n")
            .expect("it takes bytes");
        client.stream.write_all(wrong.as_bytes()).expect("it takes bytes");
        assert_eq!(
            client.reply(),
            Reply::Simple("PONG".into()),
            "what came before is answered"
        );
        match client.reply() {
            Reply::Error(error) => assert!(error.starts_with("ERR Protocol error"), "{wrong:?}: {error}"),
            other => panic!("{wrong:?}: {other:?}"),
        }
        assert_eq!(client.try_reply(), None, "{wrong:?}");
    }
    // Half a command, and then silence: told, and closed. A client that says nothing at all may stay.
    let (mut quiet, mut half) = (served.client(), served.client());
    half.stream.write_all(b"*2\r\n$3\r\nGET\r\n").expect("it takes bytes");
    assert!(matches!(half.reply(), Reply::Error(error) if error.contains("half a request")));
    assert_eq!(half.try_reply(), None);
    assert_eq!(quiet.ask("PING"), Reply::Simple("PONG".into()));
    // A line without end.
    let mut endless = served.client();
    let line = vec![b'a'; 1 << 20];
    // The server may close before all is sent.
    let _ = endless.stream.write_all(&line);
    assert!(matches!(endless.try_reply(), None | Some(Reply::Error(_))));
    // One more connection than there may be. Those before may take a moment to be gone.
    wait_until("closed connections are gone", || {
        let mut others: Vec<_> = (0..2).map(|_| served.client()).collect();
        let are_served = others.iter_mut().all(|other| {
            other.send("PING");
            other.try_reply() == Some(Reply::Simple("PONG".into()))
        });
        if are_served {
            let mut more = served.client();
            assert_eq!(
                more.try_reply(),
                Some(Reply::Error("ERR max number of clients reached".into()))
            );
            assert_eq!(more.try_reply(), None);
        }
        are_served
    });
    // Keys and values that no record can have.
    let long = "k".repeat(600);
    assert!(
        quiet
            .error(&format!("SET {long} 1"))
            .contains("a key has 1 to 511 bytes")
    );
    assert_eq!(quiet.ask(&format!("GET {long}")), Reply::Null);
    assert_eq!(quiet.error("GET"), "ERR wrong number of arguments for 'get' command");
    assert!(
        quiet
            .error("NOPE a b")
            .starts_with("ERR unknown command 'NOPE', with args beginning with: 'a' 'b' ")
    );
}

/// A client that has asked for 64 MiB and reads none of it, and another one.
fn slow_and_other(served: &TestServer) -> (Client, Client) {
    let (mut slow, mut other) = (served.client(), served.client());
    let value = "x".repeat(1 << 20);
    assert_eq!(other.ask(&format!("SET long {value}")), Reply::ok());
    (0..64).for_each(|_| slow.send("GET long"));
    (slow, other)
}

/// A client that asks for much and reads nothing is dropped, and others are served meanwhile.
#[test]
fn a_slow_reader_is_dropped() {
    let node = "[server]\nstalled_max = \"3s\"\n[store]\ndurability = \"volatile\"\n";
    let folder = folder_with(&[("node.toml", node)]);
    let served = serve(folder.path(), &["node.toml"]);
    let (_slow, mut other) = slow_and_other(&served);
    wait_until("the slow reader is dropped", || {
        let Reply::Bulk(info) = other.ask("INFO stats") else {
            panic!("text")
        };
        let info = String::from_utf8(info).expect("text");
        info.contains("dropped_connections:1\r\n")
    });
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

/// What a page in a browser of this machine has it send: the words of a body are no requests.
#[test]
fn a_page_in_a_browser_sets_nothing() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    for head in [
        "POST / HTTP/1.1\r\nContent-Type: text/plain\r\n",
        "GET / HTTP/1.1\r\nAccept: */*\r\nHost: 127.0.0.1\r\n",
        "PUT / HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        "MULTI\r\nPoSt / HTTP/1.1\r\n",
    ] {
        let mut page = served.client();
        page.stream
            .write_all(format!("{head}\r\nSET a 1\r\nEXEC\r\n").as_bytes())
            .expect("it takes bytes");
        // Until the connection ends.
        while page.try_reply().is_some() {}
        assert_eq!(served.client().ask("EXISTS a"), Reply::Integer(0), "{head}");
    }
    assert_eq!(served.client().ask("SET post host:"), Reply::ok());
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
    // One thread, one place in the queue: of many at the same time some find none, and are told when to come again.
    let mut others: Vec<_> = (0..20).map(|_| served.client()).collect();
    wait_until("one of 20 finds no room in a queue of 1", || {
        others.iter_mut().for_each(|other| other.send("DBSIZE"));
        let replies: Vec<_> = others.iter_mut().map(Client::reply).collect();
        let late = |reply: &Reply| matches!(reply, Reply::Error(error) if error.starts_with("LATE reason=backlog"));
        replies.iter().any(late)
    });
    let Reply::Bulk(info) = client.ask("INFO stats") else {
        panic!("text")
    };
    let info = String::from_utf8(info).expect("text");
    assert!(!info.contains("late_backlog:0\r\n"), "{info}");
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

fn words(client: &mut Client, request: &[&str]) -> Reply {
    let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
    client.stream.write_all(&encoded(&words)).expect("it takes a request");
    client.reply()
}

#[test]
fn users_do_what_they_may_and_strangers_nothing() {
    let (folder, _) = with_users("stalled_max = \"1h\"");
    // Other machines may reach it, because there are users.
    let served = serve(folder.path(), &["node.toml", "--listen", "0.0.0.0:0"]);
    let port = served.address.rsplit(':').next().expect("a port");
    let client = || Client::of(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens"));
    let mut stranger = client();
    for request in [
        "GET a",
        "PING",
        "INFO",
        "CLIENT LIST",
        "MULTI",
        "SUBSCRIBE a",
        "ACL WHOAMI",
        "DEADLINE 5 SET a 1",
    ] {
        assert_eq!(stranger.error(request), "NOAUTH Authentication required.", "{request}");
    }
    assert!(stranger.error("HELLO 3").starts_with("NOAUTH HELLO must be called"));
    // Its bounds are smaller.
    let long = "x".repeat(17 << 10);
    stranger.send(&format!("AUTH owner {long}"));
    assert!(matches!(stranger.reply(), Reply::Error(error) if error.contains("invalid bulk length")));
    assert_eq!(stranger.try_reply(), None);

    let mut owner = client();
    assert!(owner.error("AUTH owner wrong").starts_with("WRONGPASS"));
    assert!(owner.error("AUTH none-such wrong").starts_with("WRONGPASS"));
    assert!(owner.error("AUTH wrong").starts_with("WRONGPASS"), "the default user");
    assert_eq!(owner.try_reply(), None, "three wrong passwords end a connection");
    // What is sent behind AUTH at once has the bounds of the user.
    let mut owner = client();
    let mut bytes = encoded(&[b"AUTH", b"owner", b"all of it"]);
    bytes.extend(encoded(&[b"SET", b"room/long", "v".repeat(1 << 20).as_bytes()]));
    bytes.extend(encoded(&[b"STRLEN", b"room/long"]));
    owner.stream.write_all(&bytes).expect("it takes bytes");
    assert_eq!((owner.reply(), owner.reply()), (Reply::ok(), Reply::ok()));
    assert_eq!(owner.reply(), Reply::Integer(1 << 20));
    assert_eq!(owner.ask("ACL WHOAMI"), bulk("owner"));
    assert!(
        matches!(owner.ask("CLIENT INFO"), Reply::Bulk(line) if String::from_utf8_lossy(&line).contains(" user=owner "))
    );
    assert_eq!(owner.ask("SET room/door open"), Reply::ok());
    assert_eq!(owner.ask("SET safe closed"), Reply::ok());

    for round in 0..2 {
        // The second time its password is known.
        let mut guest = client();
        let hello = words(&mut guest, &["HELLO", "3", "AUTH", "guest", "a part", "SETNAME", "me"]);
        assert!(matches!(hello, Reply::Map(_)), "{round}: {hello:?}");
        assert_eq!(
            (guest.ask("ACL WHOAMI"), guest.ask("CLIENT GETNAME")),
            (bulk("guest"), bulk("me"))
        );
        assert_eq!(guest.ask("GET room/door"), bulk("open"));
        for refused in ["GET safe", "MGET room/door safe", "KEYS *", "SCAN 0", "WATCH safe"] {
            assert_eq!(
                guest.error(refused),
                "NOPERM No permissions to access a key",
                "{refused}"
            );
        }
        for refused in ["SET room/door 1", "FLUSHDB", "INFO", "CONFIG GET *", "CLIENT LIST"] {
            let error = guest.error(refused);
            assert!(
                error.starts_with("NOPERM User guest has no permissions to run"),
                "{refused}: {error}"
            );
        }
        assert_eq!(guest.error("PSUBSCRIBE *"), "NOPERM No permissions to access a channel");
        assert!(matches!(guest.ask("PUBLISH news 1"), Reply::Integer(0)));
        assert_eq!(guest.ask("MULTI"), Reply::ok());
        guest.error("SET room/door 1");
        assert!(guest.error("EXEC").starts_with("EXECABORT"));
        assert_eq!(guest.ask("RESET"), Reply::Simple("RESET".into()));
        assert_eq!(guest.error("GET room/door"), "NOAUTH Authentication required.");
    }
    let Reply::Bulk(info) = owner.ask("INFO") else {
        panic!("text")
    };
    assert!(String::from_utf8_lossy(&info).contains("wrong_passwords:3\r\n"));
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
    let mut served = serve_telling(folder.path(), &["node.toml"], Stdio::piped());
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

/// A client that never says which user it is has to go.
#[test]
fn a_stranger_that_says_nothing_is_ended() {
    let (folder, _) = with_users("stalled_max = \"300ms\"");
    let served = serve(folder.path(), &["node.toml"]);
    assert_eq!(served.client().try_reply(), None);
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
