//! The door, turn by turn, with real sockets and a backend that the test answers for: what stays, what is dropped, and
//! what is counted.

use std::io::{Read, Write};
use std::net::TcpStream as Client;
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_testing::WAIT_MAX;

use super::connection::REPLIES_PAUSE;
use super::*;
use crate::net::Sockets;
use crate::resp::Bounds;
use crate::resp::request::Request;
use crate::session::{Call, Limits, WatchedKey};
use crate::users::{PasswordHash, Right, User};

/// The reply in place of one that does not fit.
const LATE: &[u8] = b"-LATE\r\n";
const BOUNDS: &Bounds = Limits::ALONE.request;
const STALLED_MAX: Nanos = Nanos::from_secs(10);

/// Keeps all work until the test answers for it, under a clock that stands still.
#[derive(Default)]
struct TestBackend {
    now: Time,
    taken: Vec<(Handle, Work)>,
    /// Connections to answer, and the bytes of the replies.
    done: VecDeque<(Handle, usize)>,
    /// Number of requests that were late, and of replies without room.
    late: usize,
    unkept: usize,
    /// Whether it answers as it takes work.
    answers_at_once: bool,
}

impl TestBackend {
    /// Answers for all work with replies of `bytes` bytes.
    fn answer(&mut self, bytes: usize) {
        let taken = self.taken.drain(..).map(|(connection, _)| (connection, bytes));
        self.done.extend(taken);
    }
}

impl Backend for TestBackend {
    const RUN_MAX: usize = 64;

    fn now(&self) -> Time {
        self.now
    }

    fn take(&mut self, work: Work, mut asker: Asker<'_>) -> bool {
        if self.answers_at_once {
            asker.out().simple("DONE");
            return false;
        }
        self.taken.push((asker.handle(), work));
        true
    }

    fn next_done(&mut self, room: usize) -> Option<JobReply> {
        let (connection, bytes) = self.done.pop_front()?;
        self.unkept += usize::from(bytes > room);
        let reply = match bytes > room {
            true => LATE.to_vec(),
            false => vec![b'v'; bytes],
        };
        Some(JobReply::of(connection, reply))
    }

    fn late(&mut self, _arrived: Time, _now: Time) -> Nanos {
        self.late += 1;
        Nanos(7_000_001)
    }

    fn info(&mut self, _door: &DoorState, _sections: &[String], _now: Time) -> String {
        "x".repeat(REPLIES_PAUSE + (64 << 10))
    }

    fn ends(&mut self, _id: u64) -> bool {
        true
    }
}

/// A door that a test turns.
struct TestDoor {
    inner: Door,
    backend: TestBackend,
    net: Sockets,
    ready: Vec<(Token, Ready)>,
    address: SocketAddr,
}

impl TestDoor {
    fn new(change: impl FnOnce(&mut DoorOptions)) -> TestDoor {
        let mut net = Sockets::new().expect("events");
        let at = "127.0.0.1:0".parse().expect("an address");
        let address = net.listen(at, CLIENTS).expect("a port");
        let mut options = DoorOptions {
            connections_max: 64,
            first_token: crate::net::FIRST,
            stalled_max: STALLED_MAX,
            memory: MemoryLimits::NONE,
            settings: ServerSettings::of(Limits::ALONE, []),
            users: Arc::default(),
            stream: Box::new(|socket| Some(Stream::Plain(socket))),
        };
        change(&mut options);
        let backend = TestBackend {
            now: Time(1_000_000_000_000),
            ..TestBackend::default()
        };
        TestDoor {
            inner: Door::new(None, options, &LinuxOs, net.waker()).expect("threads"),
            backend,
            net,
            ready: Vec::new(),
            address,
        }
    }

    /// Turns until `is_done`.
    fn until(&mut self, mut is_done: impl FnMut(&mut Door, &mut TestBackend) -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < WAIT_MAX {
            if is_done(&mut self.inner, &mut self.backend) {
                return;
            }
            let wait = u64::from(!self.inner.has_more());
            let polled = self.net.poll(&mut self.ready, Nanos::from_millis(wait));
            polled.expect("events");
            for (token, ready) in self.ready.drain(..) {
                self.inner.ready(token, ready);
            }
            self.inner.serve(&mut self.backend);
            self.inner.accept(&mut self.net, self.backend.now);
        }
        panic!("not within {WAIT_MAX:?}");
    }

