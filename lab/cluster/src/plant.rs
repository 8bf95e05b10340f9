//! Faults, planted around the nodes and the log, that the check must find. The product contains no code for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_federation::action::{Ask, Event, Execution, LogAnswer, Ticket};
use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::{BatchId, Boot, Member, NodeId, RequestId, Revision};
use punctual_federation::message::{Answer, Key, Position, Reply, Request, Value, Work};
use punctual_logs::{AppendResult, LogError};
use punctual_units::{Nanos, Time};

use super::log::HISTORY;
use super::world::{FutureEvent, StoreWork, World};

punctual_units::named! {
    /// A fault that breaks a promise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Plant by name {
        /// The master answers before the log has acknowledged.
        AcknowledgedBeforeLog = "acknowledged-before-log",
        /// The log appends at its end, whatever end the node expects.
        NoFence = "no-fence",
        /// An append without an answer counts as failed.
        UnknownTakenForFailed = "unknown-taken-for-failed",
        /// An append that is repeated is appended again.
        BatchTwice = "batch-twice",
        /// A node now and then skips an entry.
        BatchSkipped = "batch-skipped",
        /// A query reads its first records from an earlier snapshot than the rest.
        QueryOverTwoSnapshots = "query-over-two-snapshots",
        /// A node does not wait for the revision that the session has seen.
        SessionGoingBack = "session-going-back",
        /// A reading's time on the network is not added to its age.
        AgeWithoutTheWay = "age-without-the-way",
        /// A master that heard the log lately does not ask it whether it still is the master.
        LeaseByClock = "lease-by-clock",
        /// A request that was answered `LATE` stays in the queue.
        RefusedYetExecuted = "refused-yet-executed",
        /// A reading is stored without its time on the network in its age.
        StoredWithoutTheWay = "stored-without-the-way",
        /// A replica writes its own sensors' readings where the log holds the master's.
        ReadAnewBySlaves = "read-anew-by-slaves",
        /// A front answers "not executed" for a transaction whose node is gone.
        GoneTakenForLate = "gone-taken-for-late",
        /// An image carries the next revision instead of its own, so that no node applies that entry to its records.
        ImageOfTheNextRevision = "image-of-the-next-revision",
        /// A node that starts with a part of the records treats them as complete.
        PartTakenForWhole = "part-taken-for-whole",
    }
}

/// For `Plant::UnknownTakenForFailed`: time without an answer after which an append counts as failed.
const PATIENCE: Nanos = Nanos::from_millis(40);
/// For `Plant::LeaseByClock`: time for which a master trusts its clock.
const LEASE: Nanos = Nanos::from_secs(2);
/// Connection number of requests that should no longer be queued.
const GHOST: u64 = u64::MAX;

/// State of planted faults on a node.
#[derive(Debug, Default)]
pub(super) struct Mischief {
    /// The batch that is being executed.
    executing: Option<(BatchId, Revision, Vec<Request>)>,
    /// Requests that were answered too early.
    early: BTreeSet<RequestId>,
    /// Appends without an answer, and the revision after which they were to go.
    asked: BTreeMap<Ticket, Revision>,
    /// Revision after which the node is made to believe that another entry is.
    lost_at: Option<Revision>,
    /// When the log was heard last.
    heard: Option<Time>,
    requests: BTreeMap<RequestId, Request>,
}

