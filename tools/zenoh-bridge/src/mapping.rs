//! Names of objects, from keys of puts.

use std::str::FromStr;

use zenoh::key_expr::OwnedKeyExpr;

/// The longest name of an object in bytes, as nodes take it.
const NAME_MAX: usize = 500;

/// A part of an object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The text that the wildcard of this number stands for, counted from 0.
    Wildcard(usize),
}

/// A key expression, and the object that its puts set: `KEYEXPR=OBJECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub key: OwnedKeyExpr,
    name: Vec<Part>,
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Mapping, String> {
        let (key, object) = text
            .split_once('=')
            .ok_or("expected KEYEXPR=OBJECT, such as robot/*/pose=$1/pose")?;
        let key = OwnedKeyExpr::from_str(key).map_err(|error| crate::reason(&error))?;
        let wildcards = key.split('/').filter(|chunk| chunk.contains('*')).count();
        let mut pieces = object.split('$');
        let mut name = vec![Part::Text(pieces.next().unwrap_or_default().to_owned())];
        for piece in pieces {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            let number = piece[..digits].parse::<usize>().unwrap_or(0);
            if !(1..=wildcards).contains(&number) {
                return Err(format!(
                    "${}: the key expression has {wildcards} parts with a wildcard, which $1, $2, .. stand for",
                    &piece[..digits]
                ));
            }
            name.push(Part::Wildcard(number - 1));
            name.push(Part::Text(piece[digits..].to_owned()));
        }
        if name.len() > 1 && key.split('/').filter(|chunk| *chunk == "**").count() > 1 {
            return Err(
                "with $1, $2, .. a key expression has at most one part **: otherwise a key fits in several ways".into(),
            );
        }
        match object.len() {
            0 => Err("name the object after =".into()),
            1..=NAME_MAX => Ok(Mapping { key, name }),
            _ => Err(format!("an object's name has at most {NAME_MAX} bytes")),
        }
    }
}

impl Mapping {
    /// Name of the object that a put to `key` sets, where the key expression matches `key`. `None`: the name would be
    /// empty or too long, or `key` has wildcards itself and so gives no name.
    pub fn object(&self, key: &str) -> Option<String> {
        let needs_key = self.name.iter().any(|part| matches!(part, Part::Wildcard(_)));
        let found = match needs_key {
            true => self.matched(key)?,
            false => Vec::new(),
        };
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Wildcard(number) => found[*number].clone(),
        };
        let name: String = self.name.iter().map(part).collect();
        (1..=NAME_MAX).contains(&name.len()).then_some(name)
    }

    /// The parts of `key` that the wildcards stand for, in their order.
    fn matched(&self, key: &str) -> Option<Vec<String>> {
        if key.contains('*') {
            return None;
        }
        let chunks: Vec<&str> = key.split('/').collect();
        // `**` stands for the chunks that the other parts leave over.
        let left_over = (chunks.len() + 1).checked_sub(self.key.split('/').count())?;
        let (mut rest, mut found) = (&chunks[..], Vec::new());
        for part in self.key.split('/') {
            let (taken, behind) = rest.split_at_checked(if part == "**" { left_over } else { 1 })?;
            if part.contains('*') {
                found.push(taken.join("/"));
            }
            rest = behind;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_name_the_object() {
        for (mapping, key, object) in [
            ("robot/*/pose=pose", "robot/7/pose", "pose"),
            ("robot/*/pose=$1/pose", "robot/7/pose", "7/pose"),
            ("robot/*/joint/*=$2 of $1", "robot/a/joint/b", "b of a"),
            ("robot/arm$*/pose=$1", "robot/arm12/pose", "arm12"),
            ("*/**/pose/*=$1:$2:$3", "a/b/c/pose/d", "a:b/c:d"),
            ("*/**/pose=$1:$2", "a/pose", "a:"),
            ("**=z/$1", "a/b", "z/a/b"),
            ("a=b=c", "a", "b=c"),
        ] {
            let mapping: Mapping = mapping.parse().unwrap();
            assert_eq!(mapping.object(key).as_deref(), Some(object), "{mapping:?} {key}");
        }
        let all: Mapping = "**=$1".parse().unwrap();
        assert_eq!(all.object(&"a".repeat(NAME_MAX + 1)), None);
        assert_eq!(all.object("a/*"), None);
    }

    #[test]
    fn wrong_mappings_are_refused() {
        let long = format!("a={}", "x".repeat(NAME_MAX + 1));
        for (mapping, reason) in [
            ("robot/pose", "KEYEXPR=OBJECT"),
            ("a//b=c", "a//b"),
            ("=c", "Expr"),
            ("a/*=$2", "$2: the key expression has 1 parts"),
            ("a/b=$1", "has 0 parts"),
            ("a/*=$", "$: the key expression"),
            ("a/*=$0", "$0: the key expression"),
            ("a/**/b/**=$1", "at most one part **"),
            ("a=", "name the object"),
            (&long, "500 bytes"),
        ] {
            let error = mapping.parse::<Mapping>().unwrap_err();
            assert!(error.contains(reason), "{mapping}: {error}");
        }
    }
}
