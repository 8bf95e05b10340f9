//! A node: master or replica, and its behaviour in either role.

use std::convert::Infallible;
use std::sync::Arc;

use punctual_logs::{FederationId, HistoryId, LogError, LogHistory, LogState, Revision};
use punctual_store::batch::Image;
use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, Caller, Event, LogAnswer, Ticket};
use crate::admission::{BacklogMachine, BacklogReport, Gate};
use crate::copying::{Copies, Copying};
use crate::entry::Body;
use crate::follower::Follower;
use crate::ids::{Member, NodeId, RequestId};
use crate::line::LogCalls;
use crate::liveness::{HEARTBEAT, HeartbeatOutcome, Liveness, STARVED_AFTER, SUSPECT_AFTER};
use crate::master::{Consequence, Master};
use crate::message::{
    Answer, Heartbeat, Key, Message, Output, Position, Reason, Reign, Report, Request, Standing, Stop, Work,
};
use crate::outbox::Outbox;
use crate::queries::{Due, Queries, Values};
use crate::quota::LogQuota;
use crate::records;
use crate::slave::Slave;

/// Time before a deadline at which a node answers that a request is late, so that the answer arrives in time.
pub const MARGIN: Nanos = Nanos::from_millis(1);
/// Interval at which a node syncs its applied entries to disk.
pub const SYNC_EVERY: Nanos = Nanos::from_millis(100);
/// Interval at which a master trims the log.
pub const TRIM_EVERY: Nanos = Nanos::from_millis(500);
/// Time for which peers must report a node's number as taken before the node stops.
pub const NAME_WAIT: Nanos = Nanos::from_secs(1);

/// The settings of a node when it starts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The node's number and boot; the boot differs at every start.
    pub me: Member,
    /// The federation that the node belongs to.
    pub federation: FederationId,
    /// The nodes from which heartbeats are expected.
    pub peers: Vec<NodeId>,
    /// Most entries that the log keeps for nodes that are behind; nodes further behind get a copy.
    pub log_entries_max: u64,
    /// Queries that the store answers at once.
    pub executors: usize,
    /// Admission gate. Queries use this one, transactions a clone, so each learns its own costs.
    pub gate: Gate,
}

/// The state of a node that does not depend on its role.
#[derive(Clone, Debug)]
pub struct Core {
    pub me: Member,
    pub liveness: Liveness,
    /// Progress in applying the log.
    pub follower: Follower,
    /// Calls of the log, one at a time.
    pub line: LogCalls,
    /// The copy of a peer's records, if the node needs one.
    pub copying: Copying,
    /// The term at the applied revision, as far as it is known.
    pub reign: Reign,
    /// The log's history, since it was opened.
    pub history: LogHistory,
    /// The last entry in the store that the node started with, until it has been compared with the log's.
    pub to_compare: Option<Revision>,
    /// Number of entries that this process has named.
    pub names: u64,
    /// The request of its operator.
    pub wish: OperatorRequest,
}

/// An operator's request to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperatorRequest {
    #[default]
    Serve,
    /// Take no new requests.
    Pause,
    /// Take no new requests, and report when the node may be ended.
    Leave,
}

impl Core {
    /// Whether the node takes requests, and may become the master.
    pub fn serves(&self) -> bool {
        self.wish == OperatorRequest::Serve && self.copying.is_whole()
    }

    /// The master, if it is another node that is alive.
    pub fn master(&self, now: Time) -> Option<NodeId> {
        let master = self.reign.master?;
        self.liveness.counts_on(master, now).then_some(master.node)
    }
}

#[derive(Clone, Debug)]
enum Role {
    Slave(Slave),
    Master(Box<Master>),
}

