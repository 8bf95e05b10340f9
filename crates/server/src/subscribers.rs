//! Which connections subscribe to which channel? Owned by the event loop.

use std::collections::{BTreeSet, HashMap};

pub use crate::commands::events::KeyNotice;
use crate::commands::{KEYS_MAX, events, unknown_part, wrong_number_of_arguments};
use crate::door::STEPS_TURN;
use crate::glob::{PATTERN_MAX, matches, steps};
use crate::login::Login;
use crate::resp::request::Request;
use crate::resp::{Reply, Writer};
use crate::session::Session;

/// Prefix of the channels of a key's changes: `__keyspace@0__:KEY` and `__keyevent@0__:EVENT`, as in Redis.
pub const KEYSPACE: &[u8] = b"__keyspace@0__:";
const KEYEVENT: &[u8] = b"__keyevent@0__:";

/// The longest channel, in bytes; the channel of a changed key fits.
pub const CHANNEL_MAX: usize = 1024;
/// The most steps that all patterns together may take for each byte of a channel ([`steps`]): some ten milliseconds of
/// the event loop for the longest channel. `room/*` takes one, and so does `*`; `*/door` takes six.
pub const PATTERN_STEPS_MAX: usize = 32 << 10;

/// Connections by channel and by pattern.
#[derive(Debug, Default)]
pub struct Subscribers {
    channels: HashMap<Vec<u8>, BTreeSet<usize>>,
    patterns: HashMap<Vec<u8>, BTreeSet<usize>>,
    /// Steps of all patterns for each byte of a channel.
    steps: usize,
    /// Bytes of all patterns.
    bytes: usize,
    /// Bytes of all channels.
    channel_bytes: usize,
}

impl Subscribers {
    fn of(&mut self, patterns: bool) -> &mut HashMap<Vec<u8>, BTreeSet<usize>> {
        if patterns {
            &mut self.patterns
        } else {
            &mut self.channels
        }
    }

