//! Commands about the connection itself, which need no node: login, channels, settings.

use punctual_server::commands::{self, Verb};
use punctual_server::glob::PATTERN_MAX;
use punctual_server::login::{Entry, Greeting, plain};
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Reply, Resp, Writer};
use punctual_server::session::{config, described};
use punctual_server::subscribers::CHANNEL_MAX;
use punctual_server::users::Right;

use super::{Conversation, Multi, Next, SUBSCRIPTIONS_MAX, Stage, TIME_LEFT, expect, millis, name, number, word};

impl Conversation {
    /// Whether the connection's user may send this command.
    pub(super) fn allow(&self, words: &Words) -> Result<(), String> {
        match (commands::find(words.argument(0)), name(words).as_str()) {
            // The replies of both concern transactions, whatever these wrote.
            (_, name @ ("SESSION" | "OUTCOME")) => self.login.has(Right::Write, &name.to_lowercase()),
            (Some(command), _) => self.login.allowed(command, words),
            // Users get an error for the unknown command; strangers are asked to log in.
            (None, name) if self.login.is_stranger() => self.login.has(Right::Server, name),
            (None, _) => Ok(()),
        }
    }

    /// Carries out `AUTH` and `HELLO`, as far as they need no slow check.
    pub(super) fn entry(&mut self, words: &Words, out: &mut Vec<u8>) -> Result<Option<Next>, String> {
        let entry = match name(words).as_str() {
            "AUTH" => self.login.auth(words)?,
            "HELLO" => self.login.hello(&Greeting::read(words, self.version)?)?,
            _ => return Ok(None),
        };
        Ok(Some(match entry {
            Entry::Admitted => {
                self.admitted(words, out);
                Next::Answered
            }
            Entry::ToCheck(claimed) => {
                self.stage = Stage::Checked(Box::new(words.clone()));
                Next::Check(claimed)
            }
        }))
    }

    /// Takes the result of a password check: the user's index, or `None` for a wrong password.
    pub fn judged(&mut self, user: Option<usize>, out: &mut Vec<u8>) {
        let Stage::Checked(words) = &self.stage else {
            return;
        };
        let words = words.clone();
        self.stage = Stage::Idle;
        match self.login.judged(user) {
            Ok(()) => self.admitted(&words, out),
            Err(error) => Writer::new(out, self.version).error(&error),
        }
    }

    /// Answers a login whose password cannot be checked now.
    pub fn not_checked(&mut self, why: &str, out: &mut Vec<u8>) {
        self.stage = Stage::Idle;
        Writer::new(out, self.version).error(why);
    }

    fn admitted(&mut self, words: &Words, out: &mut Vec<u8>) {
        if name(words) == "HELLO" {
            self.greet(words, out);
        } else {
            Writer::new(out, self.version).simple("OK");
        }
    }

    fn greet(&mut self, words: &Words, out: &mut Vec<u8>) {
        // The request was parsed before, so this cannot fail.
        if let Ok(greeting) = Greeting::read(words, self.version) {
            self.version = greeting.version;
        }
        let proto = if self.version == Resp::Three { 3 } else { 2 };
        let pairs = [
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk("7.0.0")),
            ("proto", Reply::Integer(proto)),
            ("id", Reply::Integer(i64::from(self.connection))),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        let pairs = pairs.map(|(name, value)| (Reply::bulk(name), value)).to_vec();
        Writer::new(out, self.version).value(&Reply::Map(pairs));
    }

