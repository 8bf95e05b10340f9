//! `punctual-lab cluster load --workload stock`: the stock trading service of Chronos-C's testbed, on real servers.
//!
//! Each client is a user of the market in a closed loop: it thinks for 3.5 to 4 s, from a third of the run on for 1 to
//! 1.5 s, and nine of ten requests are queries of 60 to 100 items. With `--rate` requests come at random instants
//! instead, whether the servers keep up or not. Sources set each price every 0.5 to 5 s. At the end money and shares
//! are counted, which every order only moves.

mod line;
mod market;
mod tally;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use punctual_server::resp::Reply;
use punctual_units::Nanos;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub use self::line::Line;
use self::line::number;
pub use self::market::Balance;
pub use self::market::Kind;
use self::market::{Random, User, price};
pub use self::tally::Ending;
pub use self::tally::StockTally;
use crate::args::ClusterLoad;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Think times in milliseconds: before a third of the run, and from there on.
const THINK_MS: [(f64, f64); 2] = [(3500.0, 4000.0), (1000.0, 1500.0)];
/// Seconds between two updates of a price.
const UPDATE_S: (f64, f64) = (0.5, 5.0);
/// Time within which each price is set for the first time: a short run reads fresh ones, too.
const FIRST_MAX: Duration = Duration::from_secs(2);
/// Sources of prices, each with a connection and every sixteenth stock: what a connection sends is answered in turn.
const SOURCES: usize = 16;
/// Most clients: each is a thread.
const CLIENTS_MAX: u32 = 2000;
/// Time limit of a request of the set-up.
const SET_UP_MAX: Duration = Duration::from_secs(20);
/// Records in one request of the set-up, and of the count at the end.
const TOGETHER: usize = 100;
/// Attempts of such a request.
const ATTEMPTS: usize = 40;
/// Interval between looks whether a load is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time beyond the deadline for which a client waits for its answer.
const GRACE: Duration = Duration::from_millis(250);

/// Rule for the instants of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each client thinks before a request.
    Thinking,
    /// No client waits: what the servers can do.
    Busy,
    /// Requests a second, at random instants, whether the servers keep up or not.
    Open(f64),
}

/// Parameters of the load.
#[derive(Clone, Debug)]
pub struct Trade {
    /// Servers: clients and sources are spread evenly.
    pub addresses: Vec<SocketAddr>,
    /// Number of users, each with a request at a time.
    pub clients: usize,
    pub stocks: usize,
    pub pace: Pace,
    /// Time from a request's instant by which its answer is timely.
    pub deadline: Duration,
    /// Deadline that requests carry: the same, or longer where servers are to know none.
    pub told: Duration,
    pub duration: Duration,
    /// Requests and updates that end earlier after the begin are not counted.
    pub settled: Duration,
    pub seed: u64,
}

/// State of the run that its threads share.
struct MarketRun<'t> {
    trade: &'t Trade,
    began: Instant,
    ends: &'t AtomicBool,
    /// Of an open load: the instant of the next request, and random numbers.
    arrivals: Mutex<(Duration, Random)>,
}

/// Carries out `punctual-lab cluster load --workload stock`.
pub fn load(arguments: &ClusterLoad) -> Result<(), Failure> {
    let input = |what: String| Failure::of(what);
    if arguments.dialling.authority.is_some() || arguments.dialling.user.is_some() {
        return Err(input(
            "--workload stock: reaches servers without users and TLS only".into(),
        ));
    }
    if arguments.clients > CLIENTS_MAX {
        let what = format!("--workload stock: at most {CLIENTS_MAX} --clients, each a thread");
        return Err(input(what));
    }
    let json = OutputFile::report(arguments.json.as_ref())?;
    let (clients, stocks) = (arguments.clients as usize, arguments.stocks as usize);
    let addresses: Vec<SocketAddr> = arguments.places.iter().map(|place| place.socket).collect();
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let handled = flag::register_conditional_default(signal, Arc::clone(&ends))
            .and_then(|_| flag::register(signal, Arc::clone(&ends)));
        handled.map_err(|error| input(format!("a handler of signals: {error}")))?;
    }
    if json.is_none() {
        print(&format!("{stocks} stocks, {clients} users: setting up ..\n"))?;
    }
    let mut writer = set_up(&addresses, clients, stocks).map_err(input)?;
    let trade = Trade {
        addresses,
        clients,
        stocks,
        pace: arguments.rate.map_or(Pace::Thinking, Pace::Open),
        deadline: arguments.deadline.into(),
        told: arguments.deadline.into(),
        duration: arguments.duration.into(),
        settled: Duration::ZERO,
        seed: arguments.seed,
    };
    let mut tally = trade.run(&ends, |_| Ok(()))?;
    let found = count(&mut writer, clients, stocks).map_err(input)?;
    tally.balances(Balance::at_first(clients, stocks), found);
    if arguments.json.as_deref() != Some(Path::new("-")) {
        print(&tally.text())?;
    }
    if let Some(json) = json {
        json.json(&tally.document())?;
    }
    match tally.is_conserved() {
        true => Ok(()),
        false => Err(Failure::Refuted("money or shares were lost, made or negative".into())),
    }
}