    /// Whether adding these patterns keeps within `PATTERN_STEPS_MAX`.
    fn has_room<'n>(&self, patterns: impl Iterator<Item = &'n [u8]>) -> bool {
        let new = patterns.filter(|name| !self.patterns.contains_key(*name));
        self.steps + new.map(steps).sum::<usize>() <= PATTERN_STEPS_MAX
    }

    /// Steps of finding the subscribers of a channel of `channel` bytes.
    pub fn steps(&self, channel: usize) -> usize {
        self.bytes + self.steps * channel
    }

    /// Subscribes the connection at `place` to a channel (`patterns`: to a pattern).
    fn add(&mut self, name: &[u8], patterns: bool, place: usize) {
        if patterns && !self.patterns.contains_key(name) {
            self.steps += steps(name);
            self.bytes += name.len();
        }
        if !patterns && !self.channels.contains_key(name) {
            self.channel_bytes += name.len();
        }
        self.of(patterns).entry(name.to_vec()).or_default().insert(place);
    }

    /// Removes a subscription of the connection at `place`.
    fn remove(&mut self, name: &[u8], patterns: bool, place: usize) {
        let names = self.of(patterns);
        if let Some(places) = names.get_mut(name) {
            places.remove(&place);
            if places.is_empty() {
                names.remove(name);
                match patterns {
                    true => (self.steps, self.bytes) = (self.steps - steps(name), self.bytes - name.len()),
                    false => self.channel_bytes -= name.len(),
                }
            }
        }
    }

    /// Carries out SUBSCRIBE (`patterns`: PSUBSCRIBE) of the connection at `place`.
    pub fn subscribe(
        &mut self,
        place: usize,
        session: &mut Session,
        request: &Request,
        patterns: bool,
        out: &mut Vec<u8>,
    ) {
        let out = &mut Writer::new(out, session.version);
        if patterns && !self.has_room(request.from(1)) {
            return out.error(
                "ERR the patterns of all clients would take too long to match: fewer, or fewer bytes behind a *",
            );
        }
        let word = if patterns { "psubscribe" } else { "subscribe" };
        for name in request.from(1) {
            self.add(name, patterns, place);
            session.hears(name, patterns, true);
            write_subscription(out, word, Some(name), session.subscriptions());
        }
    }

    /// Carries out UNSUBSCRIBE (`patterns`: PUNSUBSCRIBE) of the connection at `place`: of all, if the request names
    /// none.
    pub fn unsubscribe(
        &mut self,
        place: usize,
        session: &mut Session,
        request: &Request,
        patterns: bool,
        out: &mut Vec<u8>,
    ) {
        let out = &mut Writer::new(out, session.version);
        let word = if patterns { "punsubscribe" } else { "unsubscribe" };
        let named: Vec<Vec<u8>> = match request.len() {
            1 => session.heard(patterns).iter().cloned().collect(),
            _ => request.from(1).map(<[u8]>::to_vec).collect(),
        };
        for name in &named {
            self.remove(name, patterns, place);
            session.hears(name, patterns, false);
            write_subscription(out, word, Some(name), session.subscriptions());
        }
        if named.is_empty() {
            write_subscription(out, word, None, session.subscriptions());
        }
    }

    /// Removes all subscriptions of the connection at `place`.
    pub fn forget(&mut self, place: usize, session: &Session) {
        for patterns in [false, true] {
            for name in session.heard(patterns) {
                self.remove(name, patterns, place);
            }
        }
    }

    /// The connections that subscribe to `channel`, each with the pattern that matched; `None`: by the channel's name.
    pub fn hearing(&self, channel: &[u8]) -> Vec<(usize, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        if let Some(places) = self.channels.get(channel) {
            found.extend(places.iter().map(|place| (*place, None)));
        }
        for (pattern, places) in &self.patterns {
            if matches(pattern, channel) {
                found.extend(places.iter().map(|place| (*place, Some(pattern.clone()))));
            }
        }
        found
    }

    /// Steps of matching all channels with a pattern.
    fn steps_of(&self, pattern: &[u8]) -> usize {
        self.channels.len() * pattern.len() + self.channel_bytes * steps(pattern)
    }

    /// Reply to PUBSUB CHANNELS, of those that the user may subscribe to, NUMSUB and NUMPAT. Adds its steps to `spent`.
    pub fn answer(&self, request: &Request, login: &Login, spent: &mut usize) -> Reply {
        let pattern = if request.len() == 2 { b"*" } else { request.argument(2) };
        match request.argument(1).to_ascii_lowercase().as_slice() {
            b"channels" if request.len() > 3 => {
                let part = String::from_utf8_lossy(request.argument(1));
                Reply::Error(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{part}'. Try PUBSUB HELP."
                ))
            }
            b"channels" if pattern.len() > PATTERN_MAX => {
                Reply::Error(format!("ERR a pattern has at most {PATTERN_MAX} bytes"))
            }
            b"channels" if self.steps_of(pattern) > STEPS_TURN => Reply::Error(format!(
                "ERR the {} channels would take too long to match: name a pattern with fewer bytes behind a *, or ask \
                 NUMSUB",
                self.channels.len()
            )),
            b"channels" => {
                *spent += self.steps_of(pattern);
                let is_named = |channel: &&Vec<u8>| matches(pattern, channel) && login.may_hear(channel);
                let named: Vec<_> = self.channels.keys().filter(is_named).take(KEYS_MAX + 1).collect();
                if named.len() > KEYS_MAX {
                    return Reply::Error(format!("ERR more than {KEYS_MAX} channels match: name a pattern"));
                }
                Reply::Array(named.into_iter().map(Reply::bulk).collect())
            }
            b"numsub" => {
                let count = |channel: &[u8]| self.channels.get(channel).map_or(0, BTreeSet::len) as i64;
                let pairs = request
                    .from(2)
                    .flat_map(|name| [Reply::bulk(name), Reply::Integer(count(name))]);
                Reply::Array(pairs.collect())
            }
            b"numpat" if request.len() > 2 => Reply::Error(wrong_number_of_arguments("pubsub|numpat")),
            b"numpat" => Reply::Integer(self.patterns.len() as i64),
            _ => Reply::Error(unknown_part("PUBSUB", request)),
        }
    }

    /// Number of channels and of patterns with subscribers.
    pub fn counts(&self) -> (usize, usize) {
        (self.channels.len(), self.patterns.len())
    }
}

