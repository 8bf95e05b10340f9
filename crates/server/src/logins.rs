//! Which password is checked next, and when is a wrong one answered? Pure.
//!
//! **Problem.** A check takes a tenth of a second of a core by intention. Clients that guess passwords must not keep
//! users out, and must not learn from the time of an answer which users there are.
//!
//! **Method.** A right password is answered at once; so the order of checks may depend on the names that exist. First
//! come the first claims that an address makes for a user: of addresses that have logged in, of new addresses, then of
//! others. Among equal ones the newest, which is no part of an older burst, and a random one come in turn. Then come
//! second claims, third ones and so on, the oldest first. Wrong passwords are answered one a [`pace`](Logins::pace),
//! whenever they were checked: a pace is longer than any check, so its end shows neither whether there was one nor
//! which. First comes the first claim of each address, then second ones and so on, the oldest first: a user that
//! mistypes does not wait behind those that guess all the time. A client that has closed its connection comes last in
//! both orders.
//!
//! **Bounds.** After a wrong password, checks rest for the time that it took, and for `REST` times that before a
//! claim that is no first one. So first guesses take half of a core, others a fifth; those whose answers are due take a
//! fifth more. [`CLAIMS_MAX`] claims wait, and of each kind the latest `HISTORY_MAX` addresses are remembered.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use punctual_units::{GOLDEN_GAMMA, Nanos, Time, mix};

use crate::login::{LoginClaim, WRONG_PASSWORDS_MAX};
use crate::work::Handle;

/// The most passwords that wait; a connection has at most one.
pub const CLAIMS_MAX: usize = 128;
/// The most addresses that are remembered, of each kind.
const HISTORY_MAX: usize = 1 << 14;
/// Rest before the check of a claim that is no first one, in times of the last wrong check.
const REST: u64 = 4;
/// Number of checks of equal first claims of which one is that of a random claim, the others of the newest.
const RANDOM_EVERY: u64 = 2;
/// The shortest and the longest time between two answers to wrong passwords.
const PACE: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_secs(60)];
/// Claims of a user and an address beyond this rank alike.
const CLAIMS_RANKED: u32 = 8;

/// The address of a client, as far as its owner cannot choose it: of IPv6 the 48 bits that a site has (RFC 6177).
/// `None`: a socket without addresses.
pub type Source = Option<IpAddr>;

/// Returns the source of a client with this address.
pub fn source(address: IpAddr) -> Source {
    Some(match address.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => IpAddr::V6((six.to_bits() >> 80 << 80).into()),
        other => other,
    })
}

/// Counts by key, of the latest [`HISTORY_MAX`] keys.
#[derive(Debug, Default)]
struct History<K> {
    counts: BTreeMap<K, u32>,
    order: VecDeque<K>,
}

impl<K: Ord + Copy> History<K> {
    fn of(&self, key: K) -> u32 {
        self.counts.get(&key).map_or(0, |count| (*count).min(CLAIMS_RANKED))
    }

    /// Counts the key once more; returns its count, at most [`CLAIMS_RANKED`].
    fn count(&mut self, key: K) -> u32 {
        let count = self.counts.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            0
        });
        *count = count.saturating_add(1);
        if self.order.len() > HISTORY_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.of(key)
    }

    /// Counts the key once less.
    fn uncount(&mut self, key: K) {
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_sub(1);
        }
    }
}

/// A random number for each `at`: those of SplitMix64 from this seed.
fn mixed(seed: u64, at: usize) -> u64 {
    mix(seed.wrapping_add((at as u64 + 1).wrapping_mul(GOLDEN_GAMMA)))
}

/// A claim that waits for its answer.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The connection to be answered.
    pub connection: Handle,
    /// Where it comes from.
    pub source: Source,
    /// The user, by index, and the password.
    pub claim: LoginClaim,
    /// Whether the password is known to be wrong.
    pub is_wrong: bool,
    /// Number of the claim among those of its source and user, and among those of its source, from 1; set by
    /// [`Logins::push`].
    pub numbers: [u32; 2],
    /// When the claim came.
    pub since: Time,
    /// Whether the client sends no more; it may still read.
    pub is_closed: bool,
}

