//! The records of a stock market, and what its clients ask for. Pure.
//!
//! Seven tables, of which each record has a key `table:number` or `table:user:stock`:
//!
//! | table | a record is |
//! |---|---|
//! | `company` | the name of a stock's company |
//! | `price` | a stock's price in cents, a temporal object that a source sets |
//! | `market` | the market's shares of a stock |
//! | `user` | a user's name |
//! | `cash` | a user's money in cents; `cash:market` is the market's |
//! | `share` | a user's shares of a stock in the portfolio |
//! | `order` | a purchase or a sale |
//!
//! Shares and money only change hands, so their sums stay.

use punctual_federation::balancer::{below, mixed};

/// Stocks in a user's portfolio. A query reads 60 to 100 items: a price and a holding of 30 to 50 of these.
pub const PORTFOLIO: usize = 50;
/// Shares that a user has of each stock of the portfolio at first, and the market of each stock.
pub const SHARES: i64 = 100;
pub const MARKET_SHARES: i64 = 1_000_000;
/// Money at first, in cents: each user's, and the market's.
pub const CASH: i64 = 10_000_000;
pub const MARKET_CASH: i64 = 1_000_000_000_000;
/// Most shares of one purchase or sale.
const ORDER_MAX: u64 = 20;
/// Share of requests that are queries.
const QUERIES: f64 = 0.9;
/// Key of the market's money.
pub const MARKET: &str = "cash:market";

/// A sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// A share, 0 included, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        below(self.next(), count)
    }
}

punctual_units::named! {
    /// The kinds of requests, as in the paper's testbed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind by name {
        /// Prices of 60 to 100 stocks.
        ViewStock = "view-stock",
        /// Prices and holdings of 30 to 50 stocks of the portfolio.
        ViewPortfolio = "view-portfolio",
        Purchase = "purchase",
        Sale = "sale",
    }
}

impl Kind {
    pub const QUERIES: [Kind; 2] = [Kind::ViewStock, Kind::ViewPortfolio];
    pub const ORDERS: [Kind; 2] = [Kind::Purchase, Kind::Sale];
}

/// A user of the market.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub number: usize,
    /// Number of stocks of the market.
    pub stocks: usize,
}

impl User {
    /// The stocks of the portfolio.
    pub fn portfolio(self) -> impl Iterator<Item = usize> {
        let first = below(mixed(self.number as u64), self.stocks);
        (0..PORTFOLIO.min(self.stocks)).map(move |place| (first + place) % self.stocks)
    }

    pub fn cash(self) -> String {
        format!("cash:{}", self.number)
    }

    pub fn share(self, stock: usize) -> String {
        format!("share:{}:{stock}", self.number)
    }

    /// The next request's kind.
    pub fn draw(self, random: &mut Random) -> Kind {
        let at = if random.unit() < QUERIES { 0 } else { 2 };
        Kind::ALL[at + random.below(2)]
    }

    /// Keys that a query reads.
    pub fn query(self, kind: Kind, random: &mut Random) -> Vec<String> {
        if kind == Kind::ViewPortfolio {
            let count = 30 + random.below(21);
            let stocks = self.portfolio().take(count);
            return stocks.flat_map(|stock| [price(stock), self.share(stock)]).collect();
        }
        let (first, count) = (random.below(self.stocks), 60 + random.below(41));
        (0..count.min(self.stocks))
            .map(|place| price((first + place) % self.stocks))
            .collect()
    }

    /// A stock of the portfolio, and a number of shares to buy or sell.
    pub fn order(self, random: &mut Random) -> (usize, i64) {
        let place = random.below(PORTFOLIO.min(self.stocks));
        let stock = self.portfolio().nth(place).unwrap_or_default();
        (stock, 1 + (random.next() % ORDER_MAX) as i64)
    }

    /// The commands of an order's transaction, given what the user has: shares that change hands and what they cost.
    /// `None` where nothing can be bought or sold.
    pub fn trade(
        self,
        kind: Kind,
        (stock, wanted): (usize, i64),
        (cash, held, price): (i64, i64, i64),
    ) -> Option<(i64, Vec<Vec<String>>)> {
        let most = match kind {
            Kind::Purchase => cash / price.max(1),
            _ => held,
        };
        let shares = wanted.min(most);
        if shares <= 0 {
            return None;
        }
        let signed = if kind == Kind::Purchase { shares } else { -shares };
        let by = |key: String, amount: i64| vec!["INCRBY".to_owned(), key, amount.to_string()];
        let commands = vec![
            by(self.cash(), -signed * price),
            by(self.share(stock), signed),
            by(MARKET.to_owned(), signed * price),
            by(format!("market:{stock}"), -signed),
            vec![
                "SET".to_owned(),
                format!("order:{}", self.number),
                format!("{signed} of {stock} at {price}"),
            ],
        ];
        Some((shares, commands))
    }
}

