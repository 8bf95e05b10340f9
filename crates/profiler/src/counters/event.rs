//! What is counted.

/// Events of a group: what windows are cut by, and three more.
pub const EVENTS: usize = 4;

/// One event, by the kernel's numbers (`perf_event_attr` of perf_event_open(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterEvent {
    /// As `perf list` calls it.
    pub name: &'static str,
    /// `type`: 0 for hardware, 1 for software.
    pub kind: u32,
    /// `config`: which one.
    pub config: u64,
}

/// The events of a group, in the order in which they are read; the first is progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(pub [CounterEvent; EVENTS]);

impl Events {
    /// Instructions, cycles, cache references and cache misses: the kernel's generic events. On Intel's processors the
    /// last two are those of the last level, on AMD's (since Zen) those of L2 (arch/x86/events/intel/core.c and
    /// amd/core.c of the kernel).
    pub const HARDWARE: Events = Events([
        hardware("instructions", 1),
        hardware("cycles", 0),
        hardware("cache-references", 2),
        hardware("cache-misses", 3),
    ]);

    /// Events that every kernel counts, in the place of those above; progress is processor time in nanoseconds. For
    /// trying the way through the kernel where there are no counters.
    pub const SOFTWARE: Events = Events([
        software("task-clock", 1),
        software("page-faults", 2),
        software("context-switches", 3),
        software("cpu-migrations", 4),
    ]);
}

const fn hardware(name: &'static str, config: u64) -> CounterEvent {
    CounterEvent { name, kind: 0, config }
}

const fn software(name: &'static str, config: u64) -> CounterEvent {
    CounterEvent { name, kind: 1, config }
}
