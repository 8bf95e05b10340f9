//! Outcomes of requests, and the stages at which late ones spent their time. Pure: the event loop reports when a
//! request enters another stage.
//!
//! A request is at one stage at a time, so its times at all stages add up to its whole time here, from the instant at
//! which it was read. Of requests that became late by time (`expired`), or whose outcome is unknown at the deadline,
//! these are kept: their number by stage at the deadline, the total time at each stage, and the last of them, one by
//! one.

use std::collections::{BTreeMap, VecDeque};

use punctual_federation::admission::Reason;
use punctual_federation::ids::RequestId;
use punctual_federation::message::{Answer, Request};
use punctual_units::{Nanos, Time};

/// The most late requests that are kept one by one: the newest.
pub const SHOWN_MAX: usize = 32;

punctual_units::named! {
    /// A stage of a request, by its name in figures, in the order in which a request meets them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SpanStage by name {
        /// At a balancer, before a node has it. Counted by balancers only.
        Balancer = "balancer",
        /// Before it begins: behind others of its connection, in the node's queue, or waiting for its session's
        /// revision.
        Queue = "queue",
        /// Waiting for the store's one writer, or for an executor.
        Lock = "lock",
        /// In a call of the store.
        Store = "store",
        /// Waiting for the log's answer.
        Log = "log",
        /// At another node, or on the way there and back.
        Network = "network",
    }
}

/// Time that a request spent at each stage.
pub type StageTimes = [Nanos; SpanStage::ALL.len()];

/// A request that was late by time, or whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateOne {
    /// When the request was answered.
    pub at: Time,
    /// Whether the request was a transaction.
    pub is_transaction: bool,
    /// Whether the outcome is unknown; otherwise the request was not executed.
    pub is_unknown: bool,
    /// The stage at that time.
    pub place: SpanStage,
    /// Time at each stage until then.
    pub spent: StageTimes,
}

/// Names of outcomes in figures: executed, with a reply; not executed because of requests admitted before, because no
/// time was left, or because no master was known; executed or not; refused, because it cannot be executed.
const OUTCOMES: [&str; 6] = [
    "done",
    "late_backlog",
    "late_expired",
    "late_no_master",
    "unknown",
    "refused",
];

/// Number of requests of one kind by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts([u64; OUTCOMES.len()]);

impl OutcomeCounts {
    /// Counts an answer by its kind.
    pub fn count(&mut self, answer: &Answer) {
        let place = match answer {
            Answer::Done { .. } => 0,
            Answer::Late { reason, .. } => match reason {
                Reason::Backlog => 1,
                Reason::Expired => 2,
                Reason::NoMaster => 3,
            },
            Answer::Unknown => 4,
            Answer::Refused(_) => 5,
        };
        self.0[place] += 1;
    }

    /// Counts with their names in figures.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.into_iter().zip(self.0)
    }
}

/// Outcomes of requests, and the stages at which late ones spent their time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Outcomes of queries, and of requests on temporal objects.
    pub queries: OutcomeCounts,
    /// Outcomes of transactions that clients sent.
    pub transactions: OutcomeCounts,
    /// Number of late requests, by stage at that time.
    pub late_at: [u64; SpanStage::ALL.len()],
    /// Total time of late requests, by stage.
    pub late_spent: StageTimes,
    late: VecDeque<LateOne>,
}

impl Account {
    /// The late requests that are kept, the newest first.
    pub fn late(&self) -> impl Iterator<Item = &LateOne> {
        self.late.iter().rev()
    }

    fn was_late(&mut self, late: LateOne) {
        self.late_at[late.place as usize] += 1;
        for (sum, spent) in self.late_spent.iter_mut().zip(late.spent) {
            *sum += spent;
        }
        if self.late.len() == SHOWN_MAX {
            self.late.pop_front();
        }
        self.late.push_back(late);
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    id: RequestId,
    is_transaction: bool,
    place: SpanStage,
    arrived: Time,
    since: Time,
    spent: StageTimes,
}

impl Open {
    fn moves(&mut self, to: SpanStage, at: Time) {
        let spent = &mut self.spent[self.place as usize];
        *spent += at.since(self.since);
        (self.place, self.since) = (to, at.max(self.since));
    }
}

/// Requests of a process's clients without an answer, and the outcomes of the others.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    open: BTreeMap<u64, Open>,
    tickets: BTreeMap<RequestId, u64>,
    /// Outcomes of the requests that have an answer.
    pub account: Account,
}

impl Spans {
    /// Begins the span of a request, under that ticket, at `place`; it was read at `arrived`.
    pub fn begins(&mut self, ticket: u64, request: &Request, place: SpanStage, arrived: Time) {
        let id = request.id;
        let open = Open {
            id,
            is_transaction: !request.work.is_query() && !request.work.is_of_memory(),
            place,
            arrived,
            since: arrived,
            spent: StageTimes::default(),
        };
        self.open.insert(ticket, open);
        self.tickets.insert(id, ticket);
    }

