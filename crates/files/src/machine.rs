//! Machine files of the simulator. Their keys are read where the model is, in the room `sim`.

use std::path::Path;

use punctual_scenario::MachineModel;

use crate::document;
use crate::failure::Failure;

/// Reads a machine file.
///
/// # Errors
/// [`Failure::Input`] with one line per problem: file, line, key, remedy.
pub fn load(path: &Path) -> Result<MachineModel, Failure> {
    let expected = "a machine file, such as machines/exynos5422-a15.toml";
    document::load(path, expected, MachineModel::from_toml)
}
