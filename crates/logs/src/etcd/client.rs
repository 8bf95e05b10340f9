//! Requests to the members of an etcd: one member after the other, each with a short bound on its answer.

use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{
    self, AlarmMember, AlarmRequest, Alarms, AskStatus, Compact, Create, EmptyResponse, WatchRequest, WatchResponse,
};
use super::{Address, EtcdError};

/// Bound of all tries of one call: a node treats a question as lost that has no answer after 100 ms.
pub const CALL_MAX: Duration = Duration::from_millis(90);
/// The shortest wait for one answer.
pub const ANSWER_MIN: Duration = Duration::from_millis(15);
/// Wait after each member has refused the connection once.
const AGAIN: Duration = Duration::from_millis(3);
/// Bound on opening a watch.
const OPEN_MAX: Duration = Duration::from_millis(100);
/// Bound on connecting, and on a member's answer about its state.
const STATUS_MAX: Duration = Duration::from_secs(1);
/// Bound on one step of making room: defragmenting takes some seconds for each GiB.
const STEP_MAX: Duration = Duration::from_secs(60);
/// The alarm of a member that has no space left.
const NO_SPACE: i32 = 1;
/// The longest answer that is read, in bytes: a page of the longest entries.
const ANSWER_BYTES_MAX: usize = 68 << 20;

/// The wait for an answer before another member is asked: the mean time of answers plus four times their mean deviation
/// (as TCP does), doubled after each one that did not come.
#[derive(Clone, Copy, Debug)]
struct Pace {
    fixed: Option<Duration>,
    takes: Option<(Duration, Duration)>,
    wait: Duration,
}

impl Pace {
    fn took(&mut self, span: Duration) {
        let (takes, varies) = match self.takes {
            None => (span, span / 2),
            Some((takes, varies)) => ((takes * 7 + span) / 8, (varies * 3 + span.abs_diff(takes)) / 4),
        };
        self.takes = Some((takes, varies));
        self.wait = (takes + varies * 4).clamp(ANSWER_MIN, CALL_MAX);
    }

    fn missed(&mut self) {
        self.wait = (self.wait * 2).min(CALL_MAX);
    }

    fn wait(&self) -> Duration {
        self.fixed.unwrap_or(self.wait)
    }
}

/// Connections to all members, made when they are needed.
pub struct EtcdClient {
    members: Vec<Channel>,
    /// Index of the member that is asked now; it changes when that does not answer.
    turn: usize,
    pace: Pace,
}

