//! What was learnt of the small scenario, once for all tests of a program.

use std::sync::OnceLock;

use punctual_loop::ModelDocument;
use punctual_scenario::{PlatformChoice, identify};
use punctual_workload::ControllerKind;

use crate::common::{request, unwatched};

/// The model that 80 seconds of the scenario on the simulated machine yield.
pub fn model() -> &'static ModelDocument {
    static MODEL: OnceLock<ModelDocument> = OnceLock::new();
    MODEL.get_or_init(|| {
        let request = request(PlatformChoice::Sim, ControllerKind::Open, 80);
        let (model, _) = identify(&request, &mut unwatched).expect("identification runs");
        model
            .check_fit(ControllerKind::Mimo)
            .expect("the model explains its record");
        model
    })
}
