//! The load: requests at random instants (Poisson), each timed from the instant at which it was to be sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use punctual_os::LinuxOs;
use punctual_units::{Clock, Nanos, Time};

use super::audit::{Fate, Request};
use super::client::{Client, Ending, Nodes};

/// The most arrivals that wait for a client; what comes on top is late.
const WAITING_MAX: usize = 10_000;

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Requests a second.
    pub rate: f64,
    /// Clients that send them, one at a time each.
    pub clients: usize,
    /// The time that each has, from when it was to be sent.
    pub deadline: Nanos,
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// How each arrival ended, and how long after it was to be sent.
    pub endings: Vec<(Ending, Nanos)>,
    pub requests: Vec<Request>,
    /// Each client's counter, and what it is to be.
    pub counters: Vec<(String, i64)>,
}

impl Outcome {
    pub fn count(&self, which: Ending) -> u64 {
        self.endings.iter().filter(|(ending, _)| *ending == which).count() as u64
    }

    /// The instants of acknowledgements, in order.
    pub fn acknowledged(&self) -> Vec<Time> {
        let acknowledged = |request: &&Request| matches!(request.fate, Fate::Acknowledged { .. });
        let mut at: Vec<Time> = self
            .requests
            .iter()
            .filter(acknowledged)
            .map(|request| request.ended)
            .collect();
        at.sort_unstable();
        at
    }
}

/// Instants at which requests are to be sent.
#[derive(Default)]
struct Arrivals {
    waiting: VecDeque<Time>,
    /// Those for which there was no room.
    ended: Vec<(Ending, Nanos)>,
}

#[derive(Default)]
struct Queue {
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
    ends: AtomicBool,
}

/// A load that runs.
pub(super) struct Load {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<Outcome>>,
    arriving: JoinHandle<()>,
}

impl Load {
    pub fn start(nodes: &Arc<Nodes>, offer: Offer) -> Load {
        let queue = Arc::new(Queue::default());
        let threads = (0..offer.clients).map(|number| {
            let (queue, nodes) = (Arc::clone(&queue), Arc::clone(nodes));
            thread::spawn(move || queue.serve(Client::new(&nodes, number), offer.deadline))
        });
        let threads = threads.collect();
        let arriving = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.arrive(offer))
        };
        Load {
            queue,
            threads,
            arriving,
        }
    }

    /// Offers nothing further, and waits until all that was offered has ended.
    pub fn end(self) -> Outcome {
        self.queue.ends.store(true, Ordering::SeqCst);
        drop(self.arriving.join());
        self.queue.changed.notify_all();
        let mut all = Outcome::default();
        for thread in self.threads {
            if let Ok(mut outcome) = thread.join() {
                all.endings.append(&mut outcome.endings);
                all.requests.append(&mut outcome.requests);
                all.counters.append(&mut outcome.counters);
            }
        }
        let mut arrivals = self.queue.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        all.endings.append(&mut arrivals.ended);
        all
    }
}

impl Queue {
    fn arrive(&self, offer: Offer) {
        let mut random = offer.seed;
        let mut at = LinuxOs.now();
        while !self.ends.load(Ordering::SeqCst) {
            at = at + Nanos((-uniform(&mut random).ln() / offer.rate * 1e9) as u64);
            LinuxOs.sleep_until(at);
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            match arrivals.waiting.len() < WAITING_MAX {
                true => arrivals.waiting.push_back(at),
                false => arrivals.ended.push((Ending::Late, Nanos::ZERO)),
            }
            self.changed.notify_one();
        }
    }

    fn serve(&self, mut client: Client<'_>, deadline: Nanos) -> Outcome {
        let mut endings = Vec::new();
        while let Some(at) = self.next() {
            let ending = client.count(at + deadline);
            endings.push((ending, LinuxOs.now().since(at)));
        }
        Outcome {
            endings,
            counters: vec![client.counted()],
            requests: client.requests,
        }
    }

    fn next(&self) -> Option<Time> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(at) = arrivals.waiting.pop_front() {
                return Some(at);
            }
            if self.ends.load(Ordering::SeqCst) {
                return None;
            }
            let look = std::time::Duration::from_millis(50);
            let waited = self.changed.wait_timeout(arrivals, look);
            (arrivals, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Between 0 and 1, without 0 (SplitMix64; Steele, Lea and Flood, 2014).
fn uniform(random: &mut u64) -> f64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed ^ (mixed >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}
