//! A federation on a table: nodes, a log in memory, and every message in the hands of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use punctual_federation::action::{Action, Ask, Event, Execution, LogAnswer, Ticket};
use punctual_federation::admission::Gate;
use punctual_federation::entry::{Body, Entry, plain_events};
use punctual_federation::ids::{Boot, FederationId, Member, NodeId, RequestId, Revision};
use punctual_federation::message::{Answer, Key, Message, Operation, Output, Reply, Request, Value, Work};
use punctual_federation::node::{Node, Setup};
use punctual_federation::records::{self, RecordAccess, Undo};
use punctual_federation::session::ClientSession;
use punctual_logs::{CommitLog, FORMAT, HistoryId, Identity, LogError, LogHistory, Memory};
use punctual_store::batch::{Image, WriteSet};
use punctual_store::temporal::Creation;
use punctual_units::{Nanos, Time};

const FEDERATION: FederationId = FederationId(1);
/// How time passes: in steps.
const STEP: Nanos = Nanos::from_millis(1);
/// The most rounds in which messages cause each other at one instant.
const ROUNDS_MAX: usize = 1_000;

/// Records, and what one transaction changes of them.
#[derive(Clone, Debug, Default)]
struct View {
    records: BTreeMap<Key, Value>,
    changes: BTreeMap<Key, Option<Value>>,
}

impl RecordAccess for View {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Value>, Infallible> {
        let changed = self.changes.get(key).cloned();
        Ok(changed.unwrap_or_else(|| self.records.get(key).cloned()))
    }

