//! What clients of nodes and balancers are answered: as those of a store alone, over as many places as they like.

use std::collections::BTreeSet;

use punctual_server::resp::Reply;
use punctual_testing::campaign;
use punctual_units::Nanos;

use super::federation::Cluster;
use super::model::{answers_as_the_model, seed};
use super::net::NetSettings;
use super::serving::{Client, bulk};

/// Three nodes and two balancers that take transactions.
fn serving(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, NetSettings::default(), 3, 2);
    for balancer in cluster.balancers.clone() {
        let mut client = cluster.client(balancer);
        come_to(&cluster, || client.ask("DEL none"), &Reply::Integer(0));
    }
    cluster
}

/// A balancer or a node that was asked comes to this reply.
fn come_to(cluster: &Cluster, mut ask: impl FnMut() -> Reply, wanted: &Reply) {
    for _ in 0..1000 {
        let found = ask();
        if found == *wanted {
            return;
        }
        cluster.sim.pass(Nanos::from_millis(10));
    }
    panic!("{:?} in place of {wanted:?}", ask());
}

/// A client of the master; each node names the one that the log has.
fn at_master(cluster: &Cluster) -> Client {
    let master = cluster.nodes[cluster.master().expect("a master")];
    let address = Reply::Array(vec![bulk(&format!("127.0.0.{master}")), bulk("6379")]);
    for node in &cluster.nodes {
        let mut client = cluster.client(*node);
        come_to(
            cluster,
            || client.ask("SENTINEL get-master-addr-by-name punctual"),
            &address,
        );
    }
    cluster.client(master)
}