/// A node, as a value: the process around it passes events and its own time, and carries out the actions.
#[derive(Clone, Debug)]
pub struct Node {
    core: Core,
    role: Role,
    queries: Queries,
    gate: Gate,
    log_entries_max: u64,
    quota: LogQuota,
    /// When the node last took an event.
    stepped: Time,
    beat: Time,
    trim: Time,
    durable: Revision,
    /// Begin of the sync that is under way.
    syncing: Option<Time>,
    synced: Time,
    /// First and last instant at which a peer reported the node's number as taken.
    refused: Option<(Time, Time)>,
    copies: Copies,
    /// Instant at which it reached the log's end, in this boot.
    joined: Option<Time>,
    /// Whether it has returned `Action::Left`.
    left: bool,
    /// Standing and idleness in the last heartbeat; a change of them may cause a heartbeat at once.
    told: (Standing, bool),
    /// Whether the last heartbeat said that the log is silent: a change causes one at once.
    told_silent: bool,
    stopped: Option<Stop>,
}

impl Node {
    /// A node that starts `now`, and whose store contains all entries up to `applied`, in the term `reign`; with
    /// `upto`, only the records of keys up to that one.
    pub fn new(setup: &Setup, applied: Revision, upto: Option<Key>, reign: Reign, now: Time) -> Node {
        Node {
            core: Core {
                me: setup.me,
                liveness: Liveness::new(setup.me.node, &setup.peers),
                follower: Follower::new(applied),
                line: LogCalls::default(),
                copying: Copying::new(upto),
                reign,
                history: LogHistory::default(),
                to_compare: (applied > Revision::ZERO).then_some(applied),
                names: 0,
                wish: OperatorRequest::Serve,
            },
            role: Role::Slave(Slave::new(now)),
            queries: Queries::new(setup.me.node, setup.executors, setup.gate.clone()),
            gate: setup.gate.clone(),
            log_entries_max: setup.log_entries_max,
            quota: LogQuota::default(),
            stepped: now,
            beat: now,
            trim: now + TRIM_EVERY,
            durable: applied,
            syncing: None,
            synced: now,
            refused: None,
            copies: Copies::default(),
            joined: None,
            left: false,
            told: (Standing::Joining, false),
            told_silent: false,
            stopped: None,
        }
    }

    /// The node as a machine of the control loop, at `now`: the bound of its queries' backlog is a knob.
    pub fn machine(&mut self, now: Time) -> &mut BacklogMachine<Ticket> {
        let machine = self.queries.machine();
        machine.at(now);
        machine
    }

    pub fn member(&self) -> Member {
        self.core.me
    }

    /// Revision up to which the log is applied.
    pub fn applied(&self) -> Revision {
        self.core.follower.applied()
    }

    /// Whether the node is in the role of master.
    pub fn is_master(&self) -> bool {
        matches!(self.role, Role::Master(_))
    }

    /// The term at the applied revision.
    pub fn reign(&self) -> Reign {
        self.core.reign
    }

    /// Number of entries that a live peer has applied and this node has not.
    pub fn lag(&self, now: Time) -> u64 {
        let most = self.core.liveness.live(now).map(|peer| peer.applied).max();
        most.unwrap_or_default().0.saturating_sub(self.applied().0)
    }

    /// Number of live peers that have applied all entries up to `revision`, by their last heartbeats.
    pub fn have(&self, revision: Revision, now: Time) -> usize {
        let live = self.core.liveness.live(now);
        let whole = live.filter(|peer| peer.said.standing != Standing::Copying);
        whole.filter(|peer| peer.applied >= revision).count()
    }

    /// The peers that are alive.
    pub fn live(&self, now: Time) -> impl Iterator<Item = NodeId> {
        self.core.liveness.live(now).map(|peer| peer.from.node)
    }

    /// The request for which [`Action::Query`] asked the store.
    pub fn asked_by(&self, ticket: Ticket) -> Option<(Caller, RequestId)> {
        self.queries.asked_by(ticket)
    }

    /// Number of queries that it has taken and not answered.
    pub fn queries(&self) -> usize {
        self.queries.count()
    }

    /// The master, if it is this node or a live peer.
    pub fn master(&self, now: Time) -> Option<NodeId> {
        match self.role {
            Role::Master(_) => Some(self.core.me.node),
            Role::Slave(_) => self.core.master(now),
        }
    }

