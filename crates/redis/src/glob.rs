//! Patterns of keys and channels, as in Redis: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a literal byte.

/// The longest pattern that clients may send, in bytes.
pub const PATTERN_MAX: usize = 1024;

/// The most steps that [`matches()`] takes for each byte of a text: the longest part behind a star, up to the next star
/// or the end, because at a mismatch it is tried anew from the next byte on. The part before the first star is tried
/// once.
pub fn steps(pattern: &[u8]) -> usize {
    let behind_stars = pattern.split(|byte| *byte == b'*').skip(1);
    behind_stars.map(|part| part.len() + 1).max().unwrap_or(1)
}

/// Whether all of `text` matches `pattern`. Takes at most pattern times text steps, because at a mismatch only the last
/// `*` takes one byte more.
///
/// ```
/// use punctual_redis::glob::matches;
/// assert!(matches(b"room/[1-3]*", b"room/2/door"));
/// assert!(!matches(b"room/[^1]", b"room/1"));
/// ```
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    counting(pattern, text, &mut 0)
}

fn counting(pattern: &[u8], text: &[u8], tried: &mut usize) -> bool {
    let (mut p, mut t) = (0, 0);
    // The pattern's index behind the last star, and the text's index up to which that star matches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() || p < pattern.len() {
        *tried += 1;
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if let Some(byte) = text.get(t)
            && let Some(next) = one(pattern, p, *byte)
        {
            p = next;
            t += 1;
            continue;
        }
        match star {
            Some((behind, taken)) if taken < text.len() => {
                star = Some((behind, taken + 1));
                p = behind;
                t = taken + 1;
            }
            _ => return false,
        }
    }
    true
}

/// Returns the pattern's next index if the element at `p` matches `byte`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern.get(p)? {
        b'?' => Some(p + 1),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        b'[' => {
            let mut at = p + 1;
            let not = pattern.get(at) == Some(&b'^');
            at += usize::from(not);
            let mut found = false;
            // A set without `]` ends with the pattern.
            while let Some(first) = pattern.get(at) {
                match first {
                    b']' => {
                        at += 1;
                        break;
                    }
                    b'\\' if at + 1 < pattern.len() => {
                        found |= pattern[at + 1] == byte;
                        at += 2;
                    }
                    first if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                        let (low, high) = (*first.min(&pattern[at + 2]), *first.max(&pattern[at + 2]));
                        found |= (low..=high).contains(&byte);
                        at += 3;
                    }
                    first => {
                        found |= *first == byte;
                        at += 1;
                    }
                }
            }
            (found != not).then_some(at)
        }
        literal => (*literal == byte).then_some(p + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, with every way that a star may take tried.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some(b'*') => (0..=text.len()).any(|taken| reference(&pattern[1..], &text[taken..])),
            Some(_) => text.first().is_some_and(|byte| match one(pattern, 0, *byte) {
                Some(next) => reference(&pattern[next..], &text[1..]),
                None => false,
            }),
        }
    }

    proptest! {
        #[test]
        fn a_star_takes_any_bytes(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\[-]{0,8}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                reference(pattern.as_bytes(), text.as_bytes()),
            );
        }
    }

    proptest! {
        /// What patterns may cost together is bounded by [`steps`], so this has to be true of each.
        #[test]
        fn no_text_takes_more_steps_than_are_told(pattern in "[ab*?]{0,12}", text in "[ab]{0,40}") {
            let mut tried = 0;
            counting(pattern.as_bytes(), text.as_bytes(), &mut tried);
            let most = pattern.len() + (text.len() + 1) * steps(pattern.as_bytes());
            prop_assert!(tried <= most, "{tried} steps, at most {most}");
        }
    }

    #[test]
    fn sets_ranges_and_escapes() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("h?llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[", "[", false),
            ("[a", "a", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_pattern_of_stars_ends() {
        let pattern = "a*".repeat(64) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes()));
    }
}
