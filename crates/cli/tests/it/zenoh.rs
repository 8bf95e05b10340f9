//! Readings from Zenoh (decision 48): nodes as programs, and a peer of Zenoh in this one, as a robot has it. By the
//! feature `zenoh` alone.

#![cfg(feature = "zenoh")]

use crate::common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use common::serving::{Client, end};
use common::{BOUND, folder_with, refused};
use punctual_server::resp::Value;
use punctual_testing::{Kept, free_ports};
use zenoh::time::{NTP64, Timestamp};
use zenoh::{Config, Session, Wait};

/// A program that runs, and the lines that it says.
struct Running {
    child: Kept,
    said: Receiver<String>,
}

fn start(folder: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped());
    let mut child = punctual_testing::start(&mut command, BOUND).unwrap();
    let lines = BufReader::new(child.stdout().unwrap()).lines();
    let (tell, said) = channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    Running { child, said }
}

impl Running {
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

/// The file of a node among `nodes`.
fn file(node: usize, clients: u16, nodes: &[u16], zenoh: &str) -> String {
    let places: Vec<String> = nodes.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    format!(
        "[server]\nlisten = \"127.0.0.1:{clients}\"\n[store]\npath = \"store-{node}\"\n[federation]\nname = \
         \"plant\"\nnode = {node}\nnodes = [{}]\nlog = \"unix:log.socket\"\n{zenoh}",
        places.join(", ")
    )
}

fn client(port: u16) -> Client {
    Client::of(TcpStream::connect(("127.0.0.1", port)).unwrap())
}

/// A robot: a peer, or a router, of Zenoh that listens at this port of this machine.
fn robot(port: u16, mode: &str) -> Session {
    let mut config = Config::default();
    for (name, value) in [
        ("mode", format!("{mode:?}")),
        ("listen/endpoints", format!("[\"tcp/127.0.0.1:{port}\"]")),
        ("scouting/multicast/enabled", "false".into()),
        ("scouting/gossip/enabled", "false".into()),
        ("timestamping/enabled", "false".into()),
    ] {
        config.insert_json5(name, &value).unwrap();
    }
    let until = Instant::now() + BOUND;
    loop {
        // The robot before it may hold the port for a moment.
        match zenoh::open(config.clone()).wait() {
            Ok(session) => return session,
            Err(error) if Instant::now() > until => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// What a node has of an object: value and age in milliseconds.
fn reading(client: &mut Client, object: &str) -> Option<(String, u64)> {
    match client.ask(&format!("GETFRESH {object} 3000000")) {
        Value::Array(found) => match &found[..] {
            [Value::Bulk(value), Value::Integer(age)] => {
                Some((String::from_utf8(value.clone()).unwrap(), u64::try_from(*age).unwrap()))
            }
            other => panic!("{other:?}"),
        },
        _ => None,
    }
}

/// Figures of one answer to INFO, by what follows `zenoh_` in their names.
fn figures(client: &mut Client) -> BTreeMap<String, u64> {
    let Value::Bulk(text) = client.ask("INFO zenoh") else {
        panic!("no text")
    };
    let text = String::from_utf8(text).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("zenoh_")?.split_once(':'));
    { lines.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))) }.collect()
}

fn figure(client: &mut Client, name: &str) -> u64 {
    figures(client)[name]
}

/// Puts again and again, until it is so: what comes before a node has subscribed is lost, as Zenoh has it.
fn until_so(mut put: impl FnMut(), mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + BOUND;
    loop {
        put();
        for _ in 0..10 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(Instant::now() < until, "it is not so");
    }
}

fn put(session: &Session, key: &str, value: &str) {
    session.put(key, value).wait().unwrap();
}

/// Puts as of an instant before now, or after it.
fn put_as_of(session: &Session, key: &str, value: &str, at: SystemTime) {
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let stamp = Timestamp::new(NTP64::from(at), session.zid().into());
    session.put(key, value).timestamp(stamp).wait().unwrap();
}

const TABLES: &str = "[[zenoh]]\nkey = \"robot/*/pose\"\nobject = \"$1/pose\"\n[[zenoh]]\nkey = \
                      \"battery/**\"\nobject = \"battery\"\n";

