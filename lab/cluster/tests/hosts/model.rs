//! What commands answer: a model, and random commands that are compared with it.

use std::collections::BTreeMap;
use std::io::Write;

use punctual_server::resp::Reply;

use super::serving::{Client, encoded};

/// Draws that a seed decides (xorshift).
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// Fields and values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What a key holds, in the model.
#[derive(Clone, Debug, PartialEq)]
enum ModelValue {
    Text(Vec<u8>),
    Hash(Fields),
}

/// All keys, and which of them have a term that lies beyond the test.
#[derive(Clone, Debug, Default)]
struct Model {
    keys: BTreeMap<Vec<u8>, (ModelValue, bool)>,
}

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

impl Model {
    fn text(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Reply> {
        match self.keys.get(key) {
            None => Ok(None),
            Some((ModelValue::Text(text), _)) => Ok(Some(text.clone())),
            Some(_) => Err(Reply::Error(WRONG.into())),
        }
    }

    fn hash(&self, key: &[u8]) -> Result<Fields, Reply> {
        match self.keys.get(key) {
            None => Ok(Vec::new()),
            Some((ModelValue::Hash(fields), _)) => Ok(fields.clone()),
            Some(_) => Err(Reply::Error(WRONG.into())),
        }
    }

    fn put(&mut self, key: &[u8], text: &[u8], keeps: bool) {
        let has_term = keeps && self.keys.get(key).is_some_and(|(_, has_term)| *has_term);
        self.keys
            .insert(key.to_vec(), (ModelValue::Text(text.to_vec()), has_term));
    }

    fn optional(value: Option<Vec<u8>>) -> Reply {
        value.map_or(Reply::Null, Reply::Bulk)
    }

    fn add(&mut self, key: &[u8], by: i64) -> Result<Reply, Reply> {
        let before = self.text(key)?.unwrap_or_else(|| b"0".to_vec());
        let text = String::from_utf8(before).ok();
        let number = text.as_deref().and_then(|text| text.parse::<i64>().ok());
        let number = number.filter(|number| Some(number.to_string()) == text);
        let number = number.ok_or(Reply::Error(NO_INTEGER.into()))?;
        let overflow = || Reply::Error("ERR increment or decrement would overflow".into());
        let after = number.checked_add(by).ok_or_else(overflow)?;
        self.put(key, after.to_string().as_bytes(), true);
        Ok(Reply::Integer(after))
    }

    fn answer(&mut self, request: &[Vec<u8>]) -> Reply {
        self.carry_out(request).unwrap_or_else(|error| error)
    }

    fn carry_out(&mut self, request: &[Vec<u8>]) -> Result<Reply, Reply> {
        let name = String::from_utf8_lossy(&request[0]).into_owned();
        let key = request.get(1).map_or(&b""[..], Vec::as_slice);
        let integer = |count: usize| Reply::Integer(count as i64);
        Ok(match name.as_str() {
            "GET" => Self::optional(self.text(key)?),
            "STRLEN" => integer(self.text(key)?.map_or(0, |text| text.len())),
            "MGET" => {
                let one = |key: &Vec<u8>| Self::optional(self.text(key).ok().flatten());
                Reply::Array(request[1..].iter().map(one).collect())
            }
            "EXISTS" => integer(request[1..].iter().filter(|key| self.keys.contains_key(*key)).count()),
            "TYPE" => Reply::Simple(match self.keys.get(key) {
                None => "none".into(),
                Some((ModelValue::Text(_), _)) => "string".into(),
                Some((ModelValue::Hash(_), _)) => "hash".into(),
            }),
            "DBSIZE" => integer(self.keys.len()),
            "KEYS" => Reply::Array(self.keys.keys().map(Reply::bulk).collect()),
            "SET" => {
                let options: Vec<_> = request[3..].iter().map(Vec::as_slice).collect();
                let is = |word: &str| options.contains(&word.as_bytes());
                let before = if is("GET") { self.text(key)? } else { None };
                let is_there = self.keys.contains_key(key);
                let wanted = !(is("NX") && is_there || is("XX") && !is_there);
                if wanted {
                    self.put(key, &request[2], is("KEEPTTL"));
                    if is("EX")
                        && let Some((_, has_term)) = self.keys.get_mut(key)
                    {
                        *has_term = true;
                    }
                }
                match (is("GET"), wanted) {
                    (true, _) => Self::optional(before),
                    (false, true) => Reply::ok(),
                    (false, false) => Reply::Null,
                }
            }
            "SETNX" => {
                let is_new = !self.keys.contains_key(key);
                if is_new {
                    self.put(key, &request[2], false);
                }
                integer(usize::from(is_new))
            }
            "GETSET" => {
                let before = self.text(key)?;
                self.put(key, &request[2], false);
                Self::optional(before)
            }
            "GETDEL" => {
                let before = self.text(key)?;
                self.keys.remove(key);
                Self::optional(before)
            }
            "APPEND" => {
                let text = [self.text(key)?.unwrap_or_default(), request[2].clone()].concat();
                self.put(key, &text, true);
                integer(text.len())
            }
            "MSET" => {
                request[1..]
                    .chunks(2)
                    .for_each(|pair| self.put(&pair[0], &pair[1], false));
                Reply::ok()
            }
            "DEL" | "UNLINK" => integer(
                request[1..]
                    .iter()
                    .filter(|key| self.keys.remove(*key).is_some())
                    .count(),
            ),
            "INCR" => self.add(key, 1)?,
            "DECR" => self.add(key, -1)?,
            "INCRBY" => self.add(key, String::from_utf8_lossy(&request[2]).parse().expect("a number"))?,
            "EXPIRE" => match self.keys.get_mut(key) {
                Some((_, has_term)) => {
                    *has_term = true;
                    integer(1)
                }
                None => integer(0),
            },
            "PERSIST" => match self.keys.get_mut(key) {
                Some((_, has_term)) => integer(usize::from(std::mem::take(has_term))),
                None => integer(0),
            },
            // The test looks at the sign only.
            "TTL" => match self.keys.get(key) {
                None => Reply::Integer(-2),
                Some((_, false)) => Reply::Integer(-1),
                Some((_, true)) => Reply::Integer(1),
            },
            "HSET" => {
                let mut fields = self.hash(key)?;
                let before = fields.len();
                for pair in request[2..].chunks(2) {
                    match fields.iter_mut().find(|(name, _)| *name == pair[0]) {
                        Some((_, value)) => value.clone_from(&pair[1]),
                        None => fields.push((pair[0].clone(), pair[1].clone())),
                    }
                }
                let added = fields.len() - before;
                let has_term = self.keys.get(key).is_some_and(|(_, has_term)| *has_term);
                self.keys.insert(key.to_vec(), (ModelValue::Hash(fields), has_term));
                integer(added)
            }
            "HDEL" => {
                let mut fields = self.hash(key)?;
                let before = fields.len();
                fields.retain(|(name, _)| !request[2..].contains(name));
                let removed = before - fields.len();
                if fields.is_empty() {
                    self.keys.remove(key);
                } else if let Some((held, _)) = self.keys.get_mut(key) {
                    *held = ModelValue::Hash(fields);
                }
                integer(removed)
            }
            "HGET" => {
                let found = self.hash(key)?.into_iter().find(|(name, _)| *name == request[2]);
                Self::optional(found.map(|(_, value)| value))
            }
            "HMGET" => {
                let fields = self.hash(key)?;
                let one = |wanted: &Vec<u8>| fields.iter().find(|(name, _)| name == wanted).map(|(_, v)| v.clone());
                Reply::Array(request[2..].iter().map(|wanted| Self::optional(one(wanted))).collect())
            }
            "HGETALL" => {
                let fields = self.hash(key)?.into_iter();
                Reply::Array(fields.flat_map(|(f, v)| [Reply::Bulk(f), Reply::Bulk(v)]).collect())
            }
            "HEXISTS" => integer(self.hash(key)?.iter().filter(|(name, _)| *name == request[2]).count()),
            "HLEN" => integer(self.hash(key)?.len()),
            other => panic!("the model does not know {other}"),
        })
    }
}

/// A command on keys that begin with `prefix`.
fn drawn(draw: &mut Draw, prefix: &str) -> Vec<Vec<u8>> {
    let keys = ["a", "b", "c", "d", "e"].map(|key| format!("{prefix}{key}"));
    let (keys, all) = (keys.each_ref().map(String::as_str), format!("{prefix}*"));
    let fields = ["f", "g", "h"];
    let values = [
        "",
        "1",
        "-7",
        "text",
        "9223372036854775807",
        "\0punctual/h",
        "two\r\nlines",
    ];
    let name = draw.of(&[
        "GET", "GET", "SET", "SET", "SET", "SETNX", "GETSET", "GETDEL", "APPEND", "STRLEN", "MGET", "MSET", "DEL",
        "UNLINK", "EXISTS", "INCR", "DECR", "INCRBY", "TYPE", "EXPIRE", "PERSIST", "TTL", "HSET", "HSET", "HDEL",
        "HGET", "HMGET", "HGETALL", "HEXISTS", "HLEN", "DBSIZE", "KEYS",
    ]);
    // Where there are other keys, they are counted, too.
    let name = if name == "DBSIZE" && !prefix.is_empty() {
        "KEYS"
    } else {
        name
    };
    let mut request = vec![name];
    match name {
        "DBSIZE" => {}
        "KEYS" => request.push(&all),
        "MGET" | "DEL" | "UNLINK" | "EXISTS" => (0..=draw.below(3)).for_each(|_| request.push(draw.of(&keys))),
        "MSET" => {
            for _ in 0..=draw.below(3) {
                request.extend([draw.of(&keys), draw.of(&values)]);
            }
        }
        _ => request.push(draw.of(&keys)),
    }
    match name {
        "SETNX" | "GETSET" | "APPEND" => request.push(draw.of(&values)),
        "SET" => {
            request.push(draw.of(&values));
            request
                .extend([&[][..], &["NX"], &["XX"], &["GET"], &["KEEPTTL"], &["EX", "1000"]][draw.below(6) as usize]);
        }
        "INCRBY" => request.push(draw.of(&["3", "-9", "9223372036854775807"])),
        "EXPIRE" => request.push("1000"),
        "HGET" | "HEXISTS" => request.push(draw.of(&fields)),
        "HMGET" | "HDEL" => (0..=draw.below(2)).for_each(|_| request.push(draw.of(&fields))),
        "HSET" => {
            for _ in 0..=draw.below(2) {
                request.extend([draw.of(&fields), draw.of(&values)]);
            }
        }
        _ => {}
    }
    request.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub fn seed() -> u64 {
    let given = std::env::var("SERVE_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(1)
}

/// Sends `bytes` in pieces of random length.
fn send_split(client: &mut Client, bytes: &[u8], draw: &mut Draw) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(1 + draw.below(rest.len().min(200) as u64) as usize);
        client.stream.write_all(piece).expect("it takes bytes");
        rest = others;
    }
}

fn same(request: &[Vec<u8>], expected: &Reply, found: &Reply) -> bool {
    match (request[0].as_slice(), expected, found) {
        (b"TTL", Reply::Integer(1), Reply::Integer(found)) => (1..=1000).contains(found),
        _ => expected == found,
    }
}

/// One round of random commands, pipelined, split at random bytes, in and out of transactions, on keys that begin with
/// `prefix` and are not there: whether all answers are the model's. False where the server had no time for one of them,
/// or cannot tell: then nothing is known of those behind.
pub fn answers_as_the_model(client: &mut Client, seed: u64, prefix: &str) -> bool {
    let seed = seed.max(1);
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::default();
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..=draw.below(60) {
        let requests: Vec<_> = (0..=draw.below(4)).map(|_| drawn(&mut draw, prefix)).collect();
        // A federation has none of what looks at all keys within a transaction.
        let looks_at_all = |request: &Vec<Vec<u8>>| ["KEYS", "DBSIZE"].iter().any(|name| request[0] == name.as_bytes());
        let is_transaction = draw.below(4) == 0 && !requests.iter().any(looks_at_all);
        let answers: Vec<_> = requests
            .iter()
            .map(|request| (request.clone(), model.answer(request)))
            .collect();
        if is_transaction {
            bytes.extend(encoded(&[b"MULTI"]));
            expected.push((vec![b"MULTI".to_vec()], Reply::ok()));
        }
        for request in &requests {
            let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            bytes.extend(encoded(&words));
            if is_transaction {
                expected.push((vec![b"QUEUED".to_vec()], Reply::Simple("QUEUED".into())));
            }
        }
        if is_transaction {
            bytes.extend(encoded(&[b"EXEC"]));
            // One by one, because of the terms.
            expected.push((
                vec![b"EXEC".to_vec()],
                Reply::Array(answers.iter().map(|(_, a)| a.clone()).collect()),
            ));
        } else {
            expected.extend(answers);
        }
    }
    send_split(client, &bytes, &mut draw);
    let found: Vec<Reply> = expected.iter().map(|_| client.reply()).collect();
    let is_out_of_time = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("LATE ") || text.starts_with("UNKNOWN "));
    if found.iter().any(is_out_of_time) {
        return false;
    }
    for (at, ((request, expected), found)) in expected.iter().zip(found).enumerate() {
        let matches = match (&found, expected) {
            (Reply::Array(found), Reply::Array(wanted)) if request[0] == b"EXEC" && found.len() == wanted.len() => {
                found.iter().zip(wanted).all(|pair| match pair {
                    (Reply::Integer(found), Reply::Integer(1)) => *found == 1 || (1..=1000).contains(found),
                    (found, wanted) => found == wanted,
                })
            }
            _ => same(request, expected, &found),
        };
        let words: Vec<_> = request.iter().map(|word| word.escape_ascii().to_string()).collect();
        assert!(
            matches,
            "SERVE_SEED={seed}, reply {at}: {words:?}: {found:?}, expected {expected:?}"
        );
    }
    true
}
