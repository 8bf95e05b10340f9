//! What a user of redis-rs does, against `punctual serve`, or a node or a balancer of a federation (CLIENTS_AT). Run by
//! .ci/clients, which says where the servers are.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;

use redis::{Client, Connection, RedisError, RedisResult, Value, cmd, pipe};

/// Tests take turns: each begins with an empty store, and one ends the server.
static ONE: Mutex<()> = Mutex::new(());

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name}: run .ci/clients rust"))
}

fn client(protocol: &str) -> Client {
    let port = env("CLIENTS_PORT");
    Client::open(format!("redis://127.0.0.1:{port}/?protocol={protocol}")).expect("an address")
}

/// On a federation some things are not: whether they are to be skipped, for that reason.
fn is_skipped(reason: &str) -> bool {
    let is_skipped = is_federated();
    if is_skipped {
        println!("skipped: {reason}");
    }
    is_skipped
}

fn is_federated() -> bool {
    std::env::var("CLIENTS_AT").is_ok_and(|at| at != "store")
}

/// A connection whose requests have time on a busy machine: a federation gives them a second unless its client says
/// otherwise.
fn connected(client: &Client) -> Connection {
    let mut r = client.get_connection().expect("it connects");
    if is_federated() {
        ask::<()>(&mut r, "CLIENT DEADLINE 120000");
    }
    r
}

/// Removes all but temporal objects; FLUSHDB is no transaction of a federation.
fn empty(r: &mut Connection) {
    if !is_federated() {
        return cmd("FLUSHDB").exec(r).expect("it is empty");
    }
    let mut scan = cmd("SCAN");
    scan.cursor_arg(0).arg("COUNT").arg(1000);
    let keys: Vec<Vec<u8>> = scan.iter(r).expect("it scans").map(|key| key.expect("a key")).collect();
    let keys: Vec<_> = keys.into_iter().filter(|key| !key.windows(4).any(|part| part == b"pose")).collect();
    if !keys.is_empty() {
        cmd("DEL").arg(keys).exec(r).expect("it is empty");
    }
}

/// Runs a test by each protocol, with an empty store.
fn each(test: impl Fn(&mut Connection, &Client)) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for protocol in ["resp2", "resp3"] {
        let client = client(protocol);
        let mut r = connected(&client);
        empty(&mut r);
        test(&mut r, &client);
    }
}

/// What a command on one line answers.
fn ask<T: redis::FromRedisValue>(r: &mut Connection, words: &str) -> T {
    try_ask(r, words).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn try_ask<T: redis::FromRedisValue>(r: &mut Connection, words: &str) -> RedisResult<T> {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().expect("a command"));
    words.for_each(|word| _ = command.arg(word));
    command.query(r)
}

fn code(answer: RedisResult<Value>) -> String {
    let error = answer.expect_err("it is refused");
    error.code().unwrap_or_else(|| panic!("{error:?} has no code")).to_owned()
}

#[test]
fn connects() {
    if is_skipped("INFO is a node's own") {
        return;
    }
    each(|r, _| {
        assert_eq!(ask::<String>(r, "PING"), "PONG");
        assert!(ask::<i64>(r, "CLIENT ID") > 0);
        let info: redis::InfoDict = ask(r, "INFO");
        assert_eq!(info.get::<String>("role").as_deref(), Some("master"));
        assert!(ask::<i64>(r, "COMMAND COUNT") > 50);
        assert_eq!(ask::<BTreeMap<String, String>>(r, "CONFIG GET databases")["databases"], "1");
    });
}

#[test]
fn strings_and_counters() {
    each(|r, _| {
        assert_eq!(ask::<String>(r, "SET a 1"), "OK");
        assert_eq!(ask::<i64>(r, "GET a"), 1);
        assert_eq!(ask::<Option<String>>(r, "GET none"), None);
        assert_eq!(ask::<Option<String>>(r, "SET a 2 NX"), None);
        assert_eq!(ask::<String>(r, "SET a 2 GET"), "1");
        assert_eq!([ask::<i64>(r, "INCR a"), ask(r, "INCRBY a 7"), ask(r, "DECR a")], [3, 10, 9]);
        assert_eq!(ask::<i64>(r, "APPEND b xyz"), 3);
        assert_eq!(ask::<String>(r, "GETDEL b"), "xyz");
        assert!(ask::<bool>(r, "SETNX c 1") && !ask::<bool>(r, "SETNX c 1"));
        assert_eq!(ask::<String>(r, "MSET x 1 y 2"), "OK");
        assert_eq!(ask::<Vec<Option<i64>>>(r, "MGET x none y"), [Some(1), None, Some(2)]);
        assert_eq!(ask::<i64>(r, "DEL x y none"), 2);
    });
}