#[test]
fn puts_are_readings_of_the_node_with_the_age_of_their_timestamps() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [clients, node, at] = free_ports();
    let session = format!("[zenoh_session]\nconnect = [\"tcp/127.0.0.1:{at}\"]\nobjects_max = 4\n{TABLES}");
    std::fs::write(folder.join("node.toml"), file(0, clients, &[node], &session)).unwrap();
    let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
    log.says("not replicated");
    // Before the robot is there.
    let node = start(folder, &["serve", "node.toml"]);
    node.says("serves");
    let mut client = client(clients);
    let here = robot(at, "peer");

    // A wildcard names the object; without one in its name, the object has the newest of all.
    let poses = |key: &str, value: &str, object: &str, client: &mut Client| {
        until_so(
            || put(&here, key, value),
            || reading(client, object).is_some_and(|(found, _)| found == value),
        );
    };
    poses("robot/7/pose", "a", "7/pose", &mut client);
    poses("robot/8/pose", "b", "8/pose", &mut client);
    poses("battery/left/volts", "c", "battery", &mut client);
    poses("battery/right", "d", "battery", &mut client);
    assert!(figure(&mut client, "undated") >= 4);
    until_so(|| (), || figure(&mut client, "links") == 1);

    // A timestamp gives the age: never less than it says, and more by what has passed since.
    let minute = Duration::from_secs(60);
    let before = Instant::now();
    put_as_of(&here, "robot/9/pose", "old", SystemTime::now() - minute);
    until_so(|| (), || reading(&mut client, "9/pose").is_some());
    let (value, age) = reading(&mut client, "9/pose").unwrap();
    let most = 60_000 + before.elapsed().as_millis() as u64;
    assert_eq!(value, "old");
    assert!((60_000..=most + most / 1_000).contains(&age), "{age} of at most {most}");
    // An older one changes nothing, one without a timestamp is of now.
    put_as_of(&here, "robot/9/pose", "older", SystemTime::now() - 2 * minute);
    until_so(|| (), || figure(&mut client, "older") == 1);
    assert_eq!(reading(&mut client, "9/pose").unwrap().0, "old");
    put(&here, "robot/9/pose", "new");
    until_so(
        || (),
        || reading(&mut client, "9/pose").is_some_and(|(value, age)| value == "new" && age < 60_000),
    );
    // One of the future is as old as when it came, counted, and said.
    put_as_of(&here, "robot/9/pose", "ahead", SystemTime::now() + minute);
    until_so(
        || (),
        || reading(&mut client, "9/pose").is_some_and(|(value, _)| value == "ahead"),
    );
    assert_eq!(figure(&mut client, "ahead"), 1);
    node.says("9/pose is of an instant that comes in");

    // Not taken, and counted: too long, one object too many (3 beside the battery), a name for many, a delete.
    for _ in 0..2 {
        put(&here, "robot/9/pose", &"x".repeat(1025));
        put(&here, "robot/10/pose", "e");
        put(&here, "robot/*/pose", "f");
        here.delete("robot/9/pose").wait().unwrap();
    }
    until_so(|| (), || figure(&mut client, "deletes") == 2);
    let counts = ["too_long", "refused"].map(|name| figure(&mut client, name));
    assert_eq!(counts, [2, 4]);
    for said in [
        "9/pose: a value of 1025 bytes",
        "one object more than 4",
        "names no object",
    ] {
        node.says(said);
    }
    assert_eq!(reading(&mut client, "9/pose").unwrap().0, "ahead");
    assert!(reading(&mut client, "10/pose").is_none());
    // More than Zenoh is to gather is dropped there, and what follows comes.
    put(&here, "robot/9/pose", &"x".repeat(4 << 20));
    until_so(
        || put(&here, "robot/7/pose", "after"),
        || reading(&mut client, "7/pose").unwrap().0 == "after",
    );

    // The robot goes, and another one comes in its place: as a router this time.
    here.close().wait().unwrap();
    drop(here);
    until_so(|| (), || figure(&mut client, "links") == 0);
    let here = robot(at, "router");
    until_so(
        || put(&here, "robot/7/pose", "again"),
        || reading(&mut client, "7/pose").unwrap().0 == "again",
    );
    let all = figures(&mut client);
    let names = [
        "set",
        "superseded",
        "older",
        "too_long",
        "refused",
        "elsewhere",
        "deletes",
        "waiting",
    ];
    assert_eq!(names.map(|name| all[name]).iter().sum::<u64>(), all["came"], "{all:?}");
    // A node that leaves closes the session.
    node.leaves();
    let until = Instant::now() + BOUND;
    while here.info().peers_zid().wait().count() > 0 {
        assert!(Instant::now() < until, "the session is open still");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two nodes that hear the same: one is the source, and the other one from when its readings grow old.
#[test]
fn of_several_nodes_that_hear_a_put_one_is_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [clients_0, clients_1, node_0, node_1, at] = free_ports();
    let session = format!("{TABLES}[zenoh_session]\nconnect = [\"tcp/127.0.0.1:{at}\"]\nmode = \"client\"\n");
    // A client needs one to connect to.
    let here = robot(at, "router");
    let log = start(folder, &["cluster", "log", "commits", "--listen", "log.socket"]);
    log.says("not replicated");
    let mut nodes = Vec::new();
    for (node, clients) in [clients_0, clients_1].into_iter().enumerate() {
        let name = format!("{node}.toml");
        std::fs::write(folder.join(&name), file(node, clients, &[node_0, node_1], &session)).unwrap();
        nodes.push(start(folder, &["serve", &name]));
    }
    nodes.iter().for_each(|node| drop(node.says("serves")));
    let mut clients = [clients_0, clients_1].map(client);
    let mut number = 0;
    let mut puts = || {
        number += 1;
        put(&here, "robot/7/pose", &number.to_string());
    };
    // Puts come to both; one of them sets them, and both have what it sets.
    until_so(&mut puts, || {
        let elsewhere = { clients.iter_mut() }.map(|client| figure(client, "elsewhere"));
        elsewhere.sum::<u64>() > 20 && clients.iter_mut().all(|client| reading(client, "7/pose").is_some())
    });
    let set = { clients.iter_mut() }.map(|client| figure(client, "set"));
    let set: Vec<u64> = set.collect();
    let source = usize::from(set[1] > set[0]);
    // The source goes, and the other one sets them.
    nodes.remove(source).leaves();
    let other = &mut clients[1 - source];
    let before = figure(other, "set");
    until_so(&mut puts, || figure(other, "set") > before + 5);
    nodes.remove(0).leaves();
}