    /// The state that the node reports.
    pub fn said(&self, now: Time) -> Report {
        let standing = self.standing();
        let (transactions, log_silent) = match &self.role {
            Role::Slave(_) => (0, false),
            Role::Master(master) => (master.unanswered(), self.core.line.silent_for(now) >= SUSPECT_AFTER),
        };
        let report = self.queries.report();
        Report {
            standing,
            serving_for: self.joined.map_or(Nanos::ZERO, |since| now.since(since)),
            transactions,
            log_silent,
            report: match standing {
                Standing::Serving => report,
                _ => BacklogReport { bound: 0.0, ..report },
            },
            at: Time::ZERO,
            log_full: self.log_is_full(),
        }
    }

    /// Whether there is a master that is alive, and that can commit as far as is known here.
    pub fn commits(&self, now: Time) -> bool {
        match self.role {
            Role::Master(_) => self.said(now).commits(),
            Role::Slave(_) => {
                let master = self.core.master(now);
                let mut live = self.core.liveness.live(now);
                live.any(|peer| Some(peer.from.node) == master && peer.said.commits())
            }
        }
    }

    /// Whether the node takes requests, and the reason if not.
    pub fn standing(&self) -> Standing {
        match (self.core.wish, self.joined) {
            _ if !self.core.copying.is_whole() => Standing::Copying,
            (OperatorRequest::Pause, _) => Standing::Paused,
            (OperatorRequest::Leave, _) => Standing::Leaving,
            (OperatorRequest::Serve, None) => Standing::Joining,
            (OperatorRequest::Serve, Some(_)) => Standing::Serving,
        }
    }

    /// Whether the node is the master, and the medium of the log was full at its last append.
    pub fn log_is_full(&self) -> bool {
        self.is_master() && self.core.line.is_full()
    }

    /// Reason for which the node has stopped; `None` while it runs.
    pub fn stopped(&self) -> Option<&Stop> {
        self.stopped.as_ref()
    }

    /// Takes an event at the node's own time `now`; returns the actions to carry out.
    pub fn step(&mut self, event: Event, now: Time) -> Vec<Action> {
        if self.stopped.is_some() {
            return Vec::new();
        }
        self.excuse(now);
        let mut out = Outbox::new(self.core.master(now));
        self.take(event, now, &mut out);
        self.go_on(now, &mut out);
        out.actions(self.said(now))
    }

    /// Suspects no peer and no log for a time in which the node itself was starved or stopped: heartbeats and answers
    /// of that time have yet to be read.
    fn excuse(&mut self, now: Time) {
        let away = now.since(self.stepped);
        self.stepped = now;
        if away >= STARVED_AFTER {
            self.core.liveness.excuse(away);
            self.core.line.excuse(away);
            if let Role::Slave(slave) = &mut self.role {
                slave.excuse(away);
            }
        }
    }

    /// The next instant at which the node needs [`Event::Wake`], unless another event comes before.
    pub fn wake_at(&self, now: Time) -> Time {
        if self.stopped.is_some() {
            return Time::MAX;
        }
        let role = match &self.role {
            Role::Slave(slave) => slave.next_due(&self.core, now),
            Role::Master(master) => master.next_due().min(self.trim),
        };
        let queries = self.queries.next_due();
        [self.beat, role, queries, self.core.line.next_due(), self.sync_due()]
            .into_iter()
            .fold(Time::MAX, Time::min)
    }

    fn sync_due(&self) -> Time {
        match self.syncing.is_none() && self.durable < self.applied() {
            true => self.synced + SYNC_EVERY,
            false => Time::MAX,
        }
    }

