//! What a host may expect of its network: the same of sockets of the system and of the simulated ones.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::channel;

use mio::Token;
use punctual_server::net::{CLIENTS, FIRST, LOCAL, Net, Remote, Socket, Sockets, Waker};
use punctual_server::stream::Ready;
use punctual_testing::WAIT_MAX;
use punctual_units::{Nanos, Time};

use super::net::{Host, HostNet, NetSettings, Network};
use super::os::WorldClock;

const HERE: Token = Token(FIRST);
const THERE: Token = Token(FIRST + 1);
const MORE: Token = Token(FIRST + 2);

/// Two hosts, whose events are kept until a test asks for them.
struct Hosts {
    nets: [Box<dyn Net>; 2],
    seen: [BTreeMap<Token, Ready>; 2],
    /// Where the first host may listen.
    any: SocketAddr,
    /// The clock of simulated hosts; it stands still for others.
    clock: WorldClock,
}

impl Hosts {
    /// Looks at both networks until `is_done`, of the events that the first and the second host have had.
    fn until(&mut self, what: &str, mut is_done: impl FnMut(&mut [BTreeMap<Token, Ready>; 2]) -> bool) {
        for _ in 0..100_000 {
            if is_done(&mut self.seen) {
                return;
            }
            self.look();
        }
        panic!("never {what}");
    }

    fn look(&mut self) {
        for (net, seen) in self.nets.iter_mut().zip(&mut self.seen) {
            let mut ready = Vec::new();
            net.poll(&mut ready, Nanos::from_millis(1)).unwrap();
            for (token, more) in ready {
                let known = seen.entry(token).or_default();
                known.reads |= more.reads;
                known.writes |= more.writes;
                known.ends |= more.ends;
            }
        }
    }

    /// A connection from the second host to the first one, established.
    fn connected(&mut self) -> (Box<dyn Socket>, Box<dyn Socket>) {
        let at = self.nets[0].listen(self.any, CLIENTS).unwrap();
        let there = self.nets[1].connect(Remote::Address(at), THERE).unwrap();
        self.until("a client waits", |[here, _]| {
            here.remove(&CLIENTS).is_some_and(|ready| ready.reads)
        });
        let here = self.nets[0].accept(CLIENTS, HERE).unwrap();
        self.until("it is established", |[_, there]| {
            there.get(&THERE).is_some_and(|ready| ready.writes)
        });
        assert!(!self.seen[1][&THERE].ends);
        self.until("it can be written", |[here, _]| {
            here.get(&HERE).is_some_and(|ready| ready.writes)
        });
        self.seen = Default::default();
        (here, there)
    }

    /// Reads at host `at` until `count` bytes are there; an event comes before more can be read.
    fn read(&mut self, at: usize, token: Token, socket: &mut dyn Socket, count: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
        while all.len() < count {
            match socket.read(&mut buffer) {
                Ok(0) => panic!("the end after {} bytes", all.len()),
                Ok(found) => all.extend_from_slice(&buffer[..found]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.until("more comes", |seen| {
                        seen[at].remove(&token).is_some_and(|ready| ready.reads)
                    });
                }
                Err(error) => panic!("{error}"),
            }
        }
        all
    }
}

/// A host of the simulated network whose time passes while it waits.
#[derive(Debug)]
struct Passing {
    host: Host,
    net: HostNet,
    network: Network,
    clock: WorldClock,
}

impl Net for Passing {
    fn listen(&mut self, at: SocketAddr, token: Token) -> std::io::Result<SocketAddr> {
        self.net.listen(at, token)
    }

    fn listen_locally(
        &mut self,
        at: &std::path::Path,
        mode: u32,
        token: Token,
    ) -> Result<(), punctual_server::ServeError> {
        self.net.listen_locally(at, mode, token)
    }

    fn close(&mut self, listener: Token) {
        self.net.close(listener);
    }

    fn accept(&mut self, listener: Token, token: Token) -> std::io::Result<Box<dyn Socket>> {
        self.net.accept(listener, token)
    }

