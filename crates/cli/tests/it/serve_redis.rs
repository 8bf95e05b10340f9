//! `punctual serve` beside a Redis of version 7, and with the clients of Redis, where they are installed.

#![cfg(target_os = "linux")]

use crate::common;

use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::serving::{Client, serve};
use common::{BOUND, folder_with, told};
use punctual_server::resp::Reply;

/// Whether `program` can be started; says so where not.
fn is_here(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let found = punctual_testing::output(command.args(arguments), BOUND).is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// The requests, in this order.
const ASKED: &str = include_str!("../../../server/tests/data/requests.txt");

/// In which these differ, and docs/commands.md says so; or Redis' own words, which are not protocol.
fn is_known(asked: &str) -> bool {
    let differ = [
        "CLIENT SETINFO NOPE x", // came with Redis 7.2
        "CONFIG GET databases",  // one here, 16 there
    ];
    differ.contains(&asked)
}

/// What is compared: of the time that a key has left, that there is some.
fn compared(asked: &str, value: &Reply) -> Reply {
    match value {
        Reply::Integer(1..) if asked.contains("TTL") => Reply::Integer(1),
        other => other.clone(),
    }
}

#[test]
fn replies_are_those_of_redis() {
    if !is_here("redis-server", &["--version"]) {
        return;
    }
    let folder = folder_with(&[]);
    let [port] = punctual_testing::reserved_ports();
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _redis = punctual_testing::start(&mut command, BOUND).expect("it starts");
    let stream = punctual_testing::wait_ok("Redis listens", || TcpStream::connect(("127.0.0.1", port)));
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let (mut theirs, mut ours) = (Client::of(stream), served.client());
    let (mut count, mut differ) = (0, Vec::new());
    for asked in ASKED.split(['|', '\n']).filter(|asked| !asked.is_empty()) {
        let asked = asked.replace("\\n", "\n");
        // A subscription is told name by name.
        let replies = match asked.as_str() {
            "SUBSCRIBE a b" => 2,
            _ => 1,
        };
        theirs.send(&asked);
        ours.send(&asked);
        for _ in 0..replies {
            let (expected, found) = (theirs.reply(), ours.reply());
            count += 1;
            if compared(&asked, &expected) != compared(&asked, &found) && !is_known(&asked) {
                differ.push(format!("{asked}\n  Redis: {expected:?}\n  ours:  {found:?}"));
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {count} replies differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
    println!("{count} replies are those of Redis");
}

#[test]
fn redis_cli_and_redis_benchmark_work() {
    if !is_here("redis-cli", &["--version"]) || !is_here("redis-benchmark", &["--version"]) {
        return;
    }
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let port = served.address.rsplit(':').next().expect("a port");
    let cli = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", port]).args(arguments);
        told(punctual_testing::output(&mut command, BOUND).expect("it starts")).0
    };
    assert_eq!(cli(&["SET", "door", "open"]), "OK\n");
    assert_eq!(cli(&["-3", "HSET", "h", "f", "1"]), "1\n");
    assert_eq!(cli(&["-3", "--json", "HGETALL", "h"]), "{\"f\":\"1\"}\n");
    assert_eq!(cli(&["--scan"]), "door\nh\n");
    assert!(cli(&["DEADLINE", "10000", "GET", "door"]).starts_with("open"));
    for mode in [&["-P", "1"], &["-P", "16"]] {
        let mut command = Command::new("redis-benchmark");
        command
            .args([
                "-p",
                port,
                "-t",
                "get,set,incr,mset,hset,ping",
                "-n",
                "2000",
                "-c",
                "50",
                "-q",
            ])
            .args(mode);
        let (out, _) = told(punctual_testing::output(&mut command, BOUND).expect("it starts"));
        assert_eq!(out.matches("requests per second").count(), 7, "{out}");
        assert!(!out.contains("rror"), "{out}");
    }
}

const PYTHON: &str = r#"
import redis, sys
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True)
    r.flushdb()
    assert r.set("a", 1) and r.get("a") == "1" and r.incr("a", 5) == 6
    assert r.set("a", 2, nx=True) is None and r.set("b", 1, ex=100) and 0 < r.ttl("b") <= 100
    assert r.hset("h", mapping={"f": 1, "g": "x"}) == 2 and r.hgetall("h") == {"f": "1", "g": "x"}
    assert sorted(r.scan_iter(match="?", count=1)) == ["a", "b", "h"]
    with r.pipeline() as p:
        p.watch("a")
        p.multi()
        p.incr("a").get("b")
        assert p.execute() == [7, "1"]
        p.watch("a")
        r.set("a", 0)
        p.multi()
        p.incr("a")
        try:
            p.execute()
            assert False
        except redis.WatchError:
            pass
    s = r.pubsub()
    s.subscribe("news")
    s.psubscribe("__keyspace@0__:door")
    assert [s.get_message(timeout=100)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    assert r.publish("news", "hello") == 1
    assert s.get_message(timeout=100)["data"] == "hello"
    r.set("door", "open")
    assert s.get_message(timeout=100)["data"] == "set"
    s.close()
    assert r.execute_command("TSET", "pose", "1", "AGE", "5") and r.execute_command("GETFRESH", "pose", "60000")[0] == "1"
    try:
        r.execute_command("GETFRESH", "pose", "0")
        assert False
    except redis.ResponseError as error:
        assert str(error).startswith("STALE age-ms="), error
    r.client_setname("me")
    assert r.client_getname() == "me" and r.client_list()[0]["db"] == "0" and r.info()["role"] == "master"
    assert r.config_get("databases") == {"databases": "1"} and r.command_count() > 50 and r.ping()
print("fine")
"#;

#[test]
fn redis_py_works() {
    if !is_here("python3", &["-c", "import redis"]) {
        return;
    }
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let port = served.address.rsplit(':').next().expect("a port");
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON, port]);
    let output = punctual_testing::output(&mut command, BOUND).expect("it starts");
    assert_eq!(told(output).0, "fine\n");
}