    fn take(&mut self, event: Event, now: Time, out: &mut Outbox) {
        match event {
            Event::Wake => {}
            Event::Request(client, request) => self.request(Caller::Client(client), request, now, out),
            Event::Message(from, message) => self.message(from, message, now, out),
            Event::Reset(peer) => self.core.liveness.reset(peer),
            Event::Opened(log) => self.opened(&log, now, out),
            Event::Log(ticket, answer) => {
                let is_refused = matches!(answer, Err(LogError::NoAnswer | LogError::NoRoom));
                if self.core.line.answered(ticket, &answer, self.told_silent) {
                    // A log that is down or full may fail at once, again and again. A master postpones its call by
                    // itself.
                    if is_refused && matches!(self.role, Role::Slave(_)) {
                        self.core.line.rest(now);
                    }
                    self.log(answer, now, out);
                    self.core.line.settle();
                }
            }
            Event::Watched(entries) => self.watched(entries, now, out),
            Event::Executed(batch, done) => {
                if let Role::Master(master) = &mut self.role {
                    master.executed(batch, done, &mut self.core.line, now, out);
                }
            }
            Event::Applied(revision) => self.applied_one(revision, now, out),
            Event::Queried(ticket, revision, values) => self.queried(ticket, (revision, values), now, out),
            Event::Synced(revision) => {
                self.durable = self.durable.max(revision);
                self.syncing = None;
                self.synced = now;
            }
            Event::Copied(peer, image) => {
                self.copies.made(peer);
                out.push(Action::Send(peer, Message::Copied(image)));
            }
            Event::Installed(revision, reign) => self.installed(revision, reign, now, out),
            Event::Pause => self.core.wish = OperatorRequest::Pause,
            Event::Resume => self.core.wish = OperatorRequest::Serve,
            Event::Leave => self.core.wish = OperatorRequest::Leave,
            Event::Unreadable(stop) => self.stop(stop, now, out),
        }
    }

    fn request(&mut self, caller: Caller, request: Request, now: Time, out: &mut Outbox) {
        let id = request.id;
        if let Err(refusal) = request.check() {
            out.answer(caller, id, Answer::Refused(refusal));
        } else if request.time_left <= MARGIN {
            out.late(caller, id, Reason::Expired, None);
        } else if !self.core.serves() {
            self.turn_away(caller, &request, now, out);
        } else if !request.work.for_master() {
            self.query(caller, request, now, out);
        } else if let Role::Master(master) = &mut self.role {
            master.request(caller, request, now, out);
        } else {
            out.late(caller, id, Reason::NoMaster, None);
        }
    }

    /// Refuses a request with another node to ask: for queries, any node that serves.
    fn turn_away(&self, caller: Caller, request: &Request, now: Time, out: &mut Outbox) {
        match request.work.for_master() {
            true => out.late(caller, request.id, Reason::NoMaster, None),
            false => out.late(caller, request.id, Reason::Backlog, self.core.liveness.serving(now)),
        }
    }

    fn query(&mut self, caller: Caller, request: Request, now: Time, out: &mut Outbox) {
        if self.queries.has(caller, request.id) && request.id.session.0 != 0 {
            return; // a repetition, which gets no second answer
        }
        let (ticket, id) = (self.core.line.ticket(), request.id);
        if let Err(late) = self.queries.take(ticket, caller, request, now) {
            out.refuse(caller, id, late);
        }
    }

    fn message(&mut self, from: NodeId, message: Message, now: Time, out: &mut Outbox) {
        match message {
            Message::Heartbeat(heartbeat) => self.heartbeat(heartbeat, now, out),
            Message::NameTaken(member) => self.name_taken(member, now, out),
            Message::CopyWanted(wanted) => self.copies.want(from, wanted),
            Message::Copied(image) => self.copied(image),
            Message::PassedOn(request) => self.request(Caller::Node(from), request, now, out),
            Message::Answered(id, answer) => self.passed_answer(id, answer, out),
        }
    }

    fn heartbeat(&mut self, heartbeat: Heartbeat, now: Time, out: &mut Outbox) {
        match self.core.liveness.heard(heartbeat, now) {
            HeartbeatOutcome::Taken => self.core.follower.reaches(heartbeat.applied),
            HeartbeatOutcome::NameTaken => {
                out.push(Action::Send(heartbeat.from.node, Message::NameTaken(heartbeat.from)))
            }
            HeartbeatOutcome::TooMany => {}
        }
        // A master with nothing under way can cede at once. Otherwise its next answer from the log shows the new
        // master.
        if let Role::Master(master) = &self.role
            && master.idle()
            && heartbeat.epoch > self.core.reign.epoch
        {
            self.cede(now, out);
        }
    }

    fn name_taken(&mut self, member: Member, now: Time, out: &mut Outbox) {
        if member != self.core.me {
            return;
        }
        let since = match self.refused {
            Some((since, last)) if now.since(last) < SUSPECT_AFTER => since,
            _ => now,
        };
        self.refused = Some((since, now));
        if now.since(since) >= NAME_WAIT {
            let node = member.node;
            self.stop(Stop::NameTaken { node }, now, out);
        }
    }

