//! Commands of clients on a node's records. They do the same as on a store that is served alone, because they are the
//! same functions (`punctual_server::commands`), over the records that the federation shows.

use std::ops::{Bound, ControlFlow};

use punctual_federation::cells::{Cells, CellsMut, Interpreter, Millis};
use punctual_federation::message::{ClientCommand, RESERVED, Value};
use punctual_server::commands::{self, Edit, Failure, Look};
use punctual_server::cursors::Cursors;
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Resp, Writer};
use punctual_server::work::bounded;
use punctual_store::engine::EngineError;
use punctual_store::{Freshness, StoreError};
use punctual_units::Nanos;

/// The longest reply to one command, in bytes: it travels in one frame between processes.
pub const REPLY_MAX: usize = 8 << 20;

const NANOS_PER_MS: u64 = 1_000_000;

/// Carries out commands on a node's records.
pub const INTERPRETER: Interpreter = Interpreter { look, change };

fn look(cells: &dyn Cells, command: &ClientCommand) -> Result<Value, StoreError> {
    answer(command, |known, request, out| {
        commands::read(&CellsReader(cells), known, request, &Cursors::Spelled, out)
    })
    .or_else(|error| match error {
        // Errors that a client has caused: the node answers them and goes on.
        StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. } => {
            let mut reply = Value::new();
            Writer::new(&mut reply, version(command)).error(&format!("ERR {error}"));
            Ok(reply)
        }
        error => Err(error),
    })
}

fn change(cells: &mut dyn CellsMut, command: &ClientCommand) -> Result<Value, StoreError> {
    if !command.writes {
        return look(&*cells, command);
    }
    answer(command, |known, request, out| {
        commands::change(&mut CellsWriter(cells), known, request, &Cursors::Spelled, out)
    })
}

fn answer(
    command: &ClientCommand,
    carry_out: impl FnOnce(&commands::Command, &Words, &mut Writer<'_>) -> Result<(), Failure>,
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

/// Read-only access to records, for commands.
struct CellsReader<'c>(&'c dyn Cells);

/// Read and write access to records, for commands.
struct CellsWriter<'c>(&'c mut dyn CellsMut);

/// Time from `now` until `end`, zero if it has passed.
fn left(end: Millis, now: Millis) -> Nanos {
    Nanos(end.saturating_sub(now).saturating_mul(NANOS_PER_MS))
}

fn look_at<T>(cells: &dyn Cells, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
    let (mut look, mut found) = (Some(look), None);
    cells.show(key, &mut |bytes| found = look.take().map(|look| look(bytes)))?;
    Ok(found)
}

impl Look for CellsReader<'_> {
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        look_at(self.0, key, look)
    }

    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        Ok(self.0.term(key)?.map(|end| left(end, self.0.now())))
    }

    fn wall(&self) -> Nanos {
        left(self.0.now(), 0)
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        self.0.reading(key, max_age)
    }

    fn keys(&self, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
        self.0.keys(from, &mut visit)
    }

    fn is_hidden(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(key.first() == Some(&RESERVED) || self.life_left(key)? == Some(Nanos::ZERO))
    }
}

impl Look for CellsWriter<'_> {
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        CellsReader(self.0).bytes(key, look)
    }

    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        CellsReader(self.0).life_left(key)
    }

    fn wall(&self) -> Nanos {
        left(self.0.now(), 0)
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        CellsReader(self.0).fresh(key, max_age)
    }

    fn keys(&self, from: Bound<&[u8]>, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
        Look::keys(&CellsReader(self.0), from, visit)
    }

    fn is_hidden(&self, key: &[u8]) -> Result<bool, StoreError> {
        CellsReader(self.0).is_hidden(key)
    }
}

impl CellsWriter<'_> {
    fn end(&self, life: Nanos) -> Millis {
        self.0.now().saturating_add(life.0 / NANOS_PER_MS)
    }
}

impl Edit for CellsWriter<'_> {
    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        self.0.set(key, bytes, None)
    }

    fn put_for(&mut self, key: &[u8], bytes: &[u8], life: Nanos) -> Result<(), StoreError> {
        let end = self.end(life);
        self.0.set(key, bytes, Some(end))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.0.remove(key)
    }

    fn set_life(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError> {
        let end = life.map(|life| self.end(life));
        self.0.set_term(key, end)
    }
}

#[cfg(test)]
mod tests;
