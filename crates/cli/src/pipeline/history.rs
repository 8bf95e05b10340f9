//! Figures along a run for the page, in a bounded number of columns: a longer run has wider ones.

use std::collections::BTreeMap;

use punctual_os::LinuxOs;
use punctual_pipelines::linux::{Cause, Handover, Panel};
use punctual_units::{Clock, CoreId, Nanos, Time};

/// Interval between looks at cores and queues.
const LOOK: Nanos = Nanos::from_millis(2);
/// Most columns; beyond, pairs are merged.
const COLUMNS_MAX: usize = 240;
/// Initial width of a column.
const COLUMN: Nanos = Nanos::from_millis(5);
/// Blackouts are counted in this many classes per decade of their length.
pub const PARTS: u32 = 10;
/// Number of decades, from a tenth of a microsecond on.
pub const DECADES: u32 = 8;

/// Counts within one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    pub looks: u32,
    /// Number of looks at which stage `s` was on core `c`, at index `s * cores + c`.
    pub on_core: Vec<u32>,
    /// Sum of the levels of each queue over the looks.
    pub waiting: Vec<u64>,
    /// Number of blackouts by cause and class of length.
    pub blackouts: BTreeMap<(Cause, u32), u32>,
}

impl Column {
    /// Merges two columns into one.
    fn with(mut self, other: Column) -> Column {
        if self.looks == 0 && self.blackouts.is_empty() {
            return other;
        }
        self.looks += other.looks;
        add(&mut self.on_core, &other.on_core);
        add(&mut self.waiting, &other.waiting);
        for (what, times) in other.blackouts {
            *self.blackouts.entry(what).or_default() += times;
        }
        self
    }
}

fn add<T: Copy + Default + std::ops::AddAssign>(sums: &mut Vec<T>, more: &[T]) {
    sums.resize(sums.len().max(more.len()), T::default());
    sums.iter_mut().zip(more).for_each(|(sum, value)| *sum += *value);
}

/// All columns so far, each of the same width.
#[derive(Clone, Debug)]
pub struct History {
    pub width: Nanos,
    pub columns: Vec<Column>,
    cores: usize,
}

impl History {
    /// A history without columns, of a pipeline on this many cores.
    pub fn new(cores: usize) -> History {
        History {
            width: COLUMN,
            columns: Vec::new(),
            cores,
        }
    }

    /// Records a look at `at` (since the beginning): the index of each stage's core, and the levels of the queues.
    pub fn look(&mut self, at: Nanos, on: &[Option<usize>], waiting: &[u64]) {
        let cores = self.cores;
        let column = self.column(at);
        column.looks += 1;
        let mut here = vec![0; on.len() * cores];
        for (stage, core) in on.iter().enumerate() {
            if let Some(core) = core.filter(|core| *core < cores) {
                here[stage * cores + core] = 1;
            }
        }
        add(&mut column.on_core, &here);
        add(&mut column.waiting, waiting);
    }

    /// Records a blackout that ended at `at`.
    pub fn blackout(&mut self, at: Nanos, kind: Cause, lasted: Nanos) {
        *self.column(at).blackouts.entry((kind, part(lasted))).or_default() += 1;
    }

    /// Share of a column's looks at which a stage was on a core.
    pub fn share(&self, column: &Column, stage: usize, core: usize) -> f64 {
        let looks = column.on_core.get(stage * self.cores + core).copied().unwrap_or(0);
        f64::from(looks) / f64::from(column.looks.max(1))
    }

    /// Column of an instant; once that would exceed `COLUMNS_MAX`, all become twice as wide.
    fn column(&mut self, at: Nanos) -> &mut Column {
        while at.0 / self.width.0 >= COLUMNS_MAX as u64 {
            self.width.0 *= 2;
            let mut merged = Vec::with_capacity(COLUMNS_MAX);
            let mut columns = std::mem::take(&mut self.columns).into_iter();
            while let Some(first) = columns.next() {
                merged.push(first.with(columns.next().unwrap_or_default()));
            }
            self.columns = merged;
        }
        let number = (at.0 / self.width.0) as usize;
        self.columns
            .resize(self.columns.len().max(number + 1), Column::default());
        &mut self.columns[number]
    }
}

/// Samples a pipeline into a history.
pub struct PipelineRecorder {
    pub history: History,
    cores: Vec<CoreId>,
    begin: Time,
    looked: Time,
}

impl PipelineRecorder {
    /// Starts with a pipeline on these cores.
    pub fn new(cores: &[CoreId]) -> PipelineRecorder {
        let now = LinuxOs.now();
        PipelineRecorder {
            history: History::new(cores.len()),
            cores: cores.to_vec(),
            begin: now,
            looked: now,
        }
    }

    /// Time until the next look is due.
    pub fn due_in(&self) -> Nanos {
        LOOK.saturating_sub(LinuxOs.now().since(self.looked))
    }

    /// Records handovers, and looks at cores and queues if that is due.
    pub fn look(&mut self, panel: &Panel, handovers: &[Handover]) {
        let now = LinuxOs.now();
        for handover in handovers {
            // A stage that has just started had no process before.
            if handover.cause != Cause::Began {
                let at = handover.at.since(self.begin);
                self.history.blackout(at, handover.cause, handover.blackout);
            }
        }
        if now.since(self.looked) >= LOOK {
            self.looked = now;
            let number = |core: CoreId| self.cores.iter().position(|it| *it == core);
            let on: Vec<_> = panel.stages().iter().map(|it| it.core.and_then(number)).collect();
            let waiting: Vec<u64> = panel.queues().iter().map(|queue| queue.waiting).collect();
            self.history.look(now.since(self.begin), &on, &waiting);
        }
    }
}

/// Class of a blackout's length.
fn part(span: Nanos) -> u32 {
    let decades = (span.as_micros_f64() * 10.0).max(1.0).log10();
    ((decades * f64::from(PARTS)) as u32).min(PARTS * DECADES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_decades() {
        assert_eq!((part(Nanos(0)), part(Nanos(100))), (0, 0));
        assert_eq!(part(Nanos::from_micros(100)), 30);
        assert_eq!(part(Nanos::from_secs(1000)), 79);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_long_a_run_is(
            looks in prop::collection::vec((0u64..1 << 45, 0usize..2, 0u64..15, any::<bool>()), 1..300),
        ) {
            let mut history = History::new(2);
            for (at, core, waiting, died) in &looks {
                history.look(Nanos(*at), &[None, Some(*core)], &[*waiting, 1]);
                if *died {
                    history.blackout(Nanos(*at), Cause::Died, Nanos::from_micros(*waiting));
                }
            }
            prop_assert!(history.columns.len() <= COLUMNS_MAX);
            let sum = |of: &dyn Fn(&Column) -> u64| history.columns.iter().map(of).sum::<u64>();
            let levels = |column: &Column| column.waiting.first().copied().unwrap_or(0);
            let deaths = |column: &Column| column.blackouts.values().map(|it| u64::from(*it)).sum::<u64>();
            prop_assert_eq!(sum(&|it| it.looks.into()), looks.len() as u64);
            prop_assert_eq!(sum(&levels), looks.iter().map(|it| it.2).sum::<u64>());
            prop_assert_eq!(sum(&deaths), looks.iter().filter(|it| it.3).count() as u64);
            for column in history.columns.iter().filter(|column| column.looks > 0) {
                let shares = history.share(column, 1, 0) + history.share(column, 1, 1);
                prop_assert!((shares - 1.0).abs() < 1e-9 && history.share(column, 0, 0) == 0.0);
            }
        }
    }
}