    fn connect(&self) -> Client {
        let client = Client::connect(self.address).expect("it listens");
        let bound = Some(Duration::from_millis(1));
        client.set_read_timeout(bound).expect("a bound");
        client
    }

    /// A client, and its slot.
    fn client(&mut self) -> (Client, usize) {
        let begun = self.inner.totals.begun;
        let client = self.connect();
        self.until(|door, _| door.totals.begun > begun);
        let mut slots = self.inner.slots.iter_mut();
        let newest = slots.find(|(_, connection)| connection.session.id > begun);
        let (place, _) = newest.expect("a connection");
        (client, place)
    }

    fn clients(&mut self, count: usize) -> Vec<(Client, usize)> {
        (0..count).map(|_| self.client()).collect()
    }

    /// What `client` is told, once that has so many bytes.
    fn told(&mut self, client: &mut Client, length: usize) -> String {
        let mut all = Vec::new();
        self.until(|_, _| {
            let mut bytes = vec![0; 1 << 20];
            if let Ok(count) = client.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
            }
            all.len() >= length
        });
        String::from_utf8(all).expect("text")
    }

    fn connection(&mut self, place: usize) -> &mut Connection {
        self.inner.slots.get_mut(place).expect("a connection")
    }

    /// Sends in a thread of its own, because sockets take less; connections that end meanwhile take no more.
    fn sends(&self, client: &Client, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
        let mut client = client.try_clone().expect("a socket");
        std::thread::spawn(move || drop(client.write_all(&bytes)))
    }

    fn look(&mut self, now: Time) {
        self.inner.look(&mut self.backend, now);
    }

    fn open(&self) -> usize {
        self.inner.slots.taken()
    }
}

/// The beginning of a SET, and `bytes` bytes of its value of `of` bytes.
fn part_of_a_set(bytes: usize, of: usize) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${of}\r\n");
    [head.as_bytes(), &vec![b'v'; bytes]].concat()
}

/// It has heard nothing for longer than a client may leave replies unread; then it hears something, and the loop looks
/// for slow readers before it has sent that.
#[test]
fn a_quiet_subscriber_stays() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    client.write_all(b"SUBSCRIBE news\r\n").expect("it takes bytes");
    turned.told(&mut client, 30);
    turned.connection(place).times.taken = Time(1);
    let now = turned.backend.now;
    turned.inner.deliver(place, None, b"news", b"1", now);
    turned.look(now);
    assert_eq!(turned.inner.totals.dropped, 0);
    assert!(turned.told(&mut client, 1).contains("news"));
    // One that does not read is dropped.
    turned.inner.deliver(place, None, b"news", b"2", now);
    turned.look(now + STALLED_MAX + Nanos(1));
    assert_eq!((turned.inner.totals.dropped, turned.open()), (1, 0));
}

/// Without a turn of its in between, however much is said.
#[test]
fn what_a_subscriber_does_not_read_is_bounded_within_a_turn() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    client.write_all(b"SUBSCRIBE news\r\n").expect("it takes bytes");
    turned.told(&mut client, 30);
    let message = vec![b'm'; 1 << 20];
    for _ in 0..100 {
        turned.inner.deliver(place, None, b"news", &message, Time(1));
    }
    let unsent = turned.connection(place).link.unsent();
    assert!(unsent <= HEARD_MAX + message.len() + 100, "{unsent}");
    let counted = turned.inner.state(Time(1)).bytes;
    assert!(counted >= unsent, "{counted} bytes are counted");
    turned.until(|door, _| door.slots.taken() == 0);
    let state = turned.inner.state(Time(1));
    assert_eq!((state.totals.dropped, state.bytes, state.unsent), (1, 0, 0));
}

/// A message reaches the connection that publishes it, too, before the reply.
#[test]
fn a_publisher_gets_its_own_message() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, _) = turned.client();
    client.write_all(b"HELLO 3\r\n").expect("it takes bytes");
    turned.told(&mut client, 100);
    client
        .write_all(b"SUBSCRIBE a\r\nPUBLISH a 1\r\n")
        .expect("it takes bytes");
    let told = turned.told(&mut client, 64);
    assert!(
        told.ends_with(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n1\r\n:1\r\n"),
        "{told}"
    );
}

