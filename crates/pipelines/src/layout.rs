//! Offsets of everything in the memory of a pipeline.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use punctual_units::Time;

use crate::commit::{CommitWord, record_words};
use crate::control::SLOTS_MAX;
use crate::frames::Head;
use crate::graph::{Graph, Link, WhenFull};
use crate::region::{LINE, Region, load_bytes, store_bytes};
use crate::tardiness::{self, Tardiness};

/// Most looks at an input whose stage takes frames meanwhile.
const LOOKS_MAX: usize = 8;
/// "punctual", as a little-endian word.
const MAGIC: u64 = u64::from_le_bytes(*b"punctual");
/// Version of the layout: changed with every change below.
const VERSION: u64 = 4;
/// Words before the stages: magic, version, fingerprint, bytes, length of the graph that follows the stages; from
/// `SHARED_AT` on they belong to the caller ([`Layout::shared`]).
const HEADER_WORDS: usize = 1024;
/// Header word with the length of the graph, in bytes.
const GRAPH_BYTES: usize = 4;
/// First header word that belongs to the caller.
const SHARED_AT: usize = 8;
/// Words of each stage that belong to the caller.
const NOTES: usize = 24;
/// Number of bells that belong to the caller.
const BELLS: usize = 16;
/// Words for the caller's event log: see [`Layout::log`].
const LOG_WORDS: usize = 1024 * 16;
/// Words for the caller's coordinator data: see [`Layout::desk`].
const DESK_WORDS: usize = 6 * 1024;

/// Greatest length in bytes of the text in which a stage says why it cannot continue: see [`Layout::last_words`].
pub const LAST_WORDS_MAX: usize = 256;

/// Bytes of a slot: a word and a bell.
const SLOT_BYTES: usize = 16;

/// Word that a thread waits for: a count of rings, and whether a thread is waiting.
#[derive(Clone, Copy, Debug)]
pub struct Bell<'m> {
    /// Number of rings; the futex word to wait on (futex(2)).
    pub count: &'m AtomicU32,
    waiting: &'m AtomicU32,
}

impl<'m> Bell<'m> {
    fn at(region: &'m Region, at: usize) -> Bell<'m> {
        let [count, waiting] = region.halves(at);
        Bell { count, waiting }
    }

    /// Number of rings so far. A thread reads this *before* it checks its condition, and then waits until the count
    /// differs.
    pub fn heard(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Rings; returns whether a thread may be waiting and must be woken.
    pub fn ring(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst);
        // After the count: a thread that sets `waiting` reads the count afterwards.
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Sets whether a thread is waiting. A thread that dies while it waits causes one superfluous wake-up, no more.
    pub fn waits(&self, waits: bool) {
        self.waiting.store(waits.into(), Ordering::SeqCst);
    }
}

/// Why memory does not hold this pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The memory is shorter than the pipeline.
    #[error("{bytes} bytes of shared memory, and the pipeline needs {needed}")]
    Short {
        /// Length of the memory, in bytes.
        bytes: usize,
        /// Length that the pipeline needs, in bytes.
        needed: usize,
    },
    /// The header was written by another program, or by another version of this one.
    #[error(
        "the shared memory is that of no pipeline of this version: use the version of this program that started it, or \
         end the programs that use it"
    )]
    Foreign,
    /// The memory belongs to another graph.
    #[error("the shared memory is that of a pipeline with other stages or edges: start both from the same graph")]
    OtherGraph,
}

/// Offsets of everything that a graph keeps in its memory.
#[derive(Clone, Debug)]
pub struct Layout {
    fingerprint: u64,
    bytes: usize,
    bells_at: usize,
    log_at: usize,
    desk_at: usize,
    last_words_at: usize,
    refusal_at: usize,
    pub(crate) stages: Vec<StageAt>,
}

/// Offsets of a stage, and its neighbours.
#[derive(Clone, Debug)]
pub(crate) struct StageAt {
    at: usize,
    record_words: usize,
    state_at: usize,
    tardiness_at: usize,
    pub(crate) state_room: usize,
    pub(crate) save_every: u32,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<OutputLayout>,
}