impl Trade {
    /// Trades until the end of the load, or until `ends`. `each` is called every [`LOOK_EVERY`] with the time since the
    /// begin; its error ends the load.
    ///
    /// # Errors
    /// That of `each`.
    pub fn run(
        &self,
        ends: &AtomicBool,
        mut each: impl FnMut(Duration) -> Result<(), Failure>,
    ) -> Result<StockTally, Failure> {
        let over = AtomicBool::new(false);
        let run = &MarketRun {
            trade: self,
            began: Instant::now(),
            ends: &over,
            arrivals: Mutex::new((Duration::ZERO, Random(self.seed))),
        };
        let mut tally = StockTally::new(Nanos(self.deadline.as_nanos() as u64));
        let mut failed = Ok(());
        let updates = thread::scope(|scope| {
            let source = |source| {
                let random = Random(self.seed ^ (0x5EED + source as u64));
                scope.spawn(move || run.set_prices(source, random))
            };
            let sources: Vec<_> = (0..SOURCES).map(source).collect();
            let user = |number: usize| {
                let random = Random(self.seed.wrapping_add(1 + number as u64));
                let stocks = self.stocks;
                scope.spawn(move || run.trade(User { number, stocks }, random))
            };
            let users: Vec<_> = (0..self.clients).map(user).collect();
            while run.began.elapsed() < self.duration && failed.is_ok() && !ends.load(Ordering::SeqCst) {
                thread::sleep(LOOK_EVERY);
                failed = each(run.began.elapsed());
            }
            over.store(true, Ordering::SeqCst);
            for user in users {
                tally.join(user.join().unwrap_or_default());
            }
            let set = sources.into_iter().map(|source| source.join().unwrap_or_default());
            set.sum()
        });
        tally.ran(run.began.elapsed().into(), self.settled.into(), updates);
        failed.map(|()| tally)
    }
}

/// Makes the market's records and prices. Returns a connection to a server that takes writes.
pub fn set_up(addresses: &[SocketAddr], clients: usize, stocks: usize) -> Result<Line, String> {
    let records: Vec<(String, String)> = market::records(clients, stocks).collect();
    let set = |records: &[(String, String)]| {
        let pairs = records.iter().flat_map(|(key, value)| [key.clone(), value.clone()]);
        std::iter::once("MSET".to_owned()).chain(pairs).collect::<Vec<String>>()
    };
    let mut refused = String::new();
    let found = addresses.iter().find_map(|address| {
        let mut line = Line::connect(*address);
        match line.ask(&set(&records[..1]), SET_UP_MAX) {
            Some(Reply::Simple(_)) => Some(line),
            Some(other) => {
                refused = format!(": {other:?}");
                None
            }
            None => None,
        }
    });
    let mut line = found.ok_or_else(|| {
        format!("no server takes writes{refused}: name a balancer, or the master (`punctual cluster run`)")
    })?;
    for some in records.chunks(TOGETHER) {
        // On a busy machine a master may change meanwhile; to set a record twice is to set it.
        let mut replies = (0..ATTEMPTS).map(|_| line.ask(&set(some), SET_UP_MAX));
        let is_set = |reply: &Option<Reply>| matches!(reply, Some(Reply::Simple(_)));
        replies
            .find(is_set)
            .ok_or("no server has set the records of the market within 40 attempts")?;
    }
    for source in 0..SOURCES {
        let address = addresses[source % addresses.len()];
        let mut line = Line::connect(address);
        let mut own: Vec<usize> = (source..stocks).step_by(SOURCES).collect();
        let until = Instant::now() + SET_UP_MAX * 3;
        while !own.is_empty() {
            let some: Vec<usize> = own.drain(..own.len().min(TOGETHER)).collect();
            let set = |stock: &usize| ["TSET".to_owned(), price(*stock), "1000".to_owned()].to_vec();
            let replies = line.exchange(&some.iter().map(set).collect::<Vec<_>>(), SET_UP_MAX);
            let replies = replies.ok_or_else(|| format!("{address} takes no prices"))?;
            // A new object needs a transaction; those that took too long are set again.
            let unset = |reply: &Reply| match reply {
                Reply::Error(text) => Ending::of_error(text) != Ending::Refused,
                _ => false,
            };
            let again = some.iter().zip(&replies).filter(|(_, reply)| unset(reply));
            own.extend(again.map(|(stock, _)| *stock));
            let refused =
                |reply: &&Reply| !matches!(reply, Reply::Simple(_)) && (!unset(reply) || until <= Instant::now());
            if let Some(other) = replies.iter().find(refused) {
                return Err(format!(
                    "{other:?}: for {stocks} prices give `cluster run` a file with `objects_max = {stocks}` and \
                     `validity = \"10s\"`, or choose fewer --stocks"
                ));
            }
        }
    }
    Ok(line)
}

