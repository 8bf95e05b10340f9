//! Carries requests to the session and to the pool, and their replies back.

use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use super::connection::Connection;
use super::{EventLoop, RUN_MAX, STEPS_TURN};
use crate::client::REPLIES_PAUSE;
use crate::login::LoginClaim;
use crate::prover::{PasswordCheck, PasswordClaim, Prover};
use crate::resp::{Reply, Resp, Writer};
use crate::session::{Call, Next, late};
use crate::subscribers::is_about_keys;
use crate::work::{Handle, Job, JobReply, LateStage, Work};
use crate::{figures, info};

impl<E: Engine + 'static, O: Os> EventLoop<E, O> {
    /// Begins requests, until a job is away or replies wait.
    pub(super) fn advance(&mut self, place: usize, connection: &mut Connection) {
        while !connection.is_away
            && !connection.client.is_closing
            && connection.client.link.unsent() < REPLIES_PAUSE
            && self.spent < STEPS_TURN
        {
            if !connection.rest.is_empty() {
                let rest = std::mem::take(&mut connection.rest);
                self.give(place, connection, Work::Run(rest));
                break;
            }
            let (client, is_away) = (&mut connection.client, connection.is_away);
            if client.waiting() == 0 {
                // Parses requests that the bounds have kept back.
                client.parse(&self.settings, is_away);
            }
            let now = self.shared.os.now();
            let Some((request, arrived)) = client.next_request() else {
                client.end_broken(now);
                break;
            };
            client.says(now);
            let step = client
                .session
                .step(request, arrived, now, &self.settings, &mut client.link.out);
            self.follow(place, connection, step, now);
        }
    }

    pub(super) fn follow(&mut self, place: usize, connection: &mut Connection, step: Next, now: Time) {
        match step {
            Next::Answered => {}
            Next::Late(arrived) => self.late(
                arrived,
                now,
                connection.client.session.version,
                &mut connection.client.link.out,
            ),
            Next::Close => connection.client.is_closing = true,
            Next::Reset => {
                self.subscribers.forget(place, &connection.client.session);
                connection.client.reset(now);
            }
            Next::Call(first) if now > first.deadline => self.late(
                first.arrived,
                now,
                connection.client.session.version,
                &mut connection.client.link.out,
            ),
            Next::Call(first) => {
                let run = self.run_of(first, connection, now);
                self.give(place, connection, Work::Run(run));
            }
            Next::Ask(work) => self.give(place, connection, work),
            Next::Publish(request) => {
                let count = self.publish(place, connection, request.argument(1), request.argument(2));
                self.say(connection, &Reply::Integer(count));
            }
            // There are no other nodes.
            Next::Wait => self.say(connection, &Reply::Integer(0)),
            Next::Subscribe(request, patterns) => {
                if request.from(1).any(|name| is_about_keys(name, patterns)) {
                    // Confirmed once changes are reported, so that none is missed from then on.
                    connection.subscribing = Some((request, patterns));
                    self.give(place, connection, Work::Listen);
                } else {
                    let (session, out) = (&mut connection.client.session, &mut connection.client.link.out);
                    self.subscribers.subscribe(place, session, &request, patterns, out);
                }
            }
            Next::Unsubscribe(request, patterns) => {
                let (session, out) = (&mut connection.client.session, &mut connection.client.link.out);
                self.subscribers.unsubscribe(place, session, &request, patterns, out);
            }
            Next::List(all) => {
                let others = self.connections.iter_mut().flatten().filter(|_| all);
                let others = others.map(|other| &mut other.client);
                let listed = others.chain([&mut connection.client]);
                let mut lines: Vec<_> = listed.map(|client| (client.session.id, client.line(now))).collect();
                lines.sort();
                let text = lines.into_iter().map(|(_, line)| line).collect();
                self.say(connection, &Reply::Verbatim(text));
            }
            Next::Claim(claimed) => self.claim(place, connection, claimed),
            Next::Info(wanted) => {
                let state = self.state(now);
                let figures = info::figures(&self.shared, &self.options, self.address, &state);
                self.say(connection, &Reply::Verbatim(figures::info(&figures, &wanted)));
            }
        }
    }

    /// Answers a request whose deadline had passed before it began.
    fn late(&self, arrived: Time, now: Time, version: Resp, out: &mut Vec<u8>) {
        let counts = &self.shared.counts;
        counts.expire(
            LateStage::Before,
            [now.since(arrived), Nanos::ZERO, Nanos::ZERO, Nanos::ZERO],
        );
        let waited = Nanos(counts.waited.load(Ordering::Relaxed));
        Writer::new(out, version).error(&late("expired", waited));
    }

    pub(super) fn say(&self, connection: &mut Connection, value: &Reply) {
        Writer::new(&mut connection.client.link.out, connection.client.session.version).value(value);
    }

    /// Takes the command and those behind it that may go to the pool in one job.
    pub(super) fn run_of(&self, first: Call, connection: &mut Connection, now: Time) -> Vec<Call> {
        let client = &mut connection.client;
        let mut run = Vec::with_capacity(RUN_MAX.min(1 + client.waiting()));
        run.push(first);
        while run.len() < RUN_MAX
            && connection.behind.is_empty()
            && client.front().is_some_and(|request| client.session.asks(request))
            && let Some((request, arrived)) = client.next_request()
        {
            // The reply to a refused request goes out after those of the job.
            match client
                .session
                .step(request, arrived, now, &self.settings, &mut connection.behind)
            {
                Next::Call(call) if now > call.deadline => {
                    self.late(call.arrived, now, client.session.version, &mut connection.behind);
                    break;
                }
                Next::Call(call) => run.push(call),
                _ => break,
            }
        }
        run
    }

    pub(super) fn give(&mut self, place: usize, connection: &mut Connection, work: Work) {
        connection.is_away = true;
        connection.away_bytes = work.bytes();
        self.jobs.push(Job {
            connection: Handle {
                place,
                id: connection.client.session.id,
            },
            version: connection.client.session.version,
            queued: self.shared.os.now(),
            work,
        });
    }

    /// Submits queued jobs to the pool; answers `LATE reason=backlog` for those that do not fit.
    pub(super) fn submit(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        for (job, retry_after) in self.shared.submit(&mut self.jobs) {
            let commands = match &job.work {
                Work::Run(asked) => asked.len(),
                _ => 1,
            };
            self.shared.counts.backlog.fetch_add(commands as u64, Ordering::Relaxed);
            let mut reply = Vec::new();
            let error = late("backlog", retry_after);
            (0..commands).for_each(|_| Writer::new(&mut reply, job.version).error(&error));
            let mut turn = Vec::new();
            let done = JobReply {
                connection: job.connection,
                reply,
                rest: Vec::new(),
                watched: Vec::new(),
            };
            self.finish(done, &mut turn);
            turn.into_iter().for_each(|place| self.go_on(place));
        }
    }

    /// Submits a password to be checked; refuses it if too many wait.
    fn claim(&mut self, place: usize, connection: &mut Connection, claimed: LoginClaim) {
        let id = connection.client.session.id;
        let claim = PasswordClaim {
            connection: Handle { place, id },
            user: claimed.user,
            password: claimed.password,
        };
        if self.prover.as_ref().is_some_and(|prover| prover.ask(claim)) {
            connection.is_away = true;
        } else {
            connection.client.session.not_judged(&mut connection.client.link.out);
        }
    }

    /// Answers the requests whose passwords were checked.
    pub(super) fn take_judged(&mut self, turn: &mut Vec<usize>) {
        let judged = self.prover.as_ref().map(Prover::take).unwrap_or_default();
        let now = self.shared.os.now();
        for PasswordCheck { connection, user } in judged {
            self.totals.wrong_passwords += u64::from(user.is_none());
            let Handle { place, id } = connection;
            if let Some(bytes) = self.memory.orphans.remove(&id) {
                self.memory.bytes -= bytes;
            }
            let Some(Some(connection)) = self.connections.get_mut(place) else {
                continue;
            };
            if connection.client.session.id == id && connection.client.session.is_claiming() {
                connection.is_away = false;
                connection.client.says(now);
                connection.client.session.judged(user, &mut connection.client.link.out);
                connection.client.is_closing |= connection.client.session.login.is_guessing();
                turn.push(place);
            }
        }
    }

    pub(super) fn take_done(&mut self, turn: &mut Vec<usize>) {
        let mut done = std::mem::take(&mut self.done);
        self.shared.take_done(&mut done);
        for done in done.drain(..) {
            self.finish(done, turn);
        }
        self.done = done;
    }

    pub(super) fn finish(&mut self, done: JobReply, turn: &mut Vec<usize>) {
        let JobReply {
            connection: Handle { place, id },
            mut reply,
            rest,
            watched,
        } = done;
        if let Some(bytes) = self.memory.orphans.remove(&id) {
            self.memory.bytes -= bytes; // the connection has ended meanwhile
        }
        let now = self.shared.os.now();
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else {
            return;
        };
        if connection.client.session.id == id {
            connection.client.says(now);
            connection.is_away = false;
            connection.away_bytes = 0;
            let is_refused = !reply.is_empty();
            if connection.client.link.out.is_empty() {
                connection.client.link.out = reply;
            } else {
                connection.client.link.out.append(&mut reply);
            }
            connection.client.session.watch(watched);
            // The replies in `behind` go out after those of all commands that the pool has left over.
            connection.rest = rest;
            if connection.rest.is_empty() {
                let mut behind = std::mem::take(&mut connection.behind);
                connection.client.link.out.append(&mut behind);
            }
            if let Some((request, patterns)) = connection.subscribing.take()
                && !is_refused
            {
                let (session, out) = (&mut connection.client.session, &mut connection.client.link.out);
                self.subscribers.subscribe(place, session, &request, patterns, out);
            }
            turn.push(place);
        }
        self.connections[place] = Some(connection);
    }
}
