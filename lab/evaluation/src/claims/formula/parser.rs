//! Parses tokens into a formula by recursive descent: one function per rule of the grammar.

use super::lexer::{Token, tokens};
use super::{Aggregate, Formula, FormulaError, Function, Node, Operator, Query};
use crate::samples::Labels;

/// Limit of nested parentheses: bounds the stack of the parser and of the evaluation.
const DEPTH_MAX: usize = 32;

impl Formula {
    /// Parses a formula.
    ///
    /// # Errors
    /// [`FormulaError`] with the position of the first character that does not fit.
    pub fn parse(text: &str) -> Result<Formula, FormulaError> {
        let mut parser = Parser {
            tokens: tokens(text)?,
            next: 0,
            depth: 0,
            end: text.chars().count(),
        };
        let root = parser.comparison()?;
        match parser.peek() {
            Some(token) => Err(parser.error(format!("{} is one too many", describe(Some(token))))),
            None => Ok(Formula {
                root,
                text: text.to_string(),
            }),
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    end: usize,
}

type ParseResult<T = Node> = Result<T, FormulaError>;

impl Parser {
    fn comparison(&mut self) -> ParseResult {
        const COMPARISONS: [(&str, Operator); 4] = [
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
        ];
        let left = self.sum()?;
        match self.take(&COMPARISONS) {
            Some(operator) => Ok(two(operator, left, self.sum()?)),
            None => Ok(left),
        }
    }

    fn sum(&mut self) -> ParseResult {
        let mut left = self.product()?;
        while let Some(operator) = self.take(&[("+", Operator::Add), ("-", Operator::Subtract)]) {
            left = two(operator, left, self.product()?);
        }
        Ok(left)
    }

    fn product(&mut self) -> ParseResult {
        let mut left = self.factor()?;
        while let Some(operator) = self.take(&[("*", Operator::Multiply), ("/", Operator::Divide)]) {
            left = two(operator, left, self.factor()?);
        }
        Ok(left)
    }

    fn factor(&mut self) -> ParseResult {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} levels deep")));
        }
        self.depth += 1;
        let node = self.factor_within();
        self.depth -= 1;
        node
    }

    fn factor_within(&mut self) -> ParseResult {
        if self.take(&[("-", ())]).is_some() {
            return Ok(Node::Negated(Box::new(self.factor()?)));
        }
        if self.take(&[("(", ())]).is_some() {
            let inner = self.comparison()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let at = self.place();
        let word = self.word("a number, a function or an aggregate")?;
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return number(&word, at).map(Node::Number);
        }
        if let Some(function) = named(&Function::ALL, &word) {
            return Ok(Node::Function(function, self.arguments(function, at)?));
        }
        match named(&Aggregate::ALL, &word) {
            Some(aggregate) => self.query(aggregate, at).map(Node::Samples),
            None => {
                let names = Function::ALL
                    .iter()
                    .map(|f| f.0)
                    .chain(Aggregate::ALL.iter().map(|a| a.0));
                let names: Vec<&str> = names.collect();
                let what = format!("`{word}` is no function or aggregate; there are {}", names.join(", "));
                Err(FormulaError { at, what })
            }
        }
    }

    fn arguments(&mut self, function: Function, at: usize) -> ParseResult<Vec<Node>> {
        self.expect("(")?;
        let mut arguments = vec![self.comparison()?];
        while self.take(&[(",", ())]).is_some() {
            arguments.push(self.comparison()?);
        }
        self.expect(")")?;
        if function == Function::Abs && arguments.len() != 1 {
            let what = "`abs` takes one number".into();
            return Err(FormulaError { at, what });
        }
        Ok(arguments)
    }

    fn query(&mut self, aggregate: Aggregate, at: usize) -> ParseResult<Query> {
        self.expect("(")?;
        let mut query = Query {
            aggregate,
            series: self.word("the name of samples")?,
            labels: Labels::new(),
            from: None,
            to: None,
            goal: None,
            band: None,
            at,
        };
        while self.take(&[(",", ())]).is_some() {
            self.key(&mut query)?;
        }
        self.expect(")")?;
        query.complete()
    }

    fn key(&mut self, query: &mut Query) -> ParseResult<()> {
        let at = self.place();
        let key = self.word("a label, `from`, `to`, `goal` or `band`")?;
        self.expect("=")?;
        let value_at = self.place();
        let value = self.word("a value")?;
        let again = match key.as_str() {
            "from" => query.from.replace(index(&value, value_at)?).is_some(),
            "to" => query.to.replace(index(&value, value_at)?).is_some(),
            "goal" => query.goal.replace(number(&value, value_at)?).is_some(),
            "band" => query.band.replace(number(&value, value_at)?).is_some(),
            _ => query.labels.insert(key.clone(), value).is_some(),
        };
        if again {
            let what = format!("`{key}` is given twice");
            return Err(FormulaError { at, what });
        }
        Ok(())
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// Position of the next token, in characters from 0.
    fn place(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    /// Takes the next token if it is one of these signs.
    fn take<T: Copy>(&mut self, signs: &[(&str, T)]) -> Option<T> {
        let Some(Token::Sign(sign)) = self.peek() else {
            return None;
        };
        let found = named(signs, sign)?;
        self.next += 1;
        Some(found)
    }

    fn expect(&mut self, sign: &str) -> ParseResult<()> {
        match self.take(&[(sign, ())]) {
            Some(()) => Ok(()),
            None => Err(self.error(format!("expected `{sign}`, found {}", describe(self.peek())))),
        }
    }

    fn word(&mut self, expected: &str) -> ParseResult<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            other => Err(self.error(format!("expected {expected}, found {}", describe(other)))),
        }
    }

    fn error(&self, what: String) -> FormulaError {
        FormulaError { at: self.place(), what }
    }
}

impl Query {
    /// Refuses a query without the numbers that its aggregate needs.
    fn complete(self) -> ParseResult<Query> {
        let needs: &[(&str, bool)] = match self.aggregate {
            Aggregate::Off => &[("goal", self.goal.is_some()), ("band", self.band.is_some())],
            Aggregate::Overshoot => &[("goal", self.goal.is_some())],
            Aggregate::Settling => &[
                ("goal", self.goal.is_some()),
                ("band", self.band.is_some()),
                ("from", self.from.is_some()),
            ],
            _ => &[],
        };
        match needs.iter().find(|(_, given)| !given) {
            None => Ok(self),
            Some((key, _)) => Err(FormulaError {
                at: self.at,
                what: format!("`{key}=` is missing"),
            }),
        }
    }
}

fn two(operator: Operator, left: Node, right: Node) -> Node {
    Node::Two(operator, Box::new(left), Box::new(right))
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn number(word: &str, at: usize) -> ParseResult<f64> {
    let parsed: Option<f64> = word.parse().ok().filter(|number: &f64| number.is_finite());
    parsed.ok_or_else(|| FormulaError {
        at,
        what: format!("`{word}` is no number"),
    })
}

fn index(word: &str, at: usize) -> ParseResult<usize> {
    word.parse().map_err(|_| FormulaError {
        at,
        what: format!("`{word}` is no number of a sample: they count up from 0"),
    })
}

fn describe(token: Option<&Token>) -> String {
    match token {
        None => "the end".into(),
        Some(Token::Word(word)) => format!("`{word}`"),
        Some(Token::Sign(sign)) => format!("`{sign}`"),
    }
}
