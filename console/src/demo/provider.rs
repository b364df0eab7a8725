//! The provider: an HTTP service on 127.0.0.1 that notes each message it accepts, and sometimes misbehaves.
//!
//! It refuses (500), stalls for less than the client's patience, or never answers. What it refuses or does not answer
//! it has not accepted, and does not note. Which request meets what is drawn from the seed, the recipient and how often
//! that recipient was asked for, so a run can be repeated.
//!
//! The one thing to know: an [`Ambush`] holds one answer back *after* the message was accepted. That is the worst moment
//! for a worker to die, and the only one that no queue can mend.

use crate::fault::Fault;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// A message that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which recipient, in the order of the CSV.
    pub recipient: usize,
    /// Who sent it.
    pub worker: String,
    /// The worker's attempt number.
    pub attempt: u32,
}

/// Holds back the answer to the first message of `worker` that is accepted after `after` others.
pub struct Ambush {
    pub worker: String,
    pub after: usize,
    pub caught: Sender<Caught>,
}

/// A worker that waits for its answer.
pub struct Caught {
    /// The job it is inside of.
    pub job: i64,
    /// Lets the answer go; so does dropping it.
    pub answer: oneshot::Sender<()>,
}

/// What a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Accepts,
    Stalls(Duration),
    Refuses,
    NeverAnswers,
}

#[derive(Default)]
struct Ledger {
    deliveries: Vec<Delivery>,
    /// By recipient.
    requests: Vec<u32>,
    reached: usize,
    is_reached: Vec<bool>,
    refused: u64,
    unanswered: u64,
    ambush: Option<Ambush>,
}

struct Books {
    numbers: HashMap<String, usize>,
    seed: u64,
    ledger: Mutex<Ledger>,
}

/// The running service.
pub struct Provider {
    pub url: String,
    books: Arc<Books>,
}

impl Provider {
    /// Starts it in a thread of its own, which also turns SIGINT and SIGTERM into `interrupted`.
    pub fn start<'a>(recipients: impl Iterator<Item = &'a str>, seed: u64, interrupted: Arc<AtomicBool>) -> Result<Self, Fault> {
        let numbers: HashMap<String, usize> = recipients.enumerate().map(|(number, name)| (name.to_owned(), number)).collect();
        let count = numbers.len();
        let ledger = Ledger { requests: vec![0; count], is_reached: vec![false; count], ..Ledger::default() };
        let books = Arc::new(Books { numbers, seed, ledger: Mutex::new(ledger) });
        let failed = |error: std::io::Error| Fault::unexpected(format!("the provider does not start: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(failed)?;
        let url = format!("http://{}/send", listener.local_addr().map_err(failed)?);
        let shared = Arc::clone(&books);
        let serve = move || {
            runtime.block_on(async {
                tokio::spawn(note_signals(interrupted));
                serve(listener, shared).await;
            });
        };
        std::thread::Builder::new().name("provider".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Provider { url, books })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.books.ledger()
    }

    /// Recipients that have at least one message.
    pub fn reached(&self) -> usize {
        self.ledger().reached
    }

    /// Messages accepted.
    pub fn accepted(&self) -> usize {
        self.ledger().deliveries.len()
    }

    /// Everything accepted so far, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.ledger().deliveries.clone()
    }

    /// Requests answered with 500, and requests never answered.
    pub fn misbehaved(&self) -> (u64, u64) {
        let ledger = self.ledger();
        (ledger.refused, ledger.unanswered)
    }

    /// The number of a recipient.
    pub fn number(&self, recipient: &str) -> Option<usize> {
        self.books.numbers.get(recipient).copied()
    }

    pub fn lie_in_wait(&self, ambush: Ambush) {
        self.ledger().ambush = Some(ambush);
    }
}

