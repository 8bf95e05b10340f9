//! Pacing within a job: the clock for the rest of a job, from how far it is.
//!
//! **Problem.** A loop that decides when a job has ended is too late for that job. The first one that a disturbance
//! meets is lost, and so is every one that is longer than the one before. But a job is a sequence of parts, and at the
//! boundary between two of them (a *checkpoint*) it is known how long the parts before took.
//!
//! **Terms.** All times are in deadlines, clocks in shares of the top clock. *Work* is the integral of the clock over
//! time: what a part would have taken at the top clock if all of it went with the clock. c_i is the *typical* work of
//! part i, learnt from earlier jobs; s, the *slow-down*, is how much more work this job needs than is typical.
//!
//! **Method.** Intra-task voltage scheduling (Shin, Kim and Lee, "Intra-task voltage scheduling for low-energy hard
//! real-time applications", IEEE Design and Test 18(2), 2001) with the checkpoints as power management points
//! (AbouGhazaleh, Mossé, Childers and Melhem, "Collaborative operating system and compiler power management for
//! real-time applications", ACM TECS 5(1), 2006). It differs in two points: work is measured instead of worst-case, and
//! the aim is a set point instead of a deadline. After the part b, with e the time since the release,
//!
//! ```text
//! rest = s (c_(b+1) + ... + c_n)        predicted(f) = e + rest / f        f* = rest / (goal - e)
//! ```
//!
//! and the lowest step of the clock is taken at which the job is predicted to meet its goal. A constant clock is the
//! cheapest way through a given piece of work (power is convex in the clock), and if s is right f* stays the same from
//! there on. A clock whose prediction is within [`TOLERANCE`] is left alone.
//!
//! **Slow-down.** Parts differ in kind (one computes, the next waits for memory), so s compares like with like: the
//! work of the last parts over what is typical of the same parts. It has a memory of [`MEMORY`] of a job, and begins
//! with [`PRIOR`] of a job at s = 1:
//!
//! ```text
//! s = (d S + a_b) / (d T + c_b),   d = exp(-c_b / (MEMORY c)),   S and T the sums so far, c = c_1 + ... + c_n
//! ```
//!
//! Then c_b moves by [`LEARNT`] of the way to a_b: what lasts becomes typical.
//!
//! **What follows.** No model of the machine is needed, and none can be wrong: work that does not go with the clock
//! (accesses to memory) is found to need more work at a higher clock, at the next checkpoint. With the part m of the
//! rest going with the clock, the true end after one change is off by 1 - m of the change, and n checkpoints are left
//! to correct it. It cannot correct what happens in the last part. At the top clock it has nothing left to give: then
//! the loop around it sheds updates.

/// How far a job may be predicted off its goal before the clock is moved, relative to the goal: of the order of what
/// one part of 32 scatters, so finer would answer noise. Chosen by hand.
pub const TOLERANCE: f64 = 0.02;
/// Part of a job's work that the slow-down is averaged over: a few parts of either kind. Chosen by hand.
pub const MEMORY: f64 = 0.25;
/// What counts as seen without slow-down at a job's begin, as a part of its work: half of the memory. Chosen by hand.
pub const PRIOR: f64 = 0.125;
/// Part of the way that typical work moves to a job's: the mean of some eight jobs. Chosen by hand.
pub const LEARNT: f64 = 0.125;
/// A slow-down beyond this is taken for it: the clock is at its limit by far either way.
pub const SLOW_DOWN_MAX: f64 = 8.0;
/// Parts of one job at most.
pub const PARTS_MAX: usize = 64;

/// The typical course of a task's jobs, and how the present one goes.
///
/// ```
/// use punctual_control::Pacer;
/// // Four parts of 0.1 each; the clock has steps of a quarter.
/// let mut pacer = Pacer::new(vec![0.25, 0.5, 0.75, 1.0], 4).unwrap();
/// pacer.begin();
/// for part in 1..=4 {
///     pacer.reach(part, 0.1 * part as f64);
/// }
/// // The next job's first part takes twice as long: 0.4 at half the clock.
/// pacer.begin();
/// pacer.reach(1, 0.2);
/// assert_eq!(pacer.clock(0.4, 0.8, 0.5), Some(1.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pacer {
    /// Steps of the clock, ascending.
    steps: Vec<f64>,
    /// c_i.
    typical: Vec<f64>,
    /// Whether one whole job has been seen.
    learnt: bool,
    /// Parts that the present job is through with.
    done: usize,
    /// Its work until then.
    work: f64,
    /// S and T.
    seen: f64,
    expected: f64,
    /// Whether every part of the present job was measured in a whole.
    whole: bool,
}

