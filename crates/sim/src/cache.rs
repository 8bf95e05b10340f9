//! The shared last-level cache as a fluid: the lines that each core holds, and the share of its accesses that hit.
//!
//! **Problem.** A core that fetches lines pushes out the lines of the others. How much of the cache does each core hold
//! after the fetches of every core, and how does that change its hits?
//!
//! **Terms.** A core *holds* its own lines in the cache. *Dead* lines were used once; no core holds them. Cores that
//! may fill the same ways *compete* there: a *zone* is a set of ways with the same competitors.
//!
//! **Method.** Random replacement, in the limit of many lines. While a zone of C lines has empty ones, fetches fill
//! those. After that each fetched line takes the place of a line drawn from the whole zone, so with F_i lines fetched
//! by *i*:
//!
//! ```text
//! dO_i = dF_i - (O_i / C) dF,  F = sum of F_j
//! O_i(F) = O_i* + (O_i - O_i*) exp(-F / C),  O_i* = C F_i / F
//! ```
//!
//! This is exact where all fetch at constant rates; only lines count, not time. It defines pollution: a core that rests
//! loses its lines by exp(-F / C), and **the fetches of others never give it a line**.
//!
//! The hit ratio is h = (O / w)^locality of the held part of the working set w, at most 1. A core whose working set is
//! wholly held fetches nothing, so it disturbs no other: traffic, and with it interference, ends by itself.
//!
//! **Left out.** Sets (a line may be anywhere in its way), write-backs, lines that several cores share.

use crate::model::CacheModel;

/// Ways that the same cores may fill.
#[derive(Clone, Debug)]
struct Zone {
    /// Capacity of the zone in lines.
    lines: f64,
    /// Part of each core's fetches that goes into this zone.
    part: Vec<f64>,
    /// Lines of the zone that each core holds.
    held: Vec<f64>,
    dead: f64,
}

/// All zones of the cache.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    zones: Vec<Zone>,
    lines: f64,
}

/// Numbers of lines that one core has fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FetchCounts {
    /// Lines of the core's working set.
    pub live: f64,
    /// Lines that are used once.
    pub dead: f64,
}

impl FetchCounts {
    fn all(self) -> f64 {
        self.live + self.dead
    }
}

impl Zone {
    /// Adds the zone's part of each core's fetches, made at constant rates.
    fn fill(&mut self, fetched: &[FetchCounts]) {
        let here = |(fetched, part): (&FetchCounts, &f64)| fetched.all() * part;
        let all: f64 = fetched.iter().zip(&self.part).map(here).sum();
        if all <= 0.0 {
            return;
        }
        let empty = (self.lines - self.dead - self.held.iter().sum::<f64>()).max(0.0);
        let into_empty = (empty / all).min(1.0);
        let over = all * (1.0 - into_empty);
        let keep = (-over / self.lines).exp();
        let renew = |held: f64, lines: f64| {
            let filled = held + lines * into_empty;
            if over > 0.0 {
                filled * keep + self.lines * (lines / all) * (1.0 - keep)
            } else {
                filled
            }
        };
        let mut dead = 0.0;
        for ((held, fetched), part) in self.held.iter_mut().zip(fetched).zip(&self.part) {
            *held = renew(*held, fetched.live * part);
            dead += fetched.dead * part;
        }
        self.dead = renew(self.dead, dead);
    }
}

