//! MULTI's commands in one transaction, if the records that WATCH read are unchanged.

use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, StoreError};
use punctual_units::Time;

use super::counts::CommandTimes;
use super::{REPLY_MAX, Worker, firm};
use crate::commands::{self, Class, Look, bounded};
use crate::resp::request::Request;
use crate::resp::{Resp, Writer};
use crate::session::{Call, TOO_MUCH_WATCHED, WatchedKey};

impl<E: Engine + 'static, O: Os> Worker<'_, E, O> {
    /// Carries out MULTI's commands in one transaction.
    pub(super) fn exec(
        &self,
        asked: &[Call],
        watched: &[WatchedKey],
        begun: CommandTimes,
        version: Resp,
        reply: &mut Vec<u8>,
    ) {
        if self.is_late(begun, &mut Writer::new(reply, version)) {
            return;
        }
        self.count(asked.len());
        let answered = if asked.iter().any(|asked| asked.command.class == Class::Write) {
            self.exec_writes(asked, watched, begun.deadline, version, reply)
        } else {
            self.exec_reads(asked, watched, version, reply)
        };
        match answered {
            Ok(()) => self.note_timely(begun.deadline),
            Err(error) => {
                reply.clear();
                self.say(error, begun, &mut Writer::new(reply, version));
            }
        }
    }

    fn exec_reads(
        &self,
        asked: &[Call],
        watched: &[WatchedKey],
        version: Resp,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let transaction = self.store.read_transaction(Deadline::NONE)?;
        if !begins(&transaction, asked, watched, version, reply)? {
            return Ok(());
        }
        for Call { command, request, .. } in asked {
            let start = reply.len();
            let failed = bounded(reply, version, REPLY_MAX, |out| {
                commands::read(&transaction, command, request, &self.cursors, out)
            });
            failed.map_or(Ok(()), Err)?;
            self.note_found(command.verb, &reply[start..]);
            if too_long(reply, version) {
                break;
            }
        }
        Ok(())
    }

    fn exec_writes(
        &self,
        asked: &[Call],
        watched: &[WatchedKey],
        deadline: Time,
        version: Resp,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.writing(firm(deadline))?;
        if !begins(&transaction, asked, watched, version, reply)? {
            return Ok(());
        }
        for asked in asked {
            self.change(&mut transaction, asked, version, reply)?;
            if too_long(reply, version) {
                return Ok(()); // dropping the transaction undoes it
            }
        }
        transaction.commit()?;
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn watch(
        &self,
        request: &Request,
        begun: CommandTimes,
        (mut keys, mut bytes): (usize, usize),
        version: Resp,
        reply: &mut Vec<u8>,
    ) -> Vec<WatchedKey> {
        let out = &mut Writer::new(reply, version);
        if self.is_late(begun, out) {
            return Vec::new();
        }
        self.count(1);
        self.note_timely(begun.deadline);
        let mut read = || {
            let transaction = self.store.read_transaction(Deadline::NONE)?;
            let mut watched = Vec::new();
            for key in request.from(1) {
                let value = record(&transaction, key)?;
                let key = key.to_vec();
                let read = WatchedKey { key, value };
                if keys == 0 || read.bytes() > bytes {
                    return Ok(None);
                }
                (keys, bytes) = (keys - 1, bytes - read.bytes());
                watched.push(read);
            }
            Ok(Some(watched))
        };
        match read() {
            Ok(Some(watched)) => {
                out.simple("OK");
                return watched;
            }
            Ok(None) => out.error(TOO_MUCH_WATCHED),
            Err(error) => self.say(error, begun, out),
        }
        Vec::new()
    }
}

/// Replaces the replies by an error if those of one transaction exceed `REPLY_MAX`; returns whether it did.
fn too_long(reply: &mut Vec<u8>, version: Resp) -> bool {
    let is_too_long = reply.len() > REPLY_MAX;
    if is_too_long {
        reply.clear();
        let error = format!("ERR the replies would take more than {REPLY_MAX} bytes: nothing was done, ask for less");
        Writer::new(reply, version).error(&error);
    }
    is_too_long
}

/// Returns the record of `key` as clients see it.
fn record(look: &impl Look, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    if look.is_hidden(key)? {
        Ok(None)
    } else {
        look.bytes(key, <[u8]>::to_vec)
    }
}

/// Begins the reply to EXEC; returns whether the watched records are unchanged, so that its commands are carried out.
fn begins(
    look: &impl Look,
    asked: &[Call],
    watched: &[WatchedKey],
    version: Resp,
    reply: &mut Vec<u8>,
) -> Result<bool, StoreError> {
    let mut out = Writer::new(reply, version);
    for WatchedKey { key, value } in watched {
        if record(look, key)? != *value {
            out.null_array();
            return Ok(false);
        }
    }
    out.array(asked.len());
    Ok(true)
}