    /// Carries out commands about channels. Returns `None` for other commands, and an error for those that a subscriber
    /// with RESP2 may not send.
    pub(super) fn channel_command(
        &mut self,
        known: Option<&commands::Command>,
        words: &Words,
        out: &mut Vec<u8>,
    ) -> Result<Option<Next>, String> {
        let Some(known) = known.filter(|_| self.multi.is_none()) else {
            return Ok(None);
        };
        let is_bound = self.version == Resp::Two && self.subscriptions() > 0;
        let patterns = matches!(known.verb, Verb::PSubscribe | Verb::PUnsubscribe);
        match known.verb {
            Verb::Subscribe | Verb::PSubscribe => {
                expect(words, words.len() > 1)?;
                if self.subscriptions() + words.len() - 1 > SUBSCRIPTIONS_MAX {
                    return Err(format!(
                        "ERR a connection hears at most {SUBSCRIPTIONS_MAX} channels and patterns"
                    ));
                }
                let max = if patterns { PATTERN_MAX } else { CHANNEL_MAX };
                if words.from(1).any(|name| name.len() > max) {
                    return Err(format!("ERR a channel or a pattern has at most {max} bytes"));
                }
                Ok(Some(Next::Subscribe(words.clone(), patterns)))
            }
            Verb::Unsubscribe | Verb::PUnsubscribe => Ok(Some(Next::Unsubscribe(words.clone(), patterns))),
            Verb::Publish => Err(
                "ERR PUBLISH is not taken in a federation: set a key, and have others subscribe to \
                                  its changes, __keyspace@0__:KEY"
                    .into(),
            ),
            Verb::Ping if is_bound => {
                let said = Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(words.argument(1))]);
                Writer::new(out, self.version).value(&said);
                Ok(Some(Next::Answered))
            }
            Verb::Quit => Ok(None),
            _ if is_bound => Err(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT are allowed in this \
                 context",
                known.name
            )),
            _ => Ok(None),
        }
    }

    /// Carries out commands about the connection, which need no node.
    pub(super) fn connection_command(&mut self, words: &Words, out: &mut Vec<u8>) -> Result<Option<Next>, String> {
        let mut writer = Writer::new(out, self.version);
        match name(words).as_str() {
            "PING" if words.len() > 1 => writer.bulk(words.argument(1)),
            "PING" => writer.simple("PONG"),
            "ECHO" => {
                expect(words, words.len() == 2)?;
                writer.bulk(words.argument(1));
            }
            "QUIT" => {
                writer.simple("OK");
                return Ok(Some(Next::Close));
            }
            "INFO" => {
                let sections = (1..words.len()).map(|at| word(words, at).to_lowercase());
                return Ok(Some(Next::Info(sections.collect())));
            }
            "SELECT" => match words.argument(1) {
                b"0" => writer.simple("OK"),
                _ => return Err("ERR DB index is out of range".into()),
            },
            "READONLY" | "READWRITE" => writer.simple("OK"),
            "UNWATCH" => {
                self.watched.clear();
                writer.simple("OK");
            }
            "COMMAND" => writer.value(&described(words)),
            "CONFIG" => writer.value(&config(words, &self.settings)),
            "WAIT" => {
                expect(words, words.len() == 3)?;
                if number(words.argument(1)).is_none() || number(words.argument(2)).is_none() {
                    return Err("ERR value is not an integer or out of range".into());
                }
                return Ok(Some(Next::Wait(self.session.seen())));
            }
            "CLIENT" => match word(words, 1).as_str() {
                "DEADLINE" => {
                    expect(words, words.len() == 3)?;
                    self.time_left = match words.argument(2) {
                        b"0" => TIME_LEFT,
                        text => millis(text)?,
                    };
                    writer.simple("OK");
                }
                "SETINFO" => writer.simple("OK"),
                "SETNAME" => {
                    expect(words, words.len() == 3)?;
                    let wrong = "Client names cannot contain spaces, newlines or special characters.";
                    self.name = plain(words.argument(2), wrong)?;
                    writer.simple("OK");
                }
                "GETNAME" if self.name.is_empty() => writer.null(),
                "GETNAME" => writer.bulk(self.name.as_bytes()),
                "ID" => writer.integer(i64::from(self.connection)),
                _ => return Err("ERR CLIENT knows DEADLINE, GETNAME, ID, SETINFO and SETNAME here".into()),
            },
            "MULTI" => {
                if self.multi.is_some() {
                    return Err("ERR MULTI calls can not be nested".into());
                }
                self.multi = Some(Multi::default());
                writer.simple("OK");
            }
            "DISCARD" => {
                self.multi.take().ok_or("ERR DISCARD without MULTI")?;
                self.watched.clear();
                writer.simple("OK");
            }
            _ => return Ok(None),
        }
        Ok(Some(Next::Answered))
    }
}
