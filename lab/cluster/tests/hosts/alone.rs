//! A store that is served alone: what its clients are answered, over a network that splits, delays and holds bytes.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_server::resp::Reply;
use punctual_server::users::{PasswordHash, Right, User, Users};
use punctual_server::{EventLoop, Listening, Options};
use punctual_store::{Store, StoreOptions};
use punctual_testing::campaign;
use punctual_units::Nanos;

use super::model::{answers_as_the_model, seed};
use super::net::{Host, NetSettings, Network};
use super::os::HostOs;
use super::serving::{Client, bulk, encoded};
use super::world::{Actor, Sim};

/// A store that is served alone.
pub struct StoreHost(EventLoop<Memory, HostOs>);

impl Actor for StoreHost {
    fn turn(&mut self) -> Option<Nanos> {
        self.0.turn(Nanos::ZERO).then(|| self.0.wait())
    }
}

/// A world with a store that is served.
pub struct Served {
    pub sim: Sim,
    pub os: HostOs,
    pub host: Host,
    pub address: SocketAddr,
}

impl Served {
    pub fn new(seed: u64, settings: NetSettings, options: &Options) -> Served {
        let sim = Sim::new(seed, settings);
        let (host, os, net) = sim.host();
        let store = StoreOptions {
            created_max: 8,
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::open(Memory::default(), os.clone(), store).expect("a store in memory"));
        let address = Network::address(host, 6379);
        let listening = Listening::on(Box::new(net), address).expect("a port");
        let event_loop = listening.event_loop(store, options, None).expect("threads");
        sim.run(host, Box::new(StoreHost(event_loop)));
        Served { sim, os, host, address }
    }

    pub fn client(&self) -> Client {
        Client::to(&self.sim, self.address)
    }
}

fn served(seed: u64) -> Served {
    Served::new(seed, NetSettings::default(), &options())
}

