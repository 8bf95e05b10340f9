//! Packs tasks onto cores, given a test of whether one core holds a list of tasks.
//!
//! Bin packing is hard, sets are small: a depth-first search goes through the cores of each task, best first, and is
//! complete but for its bound of steps. Its first descent is first fit decreasing ([`Fit::First`]) or worst fit
//! decreasing ([`Fit::Loosest`]), which is also the result where the search reaches its bound.

use crate::sporadic::{Sporadic, Unfit};

/// Bound on the steps of one search: a step tests one task on one core. Task sets of a robot take some tens. Without
/// the bound, a set that almost fits would be tried in every combination.
const STEPS_MAX: u32 = 2_000;

/// A task to pack; items come with the largest utilisation first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Index of the task in the caller's list.
    pub task: usize,
    pub needs: Sporadic,
    /// Index of the core that the task names.
    pub fixed: Option<usize>,
}

/// Order in which cores are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// Order of the list.
    First,
    /// Least utilisation so far first.
    Loosest,
}

/// Test of whether the core at this index holds these tasks, passed sorted by `Sporadic::order`.
pub(crate) type Holds<'h> = &'h dyn Fn(usize, &[Sporadic]) -> Result<(), Unfit>;

/// Returns the core of each item, on the fewest of `cores` that hold all items. Where no number of cores does, returns
/// first fit's cores, and for each other item the reason on the last core that was tried.
pub(crate) fn pack(items: &[Item], cores: usize, holds: Holds) -> Vec<Result<usize, Unfit>> {
    let fixed = items
        .iter()
        .filter_map(|item| item.fixed)
        .max()
        .map_or(0, |core| core + 1);
    let search = |cores| Search::new(items, cores, cores, Fit::First).run(holds);
    match (fixed.max(1)..=cores).find_map(search) {
        Some(on) => on.into_iter().map(Ok).collect(),
        None => first_fit(items, cores, holds),
    }
}

/// Returns the core of each item, on the fewest of `cores` that hold all items, the least loaded core first. Where no
/// number of cores does: see the third rule of `placement.rs`; `not_overloaded` is the weaker test. The first `alike`
/// cores are alike while they are empty.
pub(crate) fn spread(items: &[Item], cores: usize, alike: usize, holds: Holds, not_overloaded: Holds) -> Vec<usize> {
    let mut best: Option<([usize; 2], Vec<usize>)> = None;
    let all = cores;
    for cores in 1..=all {
        if let Some(on) = Search::new(items, cores, alike, Fit::Loosest).run(holds) {
            return on;
        }
        let search = Search::new(items, cores, alike, Fit::Loosest).run(not_overloaded);
        let on = search.unwrap_or_else(|| worst_fit(items, cores));
        let failing = |test: Holds| {
            let there = (0..all).map(|core| (core, together(items, &on, core)));
            there
                .filter(|(core, there)| test(*core, there).is_err())
                .map(|(_, there)| there.len())
                .sum()
        };
        let cost = [failing(not_overloaded), failing(holds)];
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, on));
        }
    }
    best.map_or_else(|| vec![0; items.len()], |(_, on)| on)
}

/// The tasks on one core, in an order that does not depend on the order of the items.
fn together(items: &[Item], on: &[usize], core: usize) -> Vec<Sporadic> {
    let there = items
        .iter()
        .zip(on)
        .filter(|(_, on)| **on == core)
        .map(|(item, _)| item.needs);
    in_order(there.collect())
}

fn in_order(mut there: Vec<Sporadic>) -> Vec<Sporadic> {
    there.sort_by_key(Sporadic::order);
    there
}