/// Whether a subscription may match channels of changes of keys.
pub fn is_about_keys(name: &[u8], pattern: bool) -> bool {
    if !pattern {
        return name.starts_with(KEYSPACE) || name.starts_with(KEYEVENT);
    }
    name.first().is_none_or(|first| b"_*?[\\".contains(first))
}

/// The channels and messages that report a change, as far as `classes` (`notify-keyspace-events`) has them.
pub fn messages(told: &KeyNotice, classes: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let channels = [('K', KEYSPACE), ('E', KEYEVENT)];
    let (event, key, texts) = match told {
        KeyNotice::Event(event, key) if !events::is_wanted(event, classes) => (*event, &[][..], None),
        KeyNotice::Event(event, key) => (*event, key.as_slice(), Some([event.as_bytes().to_vec(), key.clone()])),
        KeyNotice::Missed(changes) => {
            let texts = [format!("missed {changes}"), changes.to_string()].map(String::into_bytes);
            ("missed", &[][..], Some(texts))
        }
    };
    let names = [key, event.as_bytes()].map(<[u8]>::to_vec);
    let both = channels.into_iter().zip(names).zip(texts.into_iter().flatten());
    let wanted = both.filter(|((channel, _), _)| classes.contains(channel.0));
    wanted.map(|((channel, name), text)| ([channel.1, &name].concat(), text))
}

/// Reports that a subscription has begun or ended, with the number of subscriptions that remain.
fn write_subscription(out: &mut Writer<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    out.value(&Reply::Push(vec![
        Reply::bulk(word),
        name.map_or(Reply::Null, Reply::bulk),
        Reply::Integer(count as i64),
    ]));
}