    fn connect(&mut self, to: Remote<'_>, token: Token) -> std::io::Result<Box<dyn Socket>> {
        self.net.connect(to, token)
    }

    fn poll(&mut self, ready: &mut Vec<(Token, Ready)>, wait: Nanos) -> std::io::Result<()> {
        let end = self.clock.now() + wait;
        loop {
            self.network.arrive();
            let has_news = self.network.news().contains(&self.host);
            self.net.poll(ready, Nanos::ZERO)?;
            if has_news || self.clock.now() == end {
                return Ok(());
            }
            self.clock.set(self.network.next_due().min(end));
        }
    }

    fn waker(&self) -> Waker {
        self.net.waker()
    }
}

fn simulated(seed: u64) -> Hosts {
    let clock = WorldClock::default();
    clock.set(Time(1));
    let network = Network::new(&clock, NetSettings::default(), seed);
    let passing = |host| -> Box<dyn Net> {
        Box::new(Passing {
            host,
            net: network.of(host),
            network: network.clone(),
            clock: clock.clone(),
        })
    };
    Hosts {
        nets: [passing(1), passing(2)],
        seen: Default::default(),
        any: Network::address(1, 0),
        clock,
    }
}

fn real() -> Hosts {
    Hosts {
        nets: [Box::new(Sockets::new().unwrap()), Box::new(Sockets::new().unwrap())],
        seen: Default::default(),
        any: "127.0.0.1:0".parse().unwrap(),
        clock: WorldClock::default(),
    }
}

/// Runs a check on sockets of the system, and on simulated ones of some seeds.
fn on_both(check: impl Fn(Hosts)) {
    check(real());
    (0..20).for_each(|seed| check(simulated(seed)));
}

