//! Commands of clients on a node's records. They do the same as on a store that is served alone, because they are the
//! same functions ([`punctual_redis::commands`]). The master alone executes a command that changes records, and the log
//! has its changes, as of every transaction.

use punctual_redis::commands::{self, Command, Edit, Failure, Look, bounded};
use punctual_redis::cursors::Cursors;
use punctual_redis::resp::request::Request as Words;
use punctual_redis::resp::{Resp, Writer};
use punctual_store::StoreError;
use punctual_store::engine::EngineError;
use punctual_units::Nanos;

use crate::message::{ClientCommand, Value};
use crate::terms::Millis;

/// The longest reply to one command, in bytes: it travels in one frame between processes.
pub const REPLY_MAX: usize = 8 << 20;

const NANOS_PER_MS: u64 = 1_000_000;

/// Time from `now` until `end`, zero if it has passed.
pub(crate) fn left(end: Millis, now: Millis) -> Nanos {
    Nanos(end.saturating_sub(now).saturating_mul(NANOS_PER_MS))
}

/// End of a life that begins at `now`.
pub(crate) fn end(now: Millis, life: Nanos) -> Millis {
    now.saturating_add(life.0 / NANOS_PER_MS)
}

/// Carries out a command that changes nothing; returns its reply, as bytes of the clients' protocol.
///
/// # Errors
/// Those of the store.
pub(crate) fn look(records: &impl Look, command: &ClientCommand) -> Result<Value, StoreError> {
    let done = answer(command, |known, request, out| {
        commands::read(records, known, request, &Cursors::Spelled, out)
    });
    match done {
        // Errors that a client has caused: the node answers them and goes on.
        Err(error @ (StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. })) => {
            let mut reply = Value::new();
            Writer::new(&mut reply, version(command)).error(&format!("ERR {error}"));
            Ok(reply)
        }
        done => done,
    }
}

/// Carries out any command in a transaction, which an error of the store undoes.
///
/// # Errors
/// Those of the store.
pub(crate) fn change(records: &mut impl Edit, command: &ClientCommand) -> Result<Value, StoreError> {
    if !command.writes {
        return look(records, command);
    }
    answer(command, |known, request, out| {
        commands::change(records, known, request, &Cursors::Spelled, out)
    })
}

fn answer(
    command: &ClientCommand,
    carry_out: impl FnOnce(&Command, &Words, &mut Writer<'_>) -> Result<(), Failure>,
) -> Result<Value, StoreError> {
    let mut reply = Value::new();
    let request = Words::of(&command.words);
    let failed = bounded(&mut reply, version(command), REPLY_MAX, |out| {
        match commands::find(request.argument(0)) {
            Some(known) if known.takes(request.len()) => carry_out(known, &request, out),
            _ => Err(Failure::Reply(
                "ERR this node does not know the command: it is older than another one".into(),
            )),
        }
    });
    failed.map_or(Ok(reply), Err)
}

fn version(command: &ClientCommand) -> Resp {
    if command.version == 3 { Resp::Three } else { Resp::Two }
}
