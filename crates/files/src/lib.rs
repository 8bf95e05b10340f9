//! What does each kind of file say? Scenarios, the files that they name, and values of the command line in the same
//! forms.

pub mod bounded;
pub mod builtin;
pub mod failure;
pub mod fault;
pub mod profiles;
pub mod scenario;
pub mod size;
pub mod trace;

pub use punctual_toml as toml;
