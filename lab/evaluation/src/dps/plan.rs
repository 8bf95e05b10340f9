//! The runs of each experiment.
//!
//! Every run has all of these labels, which formulas select by:
//!
//! | label | values |
//! |---|---|
//! | `approach` | `blocking` (the paper's baseline), `fair`, `fifo` (stock Linux), `dual` (the paper's), `computed` (ours) |
//! | `medium` | medium of the player's file: `pcm`, `flash`, `hdd` |
//! | `cache` | pages of cache, in units of the machine's `cache-step-pages`: 1 to 8 |
//! | `wait` | `own`: what the schedule gives; else the wait that Fig. 3(b) sets, in percent of the quantum: in the ready queue, or for a core that is lent |
//! | `film` | `bd`, `hd`, `dvd` |
//! | `ahead` | pages of the file that are read at once: 1, 32 |

use super::setting::{Film, READ_AHEAD};
use crate::samples::{Labels, labels};

punctual_units::named! {
    /// A part of the evaluation; each is one experiment, in the paper's order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part by name {
        /// Fig. 3(a): misses by cache size.
        Cache = "dps-cache",
        /// Fig. 3(b): misses by the wait in the ready queue.
        Wait = "dps-wait",
        /// Fig. 4: when each frame is done.
        Timeline = "dps-timeline",
        /// Fig. 5: CPU utilisation by medium.
        Utilisation = "dps-utilisation",
    }
}

punctual_units::named! {
    /// Method of assigning jobs to cores, and of waiting for I/O.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Approach by name {
        /// The paper's baseline: blocking I/O under a fair scheduler that does not preempt.
        Blocking = "blocking",
        /// Stock Linux, the player in the fair class.
        Fair = "fair",
        /// Stock Linux, the player in `SCHED_FIFO`.
        Fifo = "fifo",
        /// The paper's proposal: an exclusive core and polling, whatever the medium.
        Dual = "dual",
        /// Ours: an exclusive core if admission grants it, polling or blocking by the medium's figures; else like
        /// `Fifo`.
        Computed = "computed",
    }
}

punctual_units::named! {
    /// Medium of the player's file, in the order of the speeds in Table 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Source by name {
        /// Byte-addressable memory, used by the player alone.
        Pcm = "pcm",
        /// The flash that the interactive jobs use.
        Flash = "flash",
        /// A disk, used by the player alone.
        Hdd = "hdd",
    }
}

/// A run of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    pub approach: Approach,
    /// Medium of the player's file.
    pub source: Source,
    /// Pages of cache, in units of the machine's `cache_step_pages`.
    pub cache: u32,
    /// The wait in the ready queue, in percent of the quantum; `None`: the schedule determines it.
    pub wait: Option<u32>,
    pub film: Film,
    /// Pages of the file that are read in one request.
    pub ahead: u32,
}

/// Cache sizes of Fig. 3(a). The axis is not legible; 7 K pages is in the text.
pub const CACHES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The only cache size in the paper's text; used wherever the size is not varied.
pub const CACHE: u32 = 7;
/// Waits of Fig. 3(b), in percent of the quantum.
pub const WAITS: [u32; 6] = [0, 20, 40, 60, 80, 100];

impl PlannedRun {
    /// A run with the paper's own setting: the baseline on flash, DPS-NV on PCM.
    pub const fn of(approach: Approach) -> PlannedRun {
        let source = match approach {
            Approach::Blocking | Approach::Fair | Approach::Fifo => Source::Flash,
            Approach::Dual | Approach::Computed => Source::Pcm,
        };
        PlannedRun {
            approach,
            source,
            cache: CACHE,
            wait: None,
            film: Film::Bd,
            ahead: 1,
        }
    }

    /// This run where the claims are about `film`.
    pub fn about(self, film: Film) -> PlannedRun {
        PlannedRun {
            film: film.in_place_of(self.film),
            ..self
        }
    }

    /// Labels that identify the run among all planned runs.
    pub fn labels(&self) -> Labels {
        labels([
            ("approach", self.approach.name()),
            ("medium", self.source.name()),
            ("cache", &self.cache.to_string()),
            ("wait", &self.wait.map_or("own".into(), |wait| wait.to_string())),
            ("film", self.film.name()),
            ("ahead", &self.ahead.to_string()),
        ])
    }
}

/// The runs of `parts`, none twice, in the paper's order; the claims are about `film`.
pub fn plan(parts: &[Part], film: Film) -> Vec<PlannedRun> {
    let mut plan: Vec<PlannedRun> = Vec::new();
    for run in parts.iter().flat_map(|part| part.runs()).map(|run| run.about(film)) {
        if !plan.contains(&run) {
            plan.push(run);
        }
    }
    plan
}

impl Part {
    fn runs(self) -> Vec<PlannedRun> {
        let of = PlannedRun::of;
        match self {
            Part::Cache => {
                let approaches = [Approach::Blocking, Approach::Fair, Approach::Fifo, Approach::Dual];
                let at = |cache: u32| approaches.map(|approach| PlannedRun { cache, ..of(approach) });
                CACHES.into_iter().flat_map(at).collect()
            }
            Part::Wait => {
                let blocking = of(Approach::Blocking);
                let ahead = PlannedRun {
                    ahead: READ_AHEAD,
                    ..blocking
                };
                let films = Film::ALL.map(|film| PlannedRun { film, ..blocking });
                let waits = WAITS.into_iter().flat_map(|percent| {
                    let set = move |run: PlannedRun| PlannedRun {
                        wait: Some(percent),
                        ..run
                    };
                    films.into_iter().chain([ahead]).map(set)
                });
                let dual = Film::ALL.map(|film| PlannedRun {
                    film,
                    ..of(Approach::Dual)
                });
                let dual_waits = WAITS.map(|percent| PlannedRun {
                    wait: Some(percent),
                    ..of(Approach::Dual)
                });
                waits.chain([ahead]).chain(dual).chain(dual_waits).collect()
            }
            Part::Timeline => vec![of(Approach::Blocking), of(Approach::Dual)],
            Part::Utilisation => {
                let approaches = [Approach::Blocking, Approach::Fifo, Approach::Dual, Approach::Computed];
                let on = |source: Source| approaches.map(|approach| PlannedRun { source, ..of(approach) });
                Source::ALL.into_iter().flat_map(on).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_is_planned_twice() {
        let labels: Vec<Labels> = plan(&Part::ALL, Film::Bd).iter().map(PlannedRun::labels).collect();
        for (i, one) in labels.iter().enumerate() {
            assert!(!labels[..i].contains(one), "{one:?}");
        }
        let apart: usize = Part::ALL.iter().map(|part| plan(&[*part], Film::Bd).len()).sum();
        assert!(labels.len() < apart, "parts share runs");
    }
}