impl World {
    fn planted(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    fn mischief(&mut self, number: usize) -> Option<&mut Mischief> {
        self.hosts[number].up.as_mut().map(|up| &mut up.mischief)
    }

    fn local(&self, number: usize) -> Time {
        self.hosts[number].clock.local(self.now)
    }

    /// Modifies a request on its way to a node.
    pub(super) fn planted_request(&mut self, number: usize, mut request: Request) -> Request {
        if self.planted(Plant::SessionGoingBack) {
            request.seen = Revision::ZERO;
        }
        if self.planted(Plant::RefusedYetExecuted)
            && let Some(mischief) = self.mischief(number)
        {
            mischief.requests.insert(request.id, request.clone());
        }
        request
    }

    /// Notes a batch that a node is about to execute.
    pub(super) fn planted_execute(&mut self, number: usize, batch: BatchId, revision: Revision, requests: &[Request]) {
        if self.planted(Plant::AcknowledgedBeforeLog)
            && let Some(mischief) = self.mischief(number)
        {
            mischief.executing = Some((batch, revision, requests.to_vec()));
        }
    }

    /// Modifies the event of a node's finished store work.
    pub(super) fn planted_event(&mut self, number: usize, event: Event) -> Event {
        if self.planted(Plant::ImageOfTheNextRevision)
            && let Event::Copied(peer, image) = &event
        {
            let mut image = (**image).clone();
            image.revision = image.revision.next();
            return Event::Copied(*peer, Arc::new(image));
        }
        if let Event::Executed(batch, performed) = &event
            && let Some(mischief) = self.mischief(number)
            && let Some((_, revision, requests)) = mischief.executing.take_if(|(executing, ..)| executing == batch)
        {
            self.acknowledge(number, revision, &requests, performed);
        }
        event
    }

    fn acknowledge(&mut self, number: usize, revision: Revision, requests: &[Request], performed: &[Execution]) {
        let mut index = 0;
        for (request, performed) in requests.iter().zip(performed) {
            let Execution::Done { output, set, .. } = performed else {
                continue;
            };
            let connection = self.connection_of(number, request.id);
            if let (false, Some(connection)) = (set.changes.is_empty(), connection) {
                let position = Position { revision, index };
                let output = output.clone();
                index += 1;
                let answer = Answer::Done {
                    output,
                    position,
                    revision,
                };
                let (id, said) = (request.id, self.said(number));
                self.reply_truly(number, connection, Reply { id, answer, said });
                self.mischief(number).map(|mischief| mischief.early.insert(request.id));
            }
        }
    }

    /// The open connection of a request.
    fn connection_of(&self, number: usize, id: RequestId) -> Option<u64> {
        let up = self.hosts[number].up.as_ref()?;
        let (connection, _) = up.open.iter().find(|(_, open)| open.id == id)?;
        Some(*connection)
    }

    /// Modifies an answer on its way; `None`: the answer is withheld.
    pub(super) fn planted_reply(&mut self, number: usize, connection: u64, reply: Reply) -> Option<Reply> {
        if connection == GHOST {
            return None;
        }
        let id = reply.id;
        if self.mischief(number).is_some_and(|mischief| mischief.early.remove(&id)) {
            return None;
        }
        let late = matches!(reply.answer, Answer::Late { .. });
        if late && self.planted(Plant::RefusedYetExecuted) {
            let request = self.mischief(number).and_then(|mischief| mischief.requests.remove(&id));
            self.reply_truly(number, connection, reply);
            if let Some(request) = request.filter(|request| matches!(request.work, Work::Transaction(_))) {
                let time_left = Nanos::from_secs(1);
                self.tell(number, Event::Request(GHOST, Request { time_left, ..request }));
            }
            return None;
        }
        Some(reply)
    }

    /// Intercepts a question to the log; true: the question is not sent.
    pub(super) fn planted_ask(&mut self, number: usize, boot: Boot, ticket: Ticket, ask: &Ask) -> bool {
        match (self.plant, ask) {
            (Some(Plant::UnknownTakenForFailed), Ask::Append { last, entry })
                if !matches!(entry.body, Body::Reign(_)) =>
            {
                let last = *last;
                self.mischief(number)
                    .map(|mischief| mischief.asked.insert(ticket, last));
                self.after(PATIENCE, FutureEvent::Planted(number, boot, ticket));
                false
            }
            (Some(Plant::UnknownTakenForFailed), Ask::Read { .. }) => self.believes_lost(number, ticket),
            (Some(Plant::LeaseByClock), Ask::Read { after, max: 0 }) => self.trusts_clock(number, ticket, *after),
            _ => false,
        }
    }

    /// Makes a node believe that another entry is where it wanted to append.
    fn believes_lost(&mut self, number: usize, ticket: Ticket) -> bool {
        let Some(last) = self.mischief(number).and_then(|mischief| mischief.lost_at.take()) else {
            return false;
        };
        let member = Member {
            node: NodeId(u32::MAX),
            boot: Boot(0),
        };
        let id = BatchId {
            member,
            ..BatchId::default()
        };
        let entry = Arc::new(Entry {
            id,
            body: Body::Reign(HISTORY.id),
        });
        let answer = LogAnswer::Read {
            entries: vec![(last.next(), entry)],
            last: last.next(),
        };
        self.tell(number, Event::Log(ticket, Ok(answer)));
        true
    }

    fn trusts_clock(&mut self, number: usize, ticket: Ticket, after: Revision) -> bool {
        let now = self.local(number);
        let heard = self.mischief(number).and_then(|mischief| mischief.heard);
        if heard.is_none_or(|heard| now.since(heard) > LEASE) {
            return false;
        }
        let (entries, last) = (Vec::new(), after);
        self.tell(number, Event::Log(ticket, Ok(LogAnswer::Read { entries, last })));
        true
    }

    /// Passes an answer of the log to its node, and notes that the log was heard.
    pub(super) fn planted_answer(
        &mut self,
        number: usize,
        ticket: Ticket,
        answer: Result<LogAnswer, LogError>,
    ) -> Option<Result<LogAnswer, LogError>> {
        let now = self.local(number);
        if let Some(mischief) = self.mischief(number) {
            mischief.heard = Some(now);
            mischief.asked.remove(&ticket);
        }
        Some(answer)
    }

    /// Handles the planted timeout of an append.
    pub(super) fn planted_timeout(&mut self, number: usize, boot: Boot, ticket: Ticket) {
        let Some(last) = self.up(number, boot).and_then(|up| up.mischief.asked.remove(&ticket)) else {
            return;
        };
        self.mischief(number).map(|mischief| mischief.lost_at.insert(last));
        let lost = AppendResult::Lost { last: last.next() };
        self.tell(number, Event::Log(ticket, Ok(LogAnswer::Appended(lost))));
    }

    /// Values that a query reads too early.
    pub(super) fn planted_query(
        &mut self,
        number: usize,
        keys: &[Key],
        max_age: Nanos,
    ) -> Option<(Revision, Vec<Option<Value>>)> {
        if !self.planted(Plant::QueryOverTwoSnapshots) {
            return None;
        }
        let up = self.hosts[number].up.as_ref()?;
        up.replica.query(&keys[..keys.len() / 2], max_age).ok()
    }

    /// Modifies the work of a node's store.
    pub(super) fn planted_work(&mut self, number: usize, work: StoreWork) -> StoreWork {
        match work {
            StoreWork::Apply(revision, entry) if self.planted(Plant::ReadAnewBySlaves) => {
                StoreWork::Apply(revision, Arc::new(self.read_anew(number, &entry)))
            }
            work => work,
        }
    }

    fn read_anew(&self, number: usize, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        let up = self.hosts[number].up.as_ref();
        let (Body::Batch(batch), Some(up)) = (&mut entry.body, up) else {
            return entry;
        };
        for set in batch.iter_mut().map(|logged| &mut logged.set) {
            for read in &set.read {
                let own = up.replica.reading(&read.key).ok().flatten();
                let copies = set.changes.values_mut().filter(|value| **value == read.value);
                copies.for_each(|value| value.clone_from(&own));
            }
        }
        entry
    }

    /// Whether a node that starts treats a part of the records as complete.
    pub(super) fn planted_part(&self) -> bool {
        self.planted(Plant::PartTakenForWhole)
    }

    /// Whether an entry is skipped.
    pub(super) fn planted_skip(&mut self) -> bool {
        self.planted(Plant::BatchSkipped) && self.per_mille(2)
    }
}
