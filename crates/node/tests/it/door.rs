//! Do a store alone, a node and a balancer answer alike? The same requests to each, over RESP2 and RESP3, one by one
//! and split at random; every difference in the replies is in [`DIFFERENCES`], with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use punctual_engines::Memory;
use punctual_federation::admission::Gate;
use punctual_federation::balancer::Home;
use punctual_federation::ids::{Boot, FederationId, Member, NodeId};
use punctual_federation::node::Setup;
use punctual_federation::replica::Replica;
use punctual_logs::Memory as Log;
use punctual_logs::socket::{LogServer, SharedLog};
use punctual_node::process::balance::Balancing;
use punctual_node::process::{Access, Listening, NodeControl, PeerAddress};
use punctual_os::LinuxOs;
use punctual_server::commands::TABLE;
use punctual_server::net::Waker;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::request::{Request, RequestParser};
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_server::users::{PasswordHash, Right, User, Users};
use punctual_server::{Options, RunningServer};
use punctual_store::{Store, StoreOptions};
use punctual_testing::{WAIT_MAX, campaign, wait_for, wait_until};
use punctual_units::Nanos;
use tempfile::TempDir;

/// A request that nodes and balancers answer otherwise than a store alone.
struct Difference {
    /// The beginning of the request, in capitals and with `|` at its end: behind `MULTI: ` where it is between MULTI
    /// and EXEC; of EXEC, behind `EXEC of `, the requests that it carries out.
    request: &'static str,
    /// Whether the requests behind it on the connection may be answered otherwise, too.
    diverges: bool,
    _reason: &'static str,
}

const fn differs(request: &'static str, reason: &'static str) -> Difference {
    Difference {
        request,
        diverges: false,
        _reason: reason,
    }
}

/// As `differs`, for a request that leaves the connection or the records in another state.
const fn diverges(request: &'static str, reason: &'static str) -> Difference {
    Difference {
        diverges: true,
        ..differs(request, reason)
    }
}

/// The differences between a store alone and a node or a balancer. One that no request shows any more is to be removed.
const DIFFERENCES: &[Difference] = &[
    differs("EXPIRE OBJECT", NUMBERED),
    differs("APPEND OBJECT", NUMBERED),
    differs("DEL OBJECT", NUMBERED),
    differs("INCR OBJECT", NUMBERED),
    differs("SET OBJECT", NUMBERED),
    differs("EXEC of GETFRESH OBJECT", NUMBERED),
    differs("TSET K 2", "the master refuses it, in the words of the federation"),
    diverges(
        "FLUSHALL",
        "a node removes all records in no transaction; SCAN finds them",
    ),
    diverges(
        "FLUSHDB",
        "a node removes all records in no transaction; SCAN finds them",
    ),
    differs(
        "PUBLISH",
        "messages are of a process; events of keys are what all nodes report",
    ),
    diverges("MULTI: KEYS", SCANS),
    diverges("MULTI: DBSIZE", SCANS),
    diverges("MULTI: SCAN", SCANS),
    diverges("MULTI: RANDOMKEY", SCANS),
    differs("SESSION", COMMANDS),
    differs("OUTCOME", COMMANDS),
    differs("SENTINEL", COMMANDS),
    differs("MULTI: SESSION", COMMANDS),
    differs("MULTI: OUTCOME", COMMANDS),
    differs("MULTI: SENTINEL", COMMANDS),
    differs("COMMAND|", COMMANDS),
    differs("COMMAND COUNT", COMMANDS),
    differs("COMMAND LIST|", COMMANDS),
    differs("COMMAND DOCS|", COMMANDS),
    differs("COMMAND INFO SESSION", COMMANDS),
    differs(
        "CONFIG GET *",
        "the process has a store, with threads and a durability, or is a node",
    ),
    differs("CONFIG GET MAXCLIENTS", "bounds of the process"),
    differs(
        "CONFIG GET PROTO-MAX-BULK-LEN",
        "an argument is a part of an entry of the log",
    ),
    differs("DEADLINE 4000000", HOUR),
    differs("CLIENT DEADLINE 4000000", HOUR),
    differs("WATCH K0", "a transaction of the log has at most 128 parts"),
    differs("DEL \"\"", KEYS),
    differs("EXISTS \"\"", KEYS),
    differs("GET \"", KEYS),
    differs("MGET \"\"", KEYS),
    differs("WATCH \"\"", KEYS),
    differs("RENAME K \"\"", KEYS),
    differs("OBJECT ENCODING \"\"", KEYS),
    differs("SET \"\\X00", KEYS),
    diverges("EXEC of GET \"\"", KEYS),
];

