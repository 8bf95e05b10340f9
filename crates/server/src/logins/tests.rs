//! Guessers and users in virtual time: one thread checks, guessers wait for their answers or lose patience.

use super::*;

const SECOND: Nanos = Nanos::from_secs(1);
/// Time of a check.
const CHECK: Nanos = Nanos::from_millis(100);
/// Guessers that are there from the start.
const GUESSERS: u64 = 80;
/// Users with passwords; guesses of names beyond are of no user.
const USERS: usize = 140;

/// A client: with the right password, or guessing.
#[derive(Clone, Copy)]
struct Client {
    address: u32,
    user: usize,
    is_right: bool,
    /// Time after which it closes its connection, and a guesser comes again.
    patience: Nanos,
}

/// The server's side, and what each client was answered.
struct World {
    logins: Logins,
    now: Time,
    /// Claims to come, by instant and connection.
    coming: BTreeMap<(Time, u64), Client>,
    clients: BTreeMap<u64, (Client, Time)>,
    known: Vec<bool>,
    begun: u64,
    /// Times until right passwords were answered; of those that had no answer, the patience.
    right: Vec<Nanos>,
    /// First claims of users whose connections gave way: they come again after a second.
    again: BTreeMap<usize, Time>,
    /// Times until wrong passwords were answered, by user.
    wrong: Vec<(usize, Nanos)>,
}

