//! The node's answers as replies to the client.

use punctual_federation::ids::{RequestId, SessionId};
use punctual_federation::message::{Answer, Fate, Output, Refusal, Work};
use punctual_federation::session::ClientSession;
use punctual_server::cursors::{Cursors, unspell};
use punctual_server::resp::Writer;
use punctual_server::session::{TOO_MUCH_WATCHED, WatchedKey};
use punctual_units::{Nanos, Time};

use super::{Conversation, Next, Pending, Shape, Stage};

impl Conversation {
    /// Takes the node's answer to the present request, or to that at `place` of [`Next::Set`]; returns how to go on.
    /// `watched` gets the records that WATCH has read.
    pub fn answered(
        &mut self,
        place: usize,
        answer: Answer,
        watched: &mut Vec<WatchedKey>,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Next {
        match std::mem::take(&mut self.stage) {
            // No request was sent, so there is no reply to write.
            Stage::Idle => Next::Answered,
            Stage::Setting(mut all) => {
                if let Some(one) = all.get_mut(place)
                    && let Ok(pending) = std::mem::replace(one, Err(Vec::new()))
                {
                    let mut reply = Vec::new();
                    self.reply(*pending, answer, watched, &mut reply);
                    *one = Err(reply);
                }
                if all.iter().any(Result::is_ok) {
                    self.stage = Stage::Setting(all);
                    return Next::Waits;
                }
                out.extend(all.into_iter().filter_map(Result::err).flatten());
                Next::Answered
            }
            Stage::Opening(pending) => self.opened(pending, answer, now, out),
            Stage::Asked(pending) => {
                self.session.answered(&answer);
                if let Answer::Refused(Refusal::NoSession { .. }) = answer {
                    self.session = ClientSession::resumed(SessionId(0), 0, self.session.seen());
                }
                self.reply(*pending, answer, watched, out);
                Next::Answered
            }
        }
    }

    fn opened(&mut self, pending: Option<Box<Pending>>, answer: Answer, now: Time, out: &mut Vec<u8>) -> Next {
        self.session.answered(&answer);
        let writer = &mut Writer::new(out, self.version);
        match (answer, pending) {
            (Answer::Done { .. }, Some(pending)) => return self.send_now(pending, now),
            (Answer::Done { .. }, None) => self.write_session(out),
            // Only the session was asked for, so nothing of the client's own request was executed.
            (Answer::Unknown, _) => writer.error("LATE reason=expired retry-after-ms=0"),
            (answer, _) => refuse(&answer, None, writer),
        }
        Next::Answered
    }

    fn reply(&self, pending: Pending, answer: Answer, watched: &mut Vec<WatchedKey>, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, self.version);
        let output = match answer {
            Answer::Done { output, .. } => output,
            // A watched record has changed.
            Answer::Refused(Refusal::Unexpected { .. }) if pending.several => return writer.null_array(),
            answer => return refuse(&answer, Some(&pending), &mut writer),
        };
        match output {
            Output::Values(values) if pending.shapes.first() == Some(&Shape::Watched) => {
                let (keys, room) = pending.watches;
                let read = keys.into_iter().zip(values);
                let read: Vec<_> = read.map(|(key, value)| WatchedKey { key, value }).collect();
                if read.iter().map(WatchedKey::bytes).sum::<usize>() > room {
                    return writer.error(TOO_MUCH_WATCHED);
                }
                writer.simple("OK");
                watched.extend(read);
            }
            Output::Values(values) => {
                let mut values = values.into_iter();
                if pending.several {
                    writer.array(pending.shapes.len());
                }
                for shape in &pending.shapes {
                    let reply = values.next().flatten().unwrap_or_default();
                    match shape {
                        Shape::Scan => out.extend(numbered(&reply, &self.cursors)),
                        _ => out.extend(reply),
                    }
                }
            }
            Output::Fate(fate) => {
                let fate = match fate {
                    Fate::Committed(revision) => format!("committed {revision}"),
                    Fate::NotExecuted => "not-executed".into(),
                    Fate::Forgotten => "forgotten".into(),
                };
                match pending.work {
                    Work::Outcome(_) => writer.simple(&fate),
                    // The number was used before: the client resumed a session with too small a number.
                    _ => writer.error(&format!("REFUSED {} was used: {fate}", pending.id)),
                }
            }
            Output::Session(session) => writer.integer(session.0 as i64),
            Output::Reading(reading) => {
                let max_age = match pending.shapes.first() {
                    Some(Shape::Fresh(max_age)) => *max_age,
                    _ => Nanos::ZERO,
                };
                write_reading(reading, max_age, &mut writer);
            }
            Output::Sampled(true) => writer.simple("OK"),
            Output::Sampled(false) => writer.null(),
        }
    }
}

/// Writes the error for a request that was not executed, or may not have been.
fn refuse(answer: &Answer, pending: Option<&Pending>, out: &mut Writer<'_>) {
    let id = pending.map_or(RequestId::default(), |pending| pending.id);
    let has_number = pending.is_some_and(|pending| matches!(pending.work, Work::Transaction(_)));
    let text = match answer {
        Answer::Late {
            reason,
            retry_after,
            node,
        } => {
            let node = node.map_or(String::new(), |node| format!(" node={node}"));
            let ms = retry_after.0.div_ceil(1_000_000);
            format!("LATE reason={reason} retry-after-ms={ms}{node}")
        }
        Answer::Unknown if pending.is_some_and(|pending| pending.work.is_of_memory()) => {
            "UNKNOWN it may be set or not: set the next reading".into()
        }
        Answer::Unknown => format!("UNKNOWN {id}"),
        // The reply shows that the request took a number, because clients count them.
        Answer::Refused(refusal) if has_number => format!("REFUSED {id} {refusal}"),
        Answer::Refused(refusal) => format!("ERR {refusal}"),
        Answer::Done { .. } => return,
    };
    out.error(&text);
}

/// Replaces the cursor in a reply of `SCAN`, which is a key, by its number.
fn numbered(reply: &[u8], cursors: &Cursors) -> Vec<u8> {
    let place = || {
        let rest = reply.strip_prefix(b"*2\r\n$")?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        let (cursor, behind) = rest.get(end + 2..)?.split_at_checked(length)?;
        Some((cursor, behind))
    };
    // Other replies are an error, or the end of the scan (cursor 0).
    let Some((key, behind)) = place().and_then(|(cursor, behind)| Some((unspell(cursor)?, behind))) else {
        return reply.to_vec();
    };
    let number = cursors.name(key);
    let header = format!("*2\r\n${}\r\n", number.len());
    [header.as_bytes(), &number, behind].concat()
}

/// Writes the reply to `GETFRESH`.
fn write_reading(reading: Option<(Nanos, Vec<u8>)>, max_age: Nanos, out: &mut Writer<'_>) {
    match reading {
        None => out.null_array(),
        Some((Nanos::MAX, _)) => out.error("STALE age-ms=unknown"),
        Some((age, value)) => {
            // Rounds up, so that an age is never shown as less than it is.
            let age_ms = age.0.div_ceil(1_000_000);
            if age > max_age {
                return out.error(&format!("STALE age-ms={age_ms}"));
            }
            out.array(2);
            out.bulk(&value);
            out.integer(i64::try_from(age_ms).unwrap_or(i64::MAX));
        }
    }
}