#[test]
fn hashes() {
    each(|r, _| {
        assert_eq!(ask::<i64>(r, "HSET h f 1 g x"), 2);
        let all: BTreeMap<String, String> = ask(r, "HGETALL h");
        assert_eq!(all, BTreeMap::from([("f".into(), "1".into()), ("g".into(), "x".into())]));
        assert_eq!(ask::<(Option<i64>, Option<i64>)>(r, "HMGET h f none"), (Some(1), None));
        assert_eq!((ask::<i64>(r, "HDEL h f"), ask::<i64>(r, "HLEN h")), (1, 1));
        assert!(ask::<bool>(r, "HEXISTS h g"));
        assert_eq!(code(try_ask(r, "GET h")), "WRONGTYPE");
    });
}

#[test]
fn terms_and_scan() {
    each(|r, _| {
        ask::<()>(r, "SET a 1 EX 100");
        assert!((1..=100).contains(&ask::<i64>(r, "TTL a")));
        assert!(ask::<bool>(r, "PERSIST a"));
        assert_eq!((ask::<i64>(r, "TTL a"), ask::<i64>(r, "TTL none")), (-1, -2));
        assert!(ask::<bool>(r, "EXPIRE a 50") && !ask::<bool>(r, "EXPIRE a 9 GT"));
        assert!(ask::<bool>(r, "PEXPIRE a 1"));
        while ask::<bool>(r, "EXISTS a") {}
        let before: i64 = ask(r, "DBSIZE"); // temporal objects stay
        let mut set = cmd("MSET");
        (0..1000).for_each(|number| _ = set.arg(format!("key:{number}")).arg("x"));
        set.exec(r).expect("they are set");
        let mut scan = cmd("SCAN");
        scan.cursor_arg(0).arg("MATCH").arg("key:*").arg("COUNT").arg(17);
        let keys = scan.iter::<String>(r).expect("it scans").map(|key| key.expect("a key"));
        assert_eq!(keys.collect::<BTreeSet<String>>().len(), 1000);
        // Others count in a federation, too.
        assert!(is_federated() || ask::<i64>(r, "DBSIZE") == before + 1000);
    });
}

#[test]
fn transactions() {
    each(|r, client| {
        let mut all = pipe();
        all.atomic().cmd("SET").arg("a").arg(1).ignore().cmd("INCR").arg("a").cmd("GET").arg("a");
        assert_eq!(all.query::<(i64, String)>(r).expect("it is done"), (2, "2".into()));
        ask::<()>(r, "WATCH a");
        ask::<()>(&mut connected(client), "SET a 7");
        let mut all = pipe();
        all.atomic().cmd("SET").arg("a").arg(8);
        assert_eq!(all.query::<Value>(r).expect("an answer"), Value::Nil);
        assert_eq!(ask::<i64>(r, "GET a"), 7);
    });
}

/// Clients that count by WATCH, and try again: none is lost.
#[test]
fn watch_in_a_loop() {
    each(|r, client| {
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mut r = connected(client);
                    for _ in 0..50 {
                        let added = redis::transaction(&mut r, &["count"], |r, all| {
                            let before: Option<i64> = cmd("GET").arg("count").query(r)?;
                            let after = before.unwrap_or(0) + 1;
                            all.cmd("SET").arg("count").arg(after).ignore().query::<Option<()>>(r)
                        });
                        added.expect("it counts");
                    }
                });
            }
        });
        assert_eq!(ask::<i64>(r, "GET count"), 200);
    });
}

#[test]
fn channels() {
    each(|r, client| {
        let mut subscriber = connected(client);
        let mut hears = subscriber.as_pubsub();
        hears.subscribe("news").expect("it hears");
        hears.psubscribe("__keyspace@0__:door*").expect("it hears");
        let mut heard = vec!["hello", "set", "del"];
        if is_federated() {
            assert_eq!(code(try_ask(r, "PUBLISH news hello")), "ERR");
            heard.remove(0);
        } else {
            assert_eq!(ask::<i64>(r, "PUBLISH news hello"), 1);
        }
        ask::<()>(r, "SET door:1 open");
        ask::<()>(r, "DEL door:1");
        for expected in heard {
            let message = hears.get_message().expect("a message");
            assert_eq!(message.get_payload::<String>().expect("text"), expected);
        }
    });
}

