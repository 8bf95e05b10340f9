//! Stages that are built in.

use punctual_pipelines::{AnyStage, Failure, Frames, Stage, StageSpec, erase};
use punctual_radio::{BANDS_MAX, DECIMATION, Options};

/// Prefix of the radio's kinds, before the name of the radio's stage...
const RADIO: &str = "fm-";
/// ...and separator after it, before the number of bands if that is not `BANDS`.
const OF: &str = "-of-";
const BANDS: usize = 4;

/// List of kinds, for a message.
pub const KINDS: &str = "copy, fm-low-pass, fm-demodulator, fm-band-1 to fm-band-4, fm-sum; of a radio with another \
                         number of bands, 1 to 16, fm-band-1-of-6 and fm-sum-of-6";

/// A built-in kind of stage: a copy, or a stage of `punctual-lab radio` at equal gains. Frames are bytes I and Q, then
/// complex numbers and sound as 32-bit floats.
#[derive(Clone, Debug)]
pub struct StageKind {
    /// The radio's stage, and the radio's bands; `None`: the stage copies frames.
    radio: Option<(String, Options)>,
}

/// The kind of that name.
pub fn kind(name: &str) -> Option<StageKind> {
    if name == "copy" {
        return Some(StageKind { radio: None });
    }
    let (stage, bands) = match name.strip_prefix(RADIO)?.split_once(OF) {
        // Only these stages differ with the number of bands.
        Some((stage, _)) if !stage.starts_with("band-") && stage != "sum" => return None,
        Some((stage, bands)) => (stage, bands.parse().ok()?),
        None => (name.strip_prefix(RADIO)?, BANDS),
    };
    let options = Options {
        gains: vec![0.0; bands.min(BANDS_MAX + 1)],
        ..Options::default()
    };
    options.check().ok()?;
    punctual_radio::stage(stage, &options).ok()?;
    Some(StageKind {
        radio: Some((stage.into(), options)),
    })
}

impl StageKind {
    /// Stage of this kind before the first frame.
    pub fn body(&self) -> Option<Box<dyn AnyStage>> {
        match &self.radio {
            None => Some(erase(Copy)),
            Some((name, options)) => punctual_radio::stage(name, options).ok(),
        }
    }

    /// Ports and state of the stage.
    pub fn spec(&self) -> StageSpec {
        let of_radio = self.radio.as_ref().and_then(|(name, options)| {
            let graph = punctual_radio::graph(options).ok()?;
            Some(graph.stages()[graph.number(name)?].clone())
        });
        of_radio.unwrap_or_else(|| StageSpec::new("copy").takes(&[1]).makes(&[1]))
    }

    /// Longest frame that the stage makes of one of `bytes` bytes.
    pub fn makes_bytes(&self, bytes: usize) -> usize {
        match self.radio.as_ref().map(|(name, _)| name.as_str()) {
            Some("low-pass") => bytes / 2 * 8,
            Some("demodulator") => bytes / 8 / DECIMATION as usize * 4 + 4,
            _ => bytes,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_any_number_of_bands_fit_each_other() {
        for (name, takes) in [
            ("copy", 1),
            ("fm-sum", 4),
            ("fm-sum-of-6", 6),
            ("fm-band-6-of-6", 1),
            ("fm-band-4", 1),
        ] {
            let kind = kind(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(kind.spec().takes.len(), takes, "{name}");
            assert!(kind.body().is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_no_kind_is_none() {
        let wrong = [
            "",
            "sum",
            "fm-",
            "fm-source",
            "fm-band-5",
            "fm-band-7-of-6",
            "fm-sum-of-17",
            "fm-sum-of-0",
            "fm-low-pass-of-6",
            "fm-sum-of-six",
        ];
        for name in wrong {
            assert!(kind(name).is_none(), "{name}");
        }
    }
}
