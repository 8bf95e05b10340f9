//! Kinds of stages that a scenario file may name: `copy`, and those that a program adds.

use std::fmt;
use std::sync::Arc;

use punctual_os::LinuxOs;
use punctual_pipelines::{AnyStage, Failure, Frames, Stage, StageSpec, erase};
use punctual_platform::linux::KernelTree;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_units::Nanos;

/// Name of the built-in kind.
pub(crate) const COPY: &str = "copy";

/// Kinds of stages that a program adds to `copy`.
///
/// The processes of stages are the same program, run again with the same arguments: each must pass the same kinds.
///
/// ```
/// use std::sync::Arc;
///
/// use punctual_pipelines::{Failure, Frames, Stage, StageSpec, erase};
/// use punctual_scenario::stages::{StageKind, StageKinds, kind};
///
/// /// Makes the complement of each byte.
/// struct Complement;
///
/// impl Stage for Complement {
///     type State = ();
///
///     fn begin(&self) {}
///
///     fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
///         for number in 0..frames.count(0) {
///             let complement: Vec<u8> = frames.input(0, number).iter().map(|byte| !byte).collect();
///             let head = frames.head(0, number);
///             frames.output(0)[..complement.len()].copy_from_slice(&complement);
///             frames.make(0, complement.len(), head);
///         }
///         Ok(())
///     }
/// }
///
/// struct Mine;
///
/// impl StageKinds for Mine {
///     fn kind(&self, name: &str) -> Option<StageKind> {
///         (name == "complement").then(|| StageKind {
///             spec: StageSpec::new(name).takes(&[1]).makes(&[1]),
///             makes_bytes: |bytes| bytes,
///             make: Arc::new(|| erase(Complement)),
///         })
///     }
///
///     fn names(&self) -> &str {
///         "complement"
///     }
/// }
///
/// assert!(kind("complement", Some(&Mine)).is_ok() && kind("copy", Some(&Mine)).is_ok());
/// assert!(kind("complement", None).is_err());
/// ```
pub trait StageKinds {
    /// The kind of this name; `None` if there is none.
    fn kind(&self, name: &str) -> Option<StageKind>;

    /// List of all names, for the message about an unknown one.
    fn names(&self) -> &str;
}

/// Kinds that a program adds; `None`: only `copy`.
pub type AddedKinds<'k> = Option<&'k dyn StageKinds>;

/// A kind of stage.
#[derive(Clone)]
pub struct StageKind {
    /// Inputs, outputs, and room for the state; the scenario file sets the rest.
    pub spec: StageSpec,
    /// Length of the longest frame made from frames of a given length, in bytes.
    pub makes_bytes: fn(usize) -> usize,
    /// Makes a stage in its state before the first frame; called in every process that may run it.
    pub make: Arc<dyn Fn() -> Box<dyn AnyStage> + Send + Sync>,
}

impl fmt::Debug for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StageKind").field(&self.spec).finish()
    }
}

/// The kind of this name: `copy`, or one of `added`.
///
/// # Errors
/// The name is unknown; the message lists all names.
pub fn kind(name: &str, added: AddedKinds<'_>) -> Result<StageKind, String> {
    let found = match name {
        COPY => Some(StageKind {
            spec: StageSpec::new(COPY).takes(&[1]).makes(&[1]),
            makes_bytes: |bytes| bytes,
            make: Arc::new(|| copy(Nanos::ZERO)),
        }),
        _ => added.and_then(|added| added.kind(name)),
    };
    found.ok_or_else(|| {
        let more = added.map_or(String::new(), |added| format!(", {}", added.names()));
        format!("\"{name}\" is no kind of stage; kinds are: copy{more}")
    })
}

/// The kind `copy`: hands each frame on as it is, after computing for `work`, as at full clock.
pub(super) fn copy(work: Nanos) -> Box<dyn AnyStage> {
    let clock = (work > Nanos::ZERO).then(|| EmulatedClock::of(&KernelTree::default(), &LinuxOs));
    erase(Copy(clock.map(|clock| {
        let cycles = work.as_secs_f64() * clock.offer().top().0 as f64;
        (clock, cycles.round() as u64)
    })))
}

/// Hands each frame on, after this number of cycles of computing.
struct Copy(Option<(EmulatedClock, u64)>);

impl Stage for Copy {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
            if let Some((clock, cycles)) = &self.0 {
                clock.compute(*cycles);
            }
            let (input, head) = (frames.input(0, number), frames.head(0, number));
            let room = frames.output(0);
            let there = room.len();
            let room = room.get_mut(..input.len()).ok_or_else(|| {
                let bytes = input.len();
                Failure(format!(
                    "a frame of {bytes} bytes does not fit into {there}: give the next edge longer ones"
                ))
            })?;
            room.copy_from_slice(input);
            frames.make(0, input.len(), head);
        }
        Ok(())
    }
}