const COMMANDS: &str = "sessions and masters are of a federation";
const HOUR: &str = "a request of a federation waits for an hour at most";
const NUMBERED: &str = "the reply of a node has the number of the transaction";
const SCANS: &str = "the master would visit all keys, and execute no other transaction meanwhile";
const KEYS: &str =
    "keys of a federation have at most 500 bytes and do not begin with 0; a request with another is not sent";

/// Conversations, one a line, each on a connection of its own; `|` separates requests. Of a request that begins with
/// `~`, only errors and the kinds of values are compared. `N*` announces N replies.
const CONVERSATIONS: &str = include_str!("conversations.txt");
/// The requests that are compared with those of a Redis, too (`crates/cli/tests/it/serve_redis.rs`).
const REDIS: &str = include_str!("../../../server/tests/data/requests.txt");

/// Longest deadline that a store alone and a node take: a busy machine makes no reply late.
const DEADLINE: &str = "CLIENT DEADLINE 3600000";
/// No reading becomes too old while replies are compared.
const VALIDITY: Nanos = Nanos::from_secs(3600);
const CLOSED: &str = "the connection is closed";

/// A node of a federation of its own, with its log, on threads of this process.
struct OneNode {
    clients: SocketAddr,
    peers: SocketAddr,
    control: Sender<NodeControl>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    _log: (LogServer, TempDir),
}

impl OneNode {
    fn start(users: &Arc<Users>) -> OneNode {
        let any = "127.0.0.1:0".parse().unwrap();
        let access = Access {
            users: Arc::clone(users),
            ..Access::default()
        };
        let mut listening = Listening::bind(any, any, access).unwrap();
        listening.temporal.validity = VALIDITY;
        let (clients, peers) = listening.addresses();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("log");
        let log = SharedLog::new(Log::default());
        let log = LogServer::start(&socket, move || Some(log.clone())).unwrap();
        let options = StoreOptions {
            replicated: true,
            created_max: 64,
            ..StoreOptions::default()
        };
        let replica = Replica::new(Store::open(Memory::default(), LinuxOs, options).unwrap(), VALIDITY);
        // A wall clock that stands still: no record expires while replies are compared.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let replica = replica.with_clock(move || since.as_millis() as u64).unwrap();
        let setup = Setup {
            me: Member {
                node: NodeId(0),
                boot: Boot(7),
            },
            federation: FederationId(1),
            peers: vec![NodeId(0)],
            log_entries_max: 10_000,
            executors: 2,
            gate: Gate::Open,
        };
        let (control, orders) = channel();
        let waker = listening.waker();
        let thread = thread::spawn(move || {
            listening.run(&setup, socket, replica, LinuxOs, orders, drop).unwrap();
        });
        OneNode {
            clients,
            peers,
            control,
            waker,
            thread: Some(thread),
            _log: (log, folder),
        }
    }
}

impl Drop for OneNode {
    fn drop(&mut self) {
        drop(self.control.send(NodeControl::End));
        (self.waker)();
        self.thread.take().map(JoinHandle::join);
    }
}

/// A balancer before a node of its own.
struct OneBalancer {
    clients: SocketAddr,
    ends: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    _node: OneNode,
}

