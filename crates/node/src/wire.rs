//! What nodes send each other: frames (`logs::frame`) over TCP, one connection for each direction.
//!
//! The node that dials sends [`Packet::Hello`] first, then messages; nothing comes back on that connection. So a
//! connection that breaks tells that the node at its other end is gone, or cannot be heard, which is the same.
//!
//! Deadlines travel as time left: a message that waited before it was sent is shortened by that ([`shortened`]).

use punctual_federation::ids::{FederationId, Member};
use punctual_federation::message::Message;
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

/// The version of this conversation.
pub const VERSION: u8 = 1;
/// The longest frame of a peer that has not said its name.
pub const STRANGER_BYTES_MAX: usize = 256;
/// The longest frame of a peer: a copy of a store, in one message. The loop of a node that sends or takes one does
/// nothing else meanwhile, so a longer one would have its peers suspect it.
pub const FRAME_BYTES_MAX: usize = 32 << 20;

/// What is on a connection between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Packet {
    /// The sender's name, first.
    Hello {
        /// Its federation.
        federation: FederationId,
        /// The process.
        from: Member,
    },
    /// A message.
    Message(Message),
}

/// A message that has waited for `waited` before it was sent; `None` where no time is left.
pub fn shortened(message: Message, waited: Nanos) -> Option<Message> {
    match message {
        Message::PassedOn(mut request) => {
            request.time_left = Nanos(request.time_left.0.checked_sub(waited.0).filter(|left| *left > 0)?);
            Some(Message::PassedOn(request))
        }
        message => Some(message),
    }
}
