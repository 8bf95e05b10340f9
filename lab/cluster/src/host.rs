//! A host: a node while it is up, its disk always, and the shell that executes the node's actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_federation::action::{Action, Ask, Event, LogAnswer, Ticket};
use punctual_federation::admission::{Gate, Timely};
use punctual_federation::entry::Entry;
use punctual_federation::follower::NumberedEntry;
use punctual_federation::ids::{Boot, Member, NodeId, RequestId, Revision};
use punctual_federation::message::{Answer, Message, Reply, Report, Request, Standing, Stop};
use punctual_federation::node::{Node, Setup};
use punctual_federation::replica::Replica;
use punctual_logs::{LogError, LogRecord, Stretch};
use punctual_store::batch::Image;
use punctual_store::{Store, StoreError, StoreOptions};
use punctual_units::{Nanos, Time};
use rand::RngExt;

use super::clock::{NodeClock, NodeOs};
use super::plant::Mischief;
use super::sensing::{HORIZON, Sensing};
use super::world::{Endpoint, FEDERATION, FutureEvent, Packet, Question, StoreWork, World};
use super::{ClusterSettings, Mark};

/// A request that a node has accepted and not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) id: RequestId,
    /// Destination of the answer.
    from: Endpoint,
    /// Number of the request at the sender.
    ticket: u64,
    /// Instant by the node's own clock.
    deadline: Time,
    /// Whether the node stood still or its clock jumped since: then its `LATE` answer may itself be late.
    disturbed: bool,
}

/// State of a running node.
pub(super) struct Up {
    pub(super) node: Node,
    pub(super) replica: Replica<Memory, NodeOs>,
    os: NodeOs,
    /// Next instant at which the node is woken.
    wake: Time,
    /// Unanswered requests by connection number.
    pub(super) open: BTreeMap<u64, Open>,
    pub(super) mischief: Mischief,
    pub(super) sensing: Sensing,
}

/// A host with its clock and disk.
pub(super) struct Host {
    pub(super) node: NodeId,
    pub(super) clock: NodeClock,
    /// Records that survive a crash.
    disk: Image,
    pub(super) boots: u64,
    pub(super) up: Option<Up>,
    /// Reason why the node does not start any more.
    pub(super) stopped: Option<Stop>,
    pub(super) paused_until: Time,
    /// Packets that arrived while the node stands still.
    inbox: Vec<(Endpoint, Packet)>,
}

impl Host {
    pub(super) fn new(number: u32, settings: &ClusterSettings, random: &mut impl rand::Rng) -> Host {
        let drift = i64::from(settings.drift_ppm_max);
        let offset = Nanos::from_micros(random.random_range(0..1_000_000_000));
        Host {
            node: NodeId(number),
            clock: NodeClock::new(offset, random.random_range(-drift..=drift)),
            disk: Image::default(),
            boots: 0,
            up: None,
            stopped: None,
            paused_until: Time::ZERO,
            inbox: Vec::new(),
        }
    }

    /// Notes that deadlines may be missed through no fault of the node's.
    pub(super) fn disturb(&mut self) {
        let open = self.up.iter_mut().flat_map(|up| up.open.values_mut());
        open.for_each(|open| open.disturbed = true);
    }
}