    /// Takes an image, unless it is of another history than the log, as one of an older version's node may be.
    fn copied(&mut self, image: Arc<Image>) {
        let find = |key: &[u8]| image.records.iter().find(|(found, _)| **found == *key);
        let Ok(reign) = records::reign::<Infallible>(|key| Ok(find(key).map(|(_, value)| value.clone())));
        if self.core.history.admits(reign.history, image.revision) {
            self.core.copying.comes(image, self.core.follower.applied());
        }
    }

    fn passed_answer(&mut self, id: RequestId, answer: Answer, out: &mut Outbox) {
        if let Some(waiting) = self.queries.answered(id) {
            out.answer(waiting.caller, id, answer);
        }
    }

    /// Stops before the first entry of another history is applied, or a copy replaces the store: it may hold what no
    /// other node has. If another log has replaced the one that the node knew, it begins as a replica of the new one.
    fn opened(&mut self, log: &LogState, now: Time, out: &mut Outbox) {
        let history = log.history;
        self.quota.open(log);
        let at = self.core.follower.under_way();
        let is_empty = at == Revision::ZERO && self.core.copying.is_whole();
        let before = std::mem::replace(&mut self.core.history, history).id;
        if !is_empty && !history.admits(self.core.reign.history, at) {
            self.stop(Stop::OtherHistory { at }, now, out);
        } else if before != history.id && ![before, history.id].contains(&HistoryId::default()) {
            self.cede(now, out);
            self.role = Role::Slave(Slave::new(now));
            self.core.line.forget();
            self.core.follower.begin_anew();
            self.core.copying.begin_anew();
            self.core.to_compare = (at > Revision::ZERO).then_some(at);
        }
    }

    fn log(&mut self, answer: Result<LogAnswer, LogError>, now: Time, out: &mut Outbox) {
        if let Err(error @ (LogError::OtherFederation { .. } | LogError::NewerFormat { .. } | LogError::Gone)) = answer
        {
            self.stop(Stop::Log(error), now, out);
            return;
        }
        if let Err(stop) = self.core.compare(&answer) {
            self.stop(stop, now, out);
            return;
        }
        match &mut self.role {
            Role::Slave(slave) => slave.log(&mut self.core, answer, now),
            Role::Master(master) => match master.log(answer, &mut self.core.line, now, out) {
                Consequence::Reigning => {}
                Consequence::Committed(placed) => self.core.follower.offer(placed),
                Consequence::Deposed => self.cede(now, out),
            },
        }
    }

    fn watched(&mut self, entries: Vec<crate::follower::NumberedEntry>, now: Time, out: &mut Outbox) {
        match &mut self.role {
            Role::Slave(slave) => {
                slave.watched(now);
                entries.into_iter().for_each(|placed| self.core.follower.offer(placed));
            }
            Role::Master(master) => {
                let beyond = entries.iter().any(|(revision, _)| *revision > master.last());
                if beyond && master.idle() {
                    self.cede(now, out); // another master appended the entry, and nothing of this node's is under way
                }
            }
        }
    }

    fn applied_one(&mut self, revision: Revision, now: Time, out: &mut Outbox) {
        let Some(entry) = self.core.follower.done(revision) else {
            return;
        };
        self.quota.count(revision, entry.bytes());
        if let Body::Reign(history) = entry.body {
            let (epoch, member) = (entry.id.epoch, entry.id.member);
            self.core.reign = Reign {
                epoch,
                master: Some(member),
                history: match history {
                    HistoryId(0) => self.core.reign.history,
                    known => known,
                },
            };
            // Further entries are of other masters: then this term is over before it began.
            // A replaced log lacks it.
            let is_last = self.core.follower.end() == revision && self.core.to_compare.is_none();
            if member == self.core.me && is_last && self.core.copying.is_whole() {
                self.core.line.forget();
                self.role = Role::Master(Box::new(Master::new(
                    member,
                    epoch,
                    revision,
                    self.core.names,
                    self.gate.clone(),
                )));
                self.beat = now; // tell the others at once
            }
        } else if let Role::Master(master) = &mut self.role {
            master.applied(revision, now, out);
        }
    }

