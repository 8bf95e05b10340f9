//! The radio in a scenario: kinds of its stages, and the shipped scenario.

use std::path::PathBuf;
use std::sync::Arc;

use punctual_radio::{BANDS_MAX, DECIMATION, Options, SCENARIO};
use punctual_scenario::stages::{StageKind, StageKinds};

/// Prefix of the kinds, before the name of the radio's stage...
const RADIO: &str = "fm-";
/// ...and separator after it, before the number of bands if that is not `BANDS`.
const OF: &str = "-of-";
const BANDS: usize = 4;

/// File of the scenario that a user names: the shipped one for `fm`, unless there is such a file.
pub fn file(named: PathBuf) -> PathBuf {
    match named.to_str() {
        Some("fm") if !named.exists() => SCENARIO.into(),
        _ => named,
    }
}

/// Stages of `punctual-lab radio` at equal gains. Frames are bytes I and Q, then complex numbers and sound as 32-bit
/// floats.
pub struct RadioKinds;

impl StageKinds for RadioKinds {
    fn kind(&self, name: &str) -> Option<StageKind> {
        let name = name.strip_prefix(RADIO)?;
        let (stage, bands) = match name.split_once(OF) {
            // Only these stages differ with the number of bands.
            Some((stage, _)) if !stage.starts_with("band-") && stage != "sum" => return None,
            Some((stage, bands)) => (stage.to_owned(), bands.parse().ok()?),
            None => (name.to_owned(), BANDS),
        };
        let options = Options {
            gains: vec![0.0; bands.min(BANDS_MAX + 1)],
            ..Options::default()
        };
        let graph = punctual_radio::graph(&options).ok()?;
        punctual_radio::stage(&stage, &options).ok()?;
        Some(StageKind {
            spec: graph.stages()[graph.number(&stage)?].clone(),
            makes_bytes: match stage.as_str() {
                "low-pass" => |bytes| bytes / 2 * 8,
                "demodulator" => |bytes| bytes / 8 / DECIMATION as usize * 4 + 4,
                _ => |bytes| bytes,
            },
            make: Arc::new(move || punctual_radio::stage(&stage, &options).expect("checked above")),
        })
    }

    fn names(&self) -> &str {
        "fm-low-pass, fm-demodulator, fm-band-1 to fm-band-4, fm-sum; of a radio with another number of bands, 1 to \
         16, fm-band-1-of-6 and fm-sum-of-6"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_any_number_of_bands_fit_each_other() {
        for (name, takes) in [
            ("fm-sum", 4),
            ("fm-sum-of-6", 6),
            ("fm-band-6-of-6", 1),
            ("fm-band-4", 1),
        ] {
            let kind = RadioKinds.kind(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(kind.spec.takes.len(), takes, "{name}");
            (kind.make)();
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
            assert!(RadioKinds.kind(name).is_none(), "{name}");
        }
    }
}