/// CLIENT REPLY mutes replies alone: the message reaches the connection that publishes it.
#[test]
fn a_muted_publisher_gets_its_own_message() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, _) = turned.client();
    client
        .write_all(b"HELLO 3\r\nSUBSCRIBE a\r\nCLIENT REPLY SKIP\r\nPUBLISH a 1\r\nPING\r\n")
        .expect("it takes bytes");
    let mut told = String::new();
    while !told.ends_with("PONG\r\n") {
        told += &turned.told(&mut client, 1);
    }
    assert!(
        told.ends_with(":1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n1\r\n+PONG\r\n"),
        "{told}"
    );
}

#[test]
fn a_muted_client_gets_no_reply_of_the_backend() {
    let mut turned = TestDoor::new(|_| {});
    turned.backend.answers_at_once = true;
    let (mut client, place) = turned.client();
    client
        .write_all(b"CLIENT REPLY SKIP\r\nGET a\r\nGET b\r\n")
        .expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 7), "+DONE\r\n");
    // Nor those of commands that the backend has left over.
    let get = crate::commands::find(b"get").expect("a command");
    let connection = turned.connection(place);
    connection.session.is_muted = true;
    connection.rest = vec![Call::new(get, Request::of(["GET", "a"]), Time::MAX, Time(1))];
    turned.inner.slots.again.push(place);
    client.write_all(b"PING\r\n").expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 7), "+PONG\r\n");
}

#[test]
fn a_muted_client_gets_no_reply_to_a_password() {
    let mut turned = TestDoor::new(|options| options.users = owner());
    let (mut client, place) = turned.client();
    let login = &mut turned.connection(place).session.login;
    login.judged(Some(0)).expect("a right password");
    client
        .write_all(b"CLIENT REPLY SKIP\r\nAUTH owner wrong\r\nPING\r\n")
        .expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 7), "+PONG\r\n");
    assert_eq!(turned.inner.totals.wrong_passwords, 1);
}

/// A message that fills a turn leaves no request behind that came with it.
#[test]
fn a_request_behind_a_long_message_is_carried_out() {
    let mut turned = TestDoor::new(|_| {});
    let mut subscribers = turned.clients(5);
    for (client, _) in &mut subscribers {
        client.write_all(b"SUBSCRIBE a\r\n").expect("it takes bytes");
        turned.told(client, 27);
    }
    let (mut client, _) = turned.client();
    let head = format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n${}\r\n", 1 << 20);
    let message = [head.as_bytes(), &vec![b'm'; 1 << 20], b"\r\nPING\r\n"].concat();
    let sending = turned.sends(&client, message);
    assert_eq!(turned.told(&mut client, 11), ":5\r\n+PONG\r\n");
    sending.join().expect("sent");
}

/// Patterns that take long leave others their turn, and nothing is lost.
#[test]
fn changes_are_told_in_turns() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    let costly = format!("*{}", "?".repeat(1000));
    let patterns: String = (0..30).map(|at| format!(" {costly}{at}")).collect();
    client
        .write_all(format!("PSUBSCRIBE __keyevent@0__:set{patterns}\r\n").as_bytes())
        .expect("it takes bytes");
    turned.until(|door, backend| {
        backend.answer(0);
        door.subscribers.counts().1 == 31
    });
    turned.connection(place).link.out.clear();
    let changes = (0..40).map(|key| KeyNotice::Event("set", vec![b'k'; 400 + key % 2]));
    turned.inner.tell(changes);
    turned.inner.tell_some(Time(1));
    assert!(turned.inner.telling() > 0, "all in one turn");
    let mut turns = 1;
    while turned.inner.telling() > 0 {
        turned.inner.tell_some(Time(1));
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let told = String::from_utf8_lossy(&turned.connection(place).link.out)
        .matches("pmessage")
        .count();
    assert_eq!(told, 40);
}