#[test]
fn a_client_needs_one_address() {
    for seed in 0..campaign(1, 20) {
        let cluster = serving(seed);
        let mut clients: Vec<Client> = cluster.balancers.iter().map(|host| cluster.client(*host)).collect();
        for (client, at) in clients.iter_mut().zip(0..) {
            let key = format!("light:{at}");
            assert_eq!(client.ask(&format!("SET {key} on")), Reply::ok());
            assert_eq!(client.ask(&format!("GET {key}")), bulk("on"));
            assert_eq!(client.ask(&format!("APPEND {key} 2")), Reply::Integer(3));
        }
        // What one balancer sets the other one reads, and no younger than it is.
        assert_eq!(clients[0].ask("TSET pose here"), Reply::ok());
        cluster.sim.pass(Nanos::from_millis(500));
        match clients[1].ask("GETFRESH pose 3600000") {
            Reply::Array(found) => {
                assert_eq!(found[0], bulk("here"));
                assert!(matches!(found[1], Reply::Integer(500..1000)), "{found:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(clients[1].error("GETFRESH pose 0").starts_with("STALE age-ms="));
        assert_eq!(clients[1].ask("TSET pose older AGE 3600000"), Reply::Null);
        assert!(clients[0].error("GETFRESH none 5").contains("no temporal object"));
        // To clients of Sentinel, a balancer is the master.
        let here = Reply::Array(vec![bulk(&format!("127.0.0.{}", cluster.balancers[1])), bulk("6379")]);
        assert_eq!(clients[1].ask("SENTINEL get-master-addr-by-name punctual"), here);
        let info = clients[0].text("INFO");
        assert!(
            info.contains("role:balancer\r\n") && info.contains("\r\nnode2:standing="),
            "{info}"
        );
        clients[0].ask("CLIENT DEADLINE 0");
        assert!(clients[0].error("PUBLISH a b").contains("set a key"));
        assert!(clients[0].error("POST / HTTP/1.1").contains("HTTP"));
    }
}

/// The second and the third take the object over.
#[test]
fn temporal_objects_are_set_on_any_node() {
    let cluster = serving(1);
    let mut clients: Vec<Client> = cluster.nodes.iter().map(|host| cluster.client(*host)).collect();
    for source in 0..3 {
        let value = format!("at-{source}");
        assert_eq!(clients[source].ask(&format!("TSET pose {value}")), Reply::ok());
        cluster.sim.pass(Nanos::from_millis(300));
        for client in &mut clients {
            match client.ask("GETFRESH pose 3600000") {
                Reply::Array(found) => {
                    assert_eq!(found[0], bulk(&value));
                    assert!(matches!(found[1], Reply::Integer(300..700)), "{found:?}");
                }
                other => panic!("{other:?}"),
            }
            assert!(client.error("GETFRESH pose 0").starts_with("STALE age-ms="));
        }
    }
    assert_eq!(
        clients[2].ask("TSET pose older AGE 3600000"),
        Reply::Null,
        "a younger one is there"
    );
    let info = clients[1].text("INFO federation temporal");
    assert!(info.contains("objects:1\r\n") && !info.contains("# Peers"), "{info}");
}

/// Random commands, by two balancers and by the master.
#[test]
fn commands_answer_as_the_model_does() {
    let first = seed();
    for seed in first..first + campaign(3, 100) {
        let cluster = serving(seed);
        let mut client = match seed % 3 {
            2 => at_master(&cluster),
            balancer => cluster.client(cluster.balancers[balancer as usize]),
        };
        assert_eq!(client.ask("CLIENT DEADLINE 600000"), Reply::ok());
        assert!(answers_as_the_model(&mut client, seed, "k/"), "nothing is late");
    }
}

#[test]
fn terms_end_and_watched_keys_undo_transactions_over_two_balancers() {
    let cluster = serving(1);
    let mut clients: Vec<Client> = cluster.balancers.iter().map(|host| cluster.client(*host)).collect();
    let mut ask = |client: usize, words: &str| clients[client].ask(words);
    // A term ends everywhere, and the record is gone.
    assert_eq!(ask(0, "SET lease mine PX 100"), Reply::ok());
    assert_eq!(ask(0, "GET lease"), bulk("mine"));
    cluster.sim.pass(Nanos::from_millis(200));
    for balancer in 0..2 {
        assert_eq!(ask(balancer, "GET lease"), Reply::Null);
    }
    assert_eq!(ask(1, "PTTL lease"), Reply::Integer(-2));
    assert_eq!(ask(1, "SET lease yours NX"), Reply::ok());
    // One that another client has changed meanwhile undoes the transaction, by whichever balancer.
    assert_eq!(ask(0, "SET watched 1"), Reply::ok());
    come_to(&cluster, || ask(1, "GET watched"), &bulk("1"));
    assert_eq!(ask(1, "WATCH watched"), Reply::ok());
    assert_eq!(ask(0, "INCR watched"), Reply::Integer(2));
    assert_eq!(ask(1, "MULTI"), Reply::ok());
    assert_eq!(ask(1, "SET watched 9"), Reply::Simple("QUEUED".into()));
    assert_eq!(ask(1, "EXEC"), Reply::NullArray);
    // A scan goes on at the balancer where it began, whichever nodes answer.
    let pairs: Vec<String> = (0..40).map(|number| format!("scanned/{number} v")).collect();
    assert_eq!(ask(0, &format!("MSET {}", pairs.join(" "))), Reply::ok());
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let reply = ask(0, &format!("SCAN {cursor} MATCH scanned/* COUNT 7"));
        let Reply::Array(parts) = &reply else {
            panic!("{reply:?}")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = parts.as_slice() else {
            panic!("{reply:?}")
        };
        found.extend(keys.iter().map(|key| format!("{key:?}")));
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 40, "each key once: {found:?}");
    // Many errors have a name that clients know; none of these has changed anything.
    assert_eq!(ask(0, "HSET hash f 1"), Reply::Integer(1));
    for (words, name) in [
        ("INCR hash", "WRONGTYPE"),
        ("HGET watched f", "WRONGTYPE"),
        ("HINCRBY hash f x", "ERR value is not an integer"),
        ("SET k v EX 0", "ERR invalid expire time"),
        ("SCAN 99", "ERR this cursor is too old"),
        ("FLUSHALL", "ERR FLUSHALL is not taken in a federation"),
    ] {
        assert!(
            matches!(ask(0, words), Reply::Error(text) if text.starts_with(name)),
            "{words}"
        );
    }
}

/// A subscriber at a balancer or at a node hears of each change once that has applied it; of a term's end, too.
#[test]
fn changes_are_heard_at_balancers_and_nodes() {
    let cluster = serving(1);
    let mut client = cluster.client(cluster.balancers[1]);
    let mut hearing = [
        cluster.client(cluster.balancers[0]),
        cluster.client(cluster.nodes[0]),
        at_master(&cluster),
    ];
    for client in &mut hearing {
        let begun = |word: &str, name: &str, count| Reply::Array(vec![bulk(word), bulk(name), Reply::Integer(count)]);
        let subscribed = begun("subscribe", "__keyspace@0__:door", 1);
        assert_eq!(client.ask("SUBSCRIBE __keyspace@0__:door"), subscribed);
        let subscribed = begun("psubscribe", "__keyevent*:expired", 2);
        assert_eq!(client.ask("PSUBSCRIBE __keyevent*:expired"), subscribed);
        assert!(client.error("GET door").contains("this context"));
    }
    assert_eq!(client.ask("MSET door open other 1"), Reply::ok());
    assert_eq!(client.ask("SET door closed PX 100"), Reply::ok());
    for client in &mut hearing {
        let heard: Vec<Reply> = (0..5).map(|_| client.reply()).collect();
        let message = |text: &str| Reply::Array(["message", "__keyspace@0__:door", text].map(bulk).to_vec());
        let of_pattern = ["pmessage", "__keyevent*:expired", "__keyevent@0__:expired", "door"].map(bulk);
        let expected = [
            message("set"),
            message("set"),
            message("expire"),
            message("expired"),
            Reply::Array(of_pattern.to_vec()),
        ];
        assert_eq!(heard, expected);
    }
}