impl OneBalancer {
    fn start(users: &Arc<Users>) -> OneBalancer {
        let node = OneNode::start(users);
        let access = Access {
            users: Arc::clone(users),
            ..Access::default()
        };
        let balancing = Balancing::bind("127.0.0.1:0".parse().unwrap(), access).unwrap();
        let (clients, waker) = (balancing.address(), balancing.waker());
        let ends = Arc::new(AtomicBool::new(false));
        let (addresses, found) = channel();
        addresses
            .send(BTreeMap::from([(0, PeerAddress::of(node.peers))]))
            .unwrap();
        let is_to_end = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let home = Box::new(Home::default());
            balancing.run(found, home, 9, LinuxOs, &is_to_end, drop).unwrap();
        });
        OneBalancer {
            clients,
            ends,
            waker,
            thread: Some(thread),
            _node: node,
        }
    }
}

impl Drop for OneBalancer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        (self.waker)();
        self.thread.take().map(JoinHandle::join);
    }
}

/// The three backends, with the same users.
struct Doors {
    /// Name and address of each, the store alone first.
    all: [(&'static str, SocketAddr); 3],
    _alone: RunningServer<Memory, LinuxOs>,
    _node: OneNode,
    _balancer: OneBalancer,
}

impl Doors {
    fn open(users: Vec<User>) -> Doors {
        let users = Arc::new(Users::new(users, [3; 16]));
        let options = StoreOptions {
            created_max: 64,
            ..StoreOptions::default()
        };
        let store = Store::open(Memory::default(), LinuxOs, options).unwrap();
        let options = Options {
            users: Arc::clone(&users),
            temporal_len_max: 1024,
            validity: VALIDITY,
            ..Options::default()
        };
        let alone = punctual_server::Listening::bind("127.0.0.1:0".parse().unwrap(), &users).unwrap();
        let alone = alone.serve(Arc::new(store), &options, None).unwrap();
        let (node, balancer) = (OneNode::start(&users), OneBalancer::start(&users));
        let doors = Doors {
            all: [
                ("a store alone", alone.address()),
                ("a node", node.clients),
                ("a balancer", balancer.clients),
            ],
            _alone: alone,
            _node: node,
            _balancer: balancer,
        };
        for (name, address) in doors.all {
            let mut client = Client::connect(address);
            if !users.is_empty() {
                client.ask("AUTH owner secret");
            }
            wait_until(&format!("{name} commits"), || {
                client.ask("DEL k") == [Reply::Integer(0)]
            });
        }
        doors
    }
}

/// A connection of the test to a backend.
struct Client {
    stream: TcpStream,
    parser: ReplyParser,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            parser: ReplyParser::default(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        // A connection that has ended shows in the reply.
        drop(self.stream.write_all(bytes));
    }

    fn reply(&mut self) -> Reply {
        let mut bytes = [0; 4096];
        loop {
            if let Some(reply) = self.parser.next(&Bounds::ADMITTED).unwrap() {
                return reply;
            }
            match self.stream.read(&mut bytes) {
                Ok(count @ 1..) => self.parser.feed(&bytes[..count]),
                // A connection may be reset where the client has sent more than was read.
                Ok(0) => return Reply::Error(CLOSED.into()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Reply::Error(CLOSED.into());
                }
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The replies to a request: one, or as many as its first reply announces or the text says.
    fn ask(&mut self, request: &str) -> Vec<Reply> {
        let (count, request) = counted(request);
        self.send(&encoded(request));
        let first = self.reply();
        let count = match &first {
            Reply::Error(_) => 1,
            _ => count,
        };
        let others = (1..count).map(|_| self.reply()).collect::<Vec<_>>();
        [first].into_iter().chain(others).collect()
    }
}

/// Splits the number of replies off a request.
fn counted(request: &str) -> (usize, &str) {
    let request = request.strip_prefix('~').unwrap_or(request);
    let split = request
        .split_once('*')
        .and_then(|(count, rest)| Some((count.parse().ok()?, rest)));
    let (count, request) = split.unwrap_or((0, request));
    let words = request.split(' ').count();
    let name = request.split(' ').next().unwrap_or_default().to_uppercase();
    let names = name.ends_with("SUBSCRIBE") && words > 1;
    (count.max(if names { words - 1 } else { 1 }), request)
}

/// A request as sent: a line of words becomes an array, one with `\` is sent as it is.
fn encoded(request: &str) -> Vec<u8> {
    if let Some(raw) = request.strip_prefix('\\') {
        return format!("{}\r\n", raw.replace("\\r", "\r")).into_bytes();
    }
    let mut parser = RequestParser::default();
    parser.feed(format!("{request}\r\n").as_bytes());
    let words: Request = parser.next(&Bounds::ADMITTED).unwrap().unwrap();
    let mut out = Vec::new();
    let words = words.from(0).map(Reply::bulk).collect();
    Writer::new(&mut out, Resp::Two).value(&Reply::Array(words));
    out
}

/// The part of a reply that is compared: of numbers of connections and transactions nothing, nor of bounds, of a time
/// to live that there is some, and of a request with `~` the kind.
fn compared(request: &str, reply: &Reply) -> Reply {
    /// The rest of a text behind a number that is another one each time.
    fn without_number<'t>(text: &'t str, begin: &str) -> Option<&'t str> {
        let rest = text.strip_prefix(begin)?;
        Some(rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.'))
    }
    let each = |replies: &[Reply]| replies.iter().map(|reply| compared(request, reply)).collect();
    let id = Reply::bulk("id");
    match reply {
        Reply::Error(text) => {
            let begins = [
                "REFUSED ",
                "STALE age-ms=",
                "ERR a key has 1 to ",
                "ERR a deadline is 1 to ",
                "EXECABORT Transaction discarded because of: a deadline is 1 to ",
            ];
            let begin = begins.into_iter();
            let mut rest = begin.filter_map(|begin| Some((begin, without_number(text, begin)?)));
            rest.next()
                .map_or(reply.clone(), |(begin, rest)| Reply::Error(format!("{begin}N{rest}")))
        }
        Reply::Integer(_) if request.starts_with('~') => Reply::Integer(1),
        Reply::Bulk(_) if request.starts_with('~') || request.to_uppercase().contains("RANDOMKEY") => Reply::bulk(""),
        Reply::Verbatim(_) if request.starts_with('~') => Reply::Verbatim(String::new()),
        // An expiry that counts from the instant of its request.
        Reply::Integer(1..4_000_000_000) if request.contains("TTL") || request.contains("EXPIRETIME") => {
            Reply::Integer(1)
        }
        Reply::Map(pairs) => Reply::Map(
            pairs
                .iter()
                .map(|(key, value)| match *key == id {
                    true => (key.clone(), Reply::Integer(1)),
                    false => (compared(request, key), compared(request, value)),
                })
                .collect(),
        ),
        Reply::Array(all) => match all.iter().position(|reply| *reply == id) {
            Some(at) => {
                let mut all = all.clone();
                all[at + 1] = Reply::Integer(1);
                Reply::Array(all)
            }
            None => Reply::Array(each(all)),
        },
        Reply::Push(all) => Reply::Push(each(all)),
        other => other.clone(),
    }
}

/// Replies as text, for a failed test.
fn shown(replies: &[Reply]) -> String {
    let mut out = Vec::new();
    for reply in replies {
        Writer::new(&mut out, Resp::Three).value(reply);
    }
    out.escape_ascii().to_string().chars().take(300).collect()
}

/// Requests of one connection, in their order.
type Conversation = Vec<String>;

/// The replies to each request of a conversation.
fn converse(address: SocketAddr, conversation: &Conversation) -> Vec<Vec<Reply>> {
    let mut client = Client::connect(address);
    conversation
        .iter()
        .map(|request| {
            let replies = client.ask(request);
            replies.iter().map(|reply| compared(request, reply)).collect()
        })
        .collect()
}

/// The replies to all requests together, whose bytes are sent in pieces of lengths that `draw` gives.
fn converse_split(address: SocketAddr, conversation: &[String], draw: &mut Random) -> Vec<Reply> {
    let bytes: Vec<u8> = conversation
        .iter()
        .flat_map(|request| encoded(counted(request).1))
        .collect();
    let mut client = Client::connect(address);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(1 + draw.below(rest.len().min(40)));
        client.send(piece);
        rest = others;
    }
    drop(client.stream.shutdown(std::net::Shutdown::Write));
    let replies = std::iter::from_fn(|| Some(client.reply()).filter(|reply| *reply != Reply::Error(CLOSED.into())));
    replies.collect()
}

/// Numbers that only look random (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Whether a request was not executed. A busy machine may put off a node for longer than the 200 ms after which
/// balancers no longer send it requests, or for longer than a default deadline.
fn is_refused<'r>(mut replies: impl Iterator<Item = &'r Reply>) -> bool {
    replies.any(|reply| matches!(reply, Reply::Error(text) if text.starts_with("LATE reason=")))
}

/// Removes all records, so that each conversation begins with none.
fn clear(address: SocketAddr, login: Option<&str>) {
    let mut client = Client::connect(address);
    login.map(|login| client.ask(login));
    client.ask(DEADLINE);
    let mut executed = |request: &str| {
        wait_for(
            || format!("{request} is executed"),
            || {
                let replies = client.ask(request);
                (!is_refused(replies.iter())).then_some(replies)
            },
        )
    };
    let keys = executed("KEYS *");
    let [Reply::Array(keys)] = keys.as_slice() else {
        panic!("{keys:?}")
    };
    for key in keys {
        let Reply::Bulk(key) = key else { panic!("{key:?}") };
        executed(&format!("DEL \"{}\"", String::from_utf8_lossy(key)));
    }
}

/// Result of a comparison: the differences that no entry of the list allows, and the entries that were needed.
#[derive(Default)]
struct Found {
    wrong: Vec<String>,
    needed: BTreeSet<&'static str>,
}

impl Found {
    /// Compares the replies of a node or a balancer with those of a store alone.
    fn compare(
        &mut self,
        name: &str,
        conversation: &Conversation,
        [expected, got]: [&[Vec<Reply>]; 2],
        allowed: &[Difference],
    ) {
        let (mut is_queued, mut queued) = (false, Vec::new());
        for (at, request) in conversation.iter().enumerate() {
            let named = counted(request).1.to_uppercase();
            let ends = ["EXEC", "DISCARD", "RESET"].iter().any(|end| named.ends_with(end));
            let named = match is_queued {
                true if named.ends_with("EXEC") => format!("EXEC of {}", std::mem::take(&mut queued).join(", ")),
                true if !ends => {
                    queued.push(named.clone());
                    format!("MULTI: {named}")
                }
                _ => named,
            };
            if ends {
                queued.clear();
            }
            is_queued = !ends && (is_queued || named.ends_with("MULTI"));
            if expected[at] == got[at] {
                continue;
            }
            let named = format!("{named}|");
            let matching = |difference: &&Difference| named.starts_with(difference.request);
            let Some(difference) = allowed.iter().find(matching) else {
                self.wrong.push(format!(
                    "{named} in {conversation:?}\n  a store alone: {}\n  {name}: {}",
                    shown(&expected[at]),
                    shown(&got[at])
                ));
                continue;
            };
            self.needed.insert(difference.request);
            if difference.diverges {
                return;
            }
        }
    }
}

/// Compares the three over all conversations, the first `both` over RESP2 and RESP3, the others over one of these; and
/// on each door with the same bytes split, of the others a third in the gate.
fn compare_all(
    doors: &Doors,
    conversations: &[Conversation],
    both: usize,
    login: Option<&str>,
    allowed: &[Difference],
) -> Found {
    let (mut found, mut draw) = (Found::default(), Random(0x9e37_79b9_7f4a_7c15));
    for (at, conversation) in conversations.iter().enumerate() {
        let versions = ["HELLO 2", "HELLO 3"];
        // Conversations that are made, not written, come in large numbers.
        let versions = if at < both {
            &versions[..]
        } else {
            &versions[at % 2..][..1]
        };
        for version in versions.iter().copied() {
            let begins = login.is_none().then_some([version, DEADLINE]).into_iter().flatten();
            let whole: Conversation = begins.map(str::to_owned).chain(conversation.iter().cloned()).collect();
            let mut alone = Vec::new();
            for (name, address) in doors.all {
                let replies = wait_for(
                    || format!("{name} executes {whole:?}"),
                    || {
                        let replies = converse(address, &whole);
                        clear(address, login);
                        (!is_refused(replies.iter().flatten())).then_some(replies)
                    },
                );
                // Bytes behind the last request that is answered could take its reply along as the connection ends.
                let answered = replies
                    .iter()
                    .position(|each| each.contains(&Reply::Error(CLOSED.into())));
                let answered = &whole[..answered.unwrap_or(whole.len())];
                let is_split = at < both || at % campaign(3, 1) == 0;
                let split = is_split.then(|| {
                    wait_for(
                        || format!("{name} executes {answered:?}"),
                        || {
                            let split = converse_split(address, answered, &mut draw);
                            clear(address, login);
                            (!is_refused(split.iter())).then_some(split)
                        },
                    )
                });
                let flat: Vec<_> = replies.iter().flatten().collect();
                let of_request = |at: usize| {
                    let counts = replies.iter().scan(0, |sum, each| {
                        *sum += each.len();
                        Some(*sum)
                    });
                    whole[counts.take_while(|count| *count <= at).count()].as_str()
                };
                for (at, reply) in flat.iter().enumerate().filter(|_| is_split) {
                    if **reply == Reply::Error(CLOSED.into()) {
                        break;
                    }
                    let of = of_request(at);
                    let other = { split.iter().flatten().nth(at) }.map(|reply| compared(of, reply));
                    if other.as_ref() != Some(*reply) {
                        let (reply, other) = (shown(std::slice::from_ref(reply)), shown(other.as_slice()));
                        found
                            .wrong
                            .push(format!("{name}, {of} in {whole:?}\n  whole {reply}\n  split {other}"));
                        break;
                    }
                }
                match alone.is_empty() {
                    true => alone = replies,
                    false => found.compare(name, &whole, [&alone, &replies], allowed),
                }
            }
        }
    }
    found
}

fn lines(text: &str) -> impl Iterator<Item = Conversation> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('|').map(|request| request.replace("\\n", "\n")).collect())
}