/// Options without what depends on this machine.
pub fn options() -> Options {
    Options {
        threads: 2,
        ..Options::default()
    }
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let served = served(seed);
        let mut client = served.client();
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
        for key in 0..50 {
            assert_eq!(client.ask(&format!("SET key{key} {key}")), Reply::ok());
            assert_eq!(client.ask(&format!("GET key{key}")), bulk(&key.to_string()));
        }
        (served.sim.now(), served.sim.digest())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Pipelined, split at random bytes, in and out of transactions.
#[test]
fn commands_answer_as_the_model_does() {
    let first = seed();
    for seed in first..first + campaign(60, 2000) {
        let served = served(seed);
        let mut client = served.client();
        assert!(answers_as_the_model(&mut client, seed, ""), "nothing has a deadline");
    }
}

#[test]
fn two_clients_see_each_other_and_a_transaction_that_met_another_does_nothing() {
    let served = served(1);
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
    let served = served(1);
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
    let served = served(1);
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

#[test]
fn terms_end_and_are_told() {
    let served = served(1);
    let (mut client, mut hears) = (served.client(), served.client());
    hears.ask("SUBSCRIBE __keyevent@0__:expired");
    assert_eq!(client.ask("SET a 1 PX 30"), Reply::ok());
    let told = ["message", "__keyevent@0__:expired", "a"].map(bulk);
    assert_eq!(hears.reply(), Reply::Array(told.to_vec()));
    assert_eq!(client.ask("SET b 1 EX 1000"), Reply::ok());
    assert!(matches!(client.ask("PTTL b"), Reply::Integer(1..=1_000_000)));
    served.sim.pass(Nanos::from_millis(30));
    assert_eq!(client.ask("GET a"), Reply::Null);
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
    let served = served(1);
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
    let served = served(1);
    let mut client = served.client();
    let Reply::Map(hello) = client.ask("HELLO 3 SETNAME me") else {
        panic!("a map")
    };
    assert!(hello.contains(&(bulk("proto"), Reply::Integer(3))));
    assert_eq!(client.ask("CLIENT GETNAME"), bulk("me"));
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME tests"), Reply::ok());
    let list = client.text("CLIENT LIST");
    assert!(list.contains("name=me") && list.contains("lib-name=tests"), "{list}");
    client.ask("GET none");
    client.ask("SET a 1 EX 100");
    // The keeper counts keys now and then.
    served.sim.pass(Nanos::from_secs(5));
    let info = client.text("INFO");
    let keys = "\r\ndb0:keys=1,expires=1,avg_ttl=";
    for line in ["keyspace_misses:1\r\n", "used_cpu_user:", "role:master\r\n", keys] {
        assert!(info.contains(line), "{line}: {info}");
    }
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
    client.stream.sends_no_more();
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    assert_eq!(client.reply(), bulk("hello"));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn bad_input_ends_a_connection_and_nothing_else() {
    let options = Options {
        stalled_max: Nanos::from_millis(300),
        connections_max: 3,
        ..options()
    };
    let served = Served::new(1, NetSettings::default(), &options);
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
    // One more connection than there may be.
    drop(endless);
    let mut others: Vec<_> = (0..2).map(|_| served.client()).collect();
    for other in &mut others {
        assert_eq!(other.ask("PING"), Reply::Simple("PONG".into()));
    }
    let mut more = served.client();
    let refused = Reply::Error("ERR max number of clients reached".into());
    assert_eq!(more.try_reply(), Some(refused));
    assert_eq!(more.try_reply(), None);
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

/// What a page in a browser of this machine has it send: the words of a body are no requests.
#[test]
fn a_page_in_a_browser_sets_nothing() {
    let served = served(1);
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

#[test]
fn users_do_what_they_may_and_strangers_nothing() {
    let served = Served::new(1, NetSettings::default(), &with_users());
    let client = || served.client();
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
    assert!(owner.text("INFO").contains("wrong_passwords:3\r\n"));
}

fn words(client: &mut Client, request: &[&str]) -> Reply {
    let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
    client.stream.write_all(&encoded(&words)).expect("it takes a request");
    client.reply()
}

/// A user that may do all, and one that reads what begins with `room/`.
fn with_users() -> Options {
    let user = |name: &str, password: &[u8], rights: &[Right], prefix: &[u8]| User {
        name: name.into(),
        password: PasswordHash::of(password, [1; 16], 1_000),
        rights: rights.to_vec(),
        prefixes: vec![prefix.to_vec()],
    };
    let all = [Right::Read, Right::Write, Right::Channels, Right::Server];
    let users = vec![
        user("owner", b"all of it", &all, b""),
        user("guest", b"a part", &[Right::Read, Right::Channels], b"room/"),
    ];
    Options {
        users: Arc::new(Users::new(users, [2; 16])),
        stalled_max: Nanos::from_secs(60),
        ..options()
    }
}

/// By the bound, and not before.
#[test]
fn a_stranger_that_says_nothing_is_ended() {
    let served = Served::new(1, NetSettings::default(), &with_users());
    let (mut stranger, begin) = (served.client(), served.sim.now());
    assert_eq!(stranger.try_reply(), None);
    let waited = served.sim.now().since(begin);
    assert!(
        waited > Nanos::from_secs(60) && waited < Nanos::from_secs(61),
        "{waited}"
    );
}

/// Clients that guess passwords without end, from one address each, and one that is right.
#[test]
fn guessers_keep_no_user_out() {
    for seed in 0..campaign(1, 30) {
        let served = Served::new(seed, NetSettings::default(), &with_users());
        // A check takes a fifth of the time between two refusals.
        served.os.slow(Nanos::from_millis(20));
        let mut guessers: Vec<Client> = (0..80).map(|_| served.client()).collect();
        for guesser in &mut guessers {
            guesser.send("AUTH owner wrong");
        }
        for _ in 0..20 {
            served.sim.pass(Nanos::from_millis(200));
            // One of them begins anew, as each that was refused.
            let mut guesser = served.client();
            guesser.send("AUTH owner wrong");
            guessers.push(guesser);
            let (mut good, begin) = (served.client(), served.sim.now());
            assert_eq!(words(&mut good, &["AUTH", "owner", "all of it"]), Reply::ok());
            let took = served.sim.now().since(begin);
            assert!(took < Nanos::from_secs(1), "seed {seed}: {took}");
        }
    }
}

/// A client that asks for much and reads nothing is dropped, and others are served meanwhile.
#[test]
fn a_slow_reader_is_dropped() {
    let options = Options {
        stalled_max: Nanos::from_secs(3),
        ..options()
    };
    for seed in 0..3 {
        let served = Served::new(seed, NetSettings::default(), &options);
        let (mut slow, mut other) = slow_and_other(&served);
        let begin = served.sim.now();
        while !other.text("INFO stats").contains("dropped_connections:1\r\n") {
            served.sim.pass(Nanos::from_millis(100));
        }
        let took = served.sim.now().since(begin);
        assert!(took > Nanos::from_millis(2900) && took < Nanos::from_secs(4), "{took}");
        // It finds out once it reads.
        while slow.try_reply().is_some() {}
    }
}

/// A client that has asked for 64 MiB and reads none of it, and another one.
fn slow_and_other(served: &Served) -> (Client, Client) {
    let (mut slow, mut other) = (served.client(), served.client());
    let value = "x".repeat(1 << 20);
    assert_eq!(other.ask(&format!("SET long {value}")), Reply::ok());
    (0..64).for_each(|_| slow.send("GET long"));
    (slow, other)
}

/// A client whose machine is switched off in the middle of a long reply: its connection is half open.
#[test]
fn a_client_that_is_switched_off_is_dropped() {
    let options = Options {
        stalled_max: Nanos::from_secs(3),
        ..options()
    };
    let served = Served::new(1, NetSettings::default(), &options);
    let (slow, mut other) = slow_and_other(&served);
    served.sim.switch_off(slow.stream.host);
    served.sim.pass(Nanos::from_secs(4));
    let info = other.text("INFO");
    assert!(
        info.contains("dropped_connections:1\r\n") && info.contains("connected_clients:1\r\n"),
        "{info}"
    );
}

/// A link that is cut in the middle of requests: all are answered once it heals, in their order.
#[test]
fn a_cut_holds_requests_and_replies_and_loses_none() {
    for seed in 0..campaign(5, 300) {
        let served = served(seed);
        let mut client = served.client();
        let mut expected = 0;
        for round in 0..10 {
            (0..20).for_each(|_| client.send("INCR n"));
            served.sim.pass(Nanos::from_micros(50 * round));
            served
                .sim
                .with(|world| world.network.cut(client.stream.host, served.host));
            served.sim.pass(Nanos::from_millis(500));
            served
                .sim
                .with(|world| world.network.heal(client.stream.host, served.host));
            for _ in 0..20 {
                expected += 1;
                assert_eq!(client.reply(), Reply::Integer(expected));
            }
        }
    }
}

/// While the store is slow, a request that has less time is answered `LATE`, and not carried out.
#[test]
fn what_is_late_is_not_carried_out() {
    let options = Options {
        threads: 1,
        ..options()
    };
    let mut late = 0;
    for seed in 0..40 {
        let served = Served::new(seed, NetSettings::default(), &options);
        let (mut busy, mut client) = (served.client(), served.client());
        busy.ask("SET a 1");
        served.os.slow(Nanos::from_millis(3));
        (0..100).for_each(|_| busy.send("SET a 1"));
        served.sim.pass(Nanos::from_millis(1));
        match client.ask("DEADLINE 2 SET b 1") {
            Reply::Error(error) => {
                assert!(error.starts_with("LATE reason="), "{error}");
                late += 1;
                assert_eq!(client.ask("EXISTS b"), Reply::Integer(0));
                let info = client.text("INFO stats");
                let is_counted = |line: &str| info.contains(&format!("{line}:1\r\n"));
                assert!(is_counted("late_expired") || is_counted("late_backlog"), "{info}");
            }
            done => {
                assert_eq!(done, Reply::ok());
                assert_eq!(client.ask("EXISTS b"), Reply::Integer(1));
            }
        }
        (0..100).for_each(|_| assert_eq!(busy.reply(), Reply::ok()));
    }
    assert!(late > 5, "{late} of 40");
}
