//! The true optimum: the split of the largest summed rate, in about a microsecond.
//!
//! **Method.** For each pair of program phases, the surface of both together ([`super::surface`]) is computed once and
//! kept, with the split of each cell. A decision for four jobs looks up two of these and passes over their cells once:
//! a few hundred sums instead of all splits. More jobs join pairs of pairs first.
//!
//! **Bound.** Pairs grow with the square of the phases: with the fifth paper's machine and 4 cores a pair takes 1.3 KB,
//! so three programs of 64 phases have 18528 pairs in 25 MB. Kept are at most [`PAIR_BYTES_MAX`]; beyond it the oldest
//! pair makes room, but never one that the decision at hand has looked up. Pairs are computed when first needed, or all
//! at once by [`Exact::fill`].
//!
//! **Ties.** Of equal splits any is found; then each core gives back what it does not gain from, ways first.

use crate::grid::Share;
use crate::levels::Levels;
use crate::policy::Busy;
use crate::policy::surface::{View, best_parts, join_with_split};
use crate::pool::{PerCore, Pool, Spare};
use crate::programs::Programs;
use crate::running::RunningJob;

/// Most memory that pair tables take, in bytes.
pub const PAIR_BYTES_MAX: usize = 56 << 20;

/// Scratch tables for computing the table of one pair.
const SCRATCH_TABLES: usize = 3;

/// Entry of the index for a pair that is not kept.
const NONE: u32 = u32::MAX;

/// Decides for the largest summed rate, and keeps the tables that make it quick.
#[derive(Clone, Debug)]
pub struct Exact {
    pool: Pool,
    cores: usize,
    /// The largest part that two jobs can get together.
    reach: Spare,
    /// For each pair of states, one <= other, at `other * (other + 1) / 2 + one`: its slot.
    slots: Vec<u32>,
    /// Pair that holds each slot.
    owners: Vec<usize>,
    /// For each slot, the surface of its pair.
    sums: Vec<i32>,
    /// For each slot and cell, the cell that the first of the pair gets of it.
    firsts: Vec<u16>,
    /// Buffer for the surfaces that a decision joins.
    scratch: Vec<i32>,
    /// The slot that is used next.
    next: usize,
    /// Number of slots, at least as many as one decision needs.
    slots_max: usize,
}

impl Exact {
    /// Decides for `cores` cores that split `pool`, which has passed [`Pool::check`]; tables take at most
    /// [`PAIR_BYTES_MAX`].
    pub fn new(programs: &Programs, pool: Pool, cores: usize) -> Exact {
        Exact::within(programs, pool, cores, PAIR_BYTES_MAX)
    }

    /// As `new`, with tables of at most `bytes`, or as many as one decision needs if that is more.
    pub fn within(programs: &Programs, pool: Pool, cores: usize, bytes: usize) -> Exact {
        let reach = pool.spare(2.min(cores), cores.saturating_sub(2));
        let states = programs.states();
        let pair = reach.cells() * (size_of::<i32>() + size_of::<u16>()) + size_of::<usize>();
        let pairs = states * (states + 1) / 2;
        let of_a_decision = (cores / 2).max(1);
        Exact {
            pool,
            cores,
            reach,
            slots: vec![NONE; pairs],
            owners: Vec::new(),
            sums: Vec::new(),
            firsts: Vec::new(),
            next: 0,
            scratch: vec![0; reach.cells() * SCRATCH_TABLES.max(cores.div_ceil(2))],
            slots_max: (bytes / pair).clamp(of_a_decision, pairs.max(of_a_decision)),
        }
    }

    /// Computes all pairs, or as many as are kept, so that no decision has to.
    pub fn fill(&mut self, programs: &Programs) {
        let all: Vec<&Levels> = programs.all_levels().collect();
        let pairs = (0..all.len()).flat_map(|other| (0..=other).map(move |one| (one, other)));
        for (one, other) in pairs.take(self.slots_max) {
            self.slot(one, other, all[one], all[other], &[]);
        }
    }

