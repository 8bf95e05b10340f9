//! Clients: each makes one request after the other in its session, and stores the answers.

use punctual_federation::ids::{NodeId, RequestId};
use punctual_federation::message::{Answer, Key, Operation, Output, Request, TIME_LEFT_MAX, Value, Work};
use punctual_federation::session::ClientSession;
use punctual_store::temporal::Creation;
use punctual_units::Nanos;
use rand::RngExt;

use super::ClusterSettings;
use super::history::{Deed, is_sensor};
use super::market::Portfolio;
use super::sensing::{HORIZON, sensor_key};
use super::world::{Endpoint, FutureEvent, Packet, World};

/// Time beyond its request's own that a client waits for the answer.
const PATIENCE: Nanos = Nanos::from_millis(120);
/// Number of clients of which one asks nodes directly, without a front.
const DIRECT_EVERY: u32 = 4;
/// Number of registers, and of lists, that all clients share: few, so that clients conflict.
const KEYS: u64 = 4;

/// A client with its session and open request.
#[derive(Debug)]
pub(super) struct SimulatedClient {
    number: u32,
    session: ClientSession,
    nodes: u32,
    /// Number of temporal objects that may exist.
    sensors: u32,
    fronts: u32,
    /// Index of the front that the client asks; `None`: the client asks nodes.
    front: Option<usize>,
    /// The node that the client believes to be master.
    master: NodeId,
    /// The request that waits for an answer, and its index in the history.
    waiting: Option<(RequestId, usize)>,
    /// A transaction with unknown fate.
    unresolved: Option<RequestId>,
    /// Number of the last value written; all values ever written differ.
    values: u64,
    last_read: Option<(Key, Option<Value>)>,
    /// Holdings of its user, if clients trade.
    portfolio: Option<Portfolio>,
}

impl SimulatedClient {
    pub(super) fn new(number: u32, settings: &ClusterSettings) -> SimulatedClient {
        SimulatedClient {
            number,
            session: ClientSession::default(),
            nodes: settings.nodes,
            sensors: settings.nodes + settings.joiners,
            fronts: settings.fronts,
            front: (settings.fronts > 0 && number % DIRECT_EVERY != DIRECT_EVERY - 1)
                .then_some((number % settings.fronts.max(1)) as usize),
            master: NodeId(0),
            waiting: None,
            unresolved: None,
            values: 0,
            last_read: None,
            portfolio: settings.trades.then(Portfolio::default),
        }
    }

    /// Whether the client waits for an answer.
    pub(super) fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    fn value(&mut self) -> Value {
        self.values += 1;
        (u64::from(self.number) << 32 | self.values).to_be_bytes().to_vec()
    }

    fn operation(&mut self, random: &mut impl rand::Rng) -> Operation {
        let register = format!("register {}", random.random_range(0..KEYS)).into_bytes();
        let list = format!("list {}", random.random_range(0..KEYS)).into_bytes();
        let object = sensor_key(random.random_range(0..self.sensors));
        let max_age = max_age(random);
        match random.random_range(0..23) {
            0..5 => Operation::Get(register),
            5..7 => Operation::Get(list),
            7..12 => Operation::Put(register, self.value()),
            12..17 => Operation::Append(list, self.value()),
            17 => Operation::Delete(register),
            18 | 19 => Operation::Fresh(object, max_age),
            20 => Operation::Save {
                object,
                max_age,
                record: register,
            },
            _ => match self.last_read.clone() {
                Some((key, value)) => Operation::Expect(key, value),
                None => Operation::Get(list),
            },
        }
    }

    fn transaction(&mut self, random: &mut impl rand::Rng) -> Work {
        let count = random.random_range(1..5);
        Work::Transaction((0..count).map(|_| self.operation(random)).collect())
    }

    fn query(&mut self, random: &mut impl rand::Rng, latest: bool) -> Work {
        let count = random.random_range(1..5);
        let keys = (0..count).map(|_| self.key(random)).collect();
        let max_age = max_age(random);
        Work::Query { keys, latest, max_age }
    }

    fn key(&self, random: &mut impl rand::Rng) -> Key {
        match random.random_range(0..5) {
            0 | 1 => format!("register {}", random.random_range(0..KEYS)).into_bytes(),
            2 | 3 => format!("list {}", random.random_range(0..KEYS)).into_bytes(),
            _ => sensor_key(random.random_range(0..self.sensors)),
        }
    }

    /// Next work of the client; `lacking` is a temporal object that some node's sensor waits for.
    fn work(&mut self, lacking: Option<Creation>, random: &mut impl rand::Rng) -> Work {
        if self.session.id().0 == 0 {
            return Work::Open;
        }
        if let Some(unresolved) = self.unresolved {
            return Work::Outcome(unresolved);
        }
        if let Some(creation) = lacking
            && random.random_bool(0.5)
        {
            return Work::Transaction(vec![Operation::Create(creation)]);
        }
        if let Some(portfolio) = self.portfolio.as_mut().filter(|_| random.random_bool(0.7)) {
            return portfolio.work(self.number, random);
        }
        match random.random_range(0..100) {
            0..45 => self.transaction(random),
            45..60 => self.query(random, true),
            _ => self.query(random, false),
        }
    }