#[test]
fn a_file_that_is_wrong_is_refused_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().port();
    let [clients, node, free] = free_ports();
    let with = |zenoh: &str| file(0, clients, &[node], zenoh);
    let session = |keys: &str| format!("[zenoh_session]\n{keys}\n{TABLES}");
    let connect = format!("connect = [\"tcp/127.0.0.1:{free}\"]");
    let table = |key: &str, object: &str| {
        format!("[zenoh_session]\n{connect}\n[[zenoh]]\nkey = \"{key}\"\nobject = \"{object}\"\n")
    };
    for (zenoh, parts) in [
        (
            table("robot//pose", "a"),
            vec!["node.toml:13: zenoh[0].key", "no key expression of Zenoh"],
        ),
        (
            table("robot/pose", "$1"),
            vec!["node.toml:14: zenoh[0].object", "0 parts with a wildcard"],
        ),
        (
            session("connect = [\"10.0.0.7\"]"),
            vec!["node.toml:11: zenoh_session.connect", "no endpoint"],
        ),
        (
            session("connect = [\"quic/a:1\"]"),
            vec!["speaks tcp and udp, not quic"],
        ),
        (
            session("listen = [\"tcp/0.0.0.0:7447\"]"),
            vec!["node.toml:11: zenoh_session.listen", "any machine"],
        ),
        (session("mode = \"router\""), vec!["session.mode", "peer", "client"]),
        (session(""), vec!["zenoh", "say where Zenoh is"]),
        (
            session(&format!("{connect}\nobjects_max = 0")),
            vec!["objects_max", "1 to 1024"],
        ),
        (
            format!("[zenoh_session]\n{connect}\n"),
            vec!["session", "add a [[zenoh]]"],
        ),
        (
            session(&format!("listen = [\"tcp/127.0.0.1:{taken}\"]")),
            vec!["a session cannot be opened", "in use", "free ports of this machine"],
        ),
        (
            session(&format!("{connect}\nmode = \"client\"")),
            vec!["a session cannot be opened", "one of `connect` answers"],
        ),
    ] {
        let folder = folder_with(&[("node.toml", &with(&zenoh))]);
        let error = refused(folder.path(), &["serve", "node.toml"]);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}\n{zenoh}");
        }
    }
    let alone = folder_with(&[("node.toml", &session(&connect))]);
    let error = refused(alone.path(), &["serve", "node.toml"]);
    assert!(
        error.contains("readings from Zenoh are for nodes of a federation"),
        "{error}"
    );
}
