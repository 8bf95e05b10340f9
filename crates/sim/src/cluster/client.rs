//! Clients: each does one thing after the other in its session, and keeps what it was told.

use punctual_federation::ids::{NodeId, RequestId};
use punctual_federation::message::{Answer, Key, Operation, Output, Request, TIME_LEFT_MAX, Value, Work};
use punctual_federation::session::Session;
use punctual_store::temporal::Creation;
use punctual_units::Nanos;
use rand::RngExt;

use super::Settings;
use super::history::{Deed, is_sensor};
use super::sensing::{HORIZON, sensor_key};
use super::world::{Happening, Packet, Place, World};

/// How much longer than its request's time a client waits for the answer.
const PATIENCE: Nanos = Nanos::from_millis(120);
/// Of so many clients, one asks nodes without a front.
const DIRECT_EVERY: u32 = 4;
/// How many registers, and how many lists, all clients share: few, so that they meet.
const KEYS: u64 = 4;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    number: u32,
    session: Session,
    nodes: u32,
    /// Temporal objects that there may be.
    sensors: u32,
    fronts: u32,
    /// The front that it asks; `None`: it asks nodes.
    front: Option<usize>,
    /// Where it takes the master to be.
    master: NodeId,
    /// The request that it waits for an answer to, and its place in the history.
    waiting: Option<(RequestId, usize)>,
    /// A transaction whose fate it does not know.
    unresolved: Option<RequestId>,
    /// The number of its last written value: all that are ever written differ.
    values: u64,
    last_read: Option<(Key, Option<Value>)>,
}

impl Client {
    pub(super) fn new(number: u32, settings: &Settings) -> Client {
        Client {
            number,
            session: Session::default(),
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
        }
    }

    /// Whether it waits for an answer.
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

    /// What it does next; `lacking` is a temporal object that some node's sensor waits for.
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
        match random.random_range(0..100) {
            0..45 => self.transaction(random),
            45..60 => self.query(random, true),
            _ => self.query(random, false),
        }
    }

    /// Takes note of an answer.
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
            }
            _ => {}
        }
    }
}

/// How old a reading may be that a client asks for.
fn max_age(random: &mut impl rand::Rng) -> Nanos {
    match random.random_range(0..8) {
        0 => Nanos::MAX,
        _ => Nanos::from_micros(random.random_range(20_000..HORIZON.0 / 1000)),
    }
}

impl World {
    /// A client makes its next request, unless it is time to end.
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
            Happening::GivesUp(number, id),
        );
        let to = match (asked, node) {
            (Some(front), _) => Place::Front(front),
            (None, node) => {
                // Of two processes with one name, a connection leads to either.
                let named = self.named(node.unwrap_or_default());
                Place::Host(named[self.random.random_range(0..named.len())])
            }
        };
        self.send(Place::Client(number), to, Packet::Request(0, request));
    }

    /// How long a request may take; now and then a span that makes no sense.
    fn time_left(&mut self) -> Nanos {
        match self.random.random_range(0..200) {
            0 => Nanos::ZERO,
            1 => TIME_LEFT_MAX + Nanos(1),
            2 => Nanos::MAX,
            3..60 => self.micros(2_000, 20_000),
            _ => self.micros(20_000, 300_000),
        }
    }

    /// A client hears from a node.
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
            return; // it has given up before
        };
        let deed = &mut self.history.deeds[deed];
        deed.returned = Some((self.now, answer.clone()));
        client.learn(&deed.request, &answer);
        self.think(number, matches!(answer, Answer::Done { .. }));
    }

    /// A client does not wait for an answer any longer.
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
        // A client that was not served tries another front or node now and then.
        if !content && self.random.random_bool(0.3) {
            let Client { nodes, fronts, .. } = self.clients[number];
            match &mut self.clients[number].front {
                Some(front) => *front = self.random.random_range(0..fronts as usize),
                None => self.clients[number].master = NodeId(self.random.random_range(0..nodes)),
            }
        }
        let span = self.micros(1_000, 20_000);
        self.after(span, Happening::Turn(number));
    }
}
