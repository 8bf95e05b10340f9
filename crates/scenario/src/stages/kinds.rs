//! Stages that are built in.

use punctual_pipeline::{AnyStage, Failure, Frames, Stage, StageSpec, erase};
use punctual_radio::{DECIMATION, Options};

/// A built-in kind of stage.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// As a scenario names it.
    pub name: &'static str,
    /// The radio's stage that it is; `None`: it copies frames.
    radio: Option<&'static str>,
    /// The longest frame that it makes of one of so many bytes.
    made: fn(usize) -> usize,
}

const fn of_radio(name: &'static str, radio: &'static str, made: fn(usize) -> usize) -> Kind {
    Kind {
        name,
        radio: Some(radio),
        made,
    }
}

/// All kinds: a copy, and the stages of `punctual radio` with four bands at equal gains. Frames are bytes I and Q, then
/// complex numbers and sound as 32-bit floats.
pub const KINDS: [Kind; 8] = [
    Kind {
        name: "copy",
        radio: None,
        made: |bytes| bytes,
    },
    of_radio("fm-low-pass", "low-pass", |bytes| bytes / 2 * 8),
    of_radio("fm-demodulator", "demodulator", |bytes| {
        bytes / 8 / DECIMATION as usize * 4 + 4
    }),
    of_radio("fm-band-1", "band-1", |bytes| bytes),
    of_radio("fm-band-2", "band-2", |bytes| bytes),
    of_radio("fm-band-3", "band-3", |bytes| bytes),
    of_radio("fm-band-4", "band-4", |bytes| bytes),
    of_radio("fm-sum", "sum", |bytes| bytes),
];

/// The kind of that name.
pub fn kind(name: &str) -> Option<Kind> {
    KINDS.into_iter().find(|kind| kind.name == name)
}

impl Kind {
    /// Its stage before the first frame.
    pub fn body(self) -> Option<Box<dyn AnyStage>> {
        match self.radio {
            None => Some(erase(Copy)),
            Some(name) => punctual_radio::stage(name, &Options::default()).ok(),
        }
    }

    /// Its ports and its state.
    pub fn spec(self) -> StageSpec {
        let radio = || punctual_radio::graph(&Options::default()).ok();
        let of_radio = self.radio.and_then(|name| {
            let graph = radio()?;
            Some(graph.stages()[graph.number(name)?].clone())
        });
        of_radio.unwrap_or_else(|| StageSpec::new(self.name).takes(&[1]).makes(&[1]))
    }

    /// The longest frame that it makes of one of so many bytes.
    pub fn makes_bytes(self, bytes: usize) -> usize {
        (self.made)(bytes)
    }
}

/// Hands each frame on as it is.
struct Copy;

impl Stage for Copy {
    type State = ();

    fn begin(&self) {}

    fn step(&mut self, (): &mut (), frames: &mut Frames<'_>) -> Result<(), Failure> {
        for number in 0..frames.count(0) {
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