    fn fresh(&self, key: &[u8], _: Nanos) -> Result<Option<Value>, Infallible> {
        self.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Undo<Infallible>> {
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Undo<Infallible>> {
        self.changes.insert(key.to_vec(), None);
        Ok(())
    }

    fn create(&mut self, _: &Creation) -> Result<(), Undo<Infallible>> {
        Ok(())
    }
}

fn change(records: &mut BTreeMap<Key, Value>, changes: &BTreeMap<Key, Option<Value>>) {
    for (key, value) in changes {
        match value {
            Some(value) => records.insert(key.clone(), value.clone()),
            None => records.remove(key),
        };
    }
}

/// How many records an image has.
const IMAGE_RECORDS: usize = 2;

/// Whether an image is about a key.
fn is_of(image: &Image, key: &Key) -> bool {
    image.after.as_ref().is_none_or(|after| key > after) && image.upto.as_ref().is_none_or(|upto| key <= upto)
}

/// A node with its records.
pub struct Place {
    pub node: Node,
    pub records: BTreeMap<Key, Value>,
    revision: Revision,
    /// Up to which key they are here.
    upto: Option<Key>,
    /// It has said that it may be ended.
    pub left: bool,
}

/// All of it.
pub struct Table {
    pub now: Time,
    pub places: Vec<Option<Place>>,
    pub log: Memory,
    /// Nodes whose messages to the log, and its to them, are lost.
    pub cut_from_log: BTreeSet<usize>,
    /// Nodes whose appends do not arrive until the test says so.
    pub hold_appends: BTreeSet<usize>,
    /// Those appends.
    pub held: Vec<(usize, Ticket, Ask)>,
    /// Nodes that are asked for no copy: the test sends it.
    pub hold_copies: bool,
    pub copies: Vec<(usize, NodeId, Option<Key>)>,
    /// Nodes whose disks take nothing, and those that wait for theirs.
    pub hold_syncs: BTreeSet<usize>,
    held_syncs: BTreeSet<usize>,
    /// All that was ever appended.
    pub entries: Vec<Arc<Entry>>,
    /// What each client's request was answered.
    pub answers: BTreeMap<(u64, RequestId), Answer>,
    boots: u64,
    mail: Vec<(usize, NodeId, Message)>,
    asks: Vec<(usize, Ticket, Ask)>,
    entry_bytes_max: usize,
    /// Nodes that do not run, those that hear no peer, and the events that wait for either.
    pub starved: BTreeSet<usize>,
    pub deaf: BTreeSet<usize>,
    unread: Vec<(usize, Event)>,
    /// Whether the log's medium is full.
    pub log_is_full: bool,
    log_entries_max: u64,
}

/// The identity of a new log with this history.
pub fn identity(history: u64) -> Identity {
    Identity {
        federation: FEDERATION,
        format: FORMAT,
        history: LogHistory {
            id: HistoryId(history),
            ..LogHistory::default()
        },
    }
}

impl Table {
    /// So many nodes that have just started, a log that keeps so many entries for those behind.
    pub fn new(nodes: usize, log_entries_max: u64) -> Table {
        let mut log = Memory::default();
        log.open(identity(1)).expect("a new log takes any federation");
        let mut table = Table {
            now: Time(1_000_000_000),
            places: Vec::new(),
            log,
            cut_from_log: BTreeSet::new(),
            hold_appends: BTreeSet::new(),
            held: Vec::new(),
            hold_copies: false,
            copies: Vec::new(),
            hold_syncs: BTreeSet::new(),
            held_syncs: BTreeSet::new(),
            entries: Vec::new(),
            answers: BTreeMap::new(),
            boots: 0,
            mail: Vec::new(),
            asks: Vec::new(),
            entry_bytes_max: usize::MAX,
            starved: BTreeSet::new(),
            deaf: BTreeSet::new(),
            unread: Vec::new(),
            log_is_full: false,
            log_entries_max,
        };
        for number in 0..nodes {
            table.places.push(None);
            table.start(number, BTreeMap::new(), Revision::ZERO, nodes);
        }
        table
    }

    /// The log takes no longer entries from now on.
    pub fn set_entry_bytes_max(&mut self, bytes: usize) {
        self.entry_bytes_max = bytes;
    }

    /// Starts a node with these records.
    pub fn start(&mut self, number: usize, records: BTreeMap<Key, Value>, revision: Revision, nodes: usize) {
        self.boots += 1;
        let setup = Setup {
            me: Member {
                node: NodeId(number as u32),
                boot: Boot(self.boots),
            },
            federation: FEDERATION,
            peers: (0..nodes as u32).map(NodeId).collect(),
            log_entries_max: self.log_entries_max,
            executors: 1,
            gate: Gate::Open,
        };
        let Ok(reign) = records::reign::<Infallible>(|key| Ok(records.get(key).cloned()));
        self.places.resize_with(nodes.max(self.places.len()), || None);
        self.places[number] = Some(Place {
            node: Node::new(&setup, revision, None, reign, self.now),
            records,
            revision,
            upto: None,
            left: false,
        });
        let opened = self.log.open(identity(1)).expect("its own federation");
        self.tell(number, Event::Opened(opened));
    }

    /// A node is gone, and its peers hear so.
    pub fn crash(&mut self, number: usize) {
        self.places[number] = None;
        for peer in 0..self.places.len() {
            self.tell(peer, Event::Reset(NodeId(number as u32)));
        }
    }

    pub fn node(&self, number: usize) -> &Node {
        &self.places[number].as_ref().expect("the node is up").node
    }

    /// The nodes that take themselves for the master.
    pub fn masters(&self) -> Vec<usize> {
        let up = self.places.iter().enumerate();
        up.filter(|(_, place)| place.as_ref().is_some_and(|place| place.node.is_master()))
            .map(|(number, _)| number)
            .collect()
    }

    /// Lets time pass, and everything arrive that is not held.
    pub fn pass(&mut self, span: Nanos) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + STEP;
            for number in 0..self.places.len() {
                self.tell(number, Event::Wake);
            }
            self.settle();
        }
    }

