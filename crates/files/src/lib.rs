//! What does a TOML file say, and where is it wrong? Scenarios, the files that they name, and values of the command
//! line in the same forms.

pub mod bounded;
pub mod builtin;
pub mod failure;
pub mod fault;
pub mod profiles;
pub mod scenario;
pub mod size;
pub mod trace;