impl World {
    /// Starts a node with the records on its disk.
    pub(super) fn start(&mut self, number: usize) {
        let (now, nodes) = (self.now, self.hosts.len() as u32);
        let takes_part_for_whole = self.planted_part();
        let log_opened = self.log.opened();
        let host = &mut self.hosts[number];
        if host.up.is_some() || host.stopped.is_some() {
            return;
        }
        host.boots += 1;
        let local = host.clock.local(now);
        let os = NodeOs::default();
        os.set(local);
        let objects = nodes as usize;
        let opened = open(&host.disk, os.clone(), objects).and_then(|replica| Ok((replica.reign()?, replica)));
        let setup = Setup {
            me: Member {
                node: host.node,
                boot: Boot((host.boots << 16) | number as u64), // two hosts of one name differ as well
            },
            federation: FEDERATION,
            peers: (0..nodes).map(NodeId).collect(),
            log_entries_max: self.settings.log_entries_max,
            executors: 2,
            gate: Gate::Timely(Timely::new(Nanos::from_millis(100))),
        };
        match opened {
            Ok((reign, replica)) => {
                let upto = replica.upto().filter(|_| !takes_part_for_whole);
                self.parts += u64::from(replica.upto().is_some());
                host.up = Some(Up {
                    node: Node::new(&setup, replica.revision(), upto, reign, local),
                    replica,
                    os,
                    wake: Time::MAX,
                    open: BTreeMap::new(),
                    mischief: Mischief::default(),
                    sensing: Sensing::default(),
                });
                self.note(Endpoint::Host(number), Mark::Restart, || {
                    format!("starts as {}", setup.me)
                });
                self.tell(number, Event::Opened(log_opened));
            }
            Err(error) => self.store_failed("open", error),
        }
    }

    /// Stops a node at once; records that it had not written to disk may be lost.
    pub(super) fn crash(&mut self, number: usize) {
        let keeps_all = !self.settings.unsynced_loss || self.random.random_bool(0.5);
        let host = &mut self.hosts[number];
        let Some(up) = host.up.take() else {
            return;
        };
        if keeps_all && let Ok(image) = up.replica.image() {
            host.disk = image;
        }
        host.inbox.clear();
        host.paused_until = Time::ZERO;
        let node = host.node;
        for open in up.open.into_values() {
            if let Endpoint::Client(_) = open.from {
                self.send(Endpoint::Host(number), open.from, Packet::Broken(open.id));
            }
        }
        if self.random.random_bool(0.5) {
            let hosts = (0..self.hosts.len()).filter(|peer| *peer != number).map(Endpoint::Host);
            for peer in hosts.chain((0..self.fronts.len()).map(Endpoint::Front)) {
                self.send(Endpoint::Host(number), peer, Packet::Reset(node));
            }
        }
    }

    /// Stops a node for good: its process ends.
    fn stops(&mut self, number: usize, stop: Stop) {
        self.note(Endpoint::Host(number), Mark::Note, || format!("stops: {stop}"));
        self.crash(number);
        self.hosts[number].stopped = Some(stop);
    }

    /// Resumes a node that stood still, and delivers the packets that arrived meanwhile.
    pub(super) fn resumes(&mut self, number: usize) {
        if self.hosts[number].paused_until > self.now {
            return; // the node was paused again
        }
        self.note(Endpoint::Host(number), Mark::Resume, || "goes on".to_owned());
        for (from, packet) in std::mem::take(&mut self.hosts[number].inbox) {
            self.host_hears(number, from, packet);
        }
        self.tell(number, Event::Wake);
    }

    pub(super) fn paused(&self, number: usize) -> bool {
        self.hosts[number].paused_until > self.now
    }

    pub(super) fn wakes(&mut self, number: usize, boot: Boot) {
        let now = self.now;
        if let Some(up) = self.up(number, boot)
            && up.wake <= now
        {
            up.wake = Time::MAX;
            self.tell(number, Event::Wake);
        }
    }

    /// The node of a host, if it is still the same process.
    pub(super) fn up(&mut self, number: usize, boot: Boot) -> Option<&mut Up> {
        let up = self.hosts[number].up.as_mut();
        up.filter(|up| up.node.member().boot == boot)
    }

