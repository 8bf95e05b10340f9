//! Model and controller files: read, judged and designed from, or refused.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use punctual_cli::commands::document;
use punctual_scenario::ControllerSource;
use punctual_workload::ControllerKind;

const KINDS: [ControllerKind; 4] = [
    ControllerKind::Open,
    ControllerKind::Clock,
    ControllerKind::Qod,
    ControllerKind::Mimo,
];

fuzz_target!(|bytes: &[u8]| {
    match document::of_bytes(Path::new("fuzzed.json"), bytes) {
        Ok(ControllerSource::Model(model)) => {
            for kind in KINDS {
                let _ = model.check_fit(kind);
            }
            for model in [Some(model.clone()), model.for_every_job(10.0).ok()]
                .into_iter()
                .flatten()
            {
                let Ok(controller) = model.design() else { continue };
                for kind in KINDS {
                    let _ = controller.check_loop(kind);
                }
            }
        }
        Ok(ControllerSource::Controller(controller)) => {
            for kind in KINDS {
                let _ = controller.check_loop(kind);
            }
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
});