/// Each command of the table with too few, enough and too many arguments, alone and within MULTI.
fn of_table() -> Vec<Conversation> {
    // After RESET, which ends the connection's deadline, a node's default of a second would hold.
    let (mut all, get) = (Vec::new(), "DEADLINE 600000 GET k");
    for command in TABLE {
        let least = command.arity.unsigned_abs() as usize;
        for words in least.saturating_sub(1).max(1)..=least + 1 {
            let arguments = ["k", "1000000", "2", "3", "4"].into_iter().take(words - 1);
            let request = [command.name]
                .into_iter()
                .chain(arguments)
                .collect::<Vec<_>>()
                .join(" ");
            let request = match command.name {
                "client" | "info" | "hello" | "config" | "command" | "session" | "time" => format!("~{request}"),
                "tset" => request.replace(" k", " object"),
                // A string of a megabyte is for other tests.
                "setrange" => request.replace("1000000", "10"),
                _ => request,
            };
            all.push(vec!["SET k 5".into(), request.clone(), "PING".into(), get.into()]);
            let within = ["SET k 5", "MULTI", "SET k 6", &request, "EXEC", get, "EXEC"];
            // The reply to EXEC with one of these is another one each time.
            if !["randomkey", "time"].contains(&command.name) {
                all.push(within.map(str::to_owned).to_vec());
            }
        }
    }
    all
}