impl World {
    fn new() -> World {
        let mut logins = Logins::new(1);
        logins.takes(CHECK);
        World {
            logins,
            now: Time(0),
            coming: BTreeMap::new(),
            clients: BTreeMap::new(),
            known: vec![false; USERS],
            begun: 0,
            right: Vec::new(),
            again: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    fn comes(&mut self, at: Time, client: Client) {
        self.begun += 1;
        self.coming.insert((at, self.begun), client);
    }

    fn handle(id: u64) -> Handle {
        Handle { place: 0, id }
    }

    fn answer(&mut self, id: u64, is_right: bool) {
        let Some((client, since)) = self.clients.remove(&id) else {
            return;
        };
        assert_eq!(client.is_right, is_right);
        let mut took = self.now.since(since);
        if is_right {
            took = self.now.since(*self.again.get(&client.user).unwrap_or(&since));
            self.right.push(took);
        } else {
            self.wrong.push((client.user, took));
            if client.patience < Nanos::MAX {
                self.comes(self.now + CHECK, client);
            }
        }
    }

    /// Takes what comes until an instant: claims, and clients that lose patience.
    fn world_goes_on(&mut self, until: Time) {
        loop {
            let left = self
                .clients
                .iter()
                .map(|(id, (client, since))| (*since + client.patience, *id));
            let (left, next) = (left.min(), self.coming.keys().next().copied());
            let at = [left, next].into_iter().flatten().min().filter(|(at, _)| *at <= until);
            let Some((at, id)) = at else { break };
            self.now = self.now.max(at);
            if left == Some((at, id)) {
                let (client, _) = self.clients.remove(&id).expect("a client");
                self.logins.closed(Self::handle(id));
                match client.is_right {
                    true => self.right.push(client.patience),
                    false => self.comes(at + CHECK, client),
                }
                continue;
            }
            let client = self.coming.remove(&(at, id)).expect("a client");
            self.clients.insert(id, (client, at));
            let user = Some(client.user).filter(|user| *user < USERS);
            let is_known = user.is_none_or(|user| self.known[user]);
            if is_known && client.is_right {
                self.answer(id, true);
                continue;
            }
            let gives_way = self.logins.push(Waiting {
                connection: Self::handle(id),
                source: source(IpAddr::from(client.address.to_be_bytes())),
                claim: LoginClaim {
                    user,
                    password: vec![u8::from(client.is_right)],
                },
                is_wrong: is_known,
                numbers: [0; 2],
                since: at,
                is_closed: false,
            });
            if let Some((client, since)) = gives_way.and_then(|Handle { id, .. }| self.clients.remove(&id))
                && client.is_right
            {
                self.again.entry(client.user).or_insert(since);
                self.comes(at + Nanos::from_secs(1), client);
            }
        }
        self.now = until;
    }

    /// The thread that checks, until an instant; returns its time of checking.
    fn run(&mut self, end: Time) -> Nanos {
        let mut spent = Nanos::ZERO;
        while self.now < end {
            self.world_goes_on(self.now);
            match self.logins.step(self.now) {
                LoginStep::Check(waiting) => {
                    spent += CHECK;
                    self.world_goes_on(self.now + CHECK);
                    if waiting.claim.password == [1] {
                        let user = waiting.claim.user.expect("a user");
                        self.known[user] = true;
                        let known = self.known.clone();
                        let knows = |claim: &LoginClaim| match claim.user {
                            Some(user) if known[user] => Some(claim.password == [1]),
                            Some(_) => None,
                            None => Some(false),
                        };
                        for (Handle { id, .. }, _) in self.logins.settle(waiting.source, knows) {
                            self.answer(id, true);
                        }
                    } else {
                        self.logins.failed(&waiting, CHECK, self.now);
                    }
                }
                LoginStep::Refuse(Handle { id, .. }) => self.answer(id, false),
                LoginStep::Rest(until) => {
                    assert!(until > self.now, "no step is left");
                    let next = self.coming.keys().next().map_or(until, |(at, _)| *at);
                    self.world_goes_on(until.min(next).min(end).max(self.now));
                }
            }
            assert!(self.logins.waiting.len() <= CLAIMS_MAX);
        }
        spent
    }
}

/// 80 guessers, and from the first second on a new user every 0.6 s; returns their times until they were in.
fn users_beside(guesser: impl Fn(u64) -> (u32, usize), patience: Nanos) -> Vec<Nanos> {
    let mut world = World::new();
    for number in 0..GUESSERS {
        let (address, user) = guesser(number);
        let is_right = false;
        world.comes(
            Time(number * 7_000_000),
            Client {
                address,
                user,
                is_right,
                patience,
            },
        );
    }
    for user in 100..USERS {
        let client = Client {
            address: 1,
            user,
            is_right: true,
            patience: Nanos::from_secs(60),
        };
        world.comes(
            Time::ZERO + Nanos::from_millis(1_000 + 600 * (user as u64 - 100)),
            client,
        );
    }
    let end = Time::ZERO + Nanos::from_secs(26);
    let spent = world.run(end);
    assert!(spent.0 <= end.0 * 7 / 10, "{spent} of checking");
    assert_eq!(world.right.len(), USERS - 100);
    assert_eq!(world.again.len(), 0, "a user gave way");
    world.right
}

/// Address and user of each guesser, by its number.
type Guesser = &'static dyn Fn(u64) -> (u32, usize);

#[test]
fn guessers_keep_no_new_user_out() {
    for patience in [Nanos::from_millis(300), Nanos::from_secs(3)] {
        let worlds: [(&str, Guesser); 5] = [
            ("names of no user", &|number| (1, USERS + number as usize)),
            ("names of other users", &|number| (1, number as usize)),
            ("other addresses", &|number| (2 + number as u32, 130)),
            ("another address", &|number| (2, 100 + number as usize)),
            ("everything at once", &|number| {
                (number as u32, 20 * number as usize % 220)
            }),
        ];
        for (name, guesser) in worlds {
            let right = users_beside(guesser, patience);
            let longest = right.iter().max().expect("users");
            assert!(*longest <= Nanos::from_secs(1), "{name}, {patience}: {longest}");
        }
    }
}

/// Nothing tells them apart: the user waits for a turn, behind those that came before and are still there.
#[test]
fn guesses_of_the_same_user_and_address_leave_a_fair_share() {
    for (patience, most) in [(3, 4), (1_000, 45)] {
        let mut world = World::new();
        let client = Client {
            address: 1,
            user: 0,
            is_right: false,
            patience: Nanos::from_secs(patience),
        };
        (0..GUESSERS).for_each(|number| world.comes(Time(number * 7_000_000), client));
        for at in 1..=50 {
            let patience = Nanos::from_secs(60);
            world.comes(
                Time::ZERO + Nanos::from_secs(at),
                Client {
                    is_right: true,
                    patience,
                    ..client
                },
            );
        }
        world.run(Time::ZERO + Nanos::from_secs(60));
        // The first one in is known from then on, and lets all others in.
        assert_eq!(world.right.len(), 50);
        let longest = world.right.iter().max().expect("users");
        assert!(*longest <= Nanos::from_secs(most), "{longest}");
    }
}

/// Neither whether a user exists, nor whether it has logged in, shows in the time of an answer.
#[test]
fn wrong_passwords_are_answered_at_their_pace() {
    let mut world = World::new();
    world.known[7] = true;
    let mut at = Time::ZERO;
    for user in [0, USERS, 7, 0, USERS + 1, 1, 7, 0, 0] {
        at = at + Nanos::from_secs(5);
        let client = Client {
            address: 1,
            user,
            is_right: false,
            patience: Nanos::MAX,
        };
        world.comes(at, client);
        world.run(at + Nanos::from_secs(1));
    }
    let pace = world.logins.pace();
    assert_eq!(pace, Nanos::from_millis(500));
    assert_eq!(
        world.wrong.iter().filter(|(_, took)| *took != pace).count(),
        0,
        "{:?}",
        world.wrong
    );
    assert_eq!(world.wrong.len(), 9);
}

/// A user that mistypes now and then is answered at the pace, beside 80 that guess from other addresses.
#[test]
fn a_mistyped_password_does_not_wait_behind_guesses() {
    for addresses in [1, 8] {
        let mut world = World::new();
        let (is_right, patience) = (false, Nanos::from_secs(1_000));
        for number in 0..GUESSERS {
            let guesser = Client {
                address: 2 + (number % addresses) as u32,
                user: 130,
                is_right,
                patience,
            };
            world.comes(Time(number * 7_000_000), guesser);
        }
        for typo in 0..4 {
            let user = Client {
                address: 1,
                user: typo,
                is_right,
                patience: Nanos::MAX,
            };
            world.comes(Time::ZERO + Nanos::from_secs(6 + 4 * typo as u64), user);
        }
        world.run(Time::ZERO + Nanos::from_secs(30));
        let typos: Vec<Nanos> = world
            .wrong
            .iter()
            .filter(|(user, _)| *user < 4)
            .map(|(_, took)| *took)
            .collect();
        assert_eq!(typos.len(), 4);
        let longest = typos.iter().max().expect("four");
        assert!(*longest <= world.logins.pace() * 2, "{addresses} addresses: {typos:?}");
    }
}

/// Right passwords are no claims of an address that is answered late: its user that mistypes comes before guessers.
#[test]
fn right_passwords_put_no_address_behind() {
    let mut logins = Logins::new(1);
    logins.takes(CHECK);
    let settle = |logins: &mut Logins| logins.settle(claim(0, 1, 0).source, |claim| Some(claim.user == Some(0)));
    for id in 0..2 * u64::from(CLAIMS_RANKED) {
        logins.push(claim(id, 1, 0));
        assert_eq!(settle(&mut logins).len(), 1);
    }
    for id in 100..104 {
        logins.push(claim(id, 2, 1));
    }
    logins.push(claim(200, 1, 1));
    assert_eq!(settle(&mut logins).len(), 0);
    let mut refused = Vec::new();
    for round in 1..=2 {
        match logins.step(Time(200) + logins.pace() * round) {
            LoginStep::Refuse(connection) => refused.push(connection.id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, [100, 200], "behind the first claim of the guessers alone");
}

/// More addresses guess than can be checked, and none comes a second time before all have: a user has its share.
#[test]
fn more_addresses_than_checks_keep_no_user_out_for_long() {
    for (name, sources, names, a_second) in [
        ("8 claims a second", 5_000, 1, 8),
        ("20 claims a second", 5_000, 1, 20),
        ("names of 256 addresses", 256, 5, 20),
    ] {
        let times: Vec<Nanos> = (0..3)
            .map(|seed| {
                let mut world = World::new();
                world.logins.seed = seed;
                for number in 0..300 + a_second * 200 {
                    let client = Client {
                        address: 2 + (number % sources) as u32,
                        user: (number / sources % names) as usize,
                        is_right: false,
                        patience: Nanos::MAX,
                    };
                    world.comes(
                        Time(u64::saturating_sub(number, 300) * 1_000_000_000 / a_second),
                        client,
                    );
                }
                let user = Client {
                    address: 1,
                    user: 130,
                    is_right: true,
                    patience: Nanos::MAX,
                };
                world.comes(Time::ZERO + Nanos::from_millis(5_010 + 37 * seed), user);
                let mut end = Time::ZERO;
                while world.right.is_empty() && end < Time::ZERO + Nanos::from_secs(200) {
                    end = end + SECOND;
                    world.run(end);
                }
                world.right.first().copied().unwrap_or(Nanos::MAX)
            })
            .collect();
        assert!(times.iter().all(|took| *took <= SECOND * 35), "{name}: {times:?}");
    }
}

fn claim(id: u64, address: u32, user: usize) -> Waiting {
    Waiting {
        connection: World::handle(id),
        source: source(IpAddr::from(address.to_be_bytes())),
        claim: LoginClaim {
            user: Some(user),
            password: Vec::new(),
        },
        is_wrong: false,
        numbers: [0; 2],
        since: Time(id),
        is_closed: false,
    }
}

fn checked(logins: &mut Logins, now: Time) -> Waiting {
    match logins.step(now) {
        LoginStep::Check(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

/// One check that was delayed by other load is no reason for longer answers from then on.
#[test]
fn a_delayed_check_hardly_changes_the_pace() {
    let mut world = World::new();
    let pace = world.logins.pace();
    world.logins.push(claim(1, 1, 1));
    let delayed = checked(&mut world.logins, Time(1));
    world.logins.failed(&delayed, CHECK * 100, Time(2) + CHECK * 100);
    assert!(world.logins.pace() <= pace * 2, "{}", world.logins.pace());
    (0..8).for_each(|_| world.logins.takes(CHECK));
    assert_eq!(world.logins.pace(), pace);
    (0..8).for_each(|_| world.logins.takes(CHECK * 4));
    assert_eq!(world.logins.pace(), pace * 4, "if all are slower, so are the answers");
}

/// A connection that claims again while its former claim is being checked is judged by its new password.
#[test]
fn a_check_judges_the_claim_that_was_checked() {
    let mut logins = Logins::new(1);
    logins.takes(CHECK);
    logins.push(claim(1, 1, 1));
    let first = checked(&mut logins, Time(1));
    logins.forget(first.connection);
    let since = Time(2);
    logins.push(Waiting {
        since,
        ..claim(1, 1, 1)
    });
    logins.failed(&first, CHECK, Time(3));
    assert!(!logins.waiting[0].is_wrong);
    // Nor does a claim give way whose check is under way.
    let mut logins = Logins::new(1);
    logins.push(claim(0, 1, 0));
    let first = checked(&mut logins, Time(1));
    let gone = (1..=2 * CLAIMS_MAX as u64).filter_map(|id| logins.push(claim(id, 1, 0)));
    assert!(!gone.collect::<Vec<_>>().contains(&first.connection));
}

/// Passwords that need no check to be known as wrong count as those that were checked.
#[test]
fn known_wrong_passwords_put_their_source_behind() {
    let mut logins = Logins::new(1);
    for id in 1..=WRONG_PASSWORDS_MAX {
        let is_wrong = true;
        logins.push(Waiting {
            is_wrong,
            ..claim(u64::from(id), 1, id as usize)
        });
    }
    logins.push(claim(10, 2, 20));
    logins.push(claim(11, 1, 20));
    assert_eq!(checked(&mut logins, Time(0)).connection, World::handle(10));
}

#[test]
fn a_claim_of_the_busiest_source_gives_way() {
    let mut logins = Logins::new(1);
    for id in 0..CLAIMS_MAX as u64 {
        assert_eq!(logins.push(claim(id, u32::from(id % 3 == 2), id as usize)), None);
    }
    for id in 1_000..1_020 {
        let gone = logins.push(claim(id, 1, id as usize)).expect("there is no room");
        assert!(gone.id >= 1_000 || gone.id % 3 != 2, "{gone:?}");
    }
    let closed = logins
        .waiting
        .iter()
        .find(|waiting| waiting.source == source([0, 0, 0, 1].into()));
    let closed = closed.expect("it waits").connection;
    logins.closed(closed);
    assert_eq!(logins.push(claim(2_001, 1, 0)), Some(closed));
    let one = logins.waiting[0].connection;
    logins.forget(one);
    assert_eq!(logins.push(claim(2_002, 1, 0)), None);
    let six = |text: &str| source(text.parse().expect("an address"));
    assert_eq!(six("2001:db8:1:2:3::4"), six("2001:db8:1:ff02:5::6"));
    assert_ne!(six("2001:db8:1:2:3::4"), six("2001:db8:2:2:3::4"));
    assert_eq!(six("::ffff:10.0.0.1"), six("10.0.0.1"));
}