    /// Bytes that the tables take now.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u32>()
            + self.owners.len() * size_of::<usize>()
            + self.sums.len() * size_of::<i32>()
            + self.firsts.len() * size_of::<u16>()
    }

    /// The split of the largest summed rate among the jobs that run on `cores`, as many as this was made for.
    pub fn decide(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>]) -> PerCore<Share> {
        debug_assert_eq!(cores.len(), self.cores);
        let busy = Busy::of(programs, self.pool, cores);
        let spare = busy.spare();
        let states: PerCore<usize> = busy
            .jobs
            .iter()
            .map(|(_, job)| programs.state(job.program, job.progress))
            .collect();
        let mut slots: PerCore<usize> = PerCore::new();
        for (states, levels) in states.chunks_exact(2).zip(busy.levels.chunks_exact(2)) {
            slots.push(self.slot(states[0], states[1], levels[0], levels[1], &slots));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let parts = {
            let pairs = slots.iter().map(|slot| self.view(*slot));
            let alone = busy.levels.chunks_exact(2).remainder().iter();
            let alone = alone.map(|levels| levels.beyond(self.pool.least));
            let players: PerCore<View<'_>> = pairs.chain(alone).collect();
            best_parts(&players, spare, &mut scratch)
        };
        self.scratch = scratch;
        let mut shares: PerCore<Share> = PerCore::new();
        for (place, part) in parts.into_iter().enumerate() {
            match slots.get(place) {
                Some(slot) => {
                    let first = self.first(*slot, states[2 * place] > states[2 * place + 1], part);
                    shares.extend([first, part.without(first)].map(|part| part.beyond(self.pool.least)));
                }
                None => shares.push(part.beyond(self.pool.least)),
            }
        }
        for (share, levels) in shares.iter_mut().zip(&busy.levels) {
            *share = levels.trimmed(*share, self.pool.least);
        }
        busy.spread(&shares)
    }

    fn view(&self, slot: usize) -> View<'_> {
        let cells = self.reach.cells();
        View {
            cells: &self.sums[slot * cells..][..cells],
            stride: self.reach.partitions + 1,
        }
    }

    /// Part of `part` that the first of a pair gets; `swapped` if the first is stored as the pair's other.
    fn first(&self, slot: usize, swapped: bool, part: Spare) -> Spare {
        let cell = self.reach.cell(part);
        let one = usize::from(self.firsts[slot * self.reach.cells() + cell]);
        self.reach.part(if swapped { cell - one } else { one })
    }

    /// The slot of the pair of states `a` and `b`; computes it if it is not kept, in any slot but those `in_use`.
    fn slot(&mut self, a: usize, b: usize, of_a: &Levels, of_b: &Levels, in_use: &[usize]) -> usize {
        let (one, other, of_one, of_other) = if a <= b { (a, b, of_a, of_b) } else { (b, a, of_b, of_a) };
        let pair = other * (other + 1) / 2 + one;
        match self.slots[pair] {
            NONE => self.compute(pair, of_one, of_other, in_use),
            slot => slot as usize,
        }
    }

    fn compute(&mut self, pair: usize, of_one: &Levels, of_other: &Levels, in_use: &[usize]) -> usize {
        let cells = self.reach.cells();
        // A slot is free: a decision uses no more than there are, this one included.
        while in_use.contains(&self.next) {
            self.next = (self.next + 1) % self.slots_max;
        }
        let slot = self.next;
        self.next = (slot + 1) % self.slots_max;
        if slot == self.owners.len() {
            self.owners.push(pair);
            self.sums.resize(self.sums.len() + cells, 0);
            self.firsts.resize(self.firsts.len() + cells, 0);
        } else {
            self.slots[self.owners[slot]] = NONE;
            self.owners[slot] = pair;
        }
        self.slots[pair] = slot as u32;
        let (one, other) = (of_one.beyond(self.pool.least), of_other.beyond(self.pool.least));
        let into = (
            &mut self.sums[slot * cells..][..cells],
            &mut self.firsts[slot * cells..][..cells],
        );
        join_with_split(one, other, self.reach, &mut self.scratch, into);
        slot
    }
}