/// Its bytes count until it is done, though its connection has ended.
#[test]
fn work_without_a_connection_is_counted() {
    let mut turned = TestDoor::new(|_| {});
    let (client, place) = turned.client();
    let value = [part_of_a_set(100_000, 100_000), b"\r\n".to_vec()].concat();
    drop(turned.sends(&client, value));
    turned.until(|_, backend| !backend.taken.is_empty());
    turned.inner.end(place, &mut turned.backend);
    let state = turned.inner.state(Time(1));
    assert_eq!((state.connections, state.orphans), (0, 1));
    assert!(state.bytes >= 100_000, "{}", state.bytes);
    turned.backend.answer(5);
    turned.until(|door, _| door.state(Time(1)).orphans == 0);
    assert_eq!(turned.inner.state(Time(1)).bytes, 0);
}

/// Many arguments without bytes, keys that are watched without values, names that are heard: each takes memory.
#[test]
fn what_has_no_bytes_of_its_own_is_counted() {
    let arguments = Request::of(std::iter::repeat_n("", 10_000));
    assert!(arguments.bytes() >= 40_000, "{}", arguments.bytes());
    let mut session = Session::new(1);
    let key = |at: usize| [&[b'k'; 500][..], at.to_string().as_bytes()].concat();
    session.watch(
        (0..100)
            .map(|at| WatchedKey {
                key: key(at),
                value: None,
            })
            .collect(),
    );
    assert!(session.kept() >= 50_000, "{}", session.kept());
    let watched = session.kept();
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, true));
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, true));
    assert!(
        (50_000..300_000).contains(&(session.kept() - watched)),
        "{}",
        session.kept()
    );
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, false));
    assert_eq!(session.kept(), watched);
    session.reset();
    assert_eq!(session.kept(), 0);
}

/// Where all have too much, one with more than its share is dropped, and what it asks for is not begun.
#[test]
fn a_share_of_the_bytes_is_kept() {
    let mut turned = TestDoor::new(|options| {
        options.memory.all = 1 << 20;
        options.connections_max = 16;
    });
    let (mut small, _) = turned.client();
    let large = turned.clients(4);
    // All but the end of a request.
    let sending = large
        .iter()
        .map(|(client, _)| turned.sends(client, part_of_a_set(400_000, 500_000)));
    let sending: Vec<_> = sending.collect();
    turned.until(|door, _| door.totals.dropped > 0 && sending.iter().all(|thread| thread.is_finished()));
    let bytes = turned.inner.state(Time(1)).bytes;
    assert!(bytes <= (1 << 20) + 500_000, "{bytes}");
    small.write_all(b"PING\r\n").expect("it takes bytes");
    assert_eq!(turned.told(&mut small, 7), "+PONG\r\n");
}

/// Told with the wait of work, and counted, as one that is late at the backend is; a federation is asked in any case.
#[test]
fn what_is_late_before_it_begins_is_counted() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    let late = (Request::of(["DEADLINE", "5", "SET", "a", "1"]), Time(1));
    turned.connection(place).push(late.0.clone(), late.1);
    turned.inner.slots.again.push(place);
    assert_eq!(
        turned.told(&mut client, 10),
        "-LATE reason=expired retry-after-ms=8\r\n"
    );
    assert_eq!(turned.backend.late, 1);
    turned.inner.options.settings.limits.is_federation = true;
    turned.connection(place).push(late.0, late.1);
    turned.inner.slots.again.push(place);
    turned.until(|_, backend| backend.taken.len() == 1);
    assert_eq!(turned.backend.late, 1);
}

/// Commands that are sent together are one work, up to one that is refused, whose reply follows theirs.
#[test]
fn commands_that_come_together_are_one_work() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, _) = turned.client();
    client.write_all(&b"GET a\r\n".repeat(100)).expect("it takes bytes");
    client.write_all(b"GET\r\nGET b\r\n").expect("it takes bytes");
    let mut counts = Vec::new();
    turned.until(|_, backend| {
        for (_, work) in &backend.taken {
            counts.push(work.commands());
        }
        backend.answer(1);
        counts.len() == 3
    });
    assert_eq!(counts, [64, 36, 1]);
    let expected = "vv-ERR wrong number of arguments for 'get' command\r\nv";
    assert_eq!(turned.told(&mut client, expected.len()), expected);
}

/// A user that may read all keys.
fn owner() -> Arc<Users> {
    let user = User {
        name: "owner".into(),
        password: PasswordHash::of(b"secret", [1; 16], 1_000),
        rights: vec![Right::Read],
        prefixes: vec![Vec::new()],
    };
    Arc::new(Users::new(vec![user], [2; 16]))
}