    /// The ticket of a request that has no answer yet.
    pub fn ticket(&self, id: RequestId) -> Option<u64> {
        self.tickets.get(&id).copied()
    }

    /// Moves a request to another stage at `at`.
    pub fn moves(&mut self, ticket: u64, to: SpanStage, at: Time) {
        if let Some(open) = self.open.get_mut(&ticket) {
            open.moves(to, at);
        }
    }

    /// Ends the span of a request that was answered at `at`. Returns whether it was a transaction, and its time since
    /// it was read; `None` for an unknown ticket.
    pub fn ends(&mut self, ticket: u64, answer: &Answer, at: Time) -> Option<(bool, Nanos)> {
        let mut open = self.open.remove(&ticket)?;
        self.tickets.remove(&open.id);
        let is_unknown = matches!(answer, Answer::Unknown);
        let is_expired = matches!(answer, Answer::Late { reason, .. } if *reason == Reason::Expired);
        let place = open.place;
        open.moves(place, at);
        if is_unknown || is_expired {
            self.account.was_late(LateOne {
                at,
                is_transaction: open.is_transaction,
                is_unknown,
                place,
                spent: open.spent,
            });
        }
        let tally = match open.is_transaction {
            true => &mut self.account.transactions,
            false => &mut self.account.queries,
        };
        tally.count(answer);
        Some((open.is_transaction, at.since(open.arrived)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_federation::ids::{Revision, SessionId};

    use punctual_federation::message::{Output, Position, Refusal, Work};

    use super::*;

    fn request(number: u64) -> Request {
        Request {
            id: RequestId {
                session: SessionId(1),
                number,
            },
            work: Work::Open,
            time_left: Nanos::from_secs(1),
            seen: Revision(0),
        }
    }

    proptest! {
        /// What was spent is the whole time from the request's arrival to its end, and all at the places where it was.
        #[test]
        fn all_of_the_time_is_somewhere(steps in prop::collection::vec((0..6_usize, 0..1_000_u64), 0..20), last in 0..1_000_u64) {
            let (mut spans, mut now, mut model) = (Spans::default(), Time(5), StageTimes::default());
            spans.begins(1, &request(1), SpanStage::Queue, now);
            let mut place = SpanStage::Queue;
            for (to, span) in steps {
                now = now + Nanos(span);
                model[place as usize] += Nanos(span);
                place = SpanStage::ALL[to];
                spans.moves(1, place, now);
            }
            now = now + Nanos(last);
            model[place as usize] += Nanos(last);
            spans.ends(1, &Answer::late(Reason::Expired, None), now);
            let late = *spans.account.late().next().unwrap();
            prop_assert_eq!(late.spent, model);
            prop_assert_eq!(spans.account.late_spent, model);
            prop_assert_eq!((late.place, spans.account.late_at[place as usize]), (place, 1));
            prop_assert_eq!(late.spent.iter().map(|spent| spent.0).sum::<u64>(), now.0 - 5);
            prop_assert_eq!(spans.ticket(request(1).id), None);
        }
    }

    #[test]
    fn the_newest_are_told_and_what_was_in_time_is_not() {
        let mut spans = Spans::default();
        for number in 0..100 {
            spans.begins(number, &request(number), SpanStage::Queue, Time(number));
            let answer = match number % 2 {
                0 => Answer::late(Reason::Backlog, None),
                _ => Answer::Unknown,
            };
            spans.ends(number, &answer, Time(number + 7));
        }
        let at: Vec<u64> = spans.account.late().map(|late| late.at.0).collect();
        assert_eq!((at.len(), at[0], at[SHOWN_MAX - 1]), (SHOWN_MAX, 106, 44));
        let Account { queries, late_at, .. } = &spans.account;
        assert_eq!(queries, &OutcomeCounts::default(), "opening a session is a transaction");
        assert_eq!(
            (spans.account.transactions.0, late_at.iter().sum::<u64>()),
            ([0, 50, 0, 0, 50, 0], 50)
        );
        assert!(spans.open.is_empty() && spans.tickets.is_empty());
    }

    #[test]
    fn each_answer_counts_once() {
        let done = Answer::Done {
            output: Output::Values(Vec::new()),
            position: Position::default(),
            revision: Revision(1),
        };
        let answers = [
            done,
            Answer::late(Reason::Backlog, None),
            Answer::late(Reason::Expired, None),
            Answer::late(Reason::NoMaster, None),
            Answer::Unknown,
            Answer::Refused(Refusal::ReservedKey),
        ];
        let mut tally = OutcomeCounts::default();
        for (number, answer) in answers.iter().enumerate() {
            (0..=number).for_each(|_| tally.count(answer));
        }
        let named = [
            ("done", 1),
            ("late_backlog", 2),
            ("late_expired", 3),
            ("late_no_master", 4),
            ("unknown", 5),
            ("refused", 6),
        ];
        assert!(tally.named().eq(named), "{tally:?}");
    }
}
