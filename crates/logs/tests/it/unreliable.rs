//! A log behind a bad network, which loses, delays and repeats requests and answers; and a log that forgets.

use std::collections::VecDeque;

use punctual_logs::{AppendResult, CommitLog, Identity, LogError, LogRecord, LogState, Memory, Revision, Stretch};

/// Most appends that are delayed at once; further ones are not delayed.
const DELAYED_MAX: usize = 16;

/// Number of calls out of 256 that suffer each fault; drawn independently, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// A request is lost on its way.
    pub lost_request: u8,
    /// An append arrives at some later call only, and its answer is lost.
    pub late_request: u8,
    /// An append arrives twice; the caller gets the second answer.
    pub repeated_request: u8,
    /// An answer is lost on its way back.
    pub lost_answer: u8,
    /// A watch returns no entries.
    pub silent_watch: u8,
    /// The log forgets its last entry, as a disk does that acknowledged a write too early. **No** log may do this: it
    /// breaks the assumption that everything is built on, and the conformance suite finds it.
    pub unsynced_loss: u8,
}

/// A log in memory behind faults, which a seed determines.
#[derive(Debug)]
pub struct Unreliable {
    log: Memory,
    faults: FaultRates,
    random: u64,
    delayed: VecDeque<(Revision, Box<[u8]>)>,
}

impl Unreliable {
    /// Puts `log` behind faults that are drawn from `seed`.
    pub fn new(log: Memory, faults: FaultRates, seed: u64) -> Unreliable {
        Unreliable {
            log,
            faults,
            random: seed,
            delayed: VecDeque::new(),
        }
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014): a whole generator would be a dependency for a coin.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, of_256: u8) -> bool {
        self.draw() & 0xff < u64::from(of_256)
    }

    /// Delivers some of the delayed appends, in any order.
    fn let_arrive(&mut self) {
        while !self.delayed.is_empty() && self.happens(96) {
            let at = self.draw() as usize % self.delayed.len(); // in any order
            if let Some((last, entry)) = self.delayed.remove(at) {
                let _ = self.log.append(last, &entry); // no caller waits for this answer any more
            }
        }
    }

    /// Delivers a call and its answer, or loses one of them.
    fn call<T>(&mut self, call: impl FnOnce(&mut Memory) -> Result<T, LogError>) -> Result<T, LogError> {
        self.let_arrive();
        if self.happens(self.faults.lost_request) {
            return Err(LogError::NoAnswer);
        }
        let answer = call(&mut self.log);
        if self.happens(self.faults.lost_answer) {
            return Err(LogError::NoAnswer);
        }
        answer
    }
}

impl CommitLog for Unreliable {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        self.call(|log| log.open(identity))
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        self.let_arrive();
        if self.happens(self.faults.late_request) && self.delayed.len() < DELAYED_MAX {
            self.delayed.push_back((last, entry.into()));
            return Err(LogError::NoAnswer);
        }
        let twice = self.happens(self.faults.repeated_request);
        let answer = self.call(|log| {
            if twice {
                log.append(last, entry)?;
            }
            log.append(last, entry)
        });
        if self.happens(self.faults.unsynced_loss) {
            self.log.lose_last();
        }
        answer
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.call(|log| log.read_from(after, max))
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        if self.happens(self.faults.silent_watch) {
            return Ok(Vec::new());
        }
        self.call(|log| log.watch_from(after, max))
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        self.call(|log| log.trim(upto))
    }
}
