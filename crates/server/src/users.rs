//! Which client may do what? Users with passwords, classes of commands and prefixes of keys. Pure.
//!
//! **Passwords** are kept as salted hashes only (PBKDF2 with SHA-256), as `punctual serve --hash` makes them. A check
//! takes a tenth of a second by intention, so a thread of its own does it (`prover`), in the order of `logins`. Once a
//! password was right, a second, quick hash recognizes it, under a salt drawn by this process: so clients that come
//! back do not wait, any other password of that user is known to be wrong, and only first ones cost time.
//!
//! **Rights** are classes of commands ([`Right`]) and prefixes of keys. A command that concerns all keys (`KEYS`,
//! `SCAN`, `DBSIZE`, `FLUSHDB`, subscribing to all changes) needs the empty prefix, which begins every key.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::PoisonError;

use pbkdf2::pbkdf2_hmac;
use sha2::Sha256;

use crate::commands::{Class, Command, Verb};
use crate::resp::request::Request;

/// The longest password, in bytes.
pub const PASSWORD_MAX: usize = 512;
/// The longest name of a user, in bytes.
pub const USER_NAME_MAX: usize = 64;
/// The most users of a server.
pub const USERS_MAX: usize = 1024;
/// The most prefixes of keys that a user has.
pub const PREFIXES_MAX: usize = 64;
/// PBKDF2 rounds of a new hash, as OWASP advises for SHA-256 (2023).
pub const ROUNDS: u32 = 600_000;
/// Rounds that a hash may have: below, guesses are cheap; above, a check takes seconds.
pub const ROUNDS_RANGE: std::ops::RangeInclusive<u32> = 1_000..=10_000_000;

const SCHEME: &str = "pbkdf2-sha256";
const SALT: usize = 16;
const HASH: usize = 32;

/// The salted hash of a password. Shown by no `Debug` and in no message.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    rounds: u32,
    salt: [u8; SALT],
    hash: [u8; HASH],
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

impl fmt::Display for PasswordHash {
    /// As in a node's file: `pbkdf2-sha256$ROUNDS$SALT$HASH`, salt and hash in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}${}$", self.rounds)?;
        self.salt.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("$")?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is no hash of a password. The error does not repeat the text, which may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the hash of a password as `punctual serve --hash` prints it, never the password itself")]
pub struct NoHash;

impl FromStr for PasswordHash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<PasswordHash, NoHash> {
        let mut parts = text.split('$');
        let mut part = || parts.next().ok_or(NoHash);
        if part()? != SCHEME {
            return Err(NoHash);
        }
        let rounds = part()?.parse().ok().filter(|rounds| ROUNDS_RANGE.contains(rounds));
        let rounds = rounds.ok_or(NoHash)?;
        let (salt, hash) = (digits(part()?)?, digits(part()?)?);
        match parts.next() {
            None => Ok(PasswordHash { rounds, salt, hash }),
            Some(_) => Err(NoHash),
        }
    }
}

fn digits<const N: usize>(text: &str) -> Result<[u8; N], NoHash> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return Err(NoHash);
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| NoHash)?;
    }
    Ok(bytes)
}

impl PasswordHash {
    /// Hashes a password; the caller draws a new `salt` for each.
    pub fn of(password: &[u8], salt: [u8; SALT], rounds: u32) -> PasswordHash {
        let mut hash = [0; HASH];
        pbkdf2_hmac::<Sha256>(password, &salt, rounds.max(1), &mut hash);
        PasswordHash { rounds, salt, hash }
    }

    /// Whether this is the hash of `password`; takes the same time whether it is or not.
    pub fn is_of(&self, password: &[u8]) -> bool {
        same(&PasswordHash::of(password, self.salt, self.rounds).hash, &self.hash)
    }
}

/// Compares all bytes in constant time, wherever the first difference is.
fn same(one: &[u8; HASH], other: &[u8; HASH]) -> bool {
    let differing = one.iter().zip(other).fold(0, |found, (a, b)| found | (a ^ b));
    std::hint::black_box(differing) == 0
}

punctual_units::named! {
    /// A class of commands, as a user's right to them, by its name in a node's file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Right by name {
        /// Commands that read records, and WATCH.
        Read = "read",
        /// Commands that change records.
        Write = "write",
        /// Subscribing to channels and publishing on them.
        Channels = "channels",
        /// The server's figures and settings, and the list of connections.
        Server = "server",
    }
}