    /// Handles a packet that arrives at a host.
    pub(super) fn host_hears(&mut self, number: usize, from: Endpoint, packet: Packet) {
        if self.paused(number) {
            self.hosts[number].inbox.push((from, packet));
            return;
        }
        let Some(up) = &self.hosts[number].up else {
            let node = self.hosts[number].node;
            match (from, packet) {
                (Endpoint::Client(_), Packet::Request(_, request)) => {
                    self.send(Endpoint::Host(number), from, Packet::Broken(request.id));
                }
                (Endpoint::Front(_), Packet::Request(..)) => {
                    self.send(Endpoint::Host(number), from, Packet::Reset(node))
                }
                _ => {}
            }
            return;
        };
        let boot = up.node.member().boot;
        match (from, packet) {
            (_, Packet::Peer(node, message)) => self.tell(number, Event::Message(node, message)),
            (_, Packet::Stamp(node, stamp)) => self.stamped(number, node, stamp),
            (_, Packet::Report(node, report)) => self.reported(number, node, report),
            (_, Packet::Taken(node, object, seq)) => self.taken(number, node, object, seq),
            (_, Packet::Reset(node)) => self.tell(number, Event::Reset(node)),
            (_, Packet::Request(ticket, request)) => self.takes(number, from, ticket, request),
            (_, Packet::Appended(to, ticket, answer)) if to == boot => {
                self.log_answers(number, ticket, answer.map(LogAnswer::Appended));
            }
            (_, Packet::Read(to, ticket, answer)) if to == boot => self.log_read(number, ticket, answer),
            (_, Packet::Watched(record)) => match decoded(&[record]) {
                Ok(entries) => self.tell(number, Event::Watched(entries)),
                Err(stop) => self.tell(number, Event::Unreadable(stop)),
            },
            _ => {}
        }
    }

    /// Gives a request to its node, which must answer once; a node ordered to pause must answer at once.
    fn takes(&mut self, number: usize, from: Endpoint, ticket: u64, request: Request) {
        let now = self.now;
        self.connections += 1;
        let connection = self.connections;
        let host = &mut self.hosts[number];
        let (node, local, id) = (host.node, host.clock.local(now), request.id);
        let mut pauses = false;
        if let Some(up) = &mut host.up {
            let open = Open {
                id,
                from,
                ticket,
                deadline: local + request.time_left,
                disturbed: false,
            };
            up.open.insert(connection, open);
            pauses = matches!(up.node.standing(), Standing::Paused | Standing::Leaving);
        }
        let request = self.planted_request(number, request);
        self.tell(number, Event::Request(connection, request));
        let up = self.hosts[number].up.as_ref();
        if pauses && up.is_some_and(|up| up.open.contains_key(&connection)) {
            self.broken(format!("node {node} was told to pause, and has taken request {id}"));
        }
    }

    /// Status that a node attaches to its replies.
    pub(super) fn said(&self, number: usize) -> Report {
        let host = &self.hosts[number];
        let local = host.clock.local(self.now);
        host.up.as_ref().map_or(Report::default(), |up| up.node.said(local))
    }

    fn log_read(&mut self, number: usize, ticket: Ticket, answer: Result<Stretch, LogError>) {
        let answer = match answer {
            Ok(Stretch { records, last }) => match decoded(&records) {
                Ok(entries) => Ok(LogAnswer::Read { entries, last }),
                Err(stop) => return self.tell(number, Event::Unreadable(stop)),
            },
            Err(error) => Err(error),
        };
        self.log_answers(number, ticket, answer);
    }

    fn log_answers(&mut self, number: usize, ticket: Ticket, answer: Result<LogAnswer, LogError>) {
        if let Some(answer) = self.planted_answer(number, ticket, answer) {
            self.tell(number, Event::Log(ticket, answer));
        }
    }

    /// Passes an event to a node, and executes the resulting actions.
    pub(super) fn tell(&mut self, number: usize, event: Event) {
        let now = self.now;
        if self.paused(number) {
            return; // a store that has finished reports when the node resumes
        }
        let host = &mut self.hosts[number];
        let Some(up) = &mut host.up else {
            return;
        };
        let local = host.clock.local(now);
        up.os.set(local);
        let before = up.node.is_master();
        let actions = up.node.step(event, local);
        if up.node.is_master() != before {
            let label = if before { "cedes" } else { "is the master" };
            self.note(Endpoint::Host(number), Mark::Takeover, || label.to_owned());
        }
        for action in actions {
            self.act(number, action);
        }
        self.set_wake(number);
    }

