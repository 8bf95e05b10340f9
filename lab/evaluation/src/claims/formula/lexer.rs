//! Splits formulas into tokens.

use super::FormulaError;

/// The longest formula, in characters: bounds all that follows.
pub(super) const LENGTH_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name, a number or a label's value, as written; the parser decides by position.
    Word(String),
    /// An operator or a separator: `+ - * / ( ) , = < <= > >=`.
    Sign(&'static str),
}

const SIGNS: [&str; 12] = ["<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", ",", "="];

/// The tokens of `text`, each with its position in characters.
///
/// A word that begins with a letter may hold `-` (`c90-d10`), so a minus sign needs a space in front of it there.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FormulaError> {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() > LENGTH_MAX {
        let what = format!("a formula has at most {LENGTH_MAX} characters");
        return Err(FormulaError { at: LENGTH_MAX, what });
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = characters.get(at) {
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        let rest = &characters[at..];
        let token = if starts_word(*first) {
            let hyphens = first.is_ascii_alphabetic();
            let belongs = |c: &&char| starts_word(**c) || (hyphens && **c == '-');
            Token::Word(rest.iter().take_while(belongs).collect())
        } else {
            let sign = SIGNS
                .into_iter()
                .find(|sign| sign.chars().eq(rest.iter().copied().take(sign.len())));
            let what = || format!("`{first}` has no place in a formula");
            Token::Sign(sign.ok_or_else(|| FormulaError { at, what: what() })?)
        };
        let length = match &token {
            Token::Word(word) => word.chars().count(),
            Token::Sign(sign) => sign.len(),
        };
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}