/// Conversations of requests drawn from a few words, right and wrong ones mixed.
fn drawn(count: usize) -> Vec<Conversation> {
    let (mut draw, mut all) = (Random(77), Vec::new());
    let requests: Vec<_> = lines(CONVERSATIONS)
        .chain(lines(REDIS))
        .flatten()
        // Whether the connection goes on afterwards is asked of these alone.
        .filter(|request| !["QUIT", "\\", "RESET"].iter().any(|begin| request.starts_with(begin)))
        .filter(|request| !request.contains("UBSCRIBE") && !request.contains("PUBLISH"))
        // A node's default deadline would hold for the requests that follow.
        .filter(|request| !request.contains("CLIENT DEADLINE 0"))
        // After these the records differ.
        .filter(|request| {
            !["FLUSH", "object", "\"\"", "RANDOMKEY", "~TIME"]
                .iter()
                .any(|part| request.contains(part))
        })
        .collect();
    for _ in 0..count {
        all.push((0..12).map(|_| requests[draw.below(requests.len())].clone()).collect());
    }
    all
}

fn user(name: &str, rights: &[Right], prefix: &str) -> User {
    User {
        name: name.into(),
        password: PasswordHash::of(b"secret", [1; 16], 1_000),
        rights: rights.to_vec(),
        prefixes: vec![prefix.as_bytes().to_vec()],
    }
}