impl EtcdClient {
    /// Must be called within a runtime. With `fixed`, every wait for an answer has this length.
    pub fn new(address: &Address, fixed: Option<Duration>) -> Result<EtcdClient, EtcdError> {
        let tls = address.tls.as_ref().map(|tls| -> Result<_, EtcdError> {
            let read = |path: &std::path::Path| {
                std::fs::read(path).map_err(|error| {
                    let path = path.display();
                    EtcdError::Refused(format!("{path}: {error}; name a file in PEM that this user may read"))
                })
            };
            let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
            Ok(match &tls.ours {
                Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
                None => config,
            })
        });
        let tls = tls.transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let channel = |member: &String| {
            let wrong = |error: tonic::transport::Error| {
                EtcdError::address(address, format_args!("{member}: {}", with_sources(&error)))
            };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{member}")).map_err(wrong)?;
            let endpoint = endpoint.connect_timeout(STATUS_MAX).tcp_nodelay(true);
            let endpoint = match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()).map_err(wrong)?,
                None => endpoint,
            };
            Ok(endpoint.connect_lazy())
        };
        Ok(EtcdClient {
            members: address.members.iter().map(channel).collect::<Result<_, _>>()?,
            turn: 0,
            pace: Pace {
                fixed,
                takes: None,
                wait: CALL_MAX,
            },
        })
    }

    fn member(&self) -> Channel {
        self.members[self.turn % self.members.len()].clone()
    }

    /// Asks the next member from now on.
    pub fn turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Asks one member after the other until one answers or refuses finally, for at most [`CALL_MAX`].
    pub async fn ask<Q, A>(&mut self, path: &'static str, question: &Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let until = Instant::now() + CALL_MAX;
        let mut refused = 0;
        loop {
            let begun = Instant::now();
            let wait = self.pace.wait().min(until - begun);
            let error = match timeout(wait, unary(self.member(), path, question.clone())).await {
                Ok(Ok(answer)) => {
                    self.pace.took(begun.elapsed());
                    return Ok(answer);
                }
                Ok(Err(status)) if is_final(&status) => return Err(status),
                Ok(Err(status)) => {
                    refused += 1;
                    if refused % self.members.len() == 0 {
                        sleep(AGAIN).await;
                    }
                    status
                }
                Err(_) => {
                    self.pace.missed();
                    Status::deadline_exceeded("no answer")
                }
            };
            self.turn();
            if Instant::now() + ANSWER_MIN >= until {
                return Err(error);
            }
        }
    }

    /// Opens a watch at the present member.
    pub async fn watch(&mut self, create: Create) -> Result<Streaming<WatchResponse>, Status> {
        let mut grpc = Grpc::new(self.member()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let open = async {
            grpc.ready()
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            let create = WatchRequest { create: Some(create) };
            let mut questions = Request::new(tokio_stream::once(create).chain(tokio_stream::pending()));
            // With this header, a member that has lost its leader ends the watch.
            let has_leader = tonic::metadata::MetadataValue::from_static("true");
            questions.metadata_mut().insert("hasleader", has_leader);
            let path = PathAndQuery::from_static(messages::WATCH);
            let answers = grpc.streaming(questions, path, ProstCodec::<WatchRequest, WatchResponse>::default());
            answers.await.map(tonic::Response::into_inner)
        };
        let opened = timeout(OPEN_MAX, open).await;
        opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
    }

    /// Makes room in an etcd that is full, as etcd's operators do by hand: forgets its history before `upto`,
    /// defragments one member after the other, so that the others go on, and ends the alarms. Passes over members that
    /// are not there. If one defragments for too long, no further one begins.
    ///
    /// # Errors
    /// That of a member, once all that can be done is done.
    pub async fn make_room(&mut self, upto: i64) -> Result<(), Status> {
        let mut failed = Ok(());
        for _ in 0..self.members.len() {
            let compact = Compact {
                revision: upto,
                physical: true,
            };
            match patient::<_, EmptyResponse>(self.member(), messages::COMPACT, compact).await {
                Err(status) if status.code() != Code::OutOfRange => failed = failed.and(Err(status)),
                _ => break, // perhaps another node has compacted it further
            }
            self.turn();
        }
        for member in &self.members {
            match patient::<_, EmptyResponse>(member.clone(), messages::DEFRAGMENT, EmptyResponse::default()).await {
                Err(status) if status.code() == Code::DeadlineExceeded => return Err(status),
                done => failed = failed.and(done.map(drop)),
            }
        }
        self.end_alarms().await.and(failed)
    }

    /// Ends the alarms of members that have no space left; a write that finds none raises them again.
    pub async fn end_alarms(&self) -> Result<(), Status> {
        let found: Alarms = patient(self.member(), messages::ALARM, AlarmRequest::default()).await?;
        for AlarmMember { member_id, alarm } in found.alarms.into_iter().filter(|alarm| alarm.alarm == NO_SPACE) {
            let end = AlarmRequest {
                action: 2,
                member_id,
                alarm,
            };
            patient::<_, Alarms>(self.member(), messages::ALARM, end).await?;
        }
        Ok(())
    }

    /// The state of each member.
    pub async fn statuses(&self) -> Vec<Result<messages::Status, Status>> {
        let mut all = Vec::new();
        for member in &self.members {
            let asked = timeout(STATUS_MAX, unary(member.clone(), messages::STATUS, AskStatus {}));
            let none = || Status::deadline_exceeded(format!("no answer within {STATUS_MAX:?}"));
            all.push(asked.await.unwrap_or_else(|_| Err(none())));
        }
        all
    }
}

async fn unary<Q, A>(member: Channel, path: &'static str, question: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(member).max_decoding_message_size(ANSWER_BYTES_MAX);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(with_sources(&error)))?;
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(question), path, ProstCodec::default()).await;
    answer.map(tonic::Response::into_inner)
}

async fn patient<Q, A>(member: Channel, path: &'static str, question: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let asked = timeout(STEP_MAX, unary(member, path, question)).await;
    asked.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
}

/// Whether another member, or another try, would answer the same.
pub fn is_final(status: &Status) -> bool {
    use Code::{InvalidArgument, OutOfRange, PermissionDenied, ResourceExhausted, Unauthenticated};
    matches!(
        status.code(),
        InvalidArgument | OutOfRange | PermissionDenied | ResourceExhausted | Unauthenticated
    )
}

/// An error with its sources, of which only the last says what was wrong with a connection.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn an_answer_is_waited_for_as_long_as_answers_take() {
        let mut pace = Pace {
            fixed: None,
            takes: None,
            wait: CALL_MAX,
        };
        for _ in 0..100 {
            pace.took(ms(1));
        }
        assert_eq!(pace.wait(), ANSWER_MIN, "never less, however quick they are");
        pace.missed();
        assert_eq!(pace.wait(), ANSWER_MIN * 2);
        for _ in 0..10 {
            pace.missed();
        }
        assert_eq!(pace.wait(), CALL_MAX, "never more");
        for _ in 0..100 {
            pace.took(ms(30));
        }
        assert!((ms(30)..ms(45)).contains(&pace.wait()), "{:?}", pace.wait());
    }
}