    fn set_wake(&mut self, number: usize) {
        let now = self.now;
        let host = &mut self.hosts[number];
        let Some(up) = &mut host.up else {
            return;
        };
        let wanted = up.node.wake_at(host.clock.local(now));
        if wanted == Time::MAX {
            return;
        }
        let local = host.clock.local(now);
        if wanted <= local {
            let node = host.node;
            self.broken(format!(
                "node {node} wants to be woken at {wanted:?}, and it is {local:?} already"
            ));
            return;
        }
        let at = host.clock.when(wanted, now);
        if at < up.wake {
            up.wake = at;
            let boot = up.node.member().boot;
            self.at(at, FutureEvent::Wake(number, boot));
        }
    }

    fn act(&mut self, number: usize, action: Action) {
        let here = Endpoint::Host(number);
        let Some(up) = &self.hosts[number].up else {
            return;
        };
        let Member { node, boot } = up.node.member();
        match action {
            Action::Send(to, message) => {
                for host in self.named(to).into_iter().filter(|host| *host != number) {
                    self.send(here, Endpoint::Host(host), Packet::Peer(node, message.clone()));
                }
            }
            Action::Reply(connection, reply) => self.reply(number, connection, reply),
            Action::Tell(heartbeat) => {
                for front in 0..self.fronts.len() {
                    let packet = Packet::Peer(node, Message::Heartbeat(heartbeat));
                    self.send(here, Endpoint::Front(front), packet);
                }
            }
            Action::Log(ticket, ask) => self.ask_log(number, boot, ticket, &ask),
            Action::Execute(batch, revision, requests) => {
                let records = requests.len() * 4;
                self.planted_execute(number, batch, revision, &requests);
                self.work(number, boot, StoreWork::Execute(batch, revision, requests), records);
            }
            Action::Apply(revision, entry) => self.work(number, boot, StoreWork::Apply(revision, entry), 8),
            Action::Query(ticket, keys, max_age) => {
                let (records, early) = (keys.len(), self.planted_query(number, &keys, max_age));
                self.work(number, boot, StoreWork::Query(ticket, keys, max_age, early), records);
            }
            Action::Look(..) => {} // no client here sends commands
            Action::Sync => self.work(number, boot, StoreWork::Sync, 100),
            Action::Copy(peer, after) => self.work(number, boot, StoreWork::Copy(peer, after), 20),
            Action::Install(image) => self.work(number, boot, StoreWork::Install(image), 20),
            Action::Left => self.left(number),
            Action::Stop(stop) => self.stops(number, stop),
        }
    }

    fn ask_log(&mut self, number: usize, boot: Boot, ticket: Ticket, ask: &Ask) {
        if self.planted_ask(number, boot, ticket, ask) {
            return;
        }
        let question = Question::of(ask);
        self.send(
            Endpoint::Host(number),
            Endpoint::Log,
            Packet::Ask(boot, ticket, question),
        );
    }

    /// Lets a store work for a random time, now and then a long one.
    fn work(&mut self, number: usize, boot: Boot, work: StoreWork, records: usize) {
        let factor = match self.per_mille(10) {
            true => self.random.random_range(10.0..100.0),
            false => self.random.random_range(0.5..2.0),
        };
        self.after(cost(records).scaled(factor), FutureEvent::Worked(number, boot, work));
    }

    /// Completes a store's work. A node that stands still is notified later.
    pub(super) fn worked(&mut self, number: usize, boot: Boot, work: StoreWork) {
        let resumes = self.hosts[number].paused_until;
        if resumes > self.now {
            self.at(resumes, FutureEvent::Worked(number, boot, work));
            return;
        }
        let local = self.hosts[number].clock.local(self.now);
        let skips = self.planted_skip();
        let work = self.planted_work(number, work);
        let read = match &work {
            StoreWork::Query(_, keys, max_age, _) => Some((keys.clone(), *max_age)),
            _ => None,
        };
        let image_bytes_max = self.settings.image_bytes_max;
        let Some(up) = self.up(number, boot) else {
            return;
        };
        up.os.set(local);
        match up.carry_out(work, skips, image_bytes_max) {
            Ok((event, disk)) => {
                if let Some(image) = disk {
                    self.hosts[number].disk = image;
                }
                let part = self.hosts[number].up.as_ref().and_then(|up| up.replica.upto());
                match event {
                    Event::Installed(..) if part.is_none() => self.copies += 1,
                    Event::Installed(..) => self.images += 1,
                    _ => {}
                }
                self.check_readings(number, &event, read);
                let event = self.planted_event(number, event);
                self.tell(number, event);
            }
            Err(error) => self.store_failed("do its work", error),
        }
    }

