//! Guessers and users in virtual time: one thread checks, guessers wait for their answers or lose patience.

use super::*;

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
    /// Times until wrong passwords were answered, by user.
    wrong: Vec<(usize, Nanos)>,
}

impl World {
    fn new() -> World {
        let mut logins = Logins::default();
        logins.takes(CHECK);
        World {
            logins,
            now: Time(0),
            coming: BTreeMap::new(),
            clients: BTreeMap::new(),
            known: vec![false; USERS],
            begun: 0,
            right: Vec::new(),
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
        let took = self.now.since(since);
        if is_right {
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
                number: 0,
                since: at,
                is_closed: false,
            });
            if let Some(Handle { id, .. }) = gives_way {
                assert!(self.clients.remove(&id).is_none_or(|(client, _)| !client.is_right));
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

#[test]
fn the_oldest_claim_of_the_busiest_source_gives_way() {
    let mut logins = Logins::default();
    let claim = |id: u64, address: u32| Waiting {
        connection: World::handle(id),
        source: source(IpAddr::from(address.to_be_bytes())),
        claim: LoginClaim {
            user: None,
            password: Vec::new(),
        },
        is_wrong: false,
        number: 0,
        since: Time(id),
        is_closed: false,
    };
    for id in 0..CLAIMS_MAX as u64 {
        assert_eq!(logins.push(claim(id, u32::from(id % 3 == 2))), None);
    }
    assert_eq!(logins.push(claim(1_000, 1)), Some(World::handle(0)));
    logins.closed(World::handle(5));
    assert_eq!(logins.push(claim(1_001, 1)), Some(World::handle(5)));
    logins.forget(World::handle(1));
    assert_eq!(logins.push(claim(1_002, 1)), None);
    let six = |text: &str| source(text.parse().expect("an address"));
    assert_eq!(six("2001:db8:1:2:3::4"), six("2001:db8:1:2:5::6"));
    assert_ne!(six("2001:db8:1:2:3::4"), six("2001:db8:1:3:3::4"));
    assert_eq!(six("::ffff:10.0.0.1"), six("10.0.0.1"));
}