    /// Lets everything arrive that is under way and not held.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let (mail, asks) = (std::mem::take(&mut self.mail), std::mem::take(&mut self.asks));
            if mail.is_empty() && asks.is_empty() {
                return;
            }
            for (from, to, message) in mail {
                self.tell(to.0 as usize, Event::Message(NodeId(from as u32), message));
            }
            for (from, ticket, ask) in asks {
                match ask {
                    Ask::Append { .. } if self.hold_appends.contains(&from) => self.held.push((from, ticket, ask)),
                    ask => self.ask_log(from, ticket, ask),
                }
            }
        }
        panic!("messages go round in circles");
    }

    /// Those appends that were held arrive at the log now, the answers with their nodes.
    pub fn release_appends(&mut self) {
        for (from, ticket, ask) in std::mem::take(&mut self.held) {
            self.ask_log(from, ticket, ask);
        }
        self.settle();
    }

    /// All disks take what they are given from now on.
    pub fn release_syncs(&mut self) {
        self.hold_syncs.clear();
        for number in std::mem::take(&mut self.held_syncs) {
            self.act(number, Action::Sync);
        }
    }

    /// An ask arrives at the log.
    pub fn ask_log(&mut self, from: usize, ticket: Ticket, ask: Ask) {
        if self.cut_from_log.contains(&from) {
            return;
        }
        let answer = match ask {
            Ask::Append { last, entry } => self.append(last, &entry).map(LogAnswer::Appended),
            Ask::Read { after, max } => self.log.read_from(after, max).map(|stretch| LogAnswer::Read {
                entries: stretch.records.iter().map(decoded).collect(),
                last: stretch.last,
            }),
            Ask::Trim { upto } => self.log.trim(upto).map(|()| LogAnswer::Trimmed),
        };
        self.tell(from, Event::Log(ticket, answer));
    }

    fn append(&mut self, last: Revision, entry: &Entry) -> Result<punctual_logs::AppendResult, LogError> {
        let bytes = entry.encode(FEDERATION);
        if bytes.len() > self.entry_bytes_max {
            return Err(LogError::EntryTooLong { len: bytes.len() });
        }
        if self.log_is_full {
            return Err(LogError::NoRoom);
        }
        let appended = self.log.append(last, &bytes)?;
        if let punctual_logs::AppendResult::At(at) = appended {
            self.entries.push(Arc::new(entry.clone()));
            for number in (0..self.places.len())
                .filter(|number| !self.cut_from_log.contains(number))
                .collect::<Vec<_>>()
            {
                self.tell(number, Event::Watched(vec![(at, Arc::new(entry.clone()))]));
            }
        }
        Ok(appended)
    }

    /// A client's request arrives at a node.
    pub fn ask(&mut self, number: usize, client: u64, request: &Request) {
        self.tell(number, Event::Request(client, request.clone()));
    }

    /// The answer to a request, if it came.
    pub fn answer(&self, client: u64, request: &Request) -> Option<&Answer> {
        self.answers.get(&(client, request.id))
    }

    pub fn tell(&mut self, number: usize, event: Event) {
        self.unread.push((number, event));
        let is_deaf = self.deaf.contains(&number);
        let is_read =
            |(to, event): &mut (usize, Event)| *to == number && !(is_deaf && matches!(event, Event::Message(..)));
        if !self.starved.contains(&number) {
            for (number, event) in self.unread.extract_if(.., is_read).collect::<Vec<_>>() {
                self.step(number, event);
            }
        }
    }

    fn step(&mut self, number: usize, event: Event) {
        let now = self.now;
        let Some(place) = self.places.get_mut(number).and_then(Option::as_mut) else {
            return;
        };
        let actions = place.node.step(event, now);
        for action in actions {
            self.act(number, action);
        }
    }

    fn act(&mut self, number: usize, action: Action) {
        let Some(place) = &mut self.places[number] else {
            return;
        };
        match action {
            Action::Send(to, message) => self.mail.push((number, to, message)),
            Action::Reply(client, Reply { id, answer, .. }) => {
                let before = self.answers.insert((client, id), answer);
                assert_eq!(before, None, "request {id} was answered twice");
            }
            Action::Tell(_) => {}
            Action::Log(ticket, ask) => self.asks.push((number, ticket, ask)),
            Action::Execute(batch, revision, requests) => {
                let done = place.execute(revision, &requests);
                self.tell(number, Event::Executed(batch, done));
            }
            Action::Apply(revision, entry) => {
                place.apply(revision, &entry);
                self.tell(number, Event::Applied(revision));
            }
            Action::Look(..) => unreachable!("no client here says commands"),
            Action::Query(ticket, keys, _) => {
                let values = keys.iter().map(|key| place.records.get(key).cloned()).collect();
                let revision = place.revision;
                self.tell(number, Event::Queried(ticket, revision, values));
            }
            Action::Sync if self.hold_syncs.contains(&number) => _ = self.held_syncs.insert(number),
            Action::Sync => {
                let revision = place.revision;
                self.tell(number, Event::Synced(revision));
            }
            Action::Copy(peer, after) => match self.hold_copies {
                true => self.copies.push((number, peer, after)),
                false => self.copy(number, peer, after),
            },
            Action::Install(image) => {
                assert!(
                    image.after.is_none() || image.after == place.upto,
                    "it begins elsewhere"
                );
                assert!(
                    image.after.is_none() || image.revision == place.revision,
                    "it is of another revision"
                );
                place.records.retain(|key, _| !is_of(&image, key));
                place.records.extend(image.records.iter().cloned());
                place.revision = image.revision;
                place.upto.clone_from(&image.upto);
                let Ok(reign) = records::reign::<Infallible>(|key| Ok(place.records.get(key).cloned()));
                self.tell(number, Event::Installed(image.revision, reign));
            }
            Action::Left => place.left = true,
            Action::Stop(_) => {} // its node tells why
        }
    }

    /// A node makes a copy for a peer.
    pub fn copy(&mut self, number: usize, peer: NodeId, after: Option<Key>) {
        let mut image = self.image(number);
        let all = image.records.into_iter();
        let behind = all.filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
        image.records = behind.take(IMAGE_RECORDS + 1).collect();
        if image.records.len() > IMAGE_RECORDS {
            image.records.pop();
            image.upto = image.records.last().map(|(key, _)| key.clone());
        }
        image.after = after;
        self.tell(number, Event::Copied(peer, Arc::new(image)));
    }

    /// All records of a node.
    pub fn image(&self, number: usize) -> Image {
        let place = self.places[number].as_ref().expect("the node is up");
        Image {
            revision: place.revision,
            after: None,
            upto: place.upto.clone(),
            records: place.records.clone().into_iter().collect(),
            created: Vec::new(),
        }
    }

    /// The requests in the log, in its order.
    pub fn logged(&self) -> Vec<RequestId> {
        let ids = |entry: &Arc<Entry>| match &entry.body {
            Body::Reign(_) => Vec::new(),
            Body::Batch(batch) => batch.iter().map(|logged| logged.id).collect(),
        };
        self.entries.iter().flat_map(ids).collect()
    }
}