impl Books {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws what a request meets, and notes it when it is accepted; the second is the ambush it fell into.
    fn receive(&self, number: usize, recipient: &str, headers: &HeaderMap) -> (Mood, Option<Ambush>) {
        let mut ledger = self.ledger();
        let Some(requests) = ledger.requests.get_mut(number) else { return (Mood::Refuses, None) };
        *requests += 1;
        let mood = mood(self.seed, recipient, *requests);
        match mood {
            Mood::Refuses => ledger.refused += 1,
            Mood::NeverAnswers => ledger.unanswered += 1,
            Mood::Accepts | Mood::Stalls(_) => {
                let worker = header(headers, "x-worker").to_owned();
                let attempt = header(headers, "x-attempt").parse().unwrap_or(0);
                let is_caught = ledger.ambush.as_ref().is_some_and(|a| a.worker == worker && ledger.deliveries.len() >= a.after);
                ledger.deliveries.push(Delivery { recipient: number, worker, attempt });
                if let Some(reached) = ledger.is_reached.get_mut(number)
                    && !std::mem::replace(reached, true)
                {
                    ledger.reached += 1;
                }
                if is_caught {
                    return (mood, ledger.ambush.take());
                }
            }
        }
        (mood, None)
    }
}

async fn note_signals(interrupted: Arc<AtomicBool>) {
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else { return };
    tokio::select! {
        _ = int.recv() => (),
        _ = term.recv() => (),
    }
    interrupted.store(true, Relaxed);
}

async fn serve(listener: TcpListener, books: Arc<Books>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::warn!("the provider cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let books = Arc::clone(&books);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&books), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                // A worker that was killed, or lost its patience.
                log::debug!("provider: {error}");
            }
        });
    }
}

async fn answer(books: Arc<Books>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(reply(StatusCode::BAD_REQUEST, "cut short")) };
    let message = serde_json::from_slice::<serde_json::Value>(&body.to_bytes()).unwrap_or_default();
    let recipient = message.get("recipient").and_then(serde_json::Value::as_str).unwrap_or_default();
    let Some(number) = books.numbers.get(recipient).copied() else {
        return Ok(reply(StatusCode::NOT_FOUND, "no such recipient"));
    };
    let (mood, ambush) = books.receive(number, recipient, &head.headers);
    match mood {
        Mood::Accepts => (),
        Mood::Stalls(span) => tokio::time::sleep(span).await,
        Mood::Refuses => return Ok(reply(StatusCode::INTERNAL_SERVER_ERROR, "out of order")),
        // Ends when the client closes the connection.
        Mood::NeverAnswers => std::future::pending().await,
    }
    if let Some(ambush) = ambush {
        let (go_on, wait) = oneshot::channel();
        let job = header(&head.headers, "x-job").parse().unwrap_or(0);
        if ambush.caught.send(Caught { job, answer: go_on }).is_ok() {
            let _ = wait.await;
        }
    }
    Ok(reply(StatusCode::OK, "accepted"))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn reply(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// In 10,000 requests: 100 refused, 40 stalled, 12 never answered.
fn mood(seed: u64, recipient: &str, request: u32) -> Mood {
    let drawn = recipient.bytes().fold(mix(seed, u64::from(request)), |hash, byte| mix(hash, u64::from(byte)));
    match drawn % 10_000 {
        0..100 => Mood::Refuses,
        100..140 => Mood::Stalls(Duration::from_millis(100 + drawn / 10_000 % 300)),
        140..152 => Mood::NeverAnswers,
        _ => Mood::Accepts,
    }
}

/// Two numbers into one that looks drawn by lot (the finisher of SplitMix64).
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misbehaviour_is_rare_and_the_same_each_time() {
        let draw = || (0..20_000).map(|n| mood(1, &format!("r{n}"), 1)).collect::<Vec<_>>();
        let drawn = draw();
        assert_eq!(drawn, draw());
        let count = |is_it: fn(&Mood) -> bool| drawn.iter().filter(|mood| is_it(mood)).count();
        assert!((150..250).contains(&count(|m| *m == Mood::Refuses)));
        assert!((50..110).contains(&count(|m| matches!(m, Mood::Stalls(_)))));
        assert!((10..40).contains(&count(|m| *m == Mood::NeverAnswers)));
    }

    #[test]
    fn stalls_stay_under_the_patience_of_the_workers() {
        for n in 0..100_000 {
            if let Mood::Stalls(span) = mood(1, &format!("r{n}"), 1) {
                assert!(span * 2 < super::super::workers::TIMEOUT);
            }
        }
    }
}
