//! Carries requests to the session and to the backend, and their replies back.

use std::net::SocketAddr;

use punctual_units::Time;

use super::{Asker, Backend, Door, STEPS_TURN};
use crate::login::LoginClaim;
use crate::logins::source;
use crate::prover::Prover;
use crate::resp::{Reply, Writer};
use crate::session::{Call, ClientFilter, Next, late};
use crate::subscribers::{is_about_keys, messages};
use crate::work::{Handle, JobReply, Work};

/// The reply to ROLE, of a master or of a replica.
fn role(replicates: Option<(Option<SocketAddr>, u64)>) -> Reply {
    Reply::Array(match replicates {
        None => vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())],
        Some((master, revision)) => vec![
            Reply::bulk("slave"),
            Reply::bulk(master.map_or(String::new(), |at| at.ip().to_string())),
            Reply::Integer(master.map_or(0, |at| i64::from(at.port()))),
            Reply::bulk(if master.is_some() { "connected" } else { "connect" }),
            Reply::Integer(revision as i64),
        ],
    })
}

impl Door {
    /// Begins requests of a connection, until its work is away or its replies wait.
    pub(super) fn advance(&mut self, place: usize, backend: &mut impl Backend) {
        while self.spent < STEPS_TURN
            && let Some(connection) = self.slots.get_mut(place)
        {
            if connection.waiting() == 0 {
                // Parses requests that the bounds have kept back.
                connection.parse(&self.options.settings);
            }
            if !connection.may_begin(&self.memory) {
                return;
            }
            let now = backend.now();
            if let Some(first) = connection.rest.first() {
                let (arrived, rest) = (first.arrived, std::mem::take(&mut connection.rest));
                self.give(place, Work::Run(rest), [arrived, now], backend);
                return;
            }
            let Some((request, arrived)) = connection.next_request() else {
                connection.end_broken(now);
                return;
            };
            connection.says(now);
            connection.session.begin();
            let out = &mut connection.link.out;
            let said = out.len();
            let step = connection
                .session
                .step(request, arrived, now, &self.options.settings, out);
            let is_push = matches!(step, Next::Subscribe(..) | Next::Unsubscribe(..));
            connection.session.is_muted &= !is_push;
            connection.mute(said);
            self.follow(place, step, [arrived, now], backend);
        }
        // A request that is kept back now would look like half a request that no more bytes complete.
        if let Some(connection) = self.slots.get_mut(place)
            && connection.waiting() == 0
        {
            connection.parse(&self.options.settings);
        }
    }

    /// Goes on with a request that was read and begins at these instants.
    fn follow(&mut self, place: usize, step: Next, [arrived, now]: [Time; 2], backend: &mut impl Backend) {
        let Some(connection) = self.slots.get_mut(place) else {
            return;
        };
        let (session, out) = (&mut connection.session, &mut connection.link.out);
        // A federation answers late commands itself: a transaction takes a number in any case, because clients count
        // them.
        let refuses_late = !self.options.settings.limits.is_federation;
        match step {
            Next::Answered => {}
            Next::Late => {
                let waited = backend.late(arrived, now);
                self.say(place, &Reply::Error(late("expired", waited)));
            }
            Next::Call(first) if now > first.deadline && refuses_late => {
                self.follow(place, Next::Late, [arrived, now], backend);
            }
            Next::Call(first) => {
                let run = self.run_of(place, first, now, refuses_late, backend);
                self.give(place, Work::Run(run), [arrived, now], backend);
            }
            Next::Ask(work) => _ = self.give(place, work, [arrived, now], backend),
            Next::Close => connection.is_closing = true,
            Next::Reset => {
                self.subscribers.forget(place, session);
                backend.resets(session.id);
                connection.reset(now);
            }
            Next::Subscribe(request, patterns) => {
                let is_about_keys = request.from(1).any(|name| is_about_keys(name, patterns));
                connection.subscribing = Some((request, patterns));
                // Confirmed once changes of keys are reported, so that none is missed from then on.
                if !is_about_keys || !self.give(place, Work::Listen, [arrived, now], backend) {
                    self.subscribe(place);
                }
            }
            Next::Unsubscribe(request, patterns) => {
                self.subscribers.unsubscribe(place, session, &request, patterns, out);
            }
            Next::Publish(request) => {
                let count = self.send(request.argument(1), request.argument(2), now);
                self.say(place, &Reply::Integer(count as i64));
            }
            Next::Wait => {
                let count = backend.copies(session.id, now);
                self.say(place, &Reply::Integer(count as i64));
            }
            Next::List(filter) => {
                let lines = self.clients(&filter, now).into_iter().map(|(_, _, line)| line);
                let text = lines.collect();
                self.say(place, &Reply::Verbatim(text));
            }
            Next::Kill(filter) => {
                let killed = self.clients(&filter, now);
                self.say(
                    place,
                    &match (filter.is_one, killed.len()) {
                        (true, 0) => Reply::Error("ERR No such client".into()),
                        (true, _) => Reply::ok(),
                        (false, count) => Reply::Integer(count as i64),
                    },
                );
                for (_, at, _) in killed {
                    match self.slots.get_mut(at) {
                        // As in Redis, its own reply is sent before.
                        Some(connection) if at == place => connection.is_closing = true,
                        _ => self.end(at, backend),
                    }
                }
            }
            Next::Hearing(request) => {
                let answer = self.subscribers.answer(&request, &session.login, &mut self.spent);
                self.say(place, &answer);
            }
            Next::Role => {
                let role = role(backend.replicates(now));
                self.say(place, &role);
            }
            Next::Info(sections) => {
                let text = backend.info(&self.state(now), &sections, now);
                self.say(place, &Reply::Verbatim(text));
            }
            Next::Configure(request) => {
                let answer = self.options.settings.configure(&request);
                self.say(place, &answer);
            }
            Next::Claim(claimed) => self.claim(place, claimed),
        }
    }