impl Place {
    fn execute(&self, revision: Revision, requests: &[Request]) -> Vec<Execution> {
        let mut records = self.records.clone();
        let one = |request: &Request| {
            let mut view = View {
                records: records.clone(),
                changes: BTreeMap::new(),
            };
            match records::perform(&mut view, request.id, &request.work, revision) {
                Ok(output) => {
                    change(&mut records, &view.changes);
                    let set = WriteSet {
                        changes: view.changes,
                        ..WriteSet::default()
                    };
                    let events = plain_events(&set);
                    Execution::Done { output, set, events }
                }
                Err(Undo::Refused(refusal)) => Execution::Refused(refusal),
                Err(Undo::Failed(never)) => match never {},
            }
        };
        requests.iter().map(one).collect()
    }

    fn apply(&mut self, revision: Revision, entry: &Entry) {
        assert_eq!(self.revision.next(), revision, "an entry was left out or came twice");
        for mut set in records::sets(entry) {
            set.changes
                .retain(|key, _| self.upto.as_ref().is_none_or(|upto| key <= upto));
            change(&mut self.records, &set.changes);
        }
        self.revision = revision;
    }
}

fn decoded(record: &punctual_logs::LogRecord) -> (Revision, Arc<Entry>) {
    let entry = Entry::decode(&record.bytes, record.revision, FEDERATION).expect("we wrote it");
    (record.revision, Arc::new(entry))
}

/// A client, that asks in a session and waits.
pub struct Client {
    pub number: u64,
    pub session: ClientSession,
}

impl Client {
    /// A client without a session yet.
    pub fn open_later(client: u64) -> Client {
        Client {
            number: client,
            session: ClientSession::default(),
        }
    }

    /// A client whose session begins at node `number`.
    pub fn open(table: &mut Table, number: usize, client: u64) -> Client {
        let mut client = Client::open_later(client);
        let answer = client.asks(table, number, Work::Open);
        assert!(matches!(answer, Some(Answer::Done { .. })), "{answer:?}");
        client
    }

    /// A request that is sent, and not waited for.
    pub fn sends(&mut self, table: &mut Table, number: usize, work: Work, time_left: Nanos) -> Request {
        let request = self.session.request(work, time_left);
        table.ask(number, self.number, &request);
        request
    }

    /// A request, and its answer if it comes within a moment.
    pub fn asks(&mut self, table: &mut Table, number: usize, work: Work) -> Option<Answer> {
        let request = self.sends(table, number, work, Nanos::from_secs(1));
        table.settle();
        table.pass(Nanos::from_millis(20));
        self.hears(table, &request)
    }

    /// What came of a request.
    pub fn hears(&mut self, table: &Table, request: &Request) -> Option<Answer> {
        let answer = table.answer(self.number, request)?.clone();
        self.session.answered(&answer);
        Some(answer)
    }
}

/// A transaction that adds a byte to the list.
pub fn add(byte: u8) -> Work {
    Work::Transaction(vec![Operation::Append(b"list".to_vec(), vec![byte])])
}

/// A query of the list.
pub fn list(latest: bool) -> Work {
    Work::Query {
        keys: vec![b"list".to_vec()],
        latest,
        max_age: Nanos::MAX,
    }
}

/// What a query of the list found.
pub fn found(answer: Option<Answer>) -> Vec<u8> {
    match answer {
        Some(Answer::Done {
            output: Output::Values(values),
            ..
        }) => values[0].clone().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}