    fn queried(&mut self, ticket: Ticket, (revision, values): (Revision, Values), now: Time, out: &mut Outbox) {
        let Some(waiting) = self.queries.queried(ticket, now) else {
            return; // its deadline has passed
        };
        let answer = Answer::Done {
            output: Output::Values(values),
            position: Position::after(revision),
            revision,
        };
        out.answer(waiting.caller, waiting.request.id, answer);
    }

    fn installed(&mut self, revision: Revision, mut reign: Reign, now: Time, out: &mut Outbox) {
        self.core.follower.installed(revision);
        self.core.copying.installed();
        // A peer of an older version has no number to give, and takes none away.
        if reign.history == HistoryId(0) && self.core.reign.history == self.core.history.id {
            reign.history = self.core.history.id;
        }
        self.core.reign.history = reign.history; // in the first part of a copy
        // The record of the term may be among those that are missing.
        if self.core.copying.is_whole() || reign.epoch > self.core.reign.epoch {
            self.core.reign = reign;
        }
        if let Role::Slave(slave) = &mut self.role {
            slave.installed();
        }
        // The log may have been replaced while the copy was being installed.
        if !self.core.history.admits(reign.history, revision) {
            self.stop(Stop::OtherHistory { at: revision }, now, out);
        }
    }

    /// Changes the role to replica, unless it is that already.
    fn cede(&mut self, now: Time, out: &mut Outbox) {
        if let Role::Master(master) = &mut self.role {
            master.dismiss(out);
            self.core.names = master.batches();
            self.core.line.forget();
            self.role = Role::Slave(Slave::new(now));
        }
    }

    fn stop(&mut self, stop: Stop, now: Time, out: &mut Outbox) {
        if let Role::Master(master) = &mut self.role {
            master.cannot_tell(out);
        }
        self.cede(now, out);
        for waiting in self.queries.dismiss() {
            out.late(waiting.caller, waiting.request.id, Reason::NoMaster, None);
        }
        out.push(Action::Stop(stop.clone()));
        self.stopped = Some(stop);
    }

    /// Starts every action that is due: the role's, copies, queries, sync, heartbeats.
    fn go_on(&mut self, now: Time, out: &mut Outbox) {
        if self.stopped.is_some() {
            return;
        }
        if self.core.line.wake(now, out) {
            self.log(Err(LogError::NoAnswer), now, out);
        }
        self.go_on_in_role(now, out);
        self.go_on_with_copies(now, out);
        self.answer_queries(now, out);
        self.sync(now, out);
        self.take_stock(now, out);
        self.tell_peers(now, out);
    }

    /// Notes whether the node is at the log's end, reports that it has left, and causes a heartbeat if its standing
    /// changed.
    fn take_stock(&mut self, now: Time, out: &mut Outbox) {
        let at_end = match &self.role {
            Role::Slave(slave) => slave.is_at_end(&self.core),
            Role::Master(_) => true,
        };
        if at_end {
            self.joined.get_or_insert(now);
        } else if !self.core.copying.is_whole() {
            self.joined = None;
        }
        let (standing, idle, leaves) = (
            self.standing(),
            self.is_idle(),
            self.core.wish == OperatorRequest::Leave,
        );
        if leaves && idle && self.durable >= self.applied() && !self.left {
            self.left = true;
            out.push(Action::Left);
        }
        self.left &= leaves;
        if self.told != (standing, idle) && (self.told.0 != standing || !self.core.serves()) {
            self.beat = Time::ZERO;
        }
        self.told = (standing, idle);
        let is_silent = self.said(now).log_silent;
        if std::mem::replace(&mut self.told_silent, is_silent) != is_silent {
            self.beat = Time::ZERO;
        }
    }

    /// Whether no client waits for an answer.
    fn is_idle(&self) -> bool {
        let transactions = match &self.role {
            Role::Slave(_) => 0,
            Role::Master(master) => master.unanswered(),
        };
        transactions == 0 && self.queries.count() == 0
    }