/// It has as long for its next AUTH as one that has just connected, however old it is.
#[test]
fn a_connection_that_is_reset_has_time_for_its_next_auth() {
    let mut turned = TestDoor::new(|options| options.users = owner());
    let (mut client, place) = turned.client();
    let connection = turned.connection(place);
    (connection.times.began, connection.times.stranger_since) = (Time(1), Time(1));
    connection.session.login.judged(Some(0)).expect("a right password");
    client.write_all(b"RESET\r\n").expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 8), "+RESET\r\n");
    let connection = turned.connection(place);
    assert!(connection.session.login.is_stranger() && connection.times.began == Time(1));
    assert!(
        connection.times.stranger_since > Time(1),
        "its time counts from its begin"
    );
    let end = connection.times.stranger_since + STALLED_MAX;
    turned.look(end);
    assert_eq!(turned.open(), 1);
    turned.look(end + Nanos(1));
    assert_eq!((turned.inner.totals.dropped, turned.open()), (1, 0));
}

/// However many connect at once: clients that are admitted have their turn between.
#[test]
fn handshakes_leave_others_their_turn() {
    use crate::slots::HANDSHAKES_TURN;
    const CLIENTS: usize = 3 * HANDSHAKES_TURN;
    let shown = crate::tls::tests::TestCertificate::new();
    let (authority, tls) = (shown.authority.clone(), Arc::new(shown.tls));
    let mut turned = TestDoor::new(|options| {
        options.stream = Box::new(move |socket| Some(Stream::accepted(tls.begin().ok()?, socket)));
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = turned.connect();
            let mut tls = crate::tls::tests::client(&authority);
            tls.write_tls(&mut client).expect("it takes bytes");
            (client, tls)
        })
        .collect();
    let mut before = 0;
    turned.until(|door, _| {
        let has_signed = |stream: &Stream| match stream {
            Stream::Tls(tls) => tls.conn.negotiated_cipher_suite().is_some(),
            Stream::Plain(_) | Stream::Dialled(_) => false,
        };
        let connections = door.slots.iter_mut();
        let signed = connections
            .filter(|(_, connection)| has_signed(&connection.link.stream))
            .count();
        assert!(signed <= before + HANDSHAKES_TURN, "{before}, then {signed}");
        before = signed;
        signed == CLIENTS
    });
    drop(clients);
}

#[test]
fn replies_that_are_not_read_are_bounded_in_all_and_short_ones_are_given() {
    const LONG: usize = 8 << 20;
    const SHORT: usize = 64 << 10;
    const FIT: usize = 8;
    let mut turned = TestDoor::new(|options| {
        options.memory.replies = FIT * LONG;
        options.memory.short = SHORT;
    });
    let mut clients = turned.clients(FIT + 3);
    for (client, _) in &mut clients {
        client.write_all(b"GET a\r\n").expect("it takes bytes");
    }
    turned.until(|_, backend| backend.taken.len() == FIT + 3);
    let mut taken = std::mem::take(&mut turned.backend.taken);
    taken.sort_unstable_by_key(|(connection, _)| connection.id);
    // The last one is short, and comes when there is no more room.
    let lengths = (0..FIT + 3).map(|at| if at == FIT + 2 { SHORT } else { LONG });
    for ((connection, _), length) in taken.into_iter().zip(lengths) {
        turned.backend.done.push_back((connection, length));
        let done = turned.backend.next_done(turned.inner.memory.room()).expect("a result");
        turned.inner.finish(done, Time(1));
        let links = turned.inner.slots.iter_mut().map(|(_, own)| own.link.unsent());
        let unsent: usize = links.sum();
        assert_eq!(unsent, turned.inner.state(Time(1)).unsent, "what waits is counted");
        assert!(unsent <= FIT * LONG + (FIT + 3) * SHORT, "{unsent} bytes wait");
    }
    assert_eq!(turned.backend.unkept, 2);
    let expected = (0..FIT + 3).map(|at| match at.cmp(&FIT) {
        std::cmp::Ordering::Less => LONG,
        _ if at == FIT + 2 => SHORT,
        _ => LATE.len(),
    });
    let reading = clients.into_iter().zip(expected).map(|((mut client, _), length)| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; length];
            client.set_read_timeout(Some(WAIT_MAX)).expect("a bound");
            client.read_exact(&mut bytes).expect("a reply");
            let is_whole = length == LATE.len() || bytes.iter().all(|byte| *byte == b'v');
            assert!(is_whole && (length > LATE.len() || bytes == LATE));
        })
    });
    let reading: Vec<_> = reading.collect();
    turned.until(|_, _| reading.iter().all(|thread| thread.is_finished()));
    reading
        .into_iter()
        .for_each(|thread| thread.join().expect("whole replies"));
    assert_eq!(turned.inner.state(Time(1)).unsent, 0);
}

