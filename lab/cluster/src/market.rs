//! Orders of a stock market among the clients' transactions, and what must stay whatever happens.
//!
//! Money and shares only change hands, so each kind's sum stays 0: the market has what users lack. An order is carried
//! out if its user's money and shares are as they were read (`Expect`), so none becomes negative. Two clients trade for
//! one user, and all with the market.

use std::collections::BTreeMap;

use punctual_federation::message::{Key, Operation, Value, Work};
use punctual_units::Nanos;

/// Number of stocks: few, so that orders meet.
const STOCKS: u32 = 2;
/// Money for a user that can neither buy nor sell.
const GRANT: i64 = 50;

/// State of a user that its client knows: keys of money and shares of a stock, and their records as last read.
#[derive(Clone, Debug, Default)]
pub(super) struct Portfolio {
    read: Option<(u32, [Option<Value>; 2])>,
}

fn money(user: u32) -> Key {
    format!("money {user}").into_bytes()
}

fn share(stock: u32, user: u32) -> Key {
    format!("share {stock} {user}").into_bytes()
}

fn number(value: Option<&Value>) -> i64 {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Portfolio {
    /// The next work of a client's user: reads what it has of a stock, or trades with what was read.
    pub fn work(&mut self, client: u32, random: &mut impl rand::RngExt) -> Work {
        let user = client / 2;
        let Some((stock, [cash, held])) = self.read.take() else {
            let stock = random.random_range(0..STOCKS);
            return Work::Query {
                keys: vec![money(user), share(stock, user)],
                latest: random.random_bool(0.5),
                max_age: Nanos::MAX,
            };
        };
        let (count, price) = (random.random_range(1..5i64), random.random_range(1..10i64));
        let (buys, sells) = (number(cash.as_ref()) >= count * price, number(held.as_ref()) >= count);
        let signed = match (buys, sells) {
            (true, true) if random.random_bool(0.5) => -count,
            (true, _) => count,
            (false, true) => -count,
            (false, false) => 0,
        };
        let paid = if signed == 0 { -GRANT } else { signed * price };
        let operations = [
            Operation::Expect(money(user), cash),
            Operation::Expect(share(stock, user), held),
            Operation::Add(money(user), -paid),
            Operation::Add(b"money market".to_vec(), paid),
            Operation::Add(share(stock, user), signed),
            Operation::Add(format!("share {stock} market").into_bytes(), -signed),
        ];
        Work::Transaction(operations.into())
    }

    /// Takes what a query of [`Portfolio::work`] has read.
    pub fn learn(&mut self, keys: &[Key], values: &[Option<Value>]) {
        let of = |stock: &u32| {
            keys.get(1)
                .is_some_and(|key| key.starts_with(format!("share {stock} ").as_bytes()))
        };
        if let ([cash, held], Some(stock)) = (values, (0..STOCKS).find(of)) {
            self.read = Some((stock, [cash.clone(), held.clone()]));
        }
    }
}

/// Checks that no money and no share was lost or made, and that no user has less than nothing.
///
/// # Errors
/// What is wrong.
pub(super) fn check(records: &BTreeMap<Key, Value>) -> Result<(), String> {
    let mut sums: BTreeMap<&[u8], i64> = BTreeMap::new();
    for (key, value) in records {
        let kind = match key.as_slice() {
            key if key.starts_with(b"money ") => &key[..5],
            key if key.starts_with(b"share ") => &key[..7],
            _ => continue,
        };
        let has = number(Some(value));
        *sums.entry(kind).or_default() += has;
        if has < 0 && !key.ends_with(b" market") {
            return Err(format!("{} has {has}", key.escape_ascii()));
        }
    }
    match sums.iter().find(|(_, sum)| **sum != 0) {
        Some((kind, sum)) => Err(format!("of {}, {sum} too many", kind.escape_ascii())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_made_or_negative_is_found() {
        let of = |records: &[(&str, &str)]| {
            let bytes = |text: &str| text.as_bytes().to_vec();
            check(&records.iter().map(|(key, value)| (bytes(key), bytes(value))).collect())
        };
        let whole = [
            ("money 0", "10"),
            ("money market", "-10"),
            ("register 1", "7"),
            ("share 1 0", "3"),
        ];
        assert!(of(&whole).unwrap_err().contains("of share 1, 3 too many"));
        assert_eq!(of(&[&whole[..], &[("share 1 market", "-3")]].concat()), Ok(()));
        let negative = [("share 1 0", "-3"), ("share 1 market", "3")];
        assert!(of(&negative).unwrap_err().contains("share 1 0 has -3"));
    }
}