#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) ring: Ring,
    pub(crate) takes: u32,
    pub(crate) full: WhenFull,
    /// Stage and output that make this edge's frames.
    pub(crate) from: (usize, usize),
    /// Frames that one step of that stage makes, at most.
    pub(crate) makes: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct OutputLayout {
    pub(crate) makes: u32,
    pub(crate) rings: Vec<Ring>,
    /// Stage and input that each ring leads to.
    pub(crate) to: Vec<(usize, usize)>,
}

impl OutputLayout {
    /// Length in bytes of the longest frame that all rings accept.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.frame_bytes).min().unwrap_or(0)
    }
}

/// The slots of an edge: each one cache line of metadata, followed by the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    at: usize,
    pub(crate) slots: u32,
    pub(crate) frame_bytes: usize,
}

impl Ring {
    fn slot_bytes(&self) -> usize {
        LINE + self.frame_bytes.next_multiple_of(LINE)
    }

    fn slot(&self, position: u64) -> usize {
        self.at + (position % u64::from(self.slots)) as usize * self.slot_bytes()
    }

    /// Offset of the content of the frame at this position.
    pub(crate) fn content(&self, position: u64) -> usize {
        self.slot(position) + LINE
    }

    /// Words of the metadata: sequence, captured at, due by, length.
    pub(crate) fn head<'m>(&self, region: &'m Region, position: u64) -> &'m [AtomicU64] {
        region.words(self.slot(position), 4)
    }

    pub(crate) fn read_head(&self, region: &Region, position: u64) -> Head {
        let words = self.head(region, position);
        Head {
            sequence: words[0].load(Ordering::Relaxed),
            captured_at: Time(words[1].load(Ordering::Relaxed)),
            due_by: Time(words[2].load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn write_head(&self, region: &Region, position: u64, head: Head, length: usize) {
        let words = self.head(region, position);
        let values = [head.sequence, head.captured_at.0, head.due_by.0, length as u64];
        words
            .iter()
            .zip(values)
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }
}

/// Next free offset; hands out places one after the other.
struct Places(usize);

impl Places {
    fn next(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 += bytes.next_multiple_of(LINE);
        at
    }
}

impl Layout {
    /// Computes the layout of a graph's memory.
    pub fn new(graph: &Graph) -> Layout {
        let mut places = Places(0);
        places.next(HEADER_WORDS * 8);
        let (bells_at, log_at) = (places.next(BELLS * 8), places.next(LOG_WORDS * 8));
        let desk_at = places.next(DESK_WORDS * 8);
        let last_words_at = places.next(8 + LAST_WORDS_MAX);
        let refusal_at = places.next(8 + LAST_WORDS_MAX);
        let rings: Vec<Ring> = { graph.links().iter() }
            .map(|link| {
                let ring = Ring {
                    at: 0,
                    slots: link.edge.slots,
                    frame_bytes: link.edge.frame_bytes,
                };
                let at = places.next(ring.slot_bytes() * ring.slots as usize);
                Ring { at, ..ring }
            })
            .collect();
        let stages = (0..graph.stages().len()).map(|number| StageAt::new(graph, number, &rings, &mut places));
        let stages = stages.collect();
        Layout {
            stages,
            fingerprint: graph.fingerprint(),
            bytes: places.0,
            bells_at,
            log_at,
            desk_at,
            last_words_at,
            refusal_at,
        }
    }

    /// Length of the memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes this pipeline's header into zeroed memory. Only then may other processes be given the memory.
    ///
    /// # Errors
    /// [`LayoutError::Short`].
    pub fn prepare(&self, region: &Region) -> Result<(), LayoutError> {
        self.check_length(region)?;
        let header = region.words(0, HEADER_WORDS);
        let values = [0, VERSION, self.fingerprint, self.bytes as u64];
        header
            .iter()
            .zip(values)
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        header[0].store(MAGIC, Ordering::Release);
        Ok(())
    }

    /// Length of the memory with `graph` behind the stages, so that other processes need not know it.
    pub fn bytes_with(&self, graph: &[u8]) -> usize {
        self.bytes + graph.len().next_multiple_of(8)
    }

    /// Writes the graph behind the stages, before other processes are given the memory.
    ///
    /// # Errors
    /// [`LayoutError::Short`].
    pub fn write_graph(&self, region: &Region, graph: &[u8]) -> Result<(), LayoutError> {
        let (bytes, needed) = (region.bytes(), self.bytes_with(graph));
        if bytes < needed {
            return Err(LayoutError::Short { bytes, needed });
        }
        store_bytes(region.words(self.bytes, graph.len().div_ceil(8)), graph);
        region.words(0, HEADER_WORDS)[GRAPH_BYTES].store(graph.len() as u64, Ordering::Release);
        Ok(())
    }

    /// The graph in memory that another process has prepared.
    ///
    /// # Errors
    /// [`LayoutError`] if it has no room for a pipeline's header, or was no pipeline of this version.
    pub fn read_graph(region: &Region) -> Result<Vec<u8>, LayoutError> {
        let (bytes, needed) = (region.bytes(), HEADER_WORDS * 8);
        if bytes < needed {
            return Err(LayoutError::Short { bytes, needed });
        }
        let header = region.words(0, HEADER_WORDS);
        let value = |at: usize| header[at].load(Ordering::Acquire);
        let (at, length) = (value(3) as usize, value(GRAPH_BYTES) as usize);
        let end = at.checked_add(length.next_multiple_of(8));
        if (value(0), value(1)) != (MAGIC, VERSION) || end.is_none_or(|end| end > region.bytes()) {
            return Err(LayoutError::Foreign);
        }
        Ok(load_bytes(region.words(at, length.div_ceil(8)), length))
    }

    /// Checks that the memory holds this pipeline.
    ///
    /// # Errors
    /// [`LayoutError`] if it does not.
    pub fn check(&self, region: &Region) -> Result<(), LayoutError> {
        if region.bytes() < HEADER_WORDS * 8 {
            return self.check_length(region);
        }
        let header = region.words(0, HEADER_WORDS);
        let value = |at: usize| header[at].load(Ordering::Acquire);
        match () {
            () if (value(0), value(1)) != (MAGIC, VERSION) => Err(LayoutError::Foreign),
            () if (value(2), value(3)) != (self.fingerprint, self.bytes as u64) => Err(LayoutError::OtherGraph),
            () => self.check_length(region),
        }
    }

    fn check_length(&self, region: &Region) -> Result<(), LayoutError> {
        let (bytes, needed) = (region.bytes(), self.bytes);
        if bytes < needed {
            Err(LayoutError::Short { bytes, needed })
        } else {
            Ok(())
        }
    }

    /// The 1,016 words of the whole pipeline that belong to the caller.
    pub fn shared<'m>(&self, region: &'m Region) -> &'m [AtomicU64] {
        &region.words(0, HEADER_WORDS)[SHARED_AT..]
    }

    /// The 16,384 words for the caller's bounded event log.
    pub fn log<'m>(&self, region: &'m Region) -> &'m [AtomicU64] {
        region.words(self.log_at, LOG_WORDS)
    }

    /// The 6,144 words for the caller's coordinator: which stages run where, and the measurements that it decides from.
    pub fn desk<'m>(&self, region: &'m Region) -> &'m [AtomicU64] {
        region.words(self.desk_at, DESK_WORDS)
    }

    /// Words for the caller's reason why a stage could not continue: one for its length, and [`LAST_WORDS_MAX`] bytes.
    pub fn last_words<'m>(&self, region: &'m Region) -> &'m [AtomicU64] {
        region.words(self.last_words_at, 1 + LAST_WORDS_MAX / 8)
    }

    /// Words for the caller's reason why a process did not take over a stage, in the same form.
    pub fn refusal<'m>(&self, region: &'m Region) -> &'m [AtomicU64] {
        region.words(self.refusal_at, 1 + LAST_WORDS_MAX / 8)
    }

    /// Bell of the caller's with that number, 0 to 15.
    ///
    /// # Panics
    /// If there is no such bell.
    pub fn shared_bell<'m>(&self, region: &'m Region, number: usize) -> Bell<'m> {
        assert!(number < BELLS, "bell {number} of {BELLS}");
        Bell::at(region, self.bells_at + number * 8)
    }

    /// The 24 words of one stage that belong to the caller.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn notes<'m>(&self, region: &'m Region, stage: usize) -> &'m [AtomicU64] {
        region.words(self.stages[stage].at + StageAt::NOTES_AT, NOTES)
    }

    /// Histogram of how late the frames were that a stage took.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn tardiness<'m>(&self, region: &'m Region, stage: usize) -> Tardiness<'m> {
        Tardiness::over(region.words(self.stages[stage].tardiness_at, tardiness::WORDS))
    }

    /// Whether a stage has ended: it will do no further step.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn has_ended(&self, region: &Region, stage: usize) -> bool {
        self.committed(region, stage).has_ended()
    }

    /// The control word of a stage: see [`Control`](crate::Control).
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn control<'m>(&self, region: &'m Region, stage: usize) -> &'m AtomicU64 {
        &region.words(self.stages[stage].at + LINE, 1)[0]
    }

    /// Bell that rings when a neighbour of the stage has committed a step, or the stage is asked for a handover.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn bell<'m>(&self, region: &'m Region, stage: usize) -> Bell<'m> {
        Bell::at(region, self.stages[stage].at + LINE + 8)
    }

    /// The caller's word about a process that may run the stage.
    ///
    /// # Panics
    /// Where there is no such stage, or no such slot.
    pub fn slot<'m>(&self, region: &'m Region, stage: usize, slot: u8) -> &'m AtomicU64 {
        &region.words(self.slot_at(stage, slot), 1)[0]
    }

    /// Bell that rings when the process in the slot must read the control word.
    ///
    /// # Panics
    /// Where there is no such stage, or no such slot.
    pub fn slot_bell<'m>(&self, region: &'m Region, stage: usize, slot: u8) -> Bell<'m> {
        Bell::at(region, self.slot_at(stage, slot) + 8)
    }

    fn slot_at(&self, stage: usize, slot: u8) -> usize {
        assert!(usize::from(slot) < SLOTS_MAX, "slot {slot} of {SLOTS_MAX}");
        self.stages[stage].at + 2 * LINE + usize::from(slot) * SLOT_BYTES
    }

    /// The stages whose commits a stage waits for, and the stages that wait for its commits.
    pub(crate) fn neighbours(&self, stage: usize) -> impl Iterator<Item = usize> {
        let StageAt { inputs, outputs, .. } = &self.stages[stage];
        let before = inputs.iter().map(|input| input.from.0);
        before.chain(outputs.iter().flat_map(|output| output.to.iter().map(|to| to.0)))
    }

    pub(crate) fn committed<'m>(&self, region: &'m Region, stage: usize) -> CommitWord<'m> {
        let StageAt {
            at,
            record_words,
            inputs,
            ..
        } = &self.stages[stage];
        let records = *at + StageAt::FIXED;
        let record = |number: usize| region.words(records + number * record_bytes(*record_words), *record_words);
        CommitWord {
            word: &region.words(*at, 1)[0],
            records: [record(0), record(1)],
            inputs: inputs.len(),
        }
    }

    /// Number of steps that a stage has done.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn steps(&self, region: &Region, stage: usize) -> u64 {
        self.committed(region, stage).commit().steps
    }

    /// Number of frames that a stage has made at an output.
    ///
    /// # Panics
    /// Where there is no such stage or output.
    pub fn made(&self, region: &Region, stage: usize, port: usize) -> u64 {
        self.committed(region, stage).made(port).0
    }

    /// Number of frames that a stage has dropped from an input: see [`WhenFull`].
    ///
    /// # Panics
    /// Where there is no such stage or input.
    pub fn dropped(&self, region: &Region, stage: usize, port: usize) -> u64 {
        assert!(port < self.stages[stage].inputs.len(), "input {port}");
        self.committed(region, stage).dropped(port)
    }

    /// Number of frames that wait at an input of a stage, and whether the stage that makes them has ended.
    ///
    /// # Panics
    /// Where there is no such stage or input.
    pub fn waiting(&self, region: &Region, stage: usize, port: usize) -> (u64, bool) {
        let (from, output) = self.stages[stage].inputs[port].from;
        let (made, ended) = self.committed(region, from).made(output);
        (made.saturating_sub(self.committed(region, stage).taken(port)), ended)
    }

    /// Whether a stage could do a step: enough frames wait at every input, or no more will come, and every output has
    /// room. Once true, it stays true until the stage commits a step.
    ///
    /// # Panics
    /// Where there is no such stage.
    pub fn can_step(&self, region: &Region, stage: usize) -> bool {
        let (at, own) = (&self.stages[stage], self.committed(region, stage));
        let mut inputs = at.inputs.iter().enumerate();
        !own.has_ended()
            && inputs.all(|(port, input)| self.frames_for_step(region, input, own.taken(port)).is_some())
            && self.has_room(region, at, |port| own.made(port).0)
    }

    /// Whether half of an input queue of `stage`, or more, waits for it.
    pub(crate) fn is_behind(&self, region: &Region, stage: usize) -> bool {
        let mut inputs = self.stages[stage].inputs.iter().enumerate();
        inputs.any(|(port, input)| 2 * self.waiting(region, stage, port).0 >= u64::from(input.ring.slots))
    }

    /// Whether a commit of `stage` is a reason to wake its neighbour, which can do a step or may have to drop frames.
    /// Not `at_once`, it is one only if a quarter of a queue is free for its frames, or half of one waits for it.
    pub(crate) fn is_worth_waking(&self, region: &Region, stage: usize, neighbour: usize, at_once: bool) -> bool {
        let queues = |taker: usize, maker: usize| {
            let inputs = self.stages[taker].inputs.iter().enumerate();
            inputs
                .filter(move |(_, input)| input.from.0 == maker)
                .map(move |(port, input)| (self.waiting(region, taker, port).0, u64::from(input.ring.slots)))
        };
        let drops = |input: &Input| input.full != WhenFull::Wait;
        self.stages[neighbour].inputs.iter().any(drops)
            || (at_once
                || queues(stage, neighbour).any(|(frames, slots)| 4 * frames <= 3 * slots)
                || queues(neighbour, stage).any(|(frames, slots)| 2 * frames >= slots))
                && self.can_step(region, neighbour)
    }

    /// Number of frames that a step takes from an input of which `taken` were taken before: fewer than the graph
    /// declares, or none, once no more will come. `None`: too few wait.
    pub(crate) fn frames_for_step(&self, region: &Region, input: &Input, taken: u64) -> Option<u32> {
        let (made, ended) = self.committed(region, input.from.0).made(input.from.1);
        let wait = made.saturating_sub(taken);
        (ended || wait >= u64::from(input.takes)).then(|| wait.min(input.takes.into()) as u32)
    }

    /// Whether every output has room for all frames that a step may make, after `made` at each of them.
    pub(crate) fn has_room(&self, region: &Region, at: &StageAt, made: impl Fn(usize) -> u64) -> bool {
        at.outputs.iter().enumerate().all(|(port, output)| {
            output.rings.iter().zip(&output.to).all(|(ring, (stage, input))| {
                let (released, ended) = self.committed(region, *stage).released(*input);
                let under_way = made(port).saturating_sub(released);
                ended || under_way + u64::from(output.makes) <= u64::from(ring.slots)
            })
        })
    }

    /// Metadata of the next frame that waits at an input, if any. Only the process that owns the stage may call this.
    ///
    /// # Panics
    /// Where there is no such stage or input.
    pub fn next(&self, region: &Region, stage: usize, port: usize) -> Option<Head> {
        let input = &self.stages[stage].inputs[port];
        let taken = self.committed(region, stage).taken(port);
        let (made, _) = self.committed(region, input.from.0).made(input.from.1);
        (taken < made).then(|| input.ring.read_head(region, taken))
    }

    /// Number of frames past their due time at an input of a stage, and the tardiness of the oldest so far, 0 for none.
    pub(crate) fn overdue(&self, region: &Region, stage: usize, port: usize, now: Time) -> (u64, f64) {
        let Input { ring, from, .. } = &self.stages[stage].inputs[port];
        let taken = || self.committed(region, stage).taken(port);
        // A frame without a due time is never late.
        let is_late = |head: Head| head.due_by > head.captured_at && head.due_by < now;
        for _ in 0..LOOKS_MAX {
            let (first, (made, _)) = (taken(), self.committed(region, from.0).made(from.1));
            // Frames come in the order of their due times: the first one in time ends the late ones.
            let (mut late, mut not) = (first, made.max(first));
            while late < not {
                let middle = late + (not - late) / 2;
                (late, not) = if is_late(ring.read_head(region, middle)) {
                    (middle + 1, not)
                } else {
                    (late, middle)
                };
            }
            let oldest = ring.read_head(region, first);
            fence(Ordering::Acquire);
            // A slot is written again only after its frame was taken.
            if taken() == first {
                let allowed = oldest.due_by.since(oldest.captured_at);
                let found = (late > first && is_late(oldest))
                    .then(|| (late - first, now.since(oldest.captured_at).ratio(allowed)));
                return found.unwrap_or_default();
            }
        }
        (0, 0.0)
    }

    /// Offset of one of the two places of a stage's state.
    pub(crate) fn state(&self, stage: usize, place: u64) -> usize {
        let StageAt {
            state_at, state_room, ..
        } = &self.stages[stage];
        state_at + (place % 2) as usize * state_room.next_multiple_of(LINE)
    }
}