#[test]
fn requests_that_are_not_whole_are_bounded_in_all_and_short_ones_are_read() {
    const LENGTH: usize = 1 << 20;
    const LIMIT: usize = 16 << 20;
    const HALF: usize = LIMIT / LENGTH + 8;
    let mut turned = TestDoor::new(|options| {
        options.memory.requests = LIMIT;
        options.memory.short = 64 << 10;
    });
    let clients = turned.clients(HALF);
    // Nearly all of a value each, and nothing further.
    let sending = clients
        .iter()
        .map(|(client, _)| turned.sends(client, part_of_a_set(LENGTH - 1, LENGTH)));
    let _sending: Vec<_> = sending.collect();
    turned.until(|door, _| {
        let kept: usize = door.slots.iter_mut().map(|(_, own)| own.kept()).sum();
        assert_eq!(kept, door.memory.counted.requests, "what waits is counted");
        kept >= LIMIT && door.slots.iter_mut().all(|(_, own)| own.kept() > 0)
    });
    let ((slow, slow_at), (mut short, _)) = (turned.client(), turned.client());
    let sending = turned.sends(&slow, part_of_a_set(LENGTH, LENGTH));
    short.write_all(b"GET a\r\n").expect("it takes bytes");
    turned.until(|door, backend| !backend.taken.is_empty() && door.short_of_room.contains(&slow_at));
    let kept = turned.inner.memory.counted.requests;
    // A turn reads up to 256 KiB.
    assert!(kept <= LIMIT + HALF * (64 << 10) + (256 << 10), "{kept} bytes");
    turned.backend.answer(1);
    turned.told(&mut short, 1);
    // Those that send nothing further make room; one whose bytes came later is read on.
    let later = turned.backend.now + STALLED_MAX;
    turned.connection(slow_at).times.came = later;
    turned.backend.now = later + Nanos(1);
    (0..2).for_each(|_| turned.look(later + Nanos(1)));
    turned.until(|door, _| door.slots.taken() == 2 && sending.is_finished());
    assert_eq!(turned.inner.totals.dropped, HALF as u64, "each is counted once");
    (&slow).write_all(b"\r\n").expect("it takes bytes");
    turned.until(|_, backend| !backend.taken.is_empty());
    assert_eq!(turned.inner.memory.counted.requests, 0);
}

#[test]
fn more_clients_than_the_bound_are_told() {
    let mut turned = TestDoor::new(|options| options.connections_max = 8);
    let clients = turned.clients(8);
    let mut more = turned.connect();
    assert_eq!(turned.told(&mut more, 36), "-ERR max number of clients reached\r\n");
    assert_eq!((turned.open(), turned.inner.totals.refused), (8, 1));
    // One that goes makes room.
    drop(clients);
    turned.until(|door, _| door.slots.taken() == 0);
    turned.client();
}

