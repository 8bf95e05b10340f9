//! What does each kind of file say? Scenarios and the files that they name, servers, nodes and balancers, and values of
//! the command line in the same forms.

pub mod attach;
pub mod balancer;
pub mod bounded;
pub mod builtin;
pub mod document;
pub mod failure;
#[cfg(test)]
mod guide_tests;
pub mod local;
pub mod node;
pub mod profiles;
pub mod scenario;
pub mod server;
pub mod size;
pub mod tasks;
pub mod trace;

pub use punctual_toml as toml;