fn record_bytes(words: usize) -> usize {
    (words * 8).next_multiple_of(LINE)
}

impl StageAt {
    /// The commit word has a line, control word and bell share the next; the slots, the notes and the records follow.
    const NOTES_AT: usize = 2 * LINE + SLOTS_MAX * SLOT_BYTES;
    const FIXED: usize = StageAt::NOTES_AT + NOTES * 8;

    fn new(graph: &Graph, number: usize, rings: &[Ring], places: &mut Places) -> StageAt {
        let spec = &graph.stages()[number];
        let inputs = spec.takes.iter().enumerate().filter_map(|(port, takes)| {
            let link = graph.edge_into(number, port)?;
            let Link { from, edge, .. } = graph.links()[link];
            Some(Input {
                ring: rings[link],
                takes: *takes,
                full: edge.full,
                from,
                makes: graph.stages()[from.0].makes[from.1],
            })
        });
        let outputs = spec.makes.iter().enumerate().map(|(port, makes)| OutputLayout {
            makes: *makes,
            rings: graph.edges_out_of(number, port).map(|link| rings[link]).collect(),
            to: graph
                .edges_out_of(number, port)
                .map(|link| graph.links()[link].to)
                .collect(),
        });
        let (inputs, outputs): (Vec<Input>, Vec<OutputLayout>) = (inputs.collect(), outputs.collect());
        let record_words = record_words(inputs.len(), outputs.len());
        StageAt {
            at: places.next(StageAt::FIXED + 2 * record_bytes(record_words)),
            record_words,
            state_at: places.next(2 * spec.state_room.next_multiple_of(LINE)),
            tardiness_at: places.next(tardiness::WORDS * 8),
            state_room: spec.state_room,
            save_every: spec.save_every,
            inputs,
            outputs,
        }
    }
}