impl Cache {
    pub fn new(model: &CacheModel, cores: usize) -> Cache {
        // Ways by set of competitors; the order of first appearance keeps the result the same in every run.
        let mut zones: Vec<(Vec<bool>, u32)> = Vec::new();
        for way in 0..model.ways {
            let competitors: Vec<bool> = (0..cores).map(|core| model.mask(core) >> way & 1 == 1).collect();
            match zones.iter_mut().find(|(known, _)| *known == competitors) {
                Some((_, ways)) => *ways += 1,
                None => zones.push((competitors, 1)),
            }
        }
        let zone = |(competitors, ways): (Vec<bool>, u32)| {
            let part = |core: usize| f64::from(ways) / f64::from(model.mask(core).count_ones());
            let parts = competitors.iter().enumerate();
            Zone {
                lines: model.lines() * f64::from(ways) / f64::from(model.ways),
                part: parts
                    .map(|(core, fills)| if *fills { part(core) } else { 0.0 })
                    .collect(),
                held: vec![0.0; cores],
                dead: 0.0,
            }
        };
        Cache {
            zones: zones.into_iter().map(zone).collect(),
            lines: model.lines(),
        }
    }

    /// Capacity of the whole cache in lines.
    pub fn lines(&self) -> f64 {
        self.lines
    }

    /// Adds each core's fetches since the last call, made at constant rates.
    pub fn fill(&mut self, fetched: &[FetchCounts]) {
        if self.lines > 0.0 {
            self.zones.iter_mut().for_each(|zone| zone.fill(fetched));
        }
    }

    /// Number of lines that this core holds.
    pub fn held(&self, core: usize) -> f64 {
        self.zones.iter().map(|zone| zone.held[core]).sum()
    }
}

/// Share of accesses that hit, when they range over a working set of `working_set` lines of which `held` are held.
pub(crate) fn hit_ratio(model: &CacheModel, held: f64, working_set: f64) -> f64 {
    if model.size_kib <= 0.0 {
        0.0
    } else if held >= working_set {
        1.0
    } else {
        (held / working_set).powf(model.locality)
    }
}