/// Each gets an answer to what came before, and one word; then its connection ends. Nothing is kept for a length that
/// was only claimed, nor of what has no end.
#[test]
fn what_is_no_request_ends_its_connection_alone() {
    let endless = "a".repeat(BOUNDS.inline + 1);
    let many = format!("*2\r\n$3\r\nGET\r\n${}\r\n", BOUNDS.bulk + 1);
    let wrong = [
        "*10000000\r\n",
        "*-99999999999999999999\r\n",
        "*1\r\n+PING\r\n",
        "*1\r\n$4\r\nPINGxx",
        "SET \"a\r\n",
        "*1\r\n$-5\r\n",
        &many,
        &endless,
    ];
    let mut turned = TestDoor::new(|_| {});
    let mut clients = turned.clients(wrong.len() + 1);
    for ((client, _), wrong) in clients.iter_mut().zip(wrong) {
        client
            .write_all(format!("PING\r\n{wrong}").as_bytes())
            .expect("it takes bytes");
    }
    turned.until(|door, _| {
        let kept = door.slots.iter_mut().map(|(_, own)| own.kept()).max();
        assert!(kept < Some(BOUNDS.inline + 1024), "{kept:?} bytes are kept");
        door.slots.taken() == 1
    });
    for ((mut client, _), wrong) in clients.into_iter().zip(wrong) {
        let mut told = Vec::new();
        client.set_read_timeout(Some(WAIT_MAX)).expect("a bound");
        // What the other side has not read resets the connection.
        drop(client.read_to_end(&mut told));
        let told = told.escape_ascii().to_string();
        assert!(told.starts_with(r"+PONG\r\n-ERR Protocol error"), "{wrong}: {told}");
    }
}

/// What is silent for longer than the bound is ended, and nothing before; by the clock that the test gives.
#[test]
fn a_client_in_the_middle_of_a_request_is_ended_after_its_bound() {
    let mut turned = TestDoor::new(|_| {});
    let ((mut half, half_at), (mut other, _)) = (turned.client(), turned.client());
    half.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nab").expect("it takes bytes");
    turned.until(|door, _| door.slots.get_mut(half_at).is_some_and(|own| own.kept() > 0));
    let end = turned.backend.now + STALLED_MAX;
    turned.look(end);
    assert_eq!((turned.open(), turned.inner.totals.dropped), (2, 0));
    turned.look(end + Nanos(1));
    turned.backend.now = end + Nanos(1);
    turned.until(|door, _| door.slots.taken() == 1);
    assert!(
        turned
            .told(&mut half, 60)
            .contains("half a request, and nothing more for")
    );
    // Nor does one stay that leaves a reply.
    other.write_all(b"GET a\r\n").expect("it takes bytes");
    turned.until(|_, backend| !backend.taken.is_empty());
    turned.backend.answer(32 << 20);
    turned.until(|door, _| door.state(Time(1)).unsent > 0 && !door.has_more());
    let end = end + Nanos(1) + STALLED_MAX;
    turned.look(end);
    assert_eq!(turned.open(), 1);
    turned.look(end + Nanos(1));
    assert_eq!((turned.open(), turned.inner.state(Time(1)).unsent), (0, 0));
}

/// The socket takes long replies at once, and tells nothing further.
#[test]
fn a_request_behind_long_replies_is_answered() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    // More requests than are parsed at a time.
    let requests = 2 * super::connection::REQUESTS_MAX;
    client.write_all(b"INFO\r\n").expect("it takes bytes");
    client.write_all(&b"PING\r\n".repeat(requests)).expect("it takes bytes");
    client.write_all(b"ECHO end\r\n").expect("it takes bytes");
    let told = turned.told(&mut client, REPLIES_PAUSE + (64 << 10) + 12 + 7 * requests + 9);
    assert!(told.ends_with("+PONG\r\n$3\r\nend\r\n"), "{} bytes", told.len());
    assert_eq!(turned.connection(place).waiting(), 0);
}

/// Once the door is closed, what was begun is answered, and nothing else begins.
#[test]
fn a_closed_door_answers_what_was_begun() {
    let mut turned = TestDoor::new(|_| {});
    let (mut client, place) = turned.client();
    client.write_all(b"EXISTS a\r\n").expect("it takes bytes");
    turned.until(|_, backend| !backend.taken.is_empty());
    client.write_all(b"PING\r\n").expect("it takes bytes");
    turned.until(|door, _| door.slots.get_mut(place).is_some_and(|own| own.waiting() > 0));
    turned.inner.close(&mut turned.net);
    assert!(!turned.inner.is_drained(), "an answer is owed");
    turned.backend.answer(2);
    turned.inner.serve(&mut turned.backend);
    turned.inner.say_goodbye();
    assert!(turned.inner.is_drained());
    drop(turned);
    let mut told = Vec::new();
    client.set_read_timeout(Some(WAIT_MAX)).expect("a bound");
    client.read_to_end(&mut told).expect("the end");
    assert_eq!(told, b"vv");
}