/// The names of differences that no request has shown.
fn unneeded<'d>(found: &Found, allowed: &'d [Difference]) -> Vec<&'d str> {
    let names = allowed.iter().map(|difference| difference.request);
    names.filter(|name| !found.needed.contains(name)).collect()
}

#[test]
fn a_store_alone_a_node_and_a_balancer_answer_alike() {
    let doors = Doors::open(Vec::new());
    let mut conversations: Vec<_> = lines(CONVERSATIONS).chain(lines(REDIS)).collect();
    let written = conversations.len();
    conversations.extend(of_table().into_iter().chain(drawn(60)));
    let found = compare_all(&doors, &conversations, written, None, DIFFERENCES);
    let unneeded = unneeded(&found, DIFFERENCES);
    assert!(
        found.wrong.is_empty() && unneeded.is_empty(),
        "{} differences that the list does not have:\n{}\nof the list, no difference any more: {unneeded:?}",
        found.wrong.len(),
        found.wrong.join("\n")
    );
}

/// Requests whose events are compared.
const CHANGES: &str = r"
SET k 1|SET k 2 EX 100|GETEX k PERSIST|EXPIRE k 100|PERSIST k|SETEX k 100 3|SET k 4 KEEPTTL|GETSET k 5|GETDEL k|DEL k
APPEND s ab|SETRANGE s 1 x|SETBIT s 3 1|COPY s t|RENAME s u|RENAMENX u v|MSET b 1 a 2|MSETNX b 1 c 2|UNLINK a b
INCR n|DECRBY n 5|INCRBYFLOAT n 1.5|SETNX n 1|SET n 1 NX|SET n 2 GET|PEXPIREAT n 1
HSET h f 1 g 2|HINCRBY h f 1|HINCRBYFLOAT h f 0.5|HSETNX h f 3|HDEL h f|HDEL h g|HDEL h g
MULTI|SET m 1|INCR m|INCR m|DEL m|SET m 2|EXEC|MULTI|SET m 3|DISCARD|WATCH m|MULTI|HSET z f 1|EXEC|DEL z m nothing
";