/// Hit ratio of a core that has long had the machine to itself: it holds all that it needs and may fill.
pub(crate) fn hit_ratio_alone(model: &CacheModel, core: usize, working_set_kib: f64) -> f64 {
    let fillable = model.lines() * f64::from(model.mask(core).count_ones()) / f64::from(model.ways);
    let working_set = model.lines_of(working_set_kib);
    hit_ratio(model, fillable.min(working_set), working_set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineModel;
    use proptest::prelude::*;

    const CORES: usize = 3;

    fn model(masks: &[u32]) -> CacheModel {
        CacheModel {
            masks: masks.to_vec(),
            locality: 1.0,
            ..MachineModel::exynos5422_a15().cache
        }
    }

    fn lines(live: [f64; CORES], dead: f64) -> [FetchCounts; CORES] {
        live.map(|live| FetchCounts { live, dead })
    }

    fn all_held(cache: &Cache) -> Vec<f64> {
        (0..CORES).map(|core| cache.held(core)).collect()
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + a.abs()))
    }

    const MASKS: [&[u32]; 3] = [&[], &[0xff00, 0x0ff0, 0x00ff], &[0xf000, 0x0f00, 0x00ff]];

    fn fetches() -> impl Strategy<Value = Vec<([f64; CORES], f64)>> {
        prop::collection::vec((prop::array::uniform3(0.0f64..20_000.0), 0.0f64..3_000.0), 1..12)
    }

    proptest! {
        #[test]
        fn no_core_holds_what_the_cache_does_not_have(rounds in fetches(), masks in 0usize..3) {
            let model = model(MASKS[masks]);
            let mut cache = Cache::new(&model, CORES);
            for (live, dead) in rounds {
                cache.fill(&lines(live, dead));
                for zone in &cache.zones {
                    let taken = zone.dead + zone.held.iter().sum::<f64>();
                    prop_assert!(taken <= zone.lines * (1.0 + 1e-9), "{} of {}", taken, zone.lines);
                    prop_assert!(zone.dead >= 0.0 && zone.held.iter().all(|held| *held >= 0.0));
                }
            }
        }

        #[test]
        fn filling_in_two_parts_is_filling_at_once(
            rounds in fetches(),
            live in prop::array::uniform3(0.0f64..20_000.0),
            cut in 0.0f64..1.0,
        ) {
            let mut cache = Cache::new(&model(&[]), CORES);
            rounds.iter().for_each(|(live, dead)| cache.fill(&lines(*live, *dead)));
            let mut parts = cache.clone();
            cache.fill(&lines(live, 100.0));
            for share in [cut, 1.0 - cut] {
                parts.fill(&lines(live.map(|l| l * share), 100.0 * share));
            }
            prop_assert!(close(&all_held(&cache), &all_held(&parts)), "{:?} and {:?}", cache, parts);
        }

        #[test]
        fn what_others_fetch_never_gives_a_core_a_line(
            rounds in fetches(),
            live in prop::array::uniform3(0.0f64..20_000.0),
            more in 0.0f64..20_000.0,
            masks in 0usize..3,
        ) {
            let mut less = Cache::new(&model(MASKS[masks]), CORES);
            rounds.iter().for_each(|(live, dead)| less.fill(&lines(*live, *dead)));
            let mut polluted = less.clone();
            less.fill(&lines(live, 0.0));
            polluted.fill(&lines([live[0], live[1] + more, live[2]], 0.0));
            prop_assert!(polluted.held(0) <= less.held(0) * (1.0 + 1e-9), "{} then {}", less.held(0), polluted.held(0));
            prop_assert!(polluted.held(2) <= less.held(2) * (1.0 + 1e-9));
        }

        #[test]
        fn ways_of_its_own_protect_a_core(rounds in fetches(), live in prop::array::uniform3(0.0f64..20_000.0)) {
            let mut cache = Cache::new(&model(&[0x00ff, 0x00ff, 0xff00]), CORES);
            rounds.iter().for_each(|(live, dead)| cache.fill(&lines(*live, *dead)));
            let held = cache.held(2);
            cache.fill(&lines([live[0], live[1], 0.0], 0.0));
            prop_assert_eq!(cache.held(2), held);
        }

        #[test]
        fn more_lines_held_hit_more(held in 0.0f64..40_000.0, more in 0.0f64..40_000.0, locality in 0.05f64..3.0) {
            let model = CacheModel { locality, ..model(&[]) };
            let ratio = |held| hit_ratio(&model, held, 24_576.0);
            prop_assert!((0.0..=1.0).contains(&ratio(held)) && ratio(held) <= ratio(held + more));
        }
    }

    #[test]
    fn alike_fetchers_end_with_alike_parts_and_a_resting_core_decays() {
        let model = model(&[]);
        let mut cache = Cache::new(&model, CORES);
        cache.fill(&lines([0.0, 0.0, 10_000.0], 0.0));
        assert_eq!(cache.held(2), 10_000.0);
        // The empty lines first, then one cache's worth: exp(-1) of what the resting core held is left.
        let more = (model.lines() - 10_000.0 + model.lines()) / 2.0;
        cache.fill(&lines([more, more, 0.0], 0.0));
        let left = 10_000.0 * (-1.0f64).exp();
        assert!(close(
            &all_held(&cache),
            &[(model.lines() - left) / 2.0, (model.lines() - left) / 2.0, left]
        ));
    }

    #[test]
    fn without_a_cache_nothing_hits() {
        let none = CacheModel {
            size_kib: 0.0,
            ..model(&[])
        };
        let mut cache = Cache::new(&none, CORES);
        cache.fill(&lines([1e6; 3], 1e6));
        assert_eq!(all_held(&cache), [0.0; 3]);
        assert_eq!(hit_ratio(&none, 0.0, 0.0), 0.0);
        assert_eq!(hit_ratio_alone(&none, 0, 100.0), 0.0);
    }

    #[test]
    fn a_core_alone_hits_always_if_its_working_set_fits() {
        assert_eq!(hit_ratio_alone(&model(&[]), 0, 2048.0), 1.0);
        assert_eq!(hit_ratio_alone(&model(&[]), 0, 4096.0), 0.5);
        assert_eq!(hit_ratio_alone(&model(&[0x000f, 1, 1]), 0, 2048.0), 0.25);
    }
}