#[test]
fn pipelines() {
    each(|r, _| {
        let mut all = pipe();
        for number in 0..2000 {
            let key = format!("key:{number}");
            all.cmd("SET").arg(&key).arg(number).ignore().cmd("GET").arg(&key);
        }
        let found: Vec<i64> = all.query(r).expect("they are done");
        assert_eq!(found, (0..2000).collect::<Vec<i64>>());
    });
}

#[test]
fn any_bytes_and_long_values() {
    if is_skipped("keys that begin with 0 are the federation's, and values have 128 KiB") {
        return;
    }
    each(|r, _| {
        let key: Vec<u8> = (0..=255).collect();
        let long = key.repeat(8 << 12);
        cmd("SET").arg(&key).arg(&long).exec(r).expect("it is set");
        let found: Vec<u8> = cmd("GET").arg(&key).query(r).expect("it is there");
        assert!(found == long);
    });
}

#[test]
fn errors_have_their_codes() {
    each(|r, _| {
        for (asked, told) in [("NOPE", "unknown command"), ("GET", "wrong number of arguments"), ("SET a 1 EX 0", "expire")] {
            let error = try_ask::<Value>(r, asked).expect_err("it is refused");
            assert!(error.to_string().contains(told), "{asked}: {error}");
        }
        ask::<()>(r, "DEADLINE 60000 SET a 1");
        let mut set = cmd("MSET");
        (0..10_000).for_each(|number| _ = set.arg(format!("key:{number}")).arg("x"));
        set.exec(r).expect("they are set");
        let mut all = pipe();
        (0..40).for_each(|_| _ = all.cmd("KEYS").arg("none*").ignore());
        all.cmd("DEADLINE").arg(1).arg("GET").arg("a");
        let late = all.query::<Value>(r).expect_err("it is late");
        assert!(late.to_string().contains("reason=expired retry-after-ms="), "{late}");
        ask::<()>(r, "TSET rustpose 1 AGE 5");
        assert_eq!(ask::<(i64, i64)>(r, "GETFRESH rustpose 3600000").0, 1);
        assert_eq!(code(try_ask(r, "GETFRESH rustpose 0")), "STALE");
    });
}

#[test]
fn users_and_tls() {
    if is_skipped("that server is a store") {
        return;
    }
    drop(rustls::crypto::ring::default_provider().install_default());
    let guarded = |user: &str, password: &str, protocol: &str| {
        let (port, ca) = (env("CLIENTS_TLS_PORT"), env("CLIENTS_CA"));
        let url = format!("rediss://{user}:{password}@localhost:{port}/?protocol={protocol}");
        let certificates = redis::TlsCertificates {
            client_tls: None,
            root_cert: Some(std::fs::read(ca).expect("a certificate")),
        };
        Client::build_with_tls(url, certificates).expect("an address").get_connection()
    };
    for protocol in ["resp2", "resp3"] {
        let password = env("CLIENTS_PASSWORD").replace(' ', "%20");
        let mut r = guarded(&env("CLIENTS_USER"), &password, protocol).expect("it connects");
        ask::<()>(&mut r, "SET robot/a 1");
        assert_eq!(ask::<i64>(&mut r, "GET robot/a"), 1);
        assert_eq!(code(try_ask(&mut r, "GET other/a")), "NOPERM");
        let long = "x".repeat(4 << 20);
        cmd("SET").arg("robot/long").arg(&long).exec(&mut r).expect("it is set");
        assert!(ask::<String>(&mut r, "GET robot/long") == long);
        let wrong: Result<Connection, RedisError> = guarded(&env("CLIENTS_USER"), "wrong", protocol);
        let wrong = format!("{:?}", wrong.err().expect("it is refused"));
        // Which one depends on the protocol.
        assert!(wrong.contains("AuthenticationFailed") || wrong.contains("WRONGPASS"), "{wrong}");
    }
}

#[test]
fn connects_again_after_a_restart() {
    if is_skipped("tested with the program's own faults") {
        return;
    }
    each(|r, client| {
        ask::<()>(r, "SET kept yes");
        let restart = env("CLIENTS_RESTART");
        let mut words = restart.split(' ');
        let status = Command::new(words.next().expect("a program")).args(words).status();
        assert!(status.expect("it starts").success());
        // A connection that is over says so; the client opens another one.
        let lost = try_ask::<String>(r, "GET kept").expect_err("it is over");
        assert!(lost.is_io_error() || lost.is_connection_dropped(), "{lost:?}");
        let mut again = client.get_connection().expect("it connects again");
        assert_eq!(ask::<String>(&mut again, "GET kept"), "yes");
    });
}