/// Subscribers of a node and of a balancer get the events that those of a store alone get, by the same names.
#[test]
fn changes_of_keys_have_the_same_events() {
    let doors = Doors::open(Vec::new());
    let round = |address| {
        clear(address, None);
        let mut subscriber = Client::connect(address);
        subscriber.ask(DEADLINE);
        wait_until("a subscription begins", || {
            !matches!(subscriber.ask("PSUBSCRIBE __keyevent@0__:*")[..], [Reply::Error(_)])
        });
        let mut client = Client::connect(address);
        client.ask(DEADLINE);
        let mut requests = lines(CHANGES).flatten().chain(["SET end 1".to_owned()]);
        if requests.any(|request| is_refused(client.ask(&request).iter())) {
            return None;
        }
        let next = || match subscriber.reply() {
            Reply::Array(parts) | Reply::Push(parts) => parts[2..].to_vec(),
            other => panic!("{other:?}"),
        };
        let is_last = |parts: &Vec<Reply>| parts[1] == Reply::bulk("end");
        let events = std::iter::repeat_with(next).take_while(|parts| !is_last(parts));
        Some(events.collect::<Vec<_>>())
    };
    let events = doors
        .all
        .map(|(name, address)| wait_for(|| format!("{name} executes all changes"), || round(address)));
    let text = |all: &[Vec<Reply>]| all.iter().map(|parts| shown(parts)).collect::<Vec<_>>();
    let [alone, node, balancer] = events.each_ref().map(|all| text(all));
    assert!(alone.len() > 40, "{alone:?}");
    assert_eq!(node, alone);
    assert_eq!(balancer, alone);
}