    /// Updates session, master and open fate from an answer.
    fn learn(&mut self, request: &Request, answer: &Answer) {
        self.session.answered(answer);
        match (answer, &request.work) {
            (Answer::Late { node: Some(node), .. }, _) => self.master = *node,
            (Answer::Unknown, Work::Transaction(_)) => self.unresolved = Some(request.id),
            (Answer::Done { .. }, Work::Outcome(_)) => self.unresolved = None,
            (
                Answer::Done {
                    output: Output::Values(values),
                    ..
                },
                Work::Query { keys, .. },
            ) => {
                let read = keys.iter().zip(values).find(|(key, _)| !is_sensor(key));
                self.last_read = read.map(|(key, value)| (key.clone(), value.clone()));
                if let Some(portfolio) = &mut self.portfolio {
                    portfolio.learn(keys, values);
                }
            }
            _ => {}
        }
    }
}

/// Bound on the age of the readings that a client asks for.
fn max_age(random: &mut impl rand::Rng) -> Nanos {
    match random.random_range(0..8) {
        0 => Nanos::MAX,
        _ => Nanos::from_micros(random.random_range(20_000..HORIZON.0 / 1000)),
    }
}

impl World {
    /// Makes the next request of a client, unless it is time to end.
    pub(super) fn turn(&mut self, number: usize) {
        let open = self.clients[number].unresolved.is_some();
        let end = self.calm_from + Nanos(super::world::CALM.0 / 2);
        if self.clients[number].waits() || (self.now >= end && !open) {
            return;
        }
        let (time_left, lacking) = (self.time_left(), self.lacking());
        let client = &mut self.clients[number];
        let work = client.work(lacking, &mut self.random);
        let node = match (client.front, work.for_master()) {
            (Some(_), _) => None,
            (None, true) => Some(client.master),
            (None, false) => Some(NodeId(self.random.random_range(0..client.nodes))),
        };
        let request = client.session.request(work, time_left);
        let id = request.id;
        let asked = client.front;
        client.waiting = Some((id, self.history.deeds.len()));
        self.history.deeds.push(Deed {
            client: client.number,
            node,
            request: request.clone(),
            invoked: self.now,
            returned: None,
        });
        self.after(
            time_left.min(Nanos::from_secs(1)) + PATIENCE,
            FutureEvent::GivesUp(number, id),
        );
        let to = match (asked, node) {
            (Some(front), _) => Endpoint::Front(front),
            (None, node) => {
                // If two processes have the same name, a connection leads to either.
                let named = self.named(node.unwrap_or_default());
                Endpoint::Host(named[self.random.random_range(0..named.len())])
            }
        };
        self.send(Endpoint::Client(number), to, Packet::Request(0, request));
    }

    /// Time that a request may take; now and then an invalid one.
    fn time_left(&mut self) -> Nanos {
        match self.random.random_range(0..200) {
            0 => Nanos::ZERO,
            1 => TIME_LEFT_MAX + Nanos(1),
            2 => Nanos::MAX,
            3..60 => self.micros(2_000, 20_000),
            _ => self.micros(20_000, 300_000),
        }
    }

    /// Handles a packet that arrives at a client.
    pub(super) fn client_hears(&mut self, number: usize, packet: Packet) {
        match packet {
            Packet::Answer(id, answer) => self.answered(number, id, answer),
            Packet::Broken(id) => self.gives_up(number, id),
            _ => {}
        }
    }

    fn answered(&mut self, number: usize, id: RequestId, answer: Answer) {
        let client = &mut self.clients[number];
        let Some((_, deed)) = client.waiting.take_if(|(waiting, _)| *waiting == id) else {
            return; // the client has stopped waiting
        };
        let deed = &mut self.history.deeds[deed];
        deed.returned = Some((self.now, answer.clone()));
        client.learn(&deed.request, &answer);
        self.think(number, matches!(answer, Answer::Done { .. }));
    }

    /// Ends a client's wait for an answer.
    pub(super) fn gives_up(&mut self, number: usize, id: RequestId) {
        let client = &mut self.clients[number];
        let Some((_, deed)) = client.waiting.take_if(|(waiting, _)| *waiting == id) else {
            return;
        };
        if let Work::Transaction(_) = self.history.deeds[deed].request.work {
            client.unresolved = Some(id);
        }
        self.think(number, false);
    }

    fn think(&mut self, number: usize, content: bool) {
        // A client without a result tries another front or node now and then.
        if !content && self.random.random_bool(0.3) {
            let SimulatedClient { nodes, fronts, .. } = self.clients[number];
            match &mut self.clients[number].front {
                Some(front) => *front = self.random.random_range(0..fronts as usize),
                None => self.clients[number].master = NodeId(self.random.random_range(0..nodes)),
            }
        }
        let span = self.micros(1_000, 20_000);
        self.after(span, FutureEvent::Turn(number));
    }
}