impl Pacer {
    /// For jobs of `parts` parts on a clock with these steps, as shares of the top clock in ascending order. None for
    /// no part, more than [`PARTS_MAX`], or steps that are not ascending numbers above 0.
    pub fn new(steps: Vec<f64>, parts: usize) -> Option<Pacer> {
        let ascending = steps.windows(2).all(|pair| pair[0] < pair[1]);
        let usable = steps.first().is_some_and(|lowest| *lowest > 0.0) && steps.iter().all(|step| step.is_finite());
        (ascending && usable && (1..=PARTS_MAX).contains(&parts)).then(|| Pacer {
            steps,
            typical: vec![0.0; parts],
            learnt: false,
            done: 0,
            work: 0.0,
            seen: 0.0,
            expected: 0.0,
            whole: true,
        })
    }

    /// How many parts a job has.
    pub fn parts(&self) -> usize {
        self.typical.len()
    }

    /// A job begins.
    pub fn begin(&mut self) {
        let prior = PRIOR * self.typical.iter().sum::<f64>();
        (self.done, self.work, self.whole) = (0, 0.0, true);
        (self.seen, self.expected) = (prior, prior);
    }

    /// The job has come to the end of its part number `done` (from 1), and its work since the release is `work`. Told
    /// out of order, or with a number that cannot be, it is passed over.
    pub fn reach(&mut self, done: usize, work: f64) {
        let needed = work - self.work;
        if done <= self.done || done > self.typical.len() || !needed.is_finite() || needed < 0.0 {
            return;
        }
        let parts = self.done..done;
        self.whole &= parts.len() == 1;
        let typical: f64 = self.typical[parts.clone()].iter().sum();
        if self.learnt {
            let all: f64 = self.typical.iter().sum();
            let kept = (-typical / (MEMORY * all).max(f64::MIN_POSITIVE)).exp();
            self.seen = kept * self.seen + needed;
            self.expected = kept * self.expected + typical;
            self.learn(parts, needed, typical);
        } else {
            let each = needed / parts.len() as f64;
            self.typical[parts].fill(each);
        }
        (self.done, self.work) = (done, work);
        self.learnt |= done == self.typical.len() && self.whole;
    }

    /// c_i <- c_i + LEARNT (a_i - c_i); parts that were measured together are told apart as is typical.
    fn learn(&mut self, parts: std::ops::Range<usize>, needed: f64, typical: f64) {
        let count = parts.len() as f64;
        for part in &mut self.typical[parts] {
            let own = if typical > 0.0 {
                needed * *part / typical
            } else {
                needed / count
            };
            *part += LEARNT * (own - *part);
        }
    }

    /// s: how much more work the job needs than is typical; 1 before anything is known.
    pub fn slow_down(&self) -> f64 {
        if self.expected <= 0.0 {
            return 1.0;
        }
        (self.seen / self.expected).clamp(1.0 / SLOW_DOWN_MAX, SLOW_DOWN_MAX)
    }

    /// The work that is left, as predicted.
    pub fn rest(&self) -> f64 {
        self.slow_down() * self.typical[self.done..].iter().sum::<f64>()
    }

    /// The clock for the rest of the job, `elapsed` after its release, so that it ends at `goal` (both in deadlines);
    /// `now` is the clock in force. None before a whole job has been seen.
    pub fn clock(&self, elapsed: f64, goal: f64, now: f64) -> Option<f64> {
        let rest = self.rest();
        if !self.learnt || !(rest + elapsed + goal).is_finite() {
            return None;
        }
        let top = *self.steps.last()?;
        let left = goal - elapsed;
        if left <= 0.0 {
            return Some(top);
        }
        if (elapsed + rest / now - goal).abs() <= TOLERANCE * goal {
            return Some(now);
        }
        Some(
            self.steps
                .iter()
                .copied()
                .find(|step| rest <= step * left)
                .unwrap_or(top),
        )
    }
}