#[test]
fn bytes_arrive_in_their_order_whatever_the_pieces() {
    on_both(|mut hosts| {
        let (mut here, mut there) = hosts.connected();
        assert_eq!(here.peer_addr().unwrap(), there.local_addr().unwrap());
        assert_eq!(there.peer_addr().unwrap(), here.local_addr().unwrap());
        for length in [1, 100, 9000, 60_000] {
            let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut found = Vec::new();
            // A buffer may have room for a part only.
            while found.len() < length {
                let count = match there.write(&sent[found.len()..]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        hosts.look();
                        continue;
                    }
                    count => count.unwrap(),
                };
                found.extend(hosts.read(0, HERE, &mut *here, count));
            }
            assert_eq!(found, sent);
        }
        assert_eq!(here.write(b"back").unwrap(), 4);
        assert_eq!(hosts.read(1, THERE, &mut *there, 4), b"back");
        let nothing = here.read(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_full_buffer_takes_nothing_until_the_other_side_reads() {
    on_both(|mut hosts| {
        let (mut here, mut there) = hosts.connected();
        let (piece, mut sent) = (vec![7; 100_000], 0);
        loop {
            match there.write(&piece) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Until nothing is on the way: the buffers of both sides are full.
                    hosts.seen = Default::default();
                    (0..20).for_each(|_| hosts.look());
                    if !hosts.seen[1].get(&THERE).is_some_and(|ready| ready.writes) {
                        break;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(sent > 0);
        assert_eq!(hosts.read(0, HERE, &mut *here, sent).len(), sent);
        hosts.until("there is room", |[_, there]| {
            there.remove(&THERE).is_some_and(|ready| ready.writes)
        });
        assert!(there.write(b"more").unwrap() > 0);
    });
}

#[test]
fn the_end_comes_behind_the_last_byte() {
    on_both(|mut hosts| {
        let (mut here, mut there) = hosts.connected();
        there.write_all(b"last").unwrap();
        drop(there);
        hosts.until("the end", |[here, _]| {
            here.get(&HERE).is_some_and(|ready| ready.ends && ready.reads)
        });
        assert_eq!(hosts.read(0, HERE, &mut *here, 4), b"last");
        assert_eq!(here.read(&mut [0; 8]).unwrap(), 0);
        // No process takes what is written now, which shows later.
        let _ = here.write(b"late");
        hosts.until("the other side says so", |_| {
            let failed = |error: std::io::Error| error.kind() != ErrorKind::WouldBlock;
            here.write(b"x").is_err_and(failed)
        });
    });
}

#[test]
fn bytes_that_are_not_read_reset_the_connection() {
    on_both(|mut hosts| {
        let (here, mut there) = hosts.connected();
        there.write_all(b"unread").unwrap();
        hosts.until("they are there", |[here, _]| {
            here.get(&HERE).is_some_and(|ready| ready.reads)
        });
        drop(here);
        hosts.until("a reset", |[_, there]| {
            there.get(&THERE).is_some_and(|ready| ready.ends)
        });
        assert_eq!(there.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_place_without_a_listener_refuses() {
    on_both(|mut hosts| {
        let at = hosts.nets[0].listen(hosts.any, CLIENTS).unwrap();
        let in_use = hosts.nets[1].listen(at, CLIENTS).unwrap_err();
        assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
        let waiting = hosts.nets[1].connect(Remote::Address(at), MORE).unwrap();
        hosts.until("it waits", |[here, _]| here.contains_key(&CLIENTS));
        hosts.nets[0].close(CLIENTS);
        assert_eq!(
            hosts.nets[0].accept(CLIENTS, HERE).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        hosts.until("one that waits is reset", |[_, there]| {
            there.get(&MORE).is_some_and(|ready| ready.ends)
        });
        drop(waiting);
        let mut refused = hosts.nets[1].connect(Remote::Address(at), THERE).unwrap();
        hosts.until("a refusal", |[_, there]| {
            there.get(&THERE).is_some_and(|ready| ready.ends)
        });
        assert_eq!(
            refused.read(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn a_file_is_listened_at_and_refuses_at_once() {
    let folder = tempfile::tempdir().unwrap();
    on_both(|mut hosts| {
        let path = folder.path().join("s");
        let refused = hosts.nets[1].connect(Remote::File(&path), THERE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        hosts.nets[0].listen_locally(&path, 0o600, LOCAL).unwrap();
        let mut there = hosts.nets[1].connect(Remote::File(&path), THERE).unwrap();
        hosts.until("it waits", |[here, _]| here.contains_key(&LOCAL));
        let mut here = hosts.nets[0].accept(LOCAL, HERE).unwrap();
        hosts.until("both can write", |[here, there]| {
            here.get(&HERE).is_some_and(|ready| ready.writes) && there.get(&THERE).is_some_and(|ready| ready.writes)
        });
        assert!(here.peer_addr().is_err());
        there.write_all(b"local").unwrap();
        assert_eq!(hosts.read(0, HERE, &mut *here, 5), b"local");
        hosts.nets[0].close(LOCAL);
    });
}

#[test]
fn a_host_is_woken_from_another_thread() {
    let hour = Nanos::from_secs(3600);
    let [mut host, _] = real().nets;
    let (waker, (polled, woken)) = (host.waker(), channel());
    std::thread::spawn(move || {
        let mut ready = Vec::new();
        let result = host.poll(&mut ready, hour);
        polled.send((result, ready.len()))
    });
    waker();
    let (result, ready) = woken.recv_timeout(WAIT_MAX).expect("it is woken");
    result.unwrap();
    assert_eq!(ready, 0, "no socket is ready");
    for seed in 0..20 {
        let Hosts { mut nets, clock, .. } = simulated(seed);
        let (waker, begin) = (nets[0].waker(), clock.now());
        std::thread::spawn(move || waker()).join().unwrap();
        // Once, and no other host.
        for (host, waited) in [(0, Nanos::ZERO), (1, hour), (0, hour * 2)] {
            let mut ready = Vec::new();
            nets[host].poll(&mut ready, hour).unwrap();
            assert!(ready.is_empty(), "no socket is ready");
            assert_eq!(clock.now().since(begin), waited, "host {host}");
        }
    }
}
