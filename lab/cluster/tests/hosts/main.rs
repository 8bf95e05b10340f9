//! The processes of the product in virtual time: the event loops of a store, of nodes and of balancers, with their
//! doors and their wire, over a simulated network.

mod alone;
mod conformance;
mod conversing;
mod federation;
mod log;
mod model;
mod net;
mod os;
mod serving;
mod world;
