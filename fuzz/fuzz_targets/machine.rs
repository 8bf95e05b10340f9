//! Machine files, of processors, pipelines and media: read and checked, or refused with line and key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_machine::media::Media;
use punctual_sim::MachineModel;
use punctual_mpsoc::Mpsoc;

fuzz_target!(|text: &str| {
    let _ = MachineModel::from_toml(text, "x");
    let _ = Media::from_toml(text, "x");
    let _ = Mpsoc::from_toml(text, "x");
});