    fn go_on_in_role(&mut self, now: Time, out: &mut Outbox) {
        match &mut self.role {
            Role::Slave(slave) => {
                slave.go_on(&mut self.core, now, out);
                // There is no master that would make room for the record of the term.
                if slave.takes_over() && self.core.line.is_full() {
                    self.trim_log(now, out);
                }
            }
            Role::Master(master) => {
                master.expire(now, out);
                master.begin(now, out);
                if let Some((revision, entry)) = self.core.follower.next_to_apply() {
                    out.push(Action::Apply(revision, entry));
                }
                self.trim_log(now, out);
            }
        }
    }

    /// Makes images for peers, once its records are known to be of the log's history. While this node's own copy is
    /// incomplete, refuses all queries, which its records cannot answer.
    fn go_on_with_copies(&mut self, now: Time, out: &mut Outbox) {
        if self.core.copying.is_whole() {
            while self.core.to_compare.is_none()
                && let Some((peer, after)) = self.copies.start(self.applied())
            {
                out.push(Action::Copy(peer, after));
            }
            return;
        }
        let elsewhere = self.core.liveness.serving(now);
        for waiting in self.queries.dismiss() {
            out.late(waiting.caller, waiting.request.id, Reason::Backlog, elsewhere);
        }
    }

    fn answer_queries(&mut self, now: Time, out: &mut Outbox) {
        for due in self.queries.enter(self.applied(), now) {
            self.query_due(due, now, out);
        }
        while let Some((ticket, work)) = self.queries.start(now) {
            match work {
                Work::Query { keys, max_age, .. } => out.push(Action::Query(ticket, keys, max_age)),
                Work::Look(command) => out.push(Action::Look(ticket, command)),
                _ => {} // no other work is a query
            }
        }
        while let Some(due) = self.queries.due(now) {
            self.query_due(due, now, out);
        }
    }

    fn query_due(&mut self, due: Due, now: Time, out: &mut Outbox) {
        match due {
            Due::Late(waiting, late) => out.refuse(waiting.caller, waiting.request.id, late),
            Due::Pass(ticket) => self.pass_on(ticket, now, out),
        }
    }

    fn pass_on(&mut self, ticket: Ticket, now: Time, out: &mut Outbox) {
        let came_from_client = self.queries.is_of_client(ticket);
        match self.core.master(now).filter(|_| came_from_client) {
            Some(master) => {
                let request = self.queries.passed(ticket, now);
                request
                    .into_iter()
                    .for_each(|request| out.push(Action::Send(master, Message::PassedOn(request))));
            }
            None => self.queries.keep(ticket),
        }
    }

    fn sync(&mut self, now: Time, out: &mut Outbox) {
        if self.sync_due() <= now {
            self.syncing = Some(now);
            out.push(Action::Sync);
        }
    }

    fn tell_peers(&mut self, now: Time, out: &mut Outbox) {
        if self.beat > now {
            return;
        }
        self.beat = now + HEARTBEAT;
        let heartbeat = Heartbeat {
            from: self.core.me,
            epoch: self.core.reign.epoch,
            master: self.is_master(),
            applied: self.applied(),
            durable: self.durable,
            said: self.said(now),
        };
        for peer in self.core.liveness.peers() {
            out.push(Action::Send(peer, Message::Heartbeat(heartbeat)));
        }
        out.push(Action::Tell(heartbeat));
    }

    /// Trims the log, as a master or a candidate, up to the revision that all live nodes have on disk; further if more
    /// entries or bytes than the maximum would remain, or if its medium is full; but never beyond the revision on this
    /// node's own disk: some node must have the entries that the log has not.
    fn trim_log(&mut self, now: Time, out: &mut Outbox) {
        if self.trim > now {
            return;
        }
        self.trim = now + TRIM_EVERY;
        let entries = Revision(self.applied().0.saturating_sub(self.log_entries_max));
        let kept_at_most = match self.core.line.is_full() {
            true => self.applied(),
            false => entries.max(self.quota.trims()),
        };
        let of_all = self.core.liveness.durable(now).unwrap_or_default();
        let upto = of_all.max(kept_at_most).min(self.durable);
        if upto > Revision::ZERO {
            out.push(Action::Log(self.core.line.ticket(), Ask::Trim { upto }));
        }
    }
}