/// Puts every item on the least loaded core, even if that core cannot hold it.
fn worst_fit(items: &[Item], cores: usize) -> Vec<usize> {
    let mut load = vec![0.0_f64; cores];
    let mut on = vec![usize::MAX; items.len()];
    let fixed_first = (0..items.len()).filter(|item| items[*item].fixed.is_some());
    let others = (0..items.len()).filter(|item| items[*item].fixed.is_none());
    for item in fixed_first.chain(others) {
        let least = (0..cores).min_by(|a, b| load[*a].total_cmp(&load[*b]));
        let core = items[item].fixed.or(least).unwrap_or_default();
        on[item] = core;
        if let Some(load) = load.get_mut(core) {
            *load += items[item].needs.utilisation();
        }
    }
    on
}

/// Puts the items that name a core first, then the others, each on the first core that holds it beside those before.
fn first_fit(items: &[Item], cores: usize, holds: Holds) -> Vec<Result<usize, Unfit>> {
    let mut placed = vec![Err(Unfit::NoCore); items.len()];
    let mut there: Vec<Vec<usize>> = vec![Vec::new(); cores];
    let fixed_first = (0..items.len()).filter(|item| items[*item].fixed.is_some());
    let others = (0..items.len()).filter(|item| items[*item].fixed.is_none());
    for item in fixed_first.chain(others) {
        let open = items[item].fixed.map_or(0..cores, |core| core..core + 1);
        for core in open {
            there[core].push(item);
            there[core].sort_by_key(|item| (items[*item].needs.order(), *item));
            let needs: Vec<Sporadic> = there[core].iter().map(|item| items[*item].needs).collect();
            placed[item] = holds(core, &needs)
                .map(|()| core)
                .map_err(|why| why.of_places(&there[core]));
            if placed[item].is_ok() {
                break;
            }
            there[core].retain(|other| *other != item);
        }
    }
    placed
}

/// Depth-first search for a packing in which every core holds its tasks.
struct Search<'i> {
    items: &'i [Item],
    /// Number of leading cores that are alike while they are empty.
    alike: usize,
    fit: Fit,
    there: Vec<Vec<Sporadic>>,
    on: Vec<usize>,
    steps: u32,
}

impl<'i> Search<'i> {
    fn new(items: &'i [Item], cores: usize, alike: usize, fit: Fit) -> Search<'i> {
        Search {
            items,
            alike,
            fit,
            there: vec![Vec::new(); cores],
            on: vec![usize::MAX; items.len()],
            steps: 0,
        }
    }

    fn run(mut self, holds: Holds) -> Option<Vec<usize>> {
        let (items, mut open) = (self.items, Vec::new());
        for (item, Item { needs, fixed, .. }) in items.iter().enumerate() {
            match *fixed {
                None => open.push(item),
                Some(core) => {
                    self.on[item] = core;
                    // A core beyond the number tried does not matter here.
                    if let Some(there) = self.there.get_mut(core) {
                        there.push(*needs);
                    }
                }
            }
        }
        let mut there = self.there.iter().enumerate();
        let held = there.all(|(core, there)| there.is_empty() || holds(core, &in_order(there.clone())).is_ok());
        (held && self.descend(&open, holds)).then_some(self.on)
    }

    fn descend(&mut self, open: &[usize], holds: Holds) -> bool {
        let Some((item, rest)) = open.split_first() else {
            return true;
        };
        let needs = self.items[*item].needs;
        for core in self.preferred() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return false;
            }
            self.there[core].push(needs);
            self.on[*item] = core;
            if holds(core, &in_order(self.there[core].clone())).is_ok() && self.descend(rest, holds) {
                return true;
            }
            self.there[core].pop();
        }
        false
    }

    /// Cores, best first; of those that are alike only the first.
    fn preferred(&self) -> Vec<usize> {
        let load = |core: usize| self.there[core].iter().map(Sporadic::utilisation).sum::<f64>();
        let is_alike = |core: &usize| *core < self.alike && self.there[*core].is_empty();
        let first = (0..self.there.len()).find(is_alike);
        let mut cores: Vec<usize> = (0..self.there.len())
            .filter(|core| !is_alike(core) || Some(*core) == first)
            .collect();
        if self.fit == Fit::Loosest {
            cores.sort_by(|a, b| load(*a).total_cmp(&load(*b)));
        }
        cores
    }
}
