//! `punctual serve` beside a Redis of version 7, and with the clients of Redis, where they are installed.

#![cfg(target_os = "linux")]

use crate::common;

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use common::serving::{Client, serve};
use common::{BOUND, folder_with, told};
use punctual_server::resp::Reply;
use punctual_testing::TestChild;

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

/// In which these differ, and docs/guide/redis.md says so; or Redis' own words, which are not protocol.
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
        // Redis' own order is that of its table.
        Reply::Array(names) if asked.starts_with("COMMAND LIST") => Reply::Integer(names.len() as i64),
        Reply::Integer(1..) if asked.contains("TTL") => Reply::Integer(1),
        other => other.clone(),
    }
}

/// A Redis on a free port, and a connection to it.
fn redis(folder: &Path) -> (TestChild, Client) {
    let [port] = punctual_testing::reserved_ports();
    let port_text = port.to_string();
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        &port_text,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    let child = punctual_testing::start(&mut command, BOUND).expect("it starts");
    let stream = punctual_testing::wait_ok("Redis listens", || TcpStream::connect(("127.0.0.1", port)));
    (child, Client::of(stream))
}

#[test]
fn replies_are_those_of_redis() {
    if !is_here("redis-server", &["--version"]) {
        return;
    }
    let folder = folder_with(&[]);
    let (_redis, mut theirs) = redis(folder.path());
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut ours = served.client();
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

/// Requests of the commands on records, whose replies do not depend on the time, with words drawn by `below`.
fn drawn(below: &mut impl FnMut(usize) -> usize) -> String {
    const WORDS: &str = "APPEND K N|APPEND K V|DECR K|DECRBY K N|DEL K K|EXISTS K K|GET K|GETDEL K|GETEX K|\
        GETEX K PERSIST|GETEX K EXAT 4000000000|GETEX K PXAT P|GETRANGE K N N|GETSET K N|HDEL H F F|HEXISTS H F|\
        HGET H F|HGETALL H|HINCRBY H F N|HINCRBYFLOAT H F R|HINCRBYFLOAT H F R|HKEYS H|HLEN H|HMGET H F F|\
        HMSET H F V F N|HSCAN H 0 MATCH f*|HSET H F N|HSET H F R|HSETNX H F V|HSTRLEN H F|HVALS H|INCR K|INCRBY K N|\
        INCRBYFLOAT K R|INCRBYFLOAT K R|INCRBYFLOAT K V|MGET K K H|MSET K N K V|MSETNX K N K V|PERSIST K|RENAME K K|\
        RENAME H H|RENAME K H|RENAMENX K K|RENAMENX H H|SET K N|SET K R|SET K V|SET K N GET|SET K V XX GET|SET K N NX|\
        SET K V KEEPTTL|SET K N EXAT 4000000000|SETNX K N|SETRANGE K P V|STRLEN K|SUBSTR K N N|TYPE K|TYPE H|EXPIRETIME K|\
        EXPIREAT K 4000000000|COPY K K|COPY K K REPLACE|COPY H K REPLACE|COPY H H|GETBIT K P|\
        SETBIT K P 1|SETBIT K P 0|EXPIREAT K 4000000009 GT|PEXPIREAT K 4000000003000 LT|EXPIREAT K P NX|DEL H|HGET K F|GET H";
    let requests: Vec<&str> = WORDS.split('|').collect();
    let request = requests[below(requests.len())];
    let words = request.split(' ').map(|word| match word {
        "K" => format!("k{}", below(4)),
        "H" => format!("h{}", below(3)),
        "F" => format!("f{}", below(4)),
        "P" => below(30).to_string(),
        "N" => (below(41) as i64 - 20).to_string(),
        "V" => [
            "text",
            "-0",
            "007",
            "1e3",
            "9223372036854775807",
            "x",
            "+4",
            "nan",
            "3.",
        ][below(9)]
        .into(),
        "R" => {
            let sign = ["", "-", "+"][below(3)];
            let mut number = || {
                let length = 1 + below(9) as u32;
                below(10_usize.pow(length))
            };
            let (digits, fraction) = (number(), number());
            let power = ["", "", "e2", "e-7", "E+9", "e-19"][below(6)];
            format!("{sign}{digits}.{fraction}{power}")
        }
        word => word.into(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Draws numbers below a bound.
fn drawing(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    }
}

/// The seed is the environment's `SERVE_SEED`, the number of requests `SERVE_REQUESTS`.
#[test]
fn drawn_requests_are_answered_as_by_redis() {
    if !is_here("redis-server", &["--version"]) {
        return;
    }
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let (seed, count) = (number("SERVE_SEED", 7), number("SERVE_REQUESTS", 10_000));
    let mut below = drawing(seed);
    let folder = folder_with(&[]);
    let (_redis, mut theirs) = redis(folder.path());
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut ours = served.client();
    for version in ["HELLO 2", "HELLO 3"] {
        assert!(theirs.ask("FLUSHALL") == Reply::ok() && ours.ask("FLUSHALL") == Reply::ok());
        theirs.ask(version);
        ours.ask(version);
        let mut last = Vec::new();
        for _ in 0..count / 2 {
            let request = drawn(&mut below);
            last.push(request.clone());
            let (expected, found) = (theirs.ask(&request), ours.ask(&request));
            // Floats beyond 2^127 or 64 powers of ten are refused here.
            if let (Reply::Bulk(sum), Reply::Error(_)) = (&expected, &found)
                && request.contains("FLOAT")
            {
                let words: Vec<&str> = request.split(' ').collect();
                let is_hash = words[0].starts_with('H');
                let get = if is_hash {
                    format!("HGET {} {}", words[1], words[2])
                } else {
                    format!("GET {}", words[1])
                };
                let has_power = |text: &[u8]| text.iter().any(|byte| b"eE".contains(byte));
                let is_far = sum.len() >= 39 || matches!(ours.ask(&get), Reply::Bulk(text) if has_power(&text));
                assert!(is_far, "{request}: {found:?}");
                assert_eq!(
                    theirs.ask(&format!("DEL {}", words[1])),
                    ours.ask(&format!("DEL {}", words[1]))
                );
                continue;
            }
            let from = last.len().saturating_sub(12);
            assert_eq!(
                expected,
                found,
                "seed {seed}, {version}, the last of {:?}",
                &last[from..]
            );
        }
    }
}

/// Events of changed keys have Redis' names and order, whatever classes are chosen.
#[test]
fn changes_are_told_as_by_redis() {
    if !is_here("redis-server", &["--version"]) {
        return;
    }
    let folder = folder_with(&[]);
    let (_redis, mut theirs) = redis(folder.path());
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut ours = served.client();
    let mut below = drawing(3);
    let is_last = |told: &Reply| match told {
        Reply::Array(words) | Reply::Push(words) => {
            let is_end = |word: &Reply| matches!(word, Reply::Bulk(text) if text.ends_with(b"end"));
            words.iter().any(is_end)
        }
        _ => false,
    };
    let mut tells = |classes: &str, requests: &[&str], last: &str| {
        let set = format!("CONFIG SET notify-keyspace-events {classes}");
        let told = [&mut theirs, &mut ours].map(|client| {
            assert_eq!(client.ask(&set), Reply::ok());
            let address = client.stream.peer_addr().expect("an address");
            let mut hears = Client::of(TcpStream::connect(address).expect("it listens"));
            hears.ask("PSUBSCRIBE __key*__:*");
            requests.iter().for_each(|request| drop(client.ask(request)));
            client.ask(last);
            let mut told: Vec<Reply> = Vec::new();
            while !told.last().is_some_and(is_last) {
                told.push(hears.reply());
            }
            told
        });
        let [theirs, ours] = told;
        for (at, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(theirs, ours, "{classes}, event {at}");
        }
        assert_eq!(theirs.len(), ours.len(), "{classes}");
    };
    for classes in ["KEA", "Kg$", "E$h"] {
        let requests: Vec<_> = (0..700).map(|_| drawn(&mut below)).collect();
        tells(
            classes,
            &requests.iter().map(String::as_str).collect::<Vec<_>>(),
            "SET end 1",
        );
    }
    let terms = [
        "SET a 1 EX 100",
        "SETEX a 100 1",
        "PSETEX a 100000 1",
        "EXPIRE a 100",
        "PERSIST a",
        "EXPIRE a -1",
    ];
    tells("EA", &terms, "SET end 1");
    tells("Ex", &["SET a 1"], "SET end 1 PX 1");
}

/// Each lock script by its SHA-1: of the holder, of another one, and where there is no lock.
#[test]
fn lock_scripts_are_known() {
    let folder = folder_with(&[]);
    let served = serve(folder.path(), &["--durability", "volatile"]);
    let mut client = served.client();
    let py = [
        "c3f8721cbb97f72bc19e972846bd7aaf91901658", // release
        "a4e8783852e6b949f9ef3a97212805108459a890", // extend
        "1cac51482acf5858da00f6d685d68f886cd6b6b2", // reacquire
    ];
    let redsync = [
        "e950836ed1e694540c503ef9972b8de518044d3b", // unlock
        "d75bb8b5bd13532ddedd17762e772346e39b321e", // extend
        "b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", // extend, or lock
    ];
    let node = [
        "e5a322e2634ef59a516e8ea150cb085afafee684", // lock
        "0f0f23b9048b36752b5be114f357ba083449f908", // unlock
        "ce46f80993d5dac20dd066eb301a4e37994bdbed", // extend
    ];
    let lives = |client: &mut Client, least: i64| {
        let Reply::Integer(left) = client.ask("PTTL lock") else {
            panic!("a number")
        };
        assert!((least - 60_000..=least).contains(&left), "{left} of {least}");
    };
    for (request, expected) in [
        (format!("EVALSHA {} 1 lock me", py[0]), 0),
        (format!("EVALSHA {} 1 lock me", redsync[0]), -1),
        (format!("EVALSHA {} 1 lock me 900000", py[2]), 0),
        ("SETNX lock me".into(), 1),
        // Without an expiry it is not prolonged.
        (format!("EVALSHA {} 1 lock me 900000 0", py[1]), 0),
        (format!("EVALSHA {} 1 lock me 900000", py[2]), 1),
        (format!("EVALSHA {} 1 lock other 1", py[2]), 0),
        (format!("EVALSHA {} 1 lock me 900000 0", py[1]), 1),
    ] {
        assert_eq!(client.ask(&request), Reply::Integer(expected), "{request}");
    }
    lives(&mut client, 1_800_000);
    for (request, expected) in [
        (format!("EVALSHA {} 1 lock me 900000 1", py[1]), 1),
        (format!("EVALSHA {} 1 lock other", py[0]), 0),
        (format!("EVALSHA {} 1 lock other", redsync[0]), 0),
        (format!("EVALSHA {} 1 lock other 5", redsync[1]), 0),
        (format!("EVALSHA {} 1 lock other 5", redsync[2]), 0),
        (format!("EVALSHA {} 2 lock free me 500000", node[0]), 0),
        (format!("EVALSHA {} 1 lock me", redsync[0]), 1),
        (format!("EVALSHA {} 1 lock me 700000", redsync[1]), 0),
        (format!("EVALSHA {} 1 lock me 700000", redsync[2]), 1),
        (format!("EVALSHA {} 1 lock me", py[0]), 1),
        (format!("EVALSHA {} 2 lock more me 500000", node[0]), 2),
        (format!("EVALSHA {} 2 lock more other 5", node[2]), 0),
        (format!("EVALSHA {} 2 lock more me 600000", node[2]), 2),
        (format!("EVALSHA {} 2 lock lock other", node[1]), 0),
    ] {
        assert_eq!(client.ask(&request), Reply::Integer(expected), "{request}");
    }
    lives(&mut client, 600_000);
    let request = format!("EVALSHA {} 3 lock lock more me", node[1]);
    assert_eq!(client.ask(&request), Reply::Integer(2));
    client.ask("HSET lock f 1");
    for (request, begin) in [
        (format!("EVALSHA {} 1 lock me", py[0]), "WRONGTYPE"),
        (
            format!("EVALSHA {} 0 lock me", py[0]),
            "ERR this script takes more keys",
        ),
        (format!("EVALSHA {} 1 lock", py[0]), "ERR this script takes more keys"),
        (
            format!("EVALSHA {} 5 lock", py[0]),
            "ERR Number of keys can't be greater",
        ),
        (
            format!("EVALSHA {} -1 lock", py[0]),
            "ERR Number of keys can't be negative",
        ),
        (format!("EVALSHA {} x lock", py[0]), "ERR value is not an integer"),
        ("EVALSHA abc 0".into(), "NOSCRIPT No matching script."),
        ("EVAL return 0".into(), "ERR this script is not known"),
        ("SCRIPT LOAD return".into(), "ERR this script is not known"),
        ("SCRIPT KILL".into(), "ERR unknown subcommand"),
    ] {
        assert!(client.error(&request).starts_with(begin), "{request}");
    }
    let request = format!("SCRIPT EXISTS {} abc", py[0]);
    assert_eq!(
        client.ask(&request),
        Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)])
    );
    assert_eq!(client.ask("SCRIPT FLUSH"), Reply::ok());
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
    with r.lock("lock", timeout=60) as lock:
        assert lock.extend(30) and lock.reacquire() and lock.owned() and not r.lock("lock").acquire(blocking=False)
    assert r.get("lock") is None and dict(r.hscan_iter("h")) == {"f": "1", "g": "x"}
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