    /// Sends a node's answer to a client or a front.
    pub(super) fn reply(&mut self, number: usize, connection: u64, reply: Reply) {
        if let Some(reply) = self.planted_reply(number, connection, reply) {
            self.reply_truly(number, connection, reply);
        }
    }

    pub(super) fn reply_truly(&mut self, number: usize, connection: u64, reply: Reply) {
        let local = self.hosts[number].clock.local(self.now);
        let node = self.hosts[number].node;
        let id = reply.id;
        let up = self.hosts[number].up.as_mut();
        let Some(open) = up.and_then(|up| up.open.remove(&connection)) else {
            let again = super::label::of_answer(&reply.answer);
            self.broken(format!("node {node} answered request {id} twice, now with {again}"));
            return;
        };
        if matches!(reply.answer, Answer::Late { .. }) && local > open.deadline && !open.disturbed {
            let late = local.since(open.deadline);
            self.broken(format!(
                "node {node} said of request {id} {late} after its deadline that it is late"
            ));
        }
        let packet = match open.from {
            Endpoint::Front(_) => Packet::Reply(open.ticket, reply),
            _ => Packet::Answer(id, reply.answer),
        };
        self.send(Endpoint::Host(number), open.from, packet);
    }
}

impl Up {
    /// Executes an action in the node's store. Returns the event for the node, and the new contents of the disk if they
    /// changed.
    fn carry_out(
        &self,
        work: StoreWork,
        skips: bool,
        image_bytes_max: usize,
    ) -> Result<(Event, Option<Image>), StoreError> {
        let replica = &self.replica;
        let event = match work {
            StoreWork::Execute(batch, revision, requests) => {
                Event::Executed(batch, replica.execute(revision, &requests)?)
            }
            StoreWork::Apply(revision, entry) => {
                match skips {
                    true => replica.skip(revision)?,
                    false => replica.apply(revision, &entry)?,
                }
                Event::Applied(revision)
            }
            StoreWork::Query(ticket, keys, max_age, early) => {
                let (revision, values) = replica.query(&keys, max_age)?;
                match early {
                    None => Event::Queried(ticket, revision, values),
                    Some((before, first)) => {
                        let rest = values.into_iter().skip(first.len());
                        Event::Queried(ticket, before, first.into_iter().chain(rest).collect())
                    }
                }
            }
            StoreWork::Sync => {
                let image = replica.image()?;
                return Ok((Event::Synced(image.revision), Some(image)));
            }
            StoreWork::Copy(peer, after) => {
                let image = replica.image_from(after.as_deref(), image_bytes_max)?;
                Event::Copied(peer, Arc::new(image))
            }
            StoreWork::Install(image) => {
                replica.install(&image)?;
                Event::Installed(image.revision, replica.reign()?)
            }
        };
        Ok((event, None))
    }
}

/// Opens a store with the records from disk, with room for `objects` temporal objects.
fn open(disk: &Image, os: NodeOs, objects: usize) -> Result<Replica<Memory, NodeOs>, StoreError> {
    let options = StoreOptions {
        replicated: true,
        created_max: objects,
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), os, options)?;
    if disk.revision > Revision::ZERO {
        store.install_image(disk)?;
    }
    Ok(Replica::new(store, HORIZON))
}

/// Time of a store for `records` records: a small multiple of the store's measured time on one core.
fn cost(records: usize) -> Nanos {
    Nanos::from_micros(20) + Nanos::from_micros(5) * records as u64
}

/// Decodes records of the log as entries.
fn decoded(records: &[LogRecord]) -> Result<Vec<NumberedEntry>, Stop> {
    let entry = |record: &LogRecord| {
        Ok((
            record.revision,
            Arc::new(Entry::decode(&record.bytes, record.revision, FEDERATION)?),
        ))
    };
    records.iter().map(entry).collect()
}