/// A reply of the node's that differs, and an entry of the list that nothing needs.
#[test]
fn a_planted_difference_is_found() {
    let whole = vec!["SET k 1".to_owned(), "STRLEN k".to_owned()];
    let expected = [vec![Reply::ok()], vec![Reply::Integer(1)]];
    let allowed = [differs("STRLEN K", "planted"), differs("GET", "planted")];
    for (planted, allowed, wrong, left) in [
        (1, &allowed[1..], 0, vec!["GET"]),
        (2, &allowed[1..], 1, vec!["GET"]),
        (2, &allowed[..], 0, vec!["GET"]),
        (1, &allowed[..], 0, vec!["STRLEN K", "GET"]),
    ] {
        let got = [vec![Reply::ok()], vec![Reply::Integer(planted)]];
        let mut found = Found::default();
        found.compare("a node", &whole, [&expected, &got], allowed);
        assert_eq!(
            (found.wrong.len(), unneeded(&found, allowed)),
            (wrong, left),
            "{planted}"
        );
    }
}

/// Requests of strangers, of a user that may read below one prefix, and of one that may do all.
const OF_USERS: &str = r"
GET k|NOSUCH|GET|PING|MULTI|EXEC|EXEC x|DISCARD|SUBSCRIBE a|INFO|CLIENT ID|ACL WHOAMI|COMMAND COUNT|CONFIG GET save|RESET|HELLO
HELLO 3|HELLO 3 SETNAME x|HELLO 4|HELLO 3 AUTH|HELLO 3 AUTH x y|AUTH|AUTH a|AUTH a b c|DEADLINE 5 GET k|DEADLINE 5|SELECT 0|QUIT
AUTH owner wrong|AUTH owner secret|ACL WHOAMI|SET k 1|GET k|RESET|GET k|AUTH owner secret|GET k|HELLO 3 AUTH guest secret|GET k
AUTH wrong|AUTH guest wrong|AUTH stranger secret|PING
HELLO 2 AUTH guest secret SETNAME me|CLIENT GETNAME|GET room/door|GET k|SET room/door 1|MGET room/a k|KEYS *|DBSIZE|SCAN 0|FLUSHDB
AUTH guest secret|INFO|CONFIG GET save|CLIENT LIST|~CLIENT ID|~CLIENT INFO|SUBSCRIBE a|PUBLISH a b|WATCH room/a|WATCH k|ACL WHOAMI
AUTH guest secret|MULTI|GET room/a|SET room/a 1|EXEC|MULTI|GET k|EXEC|MULTI|EXEC x|GETSET room/a 1|TSET room/a 1|WAIT 0 1
AUTH guest secret|SESSION
AUTH guest secret|OUTCOME 1.1
AUTH owner secret|~INFO server|CONFIG GET save|~CLIENT LIST|SUBSCRIBE a|UNSUBSCRIBE a|PSUBSCRIBE *|PUNSUBSCRIBE *|KEYS *|DBSIZE
";

#[test]
fn users_may_do_the_same_on_all() {
    let doors = Doors::open(vec![
        user("owner", &Right::ALL, ""),
        user("guest", &[Right::Read], "room/"),
    ]);
    // Each log-in is followed by a deadline, as the first request is in the other conversations.
    let with_deadline = |request: String| {
        let is_login = request.contains(" secret");
        [request].into_iter().chain(is_login.then(|| DEADLINE.to_owned()))
    };
    let of_users = lines(OF_USERS).map(|requests| requests.into_iter().flat_map(with_deadline).collect());
    let conversations: Vec<Conversation> = of_users.collect();
    let allowed = [
        differs("SESSION", COMMANDS),
        differs("OUTCOME", COMMANDS),
        differs("COMMAND COUNT", COMMANDS),
    ];
    let found = compare_all(&doors, &conversations, usize::MAX, Some("AUTH owner secret"), &allowed);
    assert!(found.wrong.is_empty(), "{}", found.wrong.join("\n"));
}