impl Waiting {
    /// Tells the claim from others of the same connection.
    fn is(&self) -> (Handle, Time) {
        (self.connection, self.since)
    }
}

/// How to go on.
#[derive(Debug)]
pub enum LoginStep {
    /// Check this password, then call [`Logins::failed`] or [`Logins::settle`].
    Check(Waiting),
    /// Answer this connection that its password is wrong.
    Refuse(Handle),
    /// Ask again at this instant, or when a claim has come; [`Time::MAX`] if none waits.
    Rest(Time),
}

/// The claims that wait, the oldest first, and the history of their addresses.
#[derive(Debug, Default)]
pub struct Logins {
    waiting: Vec<Waiting>,
    /// Sources that have logged in.
    known: History<Source>,
    /// Wrong passwords by source.
    failed: History<Source>,
    /// Claims by source and user.
    claims: History<(Source, Option<usize>)>,
    /// Claims of users, by the address that they come from.
    sources: History<Source>,
    /// End of the last wrong check, and the time that it took.
    wrong: (Time, Nanos),
    /// Time of the longest check of late; one that was delayed for once hardly counts.
    longest: Nanos,
    /// Least value of `longest`: the first time that was noted.
    least: Nanos,
    /// The connection whose check is under way, and when its claim came.
    checking: Option<(Handle, Time)>,
    /// Number of checks since the last right password, without those whose answers were due.
    turn: u64,
    /// State of the random choices.
    seed: u64,
    /// When the last wrong password was answered.
    refused: Time,
    /// When the last check began whose answer was due.
    forced: Time,
}

impl Logins {
    /// Makes an empty queue, whose random choices follow from `seed`.
    pub fn new(seed: u64) -> Logins {
        Logins {
            seed,
            ..Logins::default()
        }
    }

    /// Takes note that a check took this time; first of all, that of the slowest check on an idle processor.
    pub fn takes(&mut self, took: Nanos) {
        if self.least == Nanos::ZERO {
            (self.least, self.longest) = (took, took);
        }
        let decayed = Nanos(self.longest.0 - self.longest.0 / 8);
        self.longest = took.min(self.longest * 2).max(decayed).max(self.least);
    }

    /// Time between two answers to wrong passwords, and the least time that one takes.
    pub fn pace(&self) -> Nanos {
        Nanos(self.longest.0.saturating_mul(1 + REST)).clamp(PACE[0], PACE[1])
    }

    /// Adds a claim. Returns the connection that gives way if there is no room: closed, or of the source with the most
    /// claims, of those a later claim for the same user, of equals a random one. It does not matter whether a password
    /// is known to be wrong, because that would show which users there are.
    pub fn push(&mut self, mut claim: Waiting) -> Option<Handle> {
        let of_user = self.claims.count((claim.source, claim.claim.user));
        claim.numbers = [of_user, self.sources.count(claim.source)];
        if claim.is_wrong {
            self.failed.count(claim.source);
        }
        self.waiting.push(claim);
        if self.waiting.len() <= CLAIMS_MAX {
            return None;
        }
        let mut of: BTreeMap<Source, usize> = BTreeMap::new();
        for waiting in &self.waiting {
            *of.entry(waiting.source).or_default() += 1;
        }
        self.seed = mixed(self.seed, 0);
        let rank = |at: &usize| {
            let waiting = &self.waiting[*at];
            (
                waiting.is_closed,
                of[&waiting.source],
                waiting.numbers[0],
                mixed(self.seed, *at),
            )
        };
        let is_idle = |at: &usize| self.checking != Some(self.waiting[*at].is());
        let at = (0..self.waiting.len()).filter(is_idle).max_by_key(rank)?;
        let gone = self.waiting.remove(at);
        if !gone.is_closed {
            self.claims.uncount((gone.source, gone.claim.user)); // its next one is no later claim
            self.sources.uncount(gone.source);
        }
        Some(gone.connection)
    }