    /// The connections that a filter means, by number, each with its slot and its line.
    fn clients(&mut self, filter: &ClientFilter, now: Time) -> Vec<(u64, usize, String)> {
        let local = self.local.as_ref().map(|local| format!("{}:0", local.display()));
        let states = self.slots.iter_mut().map(|(at, there)| {
            let mut state = there.state(now);
            if let Some(local) = local.as_ref().filter(|_| there.is_local) {
                state.addresses = [local.clone(), local.clone()];
            }
            (at, state, &there.session)
        });
        let meant = states.filter(|(_, state, session)| filter.fits(session, state));
        let mut meant: Vec<_> = meant
            .map(|(at, state, session)| (session.id, at, session.line(&state)))
            .collect();
        meant.sort();
        meant
    }

    /// Takes the command and those behind it that the backend takes at once.
    fn run_of<B: Backend>(
        &mut self,
        place: usize,
        first: Call,
        now: Time,
        refuses_late: bool,
        backend: &mut B,
    ) -> Vec<Call> {
        let verb = first.command.verb;
        let waiting = self.slots.get_mut(place).map_or(0, |connection| connection.waiting());
        let mut run = Vec::with_capacity(B::RUN_MAX.min(1 + waiting));
        run.push(first);
        while run.len() < B::RUN_MAX
            && let Some(connection) = self.slots.get_mut(place)
            && connection.behind.is_empty()
            && connection
                .front()
                .and_then(|request| connection.session.asks(request))
                .is_some_and(|command| B::joins(verb, command.verb))
            && let Some((request, arrived)) = connection.next_request()
        {
            // The reply to a refused request goes out after those of the run.
            let out = &mut connection.behind;
            match connection
                .session
                .step(request, arrived, now, &self.options.settings, out)
            {
                Next::Call(call) if now > call.deadline && refuses_late => {
                    let waited = backend.late(arrived, now);
                    Writer::new(out, connection.session.version).error(&late("expired", waited));
                }
                Next::Call(call) => run.push(call),
                _ => break,
            }
        }
        run
    }

    /// Gives work to the backend; returns whether its result follows.
    fn give(&mut self, place: usize, work: Work, [arrived, now]: [Time; 2], backend: &mut impl Backend) -> bool {
        let Some(connection) = self.slots.get_mut(place) else {
            return false;
        };
        let (bytes, said) = (work.bytes(), connection.link.out.len());
        let asker = Asker {
            place,
            session: &connection.session,
            link: &mut connection.link,
            arrived,
            now,
        };
        connection.is_away = backend.take(work, asker);
        connection.away_bytes = if connection.is_away { bytes } else { 0 };
        if !connection.is_away {
            connection.mute(said);
            connection.link.out.append(&mut connection.behind);
        }
        connection.is_away
    }

    fn say(&mut self, place: usize, value: &Reply) {
        if let Some(connection) = self.slots.get_mut(place)
            && !connection.session.is_muted
        {
            Writer::new(&mut connection.link.out, connection.session.version).value(value);
        }
    }