/// Counts money and shares.
pub fn count(line: &mut Line, clients: usize, stocks: usize) -> Result<Balance, String> {
    let keys: Vec<String> = market::records(clients, stocks).map(|(key, _)| key).collect();
    let mut balance = Balance::default();
    for some in keys.chunks(TOGETHER) {
        let words: Vec<String> = std::iter::once("MGET".to_owned()).chain(some.iter().cloned()).collect();
        // A master that has changed meanwhile may take a while.
        let mut asked = (0..ATTEMPTS).map(|_| line.ask(&words, SET_UP_MAX));
        let values = asked.find_map(|reply| match reply {
            Some(Reply::Array(values)) => Some(values),
            _ => {
                thread::sleep(Duration::from_millis(100));
                None
            }
        });
        let values = values.ok_or("no server answers the count at the end")?;
        some.iter()
            .zip(&values)
            .for_each(|(key, value)| balance.add(key, number(value)));
    }
    Ok(balance)
}

impl MarketRun<'_> {
    fn over(&self) -> bool {
        self.began.elapsed() >= self.trade.duration || self.ends.load(Ordering::SeqCst)
    }

    fn is_settled(&self) -> bool {
        self.began.elapsed() >= self.trade.settled
    }

    /// Waits until `at` after the begin. Returns false where the run is over before.
    fn wait(&self, at: Duration) -> bool {
        loop {
            let now = self.began.elapsed();
            if self.over() || at >= self.trade.duration {
                return false;
            }
            if now >= at {
                return true;
            }
            thread::sleep((at - now).min(Duration::from_millis(100)));
        }
    }

    /// Sets each price of a source every 0.5 to 5 s. Returns the number of updates that were acknowledged.
    fn set_prices(&self, source: usize, mut random: Random) -> u64 {
        let mut line = self.line(source);
        let (least, most) = UPDATE_S;
        let mut due: BinaryHeap<Reverse<(Duration, usize, Duration)>> = (source..self.trade.stocks)
            .step_by(SOURCES)
            .map(|stock| {
                let period = Duration::from_secs_f64(least + random.unit() * (most - least));
                Reverse((period.min(FIRST_MAX).mul_f64(random.unit()), stock, period))
            })
            .collect();
        let mut prices = vec![1000i64; self.trade.stocks];
        let mut set = 0;
        while let Some(Reverse((first, ..))) = due.peek()
            && self.wait(*first)
        {
            let mut requests = Vec::new();
            let now = self.began.elapsed() + Duration::from_millis(5);
            while let Some(Reverse((at, stock, period))) = due.peek().copied().filter(|Reverse((at, ..))| *at <= now) {
                due.pop();
                due.push(Reverse((at + period, stock, period)));
                prices[stock] = (prices[stock] + random.below(21) as i64 - 10).clamp(100, 10_000);
                requests.push(vec!["TSET".to_owned(), price(stock), prices[stock].to_string()]);
            }
            let replies = line.exchange(&requests, self.trade.told + GRACE).unwrap_or_default();
            if self.is_settled() {
                set += replies.iter().filter(|reply| matches!(reply, Reply::Simple(_))).count() as u64;
            }
        }
        set
    }

    /// When a client's next request is due, after the begin.
    fn next(&self, random: &mut Random) -> Duration {
        let now = self.began.elapsed();
        match self.trade.pace {
            Pace::Busy => now,
            Pace::Thinking => {
                let (least, most) = THINK_MS[usize::from(now * 3 >= self.trade.duration)];
                now + Duration::from_secs_f64((least + random.unit() * (most - least)) / 1e3)
            }
            Pace::Open(rate) => {
                let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                let (at, random) = &mut *arrivals;
                *at += Duration::from_secs_f64(-(1.0 - random.unit()).ln() / rate);
                *at
            }
        }
    }

    fn line(&self, number: usize) -> Line {
        Line::connect(self.trade.addresses[number % self.trade.addresses.len()])
    }

    /// The requests of one user until the end of the run.
    fn trade(&self, user: User, mut random: Random) -> StockTally {
        let mut tally = StockTally::new(Nanos(self.trade.deadline.as_nanos() as u64));
        let mut line = self.line(user.number);
        loop {
            let at = self.next(&mut random);
            if !self.wait(at) {
                return tally;
            }
            let kind = user.draw(&mut random);
            let by = at + self.trade.deadline;
            let (ending, items, stale) = match kind {
                Kind::ViewStock | Kind::ViewPortfolio => self.query(&mut line, user.query(kind, &mut random), by),
                Kind::Purchase | Kind::Sale => (self.order(&mut line, user, kind, &mut random, by), 3, 0),
            };
            let took = self.began.elapsed().saturating_sub(at);
            if self.is_settled() {
                tally.ended(kind, ending, items, stale, Nanos(took.as_nanos() as u64));
            }
            if ending == Ending::Timely && Kind::QUERIES.contains(&kind) {
                tally.timely_at(self.began.elapsed(), items);
            }
            if ending == Ending::Unknown {
                line.again(&self.trade.addresses);
            }
        }
    }

    /// Milliseconds until `by` for `DEADLINE`, and the time that a client waits; `None` where it has passed.
    fn left(&self, by: Duration) -> Option<(String, Duration)> {
        // A request whose answer cannot be timely any more is not sent, whatever deadline it would carry.
        let left = by.checked_sub(self.began.elapsed())? + (self.trade.told - self.trade.deadline);
        let millis = u64::try_from(left.as_millis()).ok().filter(|millis| *millis > 0)?;
        Some((millis.to_string(), left + GRACE))
    }

    fn query(&self, line: &mut Line, keys: Vec<String>, by: Duration) -> (Ending, u64, u64) {
        let items = keys.len() as u64;
        let Some((millis, wait)) = self.left(by) else {
            return (Ending::Unsent, items, 0);
        };
        let words = ["DEADLINE".to_owned(), millis, "MGET".to_owned()]
            .into_iter()
            .chain(keys);
        match line.ask(&words.collect::<Vec<_>>(), wait) {
            Some(Reply::Array(values)) => {
                let stale = values.iter().filter(|value| matches!(value, Reply::Null)).count() as u64;
                (self.served(by), items, stale)
            }
            Some(Reply::Error(text)) => (Ending::of_error(&text), items, 0),
            _ => (Ending::Unknown, items, 0),
        }
    }

    fn served(&self, by: Duration) -> Ending {
        match self.began.elapsed() <= by {
            true => Ending::Timely,
            false => Ending::Overdue,
        }
    }

    fn order(&self, line: &mut Line, user: User, kind: Kind, random: &mut Random, by: Duration) -> Ending {
        let order = user.order(random);
        let Some((_, wait)) = self.left(by) else {
            return Ending::Unsent;
        };
        let keys = [user.cash(), user.share(order.0)];
        let watch = std::iter::once("WATCH".to_owned()).chain(keys.clone()).collect();
        let read = std::iter::once("MGET".to_owned())
            .chain(keys)
            .chain([price(order.0)])
            .collect();
        let Some(replies) = line.exchange(&[watch, read], wait) else {
            return Ending::Unknown;
        };
        let values = match replies.as_slice() {
            [Reply::Simple(_), Reply::Array(values)] => values,
            replies => return Ending::of_replies(replies),
        };
        let [Some(cash), Some(held), price] = [0, 1, 2].map(|place| values.get(place).and_then(number)) else {
            return Ending::Refused;
        };
        let trade = price.and_then(|price| user.trade(kind, order, (cash, held, price)));
        let (Some((_, commands)), Some((millis, wait))) = (trade, self.left(by)) else {
            // Nothing to buy or sell, no fresh price, or no time left: the watch ends.
            line.ask(&["UNWATCH".to_owned()], wait);
            return if price.is_none() {
                Ending::Refused
            } else {
                self.served(by)
            };
        };
        let mut requests = vec![vec!["MULTI".to_owned()]];
        requests.extend(commands);
        requests.push(["DEADLINE".to_owned(), millis, "EXEC".to_owned()].to_vec());
        match line.exchange(&requests, wait).as_deref() {
            Some([.., Reply::Array(_)]) => self.served(by),
            Some([.., Reply::Null | Reply::NullArray]) => Ending::Conflict,
            Some(replies) => Ending::of_replies(replies),
            None => Ending::Unknown,
        }
    }
}