/// Key of a stock's price.
pub fn price(stock: usize) -> String {
    format!("price:{stock}")
}

/// The records of the market at first, in pairs of key and value, but the prices.
pub fn records(users: usize, stocks: usize) -> impl Iterator<Item = (String, String)> {
    let of_stock = |stock| {
        [
            (format!("company:{stock}"), format!("company {stock}")),
            (format!("market:{stock}"), MARKET_SHARES.to_string()),
        ]
    };
    let of_user = move |number| {
        let user = User { number, stocks };
        let own = [
            (format!("user:{number}"), format!("user {number}")),
            (user.cash(), CASH.to_string()),
        ];
        let shares = user
            .portfolio()
            .map(move |stock| (user.share(stock), SHARES.to_string()));
        own.into_iter().chain(shares)
    };
    let market = (MARKET.to_owned(), MARKET_CASH.to_string());
    std::iter::once(market)
        .chain((0..stocks).flat_map(of_stock))
        .chain((0..users).flat_map(of_user))
}

/// Invariants of the market: sums of money and shares, and nothing negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Money of all, in cents.
    pub cash: i64,
    /// Shares of all stocks.
    pub shares: i64,
    /// Records that are negative, or missing.
    pub wrong: u64,
}

impl Balance {
    /// The sums at first.
    pub fn at_first(users: usize, stocks: usize) -> Balance {
        let portfolio = PORTFOLIO.min(stocks) as i64;
        Balance {
            cash: MARKET_CASH + users as i64 * CASH,
            shares: stocks as i64 * MARKET_SHARES + users as i64 * portfolio * SHARES,
            wrong: 0,
        }
    }

    /// Adds a record of money or shares; others count nowhere.
    pub fn add(&mut self, key: &str, value: Option<i64>) {
        let sum = match key.split(':').next() {
            Some("cash") => &mut self.cash,
            Some("share" | "market") => &mut self.shares,
            _ => return,
        };
        match value {
            Some(value) if value >= 0 => *sum += value,
            _ => self.wrong += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn balance(records: &BTreeMap<String, String>) -> Balance {
        let mut balance = Balance::default();
        for (key, value) in records {
            balance.add(key, value.parse().ok());
        }
        balance
    }

    fn execute(records: &mut BTreeMap<String, String>, commands: &[Vec<String>]) {
        for command in commands {
            let [verb, key, value] = command.as_slice() else {
                panic!("{command:?}")
            };
            let had: i64 = records.get(key).and_then(|had| had.parse().ok()).unwrap_or(0);
            let new = match verb.as_str() {
                "INCRBY" => (had + value.parse::<i64>().unwrap()).to_string(),
                _ => value.clone(),
            };
            records.insert(key.clone(), new);
        }
    }

    #[test]
    fn orders_keep_money_and_shares_and_a_lost_share_is_found() {
        let (users, stocks) = (7, 60);
        let mut all: BTreeMap<String, String> = records(users, stocks).collect();
        let first = Balance::at_first(users, stocks);
        assert_eq!(balance(&all), first);
        let mut random = Random(1);
        let mut traded = 0;
        for round in 0..5000 {
            let user = User {
                number: round % users,
                stocks,
            };
            let kind = Kind::ALL[2 + random.below(2)];
            let order = user.order(&mut random);
            let number = |key: String| all[&key].parse::<i64>().unwrap();
            // So dear that money and shares run out.
            let has = (number(user.cash()), number(user.share(order.0)), 100_000);
            if let Some((shares, commands)) = user.trade(kind, order, has) {
                traded += shares;
                execute(&mut all, &commands);
            }
        }
        assert_eq!(balance(&all), first);
        assert!(traded > 5000, "{traded}");
        all.insert("share:3:1".into(), "-1".into());
        all.remove("market:7");
        let found = balance(&all);
        assert!(found.wrong == 1 && found.shares < first.shares, "{found:?}");
    }

    #[test]
    fn queries_read_as_many_items_as_the_paper_s() {
        let (user, mut random) = (
            User {
                number: 3,
                stocks: 3000,
            },
            Random(5),
        );
        let mut queries = 0;
        for _ in 0..2000 {
            let kind = user.draw(&mut random);
            if matches!(kind, Kind::ViewStock | Kind::ViewPortfolio) {
                queries += 1;
                let keys = user.query(kind, &mut random);
                assert!((60..=100).contains(&keys.len()), "{}", keys.len());
            }
        }
        assert!((1740..=1860).contains(&queries), "{queries}");
    }
}
