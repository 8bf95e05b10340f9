//! The owner's side of reads by other processes: counts their snapshots among its own, and ends them like its own.
//!
//! **Problem.** A backup in another process keeps pages from reuse as any reader does; one that is stopped, or stuck
//! behind a full pipe, would let the store grow up to its quota.
//!
//! **Method.** The owner reserves cells in LMDB's table of readers (see `cells`). `snapshots` lists a visitor's
//! snapshot, and a compare-and-swap of its cell ends it: from then on it keeps no pages. The visitor reads the file by
//! system calls, never through a map, and looks at its cell after each read: a result is right if the cell is still its
//! own then, because pages are reused only after that. So the owner waits for no visitor, and no visitor reads a reused
//! page unnoticed.
//!
//! A dead visitor is found by its lock, and its cell cleared, whenever snapshots are listed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::LinuxOs;
use punctual_store::engine::{EndedBecause, OpenSnapshot, Reader, SnapshotId};
use punctual_units::{Clock, Time};

use super::cells::{CELL_LEN, Cells, ENDED_FROM, IDLE, MAGIC, MARK, number_of};

/// Maximum number of processes that may read the store beside its owner and keep their snapshots.
pub(super) const VISITORS_MAX: usize = 4;

/// Offset of `mtb_numreaders` in the file of readers, in bytes.
const COUNT_AT: usize = 16;

/// The visitors' cells of an open store.
#[derive(Debug)]
pub(super) struct Visitors {
    cells: Cells,
    places: [usize; VISITORS_MAX],
    /// For each cell, the commit seen in it last, and when that commit was first seen.
    seen: [(AtomicU64, AtomicU64); VISITORS_MAX],
}

impl Visitors {
    /// Reserves the cells, in a table for `readers_max` readers. Called before any thread of this process reads or
    /// writes: snapshots of an earlier owner's visitors are no longer kept from here on, and those visitors notice.
    ///
    /// `None` if the table has no room for the cells.
    pub(super) fn admit(path: &Path, readers_max: usize) -> io::Result<Option<Visitors>> {
        let cells = Cells::map(path)?;
        for at in cells.places().filter(|at| is_marked(&cells, *at)) {
            clear(&cells, at);
        }
        let count = cells.word(COUNT_AT);
        let used = count.load(Ordering::SeqCst) as usize;
        let begin = cells.len().checked_sub(readers_max * CELL_LEN);
        let (Some(begin), true) = (begin, used + VISITORS_MAX <= readers_max) else {
            return Ok(None);
        };
        if cells.word(0).load(Ordering::SeqCst) != MAGIC || begin < CELL_LEN || !begin.is_multiple_of(CELL_LEN) {
            return Ok(None);
        }
        let places = std::array::from_fn(|number| begin + (used + number) * CELL_LEN);
        let drawn = LinuxOs.now().0 ^ u64::from(std::process::id()) << 12;
        for at in places {
            let cell = cells.cell(at);
            cell.commit.store(IDLE, Ordering::SeqCst);
            cell.visitor.store(0, Ordering::SeqCst);
            cell.thread.store(MARK << 32 | drawn & 0xFFFF_FFFF, Ordering::SeqCst);
            cell.owner.store(std::process::id(), Ordering::SeqCst);
        }
        count.store((used + VISITORS_MAX) as u32, Ordering::SeqCst);
        Ok(Some(Visitors {
            cells,
            places,
            seen: Default::default(),
        }))
    }

    /// Open snapshots of visitors, numbered from `first` on.
    pub(super) fn snapshots(&self, first: u64) -> impl Iterator<Item = OpenSnapshot> {
        let found = self.places.iter().zip(&self.seen).zip(first..);
        found.filter_map(|((at, seen), place)| self.look(*at, seen, place))
    }

    fn look(&self, at: usize, seen: &(AtomicU64, AtomicU64), place: u64) -> Option<OpenSnapshot> {
        let cell = self.cells.cell(at);
        let commit = cell.commit.load(Ordering::SeqCst);
        if commit >= ENDED_FROM {
            return None;
        }
        if !self.cells.is_taken(at) {
            // The visitor's process has ended. The exchange fails if another visitor has taken the cell, with another
            // commit.
            let _ = cell
                .commit
                .compare_exchange(commit, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            return None;
        }
        let (of, since) = seen;
        if of.swap(commit, Ordering::SeqCst) != commit {
            since.store(LinuxOs.now().0, Ordering::SeqCst);
        }
        let reader = Reader {
            process: u32::try_from(cell.visitor.load(Ordering::SeqCst)).ok(),
            taken_at: Some(Time(since.load(Ordering::SeqCst))),
            ..Reader::UNKNOWN
        };
        let generation = commit;
        let id = SnapshotId { place, generation };
        Some(OpenSnapshot { id, reader, commit })
    }

    /// Ends the snapshot of `commit` in cell `number`; returns whether it was open.
    pub(super) fn end(&self, number: usize, commit: u64, why: EndedBecause) -> bool {
        let cell = self.places.get(number).map(|at| self.cells.cell(*at));
        let ended = cell.map(|cell| {
            cell.commit
                .compare_exchange(commit, number_of(why), Ordering::SeqCst, Ordering::SeqCst)
        });
        matches!(ended, Some(Ok(_)))
    }

    /// Releases the cells: no visitor's snapshot counts any more.
    pub(super) fn close(&self) {
        self.places.iter().for_each(|at| clear(&self.cells, *at));
    }
}

fn is_marked(cells: &Cells, at: usize) -> bool {
    cells.cell(at).thread.load(Ordering::SeqCst) >> 32 == MARK
}

fn clear(cells: &Cells, at: usize) {
    let cell = cells.cell(at);
    cell.owner.store(0, Ordering::SeqCst);
    cell.thread.store(0, Ordering::SeqCst);
    cell.commit.store(IDLE, Ordering::SeqCst);
}
