//! What a user writes: a stage.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Frames;

/// What a stage keeps between steps. It is serialized (serde, by `postcard`) where a step is committed, so that another
/// process can go on from there.
pub trait State: Serialize + DeserializeOwned {
    /// Of the serialized form. A stage of another version gets the bytes through [`State::convert`].
    const VERSION: u32;

    /// The state that a stage of another `version` has left; `None`: it is refused, and the stage that has it goes on.
    fn convert(version: u32, bytes: &[u8]) -> Option<Self> {
        let _ = (version, bytes);
        None
    }
}

/// No state at all.
impl State for () {
    const VERSION: u32 = 0;
}

/// A stage: a pure function of its state and of the frames that it takes. Each process that may run it makes its own,
/// so it holds what is the same everywhere (coefficients), and nothing that changes.
pub trait Stage {
    /// What it keeps between steps.
    type State: State;

    /// The state before the first frame.
    fn begin(&self) -> Self::State;

    /// One step: takes the frames that the graph declares for its inputs, and makes at most as many as it declares for
    /// its outputs.
    ///
    /// # Errors
    /// [`Failure`] where the stage cannot go on: the pipeline ends and tells why.
    fn step(&mut self, state: &mut Self::State, frames: &mut Frames<'_>) -> Result<(), Failure>;
}

/// Why a stage cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A stage together with its state, whatever its type.
pub trait AnyStage {
    /// Of its state's serialized form.
    fn version(&self) -> u32;

    /// Goes back to before the first frame.
    fn begin(&mut self);

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// [`Failure`] where the bytes are no state of this stage, or one of a version that it does not convert.
    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure>;

    /// Saves the state at the beginning of `room`; answers its bytes.
    ///
    /// # Errors
    /// [`Failure`] where it does not fit.
    fn save(&self, room: &mut [u8]) -> Result<usize, Failure>;

    /// One step: see [`Stage::step`].
    ///
    /// # Errors
    /// As there.
    fn step(&mut self, frames: &mut Frames<'_>) -> Result<(), Failure>;
}

/// `stage` with its state before the first frame.
pub fn erase<S: Stage + 'static>(stage: S) -> Box<dyn AnyStage>
where
    S::State: 'static,
{
    let state = stage.begin();
    Box::new(Held { stage, state })
}

struct Held<S: Stage> {
    stage: S,
    state: S::State,
}

impl<S: Stage> AnyStage for Held<S> {
    fn version(&self) -> u32 {
        S::State::VERSION
    }

    fn begin(&mut self) {
        self.state = self.stage.begin();
    }

    fn load(&mut self, version: u32, bytes: &[u8]) -> Result<(), Failure> {
        let own = S::State::VERSION;
        self.state = if version == own {
            postcard::from_bytes(bytes).map_err(|why| {
                Failure(format!(
                    "its saved state cannot be read ({why}): give it another version"
                ))
            })?
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