    /// Takes the result of work.
    pub(super) fn finish(&mut self, done: JobReply, now: Time) {
        let (Handle { place, id }, mut reply) = (done.connection, done.reply);
        self.memory.forget(id);
        let connection = self.slots.get_mut(place);
        let Some(connection) = connection.filter(|connection| connection.session.id == id) else {
            return;
        };
        connection.says(now);
        (connection.is_away, connection.away_bytes) = (false, 0);
        if !reply.is_empty() {
            connection.subscribing = None; // the reply refuses it
        }
        if connection.session.is_muted {
            reply.clear();
        }
        if connection.link.out.is_empty() {
            connection.link.out = reply;
        } else {
            connection.link.out.append(&mut reply);
        }
        connection.session.watch(done.watched);
        // The replies in `behind` go out after those of all commands that the backend has left over.
        connection.rest = done.rest;
        if connection.rest.is_empty() {
            connection.link.out.append(&mut connection.behind);
        }
        self.memory.count(connection);
        self.slots.again.push(place);
        self.subscribe(place);
    }

    /// Confirms the subscription of a connection that waits for one.
    fn subscribe(&mut self, place: usize) {
        if let Some(connection) = self.slots.get_mut(place)
            && let Some((request, patterns)) = connection.subscribing.take()
        {
            let (session, out) = (&mut connection.session, &mut connection.link.out);
            self.subscribers.subscribe(place, session, &request, patterns, out);
        }
    }

    /// Submits a password to be checked; refuses another one if too many wait.
    fn claim(&mut self, place: usize, claimed: LoginClaim) {
        let (Some(connection), Some(prover)) = (self.slots.get_mut(place), &self.prover) else {
            return;
        };
        connection.is_away = true;
        let address = connection.link.stream.socket().peer_addr().ok();
        let (id, from) = (connection.session.id, address.and_then(|address| source(address.ip())));
        let gives_way = prover.ask(Handle { place, id }, from, claimed);
        if let Some(Handle { place, .. }) = gives_way
            && let Some(connection) = self.slots.get_mut(place)
        {
            connection.is_away = false;
            let said = connection.link.out.len();
            connection.session.not_judged(&mut connection.link.out);
            connection.mute(said);
            self.slots.again.push(place);
        }
    }

    /// Answers the requests whose passwords were checked.
    pub(super) fn take_judged(&mut self, now: Time) {
        for (Handle { place, id }, user) in self.prover.iter().flat_map(Prover::take) {
            self.totals.wrong_passwords += u64::from(user.is_none());
            if let Some(connection) = self.slots.get_mut(place)
                && connection.session.id == id
                && connection.session.is_claiming()
            {
                connection.is_away = false;
                connection.says(now);
                let said = connection.link.out.len();
                connection.session.judged(user, &mut connection.link.out);
                connection.mute(said);
                connection.is_closing |= connection.session.login.is_guessing();
                self.slots.again.push(place);
            }
        }
    }

    /// Delivers changes of keys, as many as fit into one turn of the loop.
    pub(super) fn tell_some(&mut self, now: Time) {
        self.spent = 0;
        while self.spent < STEPS_TURN
            && let Some(told) = self.telling.pop_front()
        {
            let classes = self.options.settings.events();
            for (channel, message) in messages(&told, classes).collect::<Vec<_>>() {
                self.send(&channel, &message, now);
            }
        }
    }

    /// Delivers a message to the subscribers of a channel; returns their number.
    fn send(&mut self, channel: &[u8], message: &[u8], now: Time) -> usize {
        self.spent += self.subscribers.steps(channel.len());
        let hearing = self.subscribers.hearing(channel);
        for (place, pattern) in &hearing {
            self.deliver(*place, pattern.as_deref(), channel, message, now);
        }
        hearing.len()
    }

    pub(super) fn deliver(&mut self, place: usize, pattern: Option<&[u8]>, channel: &[u8], message: &[u8], now: Time) {
        if let Some(connection) = self.slots.get_mut(place) {
            let max = self.memory.heard_max();
            self.spent += connection.deliver(pattern, channel, message, max, now);
            // Counted at once, because many messages may be delivered before the connection's next turn.
            let has_too_much = self.memory.count(connection);
            connection.is_behind |= has_too_much;
            self.slots.again.push(place);
        }
    }
}