/// Writes a message to a subscriber of the channel's name, or of a pattern.
pub fn write_message(out: &mut Writer<'_>, pattern: Option<&[u8]>, channel: &[u8], message: &[u8]) {
    let mut values = vec![Reply::bulk(if pattern.is_some() { "pmessage" } else { "message" })];
    values.extend(pattern.map(Reply::bulk));
    values.extend([Reply::bulk(channel), Reply::bulk(message)]);
    out.value(&Reply::Push(values));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::users::{PasswordHash, Right, User, Users};

    #[test]
    fn each_hears_by_name_and_by_each_pattern() {
        let mut subscribers = Subscribers::default();
        subscribers.add(b"news", false, 1);
        subscribers.add(b"n*", true, 1);
        subscribers.add(b"n*", true, 2);
        subscribers.add(b"weather", false, 3);
        let mut hearing = subscribers.hearing(b"news");
        hearing.sort();
        assert_eq!(
            hearing,
            [(1, None), (1, Some(b"n*".to_vec())), (2, Some(b"n*".to_vec()))]
        );
        subscribers.remove(b"n*", true, 1);
        subscribers.remove(b"news", false, 1);
        subscribers.remove(b"news", false, 1);
        assert_eq!(subscribers.hearing(b"news"), [(2, Some(b"n*".to_vec()))]);
        assert_eq!(subscribers.counts(), (1, 1));
    }

    #[test]
    fn what_all_patterns_cost_is_bounded_and_given_back() {
        let mut subscribers = Subscribers::default();
        let costly = |at: usize| format!("*{at:04}{}", "?".repeat(1000)).into_bytes();
        let mut count = 0;
        while subscribers.has_room([&costly(count)[..]].into_iter()) {
            subscribers.add(&costly(count), true, 1);
            subscribers.add(&costly(count), true, 2);
            count += 1;
        }
        assert_eq!(count, PATTERN_STEPS_MAX / 1005);
        // One that is there already costs nothing; cheap ones find room for longer.
        assert!(subscribers.has_room([&costly(0)[..]].into_iter()));
        assert!(subscribers.has_room([&b"room/*"[..]].into_iter()));
        for at in 0..count {
            subscribers.remove(&costly(at), true, 1);
            subscribers.remove(&costly(at), true, 2);
            subscribers.remove(&costly(at), true, 2);
        }
        assert_eq!(
            (subscribers.steps, subscribers.bytes, subscribers.counts()),
            (0, 0, (0, 0))
        );
    }

    #[test]
    fn what_matching_all_channels_costs_is_bounded() {
        let (mut subscribers, login) = (Subscribers::default(), Login::default());
        let channel = |at: usize| format!("{at:04}{}", "a".repeat(1020)).into_bytes();
        (0..1000).for_each(|at| subscribers.add(&channel(at), false, 1));
        let answer = |subscribers: &Subscribers, pattern: &str| {
            let mut spent = 0;
            let request = Request::of(["PUBSUB", "CHANNELS", pattern]);
            let reply = subscribers.answer(&request, &login, &mut spent);
            assert!(spent <= STEPS_TURN);
            (reply, spent)
        };
        let costly = format!("*{}y", "?".repeat(500));
        let (refused, spent) = answer(&subscribers, &costly);
        assert!(matches!(refused, Reply::Error(why) if why.contains("1000 channels")) && spent == 0);
        let (found, spent) = answer(&subscribers, "0007*");
        assert_eq!(found, Reply::Array(vec![Reply::bulk(channel(7))]));
        assert!(spent >= 1000 * 1024, "{spent}");
        // With fewer channels, the same pattern is matched.
        (8..1000).for_each(|at| subscribers.remove(&channel(at), false, 1));
        assert_eq!(answer(&subscribers, &costly).0, Reply::Array(Vec::new()));
        (0..8).for_each(|at| subscribers.remove(&channel(at), false, 1));
        assert_eq!(subscribers.channel_bytes, 0);
    }

    #[test]
    fn a_user_sees_the_channels_that_it_may_subscribe_to() {
        let mut subscribers = Subscribers::default();
        let own: &[u8] = b"__keyspace@0__:own/a";
        for name in [own, b"__keyspace@0__:other", b"__keyevent@0__:set"] {
            subscribers.add(name, false, 1);
        }
        let user = User {
            name: "user".into(),
            password: PasswordHash::of(b"secret", [1; 16], 1),
            rights: vec![Right::Read, Right::Channels],
            prefixes: vec![b"own/".to_vec()],
        };
        let mut login = Login::new(Arc::new(Users::new(vec![user], [2; 16])));
        login.judged(Some(0)).unwrap();
        let shown = |login| subscribers.answer(&Request::of(["PUBSUB", "CHANNELS"]), login, &mut 0);
        assert_eq!(shown(&login), Reply::Array(vec![Reply::bulk(own)]));
        assert!(matches!(shown(&Login::default()), Reply::Array(all) if all.len() == 3));
    }

    #[test]
    fn changes_have_two_channels() {
        let set = KeyNotice::Event("set", b"door".to_vec());
        let told: Vec<_> = messages(&set, "AKE").collect();
        assert_eq!(told[0], (b"__keyspace@0__:door".to_vec(), b"set".to_vec()));
        assert_eq!(told[1], (b"__keyevent@0__:set".to_vec(), b"door".to_vec()));
        assert_eq!(messages(&set, "$E").collect::<Vec<_>>(), told[1..]);
        assert_eq!(messages(&set, "KExg").count(), 0);
        let missed: Vec<_> = messages(&KeyNotice::Missed(3), "KE").collect();
        assert_eq!(missed[0], (b"__keyspace@0__:".to_vec(), b"missed 3".to_vec()));
        assert_eq!(missed[1], (b"__keyevent@0__:missed".to_vec(), b"3".to_vec()));
        assert!(is_about_keys(b"__keyspace@0__:door", false));
        assert!(is_about_keys(b"*", true));
        assert!(!is_about_keys(b"*", false));
        assert!(!is_about_keys(b"news*", true));
    }
}
