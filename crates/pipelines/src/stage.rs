//! The interface of a stage, which the user implements.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Frames;
use crate::fingerprint::fingerprint;

/// State of a stage between steps. A commit serializes it (serde, by `postcard`), so that another process can continue
/// from it.
pub trait State: Serialize + DeserializeOwned {
    /// Version of the serialized form. A stage of another version gets the bytes through [`State::convert`]. A state
    /// with other fields and the same version is refused.
    const VERSION: u32;

    /// Converts the state that a stage of another `version` has left: `bytes` in the form of [`postcard`]. `None`
    /// refuses it, and the current owner of the stage continues.
    fn convert(version: u32, bytes: &[u8]) -> Option<Self> {
        let _ = (version, bytes);
        None
    }
}

/// For stages without a state.
impl State for () {
    const VERSION: u32 = 0;
}

/// A stage: a pure function of its state and of the frames that it takes. Each process that may run it makes its own
/// instance, which therefore holds constants (coefficients) and nothing that changes.
pub trait Stage {
    /// State that the stage keeps between steps.
    type State: State;

    /// Returns the state before the first frame.
    fn begin(&self) -> Self::State;

    /// Executes a step: takes the frames that the graph declares for the inputs, and makes at most as many as it
    /// declares for the outputs.
    ///
    /// # Errors
    /// [`Failure`] if the stage cannot continue: the pipeline ends and reports the reason.
    fn step(&mut self, state: &mut Self::State, frames: &mut Frames<'_>) -> Result<(), Failure>;
}

/// Reason why a stage cannot continue, as text for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A stage together with its state, with its type erased.
pub trait AnyStage {
    /// Version of the state's serialized form.
    fn version(&self) -> u32;

    /// Fingerprint of the state's layout: another one, with the same version, is refused. 0: not known.
    fn fingerprint(&self) -> u32 {
        0
    }

    /// Resets the state to that before the first frame.
    fn begin(&mut self);

    /// Continues from a saved state.
    ///
    /// # Errors
    /// [`Failure`] if the bytes are not a state of this stage, or have a version that it does not convert.
    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure>;

    /// Saves the state at the beginning of `room`; returns its length in bytes.
    ///
    /// # Errors
    /// [`Failure`] if the state does not fit.
    fn save(&self, room: &mut [u8]) -> Result<usize, Failure>;

    /// Executes a step: see [`Stage::step`].
    ///
    /// # Errors
    /// [`Failure`] as for [`Stage::step`].
    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure>;
}

/// Boxes `stage` with its state before the first frame.
pub fn erase<S: Stage + 'static>(stage: S) -> Box<dyn AnyStage>
where
    S::State: 'static,
{
    let state = stage.begin();
    let fingerprint = fingerprint(&state);
    Box::new(StageInstance {
        stage,
        state,
        fingerprint,
    })
}

struct StageInstance<S: Stage> {
    stage: S,
    state: S::State,
    /// Of the state before the first frame, because the layout that a state shows may depend on its values.
    fingerprint: u32,
}

impl<S: Stage> AnyStage for StageInstance<S> {
    fn version(&self) -> u32 {
        S::State::VERSION
    }

    fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    fn begin(&mut self) {
        self.state = self.stage.begin();
    }

    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure> {
        let own = S::State::VERSION;
        self.state = if version == own {
            let refused = |why: &dyn std::fmt::Display| {
                Failure(format!(
                    "its saved state cannot be read ({why}): give it another version"
                ))
            };
            match postcard::take_from_bytes(bytes) {
                Ok((state, [])) => state,
                Ok((_, left)) => return Err(refused(&format!("{} bytes are left over", left.len()))),
                Err(why) => return Err(refused(&why)),
            }
        } else {
            S::State::convert(version, bytes).ok_or_else(|| {
                Failure(format!(
                    "it has states of version {own} and does not convert one of version {version}"
                ))
            })?
        };
        Ok(())
    }

    fn save(&self, room: &mut [u8]) -> Result<usize, Failure> {
        let bytes = room.len();
        let saved = postcard::to_slice(&self.state, room).map_err(|why| {
            Failure(format!(
                "its state does not fit into {bytes} bytes ({why}): give the stage a larger state_room"
            ))
        })?;
        Ok(saved.len())
    }

    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure> {
        self.stage.step(&mut self.state, frames)
    }
}