    fn at(&self, connection: Handle) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.connection == connection)
    }

    /// Takes note that a client sends no more.
    pub fn closed(&mut self, connection: Handle) {
        if let Some(at) = self.at(connection) {
            self.waiting[at].is_closed = true;
        }
    }

    /// Forgets the claim of a connection that has ended.
    pub fn forget(&mut self, connection: Handle) {
        self.waiting.retain(|waiting| waiting.connection != connection);
    }

    /// The claim to check next, with the instant from which that is allowed.
    fn next_check(&self) -> Option<(usize, Time)> {
        let rank = |(at, waiting): &(usize, &Waiting)| {
            let is_known = self.known.of(waiting.source) > 0;
            let has_failed = !is_known && self.failed.of(waiting.source) >= WRONG_PASSWORDS_MAX;
            let place = match (waiting.numbers[0], self.turn % RANDOM_EVERY) {
                (1, 0) if self.turn > 0 => mixed(self.seed, *at),
                (1, _) => (self.waiting.len() - at) as u64,
                _ => *at as u64,
            };
            (waiting.is_closed, waiting.numbers[0], !is_known, has_failed, place)
        };
        let unchecked = self.waiting.iter().enumerate().filter(|(_, waiting)| !waiting.is_wrong);
        let (at, waiting) = unchecked.min_by_key(rank)?;
        let (ended, took) = self.wrong;
        let rest = Nanos(took.0 * if waiting.numbers[0] == 1 { 1 } else { REST });
        Some((at, ended + rest.min(PACE[1])))
    }

    /// Returns what to do now.
    pub fn step(&mut self, now: Time) -> LoginStep {
        let rank = |at: &usize| {
            let Waiting { is_closed, numbers, .. } = &self.waiting[*at];
            (*is_closed, numbers[1], *at)
        };
        let head = (0..self.waiting.len()).min_by_key(rank);
        let Some(head) = head else {
            return LoginStep::Rest(Time::MAX);
        };
        let mut due = self.refused.max(self.waiting[head].since) + self.pace();
        if self.waiting[head].is_wrong {
            if due <= now {
                self.refused = now;
                return LoginStep::Refuse(self.waiting.remove(head).connection);
            }
        } else {
            // Checked before its answer is due, whatever comes before it in the order of checks.
            due = Time(due.0.saturating_sub(2 * self.longest.0)).max(self.forced + self.pace());
            if due <= now {
                self.forced = now;
                return self.begin(head);
            }
        }
        match self.next_check() {
            Some((at, from)) if from <= now => {
                self.turn += 1;
                self.begin(at)
            }
            next => LoginStep::Rest(next.map_or(due, |(_, from)| from.min(due))),
        }
    }

    fn begin(&mut self, at: usize) -> LoginStep {
        self.checking = Some(self.waiting[at].is());
        LoginStep::Check(self.waiting[at].clone())
    }

    /// Takes note that a check of `took` has ended now, and the password was wrong.
    pub fn failed(&mut self, checked: &Waiting, took: Nanos, now: Time) {
        self.takes(took);
        self.wrong = (now, took.min(self.longest));
        self.checking = None;
        self.seed = mixed(self.seed, 0);
        self.failed.count(checked.source);
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.is() == checked.is()) {
            waiting.is_wrong = true;
        }
    }

    /// Takes note that a user has logged in. `knows` says whether a password is right, if that needs no check. Returns
    /// the connections whose passwords are right, each with its user.
    pub fn settle(
        &mut self,
        source: Source,
        knows: impl Fn(&LoginClaim) -> Option<bool>,
    ) -> Vec<(Handle, Option<usize>)> {
        (self.checking, self.turn) = (None, 0);
        self.known.count(source);
        let mut right = Vec::new();
        self.waiting.retain_mut(|waiting| {
            let known = knows(&waiting.claim);
            if known == Some(false) && !std::mem::replace(&mut waiting.is_wrong, true) {
                self.failed.count(waiting.source);
            }
            if known == Some(true) {
                self.sources.uncount(waiting.source); // one that mistypes later does not wait behind guessers for it
                right.push((waiting.connection, waiting.claim.user));
            }
            known != Some(true)
        });
        right
    }
}

#[cfg(test)]
mod tests;
