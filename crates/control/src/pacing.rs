//! Pacing within a job: chooses the clock for the rest of a job from its progress.
//!
//! **Problem.** A loop that decides when a job has ended is too late for that job. The first job that a disturbance
//! hits is lost, and so is every job that is longer than its predecessor. But a job is a sequence of parts, and at the
//! boundary between two of them (a *checkpoint*) the time of the parts before is known.
//!
//! **Terms.** All times are in deadlines, clocks in shares of the top clock. *Work* is the integral of the clock over
//! time: the time that a part would have taken at the top clock if all of it scaled with the clock. c_i is the
//! *typical* work of part i, learned from earlier jobs; s, the *slow-down*, is the work of this job relative to the
//! typical one.
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
//! cheapest way through a given amount of work (power is convex in the clock), and if s is right f* stays the same from
//! there on. A clock whose prediction is within [`TOLERANCE`] is left alone.
//!
//! **Slow-down.** Parts differ in kind (one computes, the next waits for memory), so s compares like with like: the
//! work of the last parts over the typical work of the same parts. Its memory is [`MEMORY`] of a job, and it begins
//! with [`PRIOR`] of a job at s = 1:
//!
//! ```text
//! s = (d S + a_b) / (d T + c_b),   d = exp(-c_b / (MEMORY c)),   S and T the sums so far, c = c_1 + ... + c_n
//! ```
//!
//! Then c_b moves by [`LEARNT`] of the way to a_b, so that a lasting change becomes typical.
//!
//! **Bounds.** No model of the machine is needed, and none can be wrong: work that does not scale with the clock
//! (accesses to memory) shows as more work at a higher clock, at the next checkpoint. If the part m of the rest scales
//! with the clock, the true end after one change is off by 1 - m of the change, and n checkpoints are left to correct
//! it. A change in the last part cannot be corrected. At the top clock the pacer has no reserve: then the loop around
//! it sheds updates.

/// Least deviation of the predicted end from the goal that moves the clock, relative to the goal: of the order by which
/// one part of 32 scatters, so finer would answer noise. Chosen by hand.
pub const TOLERANCE: f64 = 0.02;
/// Part of a job's work over which the slow-down is averaged: a few parts of either kind. Chosen by hand.
pub const MEMORY: f64 = 0.25;
/// Work that counts as done without slow-down when a job begins, as a part of a job's: half of the memory. Chosen by
/// hand.
pub const PRIOR: f64 = 0.125;
/// Part of the way by which typical work moves to a job's: the mean of some eight jobs. Chosen by hand.
pub const LEARNT: f64 = 0.125;
/// Bound on the slow-down: far below it the clock is at its limit already.
pub const SLOW_DOWN_MAX: f64 = 8.0;
/// Bound on the parts of one job.
pub const PARTS_MAX: usize = 64;

/// Typical work of a task's jobs by part, and progress of the present job.
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
    /// c_i, the typical work of each part.
    typical: Vec<f64>,
    /// Whether one whole job has been measured.
    learnt: bool,
    /// Parts that the present job has completed.
    done: usize,
    /// Work of the present job until then.
    work: f64,
    /// S and T: measured and typical work, with memory.
    seen: f64,
    expected: f64,
    /// Whether every part of the present job was measured by itself.
    whole: bool,
}

impl Pacer {
    /// Makes a pacer for jobs of `parts` parts on a clock with these steps, as shares of the top clock in ascending
    /// order. `None` for no part, more than [`PARTS_MAX`], or steps that are not ascending numbers above 0.
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

    /// Number of parts of a job.
    pub fn parts(&self) -> usize {
        self.typical.len()
    }

    /// Number of parts that the present job has completed.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Starts a new job at its release.
    pub fn begin(&mut self) {
        let prior = PRIOR * self.typical.iter().sum::<f64>();
        (self.done, self.work, self.whole) = (0, 0.0, true);
        (self.seen, self.expected) = (prior, prior);
    }

    /// Notes that the job has completed its part number `done` (from 1), after `work` since the release. A report out
    /// of order, or with an impossible number, is ignored.
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

    /// c_i <- c_i + LEARNT (a_i - c_i); work of parts measured together is divided in proportion to their typical work.
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

    /// s: work of the job relative to the typical work; 1 before the first measurement.
    pub fn slow_down(&self) -> f64 {
        if self.expected <= 0.0 {
            return 1.0;
        }
        (self.seen / self.expected).clamp(1.0 / SLOW_DOWN_MAX, SLOW_DOWN_MAX)
    }

    /// Predicted work of the parts that are left.
    pub fn rest(&self) -> f64 {
        self.slow_down() * self.typical[self.done..].iter().sum::<f64>()
    }

    /// Returns the clock for the rest of the job, `elapsed` after its release, so that it ends at `goal` (both in
    /// deadlines); `now` is the clock in force. `None` before a whole job has been measured.
    pub fn clock(&self, elapsed: f64, goal: f64, now: f64) -> Option<f64> {
        self.learnt.then(|| self.needed(self.rest(), elapsed, goal, now))?
    }

    /// Earliest and latest time after the release, for each checkpoint that is left, at which
    /// [`clock`](Self::clock) would leave the clock at `now`, if the clock was there since `elapsed` and no checkpoint
    /// between was reported. `None` for `elapsed`: for a job that begins. Nothing before a whole job has been measured.
    ///
    /// With e the time of the checkpoint, s = (d S + (e - elapsed) now) / (d T + c) is linear in e, and so is the end
    /// that is predicted at any clock f. That end is `aim` for
    ///
    /// ```text
    /// e = (aim - r (d S - elapsed now)) / (1 + r now),   r = rest / (f (d T + c))
    /// ```
    pub fn stays(&self, elapsed: Option<f64>, goal: f64, now: f64) -> impl Iterator<Item = (f64, f64)> {
        let prior = PRIOR * self.typical.iter().sum::<f64>();
        let (done, seen, expected) = elapsed.map_or((0, prior, prior), |_| (self.done, self.seen, self.expected));
        let elapsed = elapsed.unwrap_or(0.0);
        let all: f64 = self.typical.iter().sum();
        let left = self.typical[done..].iter().filter(|_| self.learnt);
        let mut rest: f64 = left.clone().sum();
        let mut typical = 0.0;
        let lower = self.steps.iter().copied().rfind(|step| *step < now);
        let is_top = self.steps.last().is_none_or(|top| *top <= now);
        left.map(move |part| {
            (typical, rest) = (typical + part, (rest - part).max(0.0));
            let kept = (-typical / (MEMORY * all).max(f64::MIN_POSITIVE)).exp();
            let measured = kept * seen - elapsed * now;
            let expected = (kept * expected + typical).max(f64::MIN_POSITIVE);
            let ends = |clock: f64, aim: f64| {
                let share = rest / (clock * expected);
                (aim - share * measured) / (1.0 + share * now)
            };
            let falls = |lower| ends(lower, goal).min(ends(now, (1.0 - TOLERANCE) * goal));
            let rises = ends(now, (1.0 + TOLERANCE) * goal).min(goal);
            (lower.map_or(0.0, falls), if is_top { f64::INFINITY } else { rises })
        })
    }

    fn needed(&self, rest: f64, elapsed: f64, goal: f64, now: f64) -> Option<f64> {
        if !(rest + elapsed + goal).is_finite() {
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