/// A user: name, password and rights.
#[derive(Clone, Debug)]
pub struct User {
    /// The name that `AUTH` gives.
    pub name: String,
    /// The hash of the password.
    pub password: PasswordHash,
    /// The classes of commands that the user may send.
    pub rights: Vec<Right>,
    /// Prefixes of the keys that these commands may name; the empty prefix allows every key.
    pub prefixes: Vec<Vec<u8>>,
}

/// The error reply to a command that is not allowed, beginning as Redis' does.
pub type NotAllowed = String;

impl User {
    fn has(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    fn reaches(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    fn reaches_all(&self) -> bool {
        self.prefixes.iter().any(Vec::is_empty)
    }

    /// Whether the user may send this request.
    ///
    /// # Errors
    /// The error reply.
    pub fn may(&self, command: &Command, request: &Request) -> Result<(), NotAllowed> {
        let is_allowed = match (command.class, command.verb) {
            (Class::Read, _) => self.has(Right::Read),
            (Class::Write, _) => self.has(Right::Write) && (!tells_a_value(command, request) || self.has(Right::Read)),
            // WATCH reads: it shows whether a key has changed.
            (_, Verb::Watch) => self.has(Right::Read),
            (_, Verb::Subscribe | Verb::PSubscribe | Verb::Publish | Verb::PubSub) => self.has(Right::Channels),
            // The replies of both concern transactions, whatever these wrote.
            (_, Verb::Session | Verb::Outcome) => self.has(Right::Write),
            (_, Verb::Info | Verb::Config) => self.has(Right::Server),
            (_, Verb::Client) => {
                let of_all = [&b"list"[..], b"kill"].contains(&&*request.argument(1).to_ascii_lowercase());
                !of_all || self.has(Right::Server)
            }
            _ => true,
        };
        if !is_allowed {
            return Err(format!(
                "NOPERM User {} has no permissions to run the '{}' command",
                self.name, command.name
            ));
        }
        let has_keys = command.names_keys();
        let is_about_all = !has_keys && command.class != Class::Admin;
        if is_about_all && !self.reaches_all() || !command.keys_of(request).all(|key| self.reaches(key)) {
            return Err("NOPERM No permissions to access a key".into());
        }
        let patterns = command.verb == Verb::PSubscribe;
        let channels: Vec<&[u8]> = match command.verb {
            Verb::Subscribe | Verb::PSubscribe => request.from(1).collect(),
            Verb::Publish => vec![request.argument(1)],
            _ => return Ok(()),
        };
        // Subscribers take a message on a channel of changes for a change.
        let may_say = |channel| {
            command.verb != Verb::Publish
                || self.has(Right::Write)
                || !crate::subscribers::is_about_keys(channel, false)
        };
        if channels
            .into_iter()
            .all(|channel| self.may_hear(channel, patterns) && may_say(channel))
        {
            Ok(())
        } else {
            Err("NOPERM No permissions to access a channel".into())
        }
    }

    /// Whether the user may subscribe to `channel`: changes of keys need the right to read these keys.
    pub(crate) fn may_hear(&self, channel: &[u8], pattern: bool) -> bool {
        if !crate::subscribers::is_about_keys(channel, pattern) {
            return true;
        }
        // The part of a pattern before its first special character.
        let head = channel.iter().position(|byte| pattern && b"*?[\\".contains(byte));
        let head = &channel[..head.unwrap_or(channel.len())];
        let key = head.strip_prefix(crate::subscribers::KEYSPACE);
        self.has(Right::Read) && (self.reaches_all() || key.is_some_and(|key| self.reaches(key)))
    }
}

/// Whether a command that changes a record replies with the value before or after the change.
fn tells_a_value(command: &Command, request: &Request) -> bool {
    match command.verb {
        Verb::GetSet
        | Verb::GetDel
        | Verb::Copy
        | Verb::SetBit
        | Verb::GetEx
        | Verb::Incr
        | Verb::IncrBy
        | Verb::Decr
        | Verb::DecrBy => true,
        Verb::IncrByFloat | Verb::HIncrBy | Verb::HIncrByFloat | Verb::Eval | Verb::EvalSha => true,
        Verb::Set => request.from(3).any(|option| option.eq_ignore_ascii_case(b"get")),
        _ => false,
    }
}

/// The users of a server. Without users, each client may do all, and only this machine reaches the server.
#[derive(Debug, Default)]
pub struct Users {
    users: Vec<User>,
    /// Random salt of the hashes in `known`, drawn by this process.
    salt: [u8; SALT],
    /// The quick hash of each user's password, once it was right.
    known: Mutex<Vec<Option<[u8; HASH]>>>,
}

impl Users {
    /// Makes a list of users; `salt` is drawn by this process.
    pub fn new(users: Vec<User>, salt: [u8; SALT]) -> Users {
        let known = Mutex::new(vec![None; users.len()]);
        Users { users, salt, known }
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the user of that index.
    pub fn get(&self, user: usize) -> Option<&User> {
        self.users.get(user)
    }

    /// Returns the index of the user of that name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.users.iter().position(|user| user.name.as_bytes() == name)
    }

    fn quick(&self, user: usize, password: &[u8]) -> [u8; HASH] {
        let mut salt = self.salt.to_vec();
        salt.extend_from_slice(&user.to_le_bytes());
        let mut hash = [0; HASH];
        pbkdf2_hmac::<Sha256>(password, &salt, 1, &mut hash);
        hash
    }

    /// Whether this password is right, if that needs no check: there is no such user, or it has logged in. Takes some
    /// microseconds.
    pub fn knows(&self, user: Option<usize>, password: &[u8]) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((user, known)) = user.and_then(|user| Some((user, *known.get(user)?))) else {
            return Some(false);
        };
        known.map(|known| same(&known, &self.quick(user, password)))
    }

    /// Checks nothing for as long as the longest check of any user takes.
    pub fn check_longest(&self) {
        let rounds = self.users.iter().map(|user| user.password.rounds).max();
        std::hint::black_box(PasswordHash::of(&[], self.salt, rounds.unwrap_or(0)));
    }

    /// Checks a password. Takes a tenth of a second, or as the user's rounds say.
    pub fn check(&self, user: Option<usize>, password: &[u8]) -> bool {
        let Some((at, user)) = user.and_then(|at| Some((at, self.users.get(at)?))) else {
            return false;
        };
        let is_right = user.password.is_of(password);
        if is_right {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known[at] = Some(self.quick(at, password));
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{TABLE, find};

    fn hashed(password: &str) -> PasswordHash {
        PasswordHash::of(password.as_bytes(), [7; SALT], 1_000)
    }

    fn user(rights: &[Right], prefixes: &[&str]) -> User {
        User {
            name: "robot".into(),
            password: hashed("secret"),
            rights: rights.to_vec(),
            prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect(),
        }
    }

    fn may(user: &User, words: &str) -> bool {
        let request = Request::of(words.split(' '));
        user.may(find(request.argument(0)).expect("a command"), &request)
            .is_ok()
    }

    /// RFC 7914, section 11: PBKDF2-HMAC-SHA-256 ("passwd", "salt", 1, 64) begins so. Ours has a salt of 16 bytes, so
    /// that the primitive is looked at.
    #[test]
    fn the_hash_is_the_standard_one() {
        let mut hash = [0; 8];
        pbkdf2_hmac::<Sha256>(b"passwd", b"salt", 1, &mut hash);
        assert_eq!(hash, [0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f]);
    }

    #[test]
    fn a_hash_is_read_as_it_was_written_and_shows_nothing() {
        let hash = hashed("secret");
        let text = hash.to_string();
        assert_eq!(text.parse(), Ok(hash.clone()));
        assert!(hash.is_of(b"secret") && !hash.is_of(b"Secret") && !hash.is_of(b""));
        assert_ne!(PasswordHash::of(b"secret", [8; SALT], 1_000).to_string(), text);
        assert_eq!(format!("{hash:?}"), "PasswordHash(..)");
        for wrong in [
            "secret",
            "",
            "pbkdf2-sha256$999$00$00",
            &text[..text.len() - 1],
            &format!("{text}$"),
            &text.replace("$1000$", "$1$"),
            &text.replace("pbkdf2", "md5"),
            &text.replace('7', "x"),
        ] {
            assert_eq!(wrong.parse::<PasswordHash>(), Err(NoHash), "{wrong}");
        }
        assert!(!NoHash.to_string().contains(&text));
    }

    #[test]
    fn a_password_that_was_right_is_known_and_no_other() {
        let users = Users::new(
            vec![
                user(&[], &[]),
                User {
                    name: "other".into(),
                    ..user(&[], &[])
                },
            ],
            [3; SALT],
        );
        assert_eq!((users.find(b"other"), users.find(b"none")), (Some(1), None));
        assert_eq!(
            (users.knows(Some(0), b"secret"), users.knows(None, b"secret")),
            (None, Some(false))
        );
        assert!(!users.check(Some(0), b"wrong") && !users.check(None, b"secret") && !users.check(Some(9), b"secret"));
        assert_eq!(users.knows(Some(0), b"wrong"), None);
        assert!(users.check(Some(0), b"secret"));
        assert_eq!(
            (users.knows(Some(0), b"secret"), users.knows(Some(0), b"wrong")),
            (Some(true), Some(false))
        );
        assert_eq!(
            (users.knows(Some(1), b"secret"), users.knows(Some(9), b"secret")),
            (None, Some(false))
        );
    }

    #[test]
    fn classes_and_prefixes_bound_what_a_user_does() {
        let reader = user(&[Right::Read], &["room/"]);
        assert!(may(&reader, "GET room/door") && may(&reader, "MGET room/a room/b") && may(&reader, "PING"));
        assert!(may(&reader, "WATCH room/a") && may(&reader, "CLIENT ID") && may(&reader, "MULTI"));
        for refused in [
            "GET door",
            "MGET room/a door",
            "SET room/door 1",
            "KEYS room/*",
            "SCAN 0",
            "DBSIZE",
            "FLUSHDB",
            "FLUSHALL",
            "SUBSCRIBE news",
            "INFO",
            "CONFIG GET *",
            "CLIENT LIST",
            "WATCH door",
            "TSET room/pose 1",
        ] {
            assert!(!may(&reader, refused), "{refused}");
        }
        let writer = user(&[Right::Write], &["room/", "hall/"]);
        assert!(may(&writer, "MSET room/a 1 hall/b 2") && !may(&writer, "MSET room/a 1 b 2"));
        assert!(!may(&writer, "MSET b 2 room/a 1") && !may(&writer, "GET room/a") && may(&writer, "TSET room/a 1"));
        // What answers with a value is a read, though it changes something.
        let both = user(&[Right::Read, Right::Write], &["room/"]);
        for words in [
            "SET room/a x NX GET",
            "SET room/a x get",
            "GETSET room/a x",
            "GETDEL room/a",
            "INCR room/a",
            "INCRBY room/a 0",
            "DECR room/a",
            "DECRBY room/a 0",
            "HINCRBY room/h f 0",
        ] {
            assert!(
                !may(&writer, words) && !may(&reader, words) && may(&both, words),
                "{words}"
            );
        }
        assert!(may(&writer, "SET room/a get NX") && may(&writer, "APPEND room/a x") && may(&writer, "DEL room/a"));
        let all = user(&[Right::Read, Right::Write, Right::Channels, Right::Server], &[""]);
        for command in TABLE {
            let words = [command.name, "a", "b", "c", "d"].join(" ");
            assert!(may(&all, &words), "{words}");
        }
        let none = user(&[], &[""]);
        for command in TABLE.iter().filter(|command| command.class != Class::Admin) {
            assert!(
                !may(&none, &[command.name, "a", "b", "c", "d"].join(" ")),
                "{}",
                command.name
            );
        }
        assert!(!may(&user(&[Right::Read, Right::Write], &[]), "GET a"));
    }

    #[test]
    fn changes_of_keys_are_heard_by_those_that_may_read_them() {
        let hearing = user(&[Right::Read, Right::Channels], &["room/"]);
        for (words, expected) in [
            ("SUBSCRIBE news", true),
            ("PUBLISH news 1", true),
            ("PSUBSCRIBE news*", true),
            ("SUBSCRIBE __keyspace@0__:room/door", true),
            ("PSUBSCRIBE __keyspace@0__:room/*", true),
            ("PSUBSCRIBE __keyspace@0__:roo*", false),
            ("PSUBSCRIBE __keyspace@0__:[r]oom/*", false),
            ("SUBSCRIBE __keyspace@0__:door", false),
            ("SUBSCRIBE __keyevent@0__:set", false),
            ("PUBLISH __keyspace@0__:door set", false),
            ("PUBLISH __keyspace@0__:room/door set", false),
            ("PSUBSCRIBE *", false),
            ("PSUBSCRIBE ?*", false),
            ("SUBSCRIBE news __keyevent@0__:del", false),
        ] {
            assert_eq!(may(&hearing, words), expected, "{words}");
        }
        let all = [Right::Read, Right::Write, Right::Channels];
        assert!(may(&user(&all, &["room/"]), "PUBLISH __keyspace@0__:room/door set"));
        assert!(!may(&user(&all, &["room/"]), "PUBLISH __keyspace@0__:door set"));
        let blind = user(&[Right::Channels], &[""]);
        assert!(may(&blind, "SUBSCRIBE news") && !may(&blind, "PSUBSCRIBE *"));
    }
}
