//! The hidden `drill-worker`: one of the many processes of a drill. It does what it is told, and says what it did.

use super::scratch::{IN_TIME, LATE, Scratch};
use crate::connect;
use crate::fault::{Fault, OK, Outcome};
use crate::json;
use rowclaim::blocking::{Lease, Leased, Run, RunStart};
use rowclaim::{Config, LeaseRequest, Once, OnceRequest, RunRequest, Sent, Timestamp};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The lease of everything in the drill: short, so that a lost one is over soon.
pub const LEASE: Duration = Duration::from_millis(1_500);
/// Between two notes of a holder that it holds.
const NOTE_EVERY: Duration = Duration::from_millis(40);

struct Worker {
    scratch: Scratch,
    number: u64,
    provider: PathBuf,
    violate: String,
    orders: Receiver<Value>,
}

/// A lease by name, and whom it is contended for.
struct Contest {
    name: String,
    held: Option<Lease>,
    has_written: bool,
}

pub fn run(dsn: Option<&str>) -> Outcome {
    let dsn = connect::required(dsn)?.to_owned();
    let config = Config::new(&dsn)?;
    let faults = setting("DRILL_FAULTS");
    order_faults(&config, !faults.is_empty())?;
    let (sender, orders) = channel();
    // Stdin that is closed says end; so nobody outlives the console.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Ok(order) = serde_json::from_str(&line) {
                let _ = sender.send(order);
            }
        }
        std::process::exit(0);
    });
    let worker = Worker {
        scratch: Scratch::join(config, dsn, setting("DRILL_PREFIX"))?,
        number: setting("DRILL_NUMBER").parse().unwrap_or(0),
        provider: PathBuf::from(setting("DRILL_PROVIDER")),
        violate: setting("DRILL_VIOLATE"),
        orders,
    };
    say(json!({ "event": "ready" }))?;
    let done = match setting("DRILL_ROLE").as_str() {
        "holder" => worker.hold(),
        "slots" => worker.slots(),
        _ => worker.passes(),
    };
    if let Err(fault) = &done {
        say(json!({ "event": "error", "error": fault.text() }))?;
    }
    done.map(|()| OK)
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn say(what: Value) -> Result<(), Fault> {
    Ok(json::line(&what)?)
}

/// Has about one statement in fifty meet an error or a lost connection.
#[cfg(feature = "faults")]
fn order_faults(config: &Config, is_wanted: bool) -> Result<(), Fault> {
    use rowclaim::faults::Fault as F;
    const KINDS: [F; 4] = [F::Deadlock, F::LockWait, F::LostBefore, F::LostAfter];
    let faults = config.faults.clone();
    if is_wanted {
        std::thread::spawn(move || {
            loop {
                if faults.left() == 0 {
                    // One after 49 statements on the average.
                    let draw = uuid::Uuid::new_v4().as_u128();
                    let kind = KINDS.get((draw % 4) as usize).copied().unwrap_or(F::Deadlock);
                    faults.order("", kind, u32::try_from((draw >> 8) % 99).unwrap_or(0), 1);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
    Ok(())
}

#[cfg(not(feature = "faults"))]
fn order_faults(_: &Config, is_wanted: bool) -> Result<(), Fault> {
    if is_wanted {
        return Err(Fault::Usage("faults are not built in".to_owned()));
    }
    Ok(())
}

impl Worker {
    fn violates(&self, what: &str) -> bool {
        self.violate == what
    }

    /// A number from 0 to `below`, by lot.
    fn lot(&self, below: u64) -> u64 {
        u64::try_from(uuid::Uuid::new_v4().as_u128() % u128::from(below.max(1))).unwrap_or(0)
    }

    /// Drills 1 to 3: contends for a lease, holds it, and writes with its fence.
    fn hold(&self) -> Result<(), Fault> {
        let mut contest: Option<Contest> = None;
        loop {
            while let Ok(order) = self.orders.try_recv() {
                match order.get("do").and_then(Value::as_str).unwrap_or_default() {
                    "contend" => {
                        let name = order.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                        contest = Some(Contest { name, held: None, has_written: false });
                    }
                    "late" => {
                        if let Some(Contest { name, held: Some(lease), .. }) = &contest {
                            self.write_late(name, lease, order.get("times").and_then(Value::as_u64).unwrap_or(0))?;
                        }
                    }
                    _ => {
                        contest = None;
                        say(json!({ "event": "rested" }))?;
                    }
                }
            }
            match &mut contest {
                Some(contest) => self.contend(contest)?,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn contend(&self, contest: &mut Contest) -> Result<(), Fault> {
        if let Some(lease) = &contest.held {
            let is_held = self.scratch.observe(&contest.name, lease.fence(), || lease.valid_for())?;
            if is_held && !contest.has_written {
                contest.has_written = self.scratch.guard(&contest.name, lease.fence(), IN_TIME)?;
                say(json!({ "event": "held", "fence": lease.fence(), "wrote": contest.has_written }))?;
            }
            std::thread::sleep(NOTE_EVERY);
            return Ok(());
        }
        let request = LeaseRequest { wait: Duration::from_millis(200), ..LeaseRequest::new(contest.name.as_str(), LEASE) };
        match self.scratch.engine.lease(&request)? {
            Leased::Acquired(lease) => contest.held = Some(lease),
            // It says that it holds what it does not hold.
            Leased::Busy(_) if self.violates("holders") => {
                let fence = i64::MAX - i64::try_from(self.number).unwrap_or(0);
                self.scratch.hold(&contest.name, fence, self.scratch.now()?)?;
            }
            Leased::Busy(_) => {}
        }
        Ok(())
    }

    /// Writes with an old fence, again and again.
    fn write_late(&self, name: &str, lease: &Lease, times: u64) -> Result<(), Fault> {
        let valid_for = lease.valid_for();
        let is_renewed = lease.renew()?;
        let accepted = write_late(&self.scratch, name, lease.fence(), times, &self.violate)?;
        say(json!({
            "event": "late", "tried": times, "accepted": accepted, "is_renewed": is_renewed,
            "valid": !valid_for.is_zero(), "fence": lease.fence(),
        }))
    }

    /// Drill 4: runs a slot when it is told, or sends its effect again.
    fn slots(&self) -> Result<(), Fault> {
        while let Ok(order) = self.orders.recv() {
            let slot = order.get("slot").and_then(Value::as_i64).unwrap_or(0);
            let stall = order.get("stall").and_then(Value::as_str).unwrap_or_default();
            let key = format!("drill:slot:{slot}");
            match order.get("do").and_then(Value::as_str).unwrap_or_default() {
                "slot" => {
                    let mut request = RunRequest::new("drill-slots", Timestamp(slot));
                    request.lease = LEASE;
                    request.is_manual = self.violates("slot") && stall == "again";
                    match self.scratch.engine.run_slot(&request)? {
                        RunStart::Run(run) => {
                            self.observe(&run, "slots")?;
                            let once = self.send(&key, stall)?;
                            self.observe(&run, "slots")?;
                            let finish = run.succeed()?;
                            say(json!({ "event": "ran", "slot": slot, "finish": format!("{finish:?}"), "once": name(&once) }))?;
                        }
                        RunStart::Already(_) => say(json!({ "event": "already", "slot": slot }))?,
                        RunStart::Busy(_) => say(json!({ "event": "busy", "slot": slot }))?,
                    }
                }
                "send" => {
                    let once = self.send(&key, "")?;
                    if self.violates("resend") {
                        self.accept(&key)?;
                    }
                    say(json!({ "event": "answered", "slot": slot, "once": name(&once) }))?;
                }
                _ => say(json!({ "event": "rested" }))?,
            }
        }
        Ok(())
    }

    /// Sends an effect through the ledger. With `stall` it says how far it is, and goes no further.
    fn send(&self, key: &str, stall: &str) -> Result<Once, Fault> {
        let mut request = OnceRequest::new(key, "{\"to\": \"provider\"}");
        request.lease = LEASE;
        let stop_here = |at: &str| {
            if stall == at {
                let _ = say(json!({ "event": "stalled" }));
                loop {
                    std::thread::sleep(Duration::from_secs(60));
                }
            }
        };
        let sending = |_: &rowclaim::blocking::Effect| {
            stop_here("before");
            if let Err(fault) = self.accept(key) {
                return Sent::Failed(fault.text());
            }
            stop_here("after");
            std::thread::sleep(Duration::from_millis(20));
            Sent::Succeeded("{\"accepted\": true}".to_owned())
        };
        Ok(self.scratch.engine.once(&request, sending, |_| Sent::Unknown("nobody is asked".to_owned()))?)
    }

    /// The provider: writes each send into its book.
    fn accept(&self, key: &str) -> Result<(), Fault> {
        let mut book = std::fs::OpenOptions::new().append(true).create(true).open(&self.provider)?;
        // One write of one line: many processes append.
        Ok(book.write_all(format!("{key}\n").as_bytes())?)
    }

    /// Drill 5: passes over the schedule, or runs by hand, until told to rest.
    fn passes(&self) -> Result<(), Fault> {
        while let Ok(order) = self.orders.recv() {
            if order.get("do").and_then(Value::as_str) == Some("go") {
                let task = order.get("task").and_then(Value::as_str).unwrap_or_default().to_owned();
                let slot = Timestamp(order.get("slot").and_then(Value::as_i64).unwrap_or(0));
                while self.orders.try_recv().is_err() {
                    if self.number.is_multiple_of(4) {
                        self.rerun(&task, slot)?
                    } else {
                        self.pass(&task)?
                    }
                    std::thread::sleep(Duration::from_millis(20 + self.lot(80)));
                }
            }
            say(json!({ "event": "rested" }))?;
        }
        Ok(())
    }

    fn pass(&self, task: &str) -> Result<(), Fault> {
        let mut pass = self.scratch.engine.tick(&[task.to_owned()], None)?;
        while let Some(run) = pass.next_run()? {
            self.work_on(&run)?;
        }
        Ok(())
    }

    fn rerun(&self, task: &str, slot: Timestamp) -> Result<(), Fault> {
        let mut request = RunRequest::new(task, slot);
        (request.lease, request.is_manual) = (LEASE, !self.violates("mark"));
        match self.scratch.engine.run_slot(&request)? {
            RunStart::Run(run) => self.work_on(&run),
            // Somebody else is at it: a person would try again in a moment.
            RunStart::Already(_) | RunStart::Busy(_) => Ok(()),
        }
    }

    fn work_on(&self, run: &Run) -> Result<(), Fault> {
        self.observe(run, run.task())?;
        std::thread::sleep(Duration::from_millis(10 + self.lot(40)));
        self.observe(run, run.task())?;
        run.succeed()?;
        let is_manual = run.is_manual() || (self.violates("mark") && self.number.is_multiple_of(4));
        say(json!({ "event": "ran", "id": run.id(), "slot": run.slot().0, "is_manual": is_manual }))
    }

    fn observe(&self, run: &Run, name: &str) -> Result<(), Fault> {
        self.scratch.observe(name, run.fence(), || run.valid_for()).map(drop)
    }
}

/// Writes with an old fence, again and again; how many were accepted.
pub fn write_late(scratch: &Scratch, name: &str, fence: i64, times: u64, violate: &str) -> Result<u64, Fault> {
    let mut accepted = 0;
    for _ in 0..times {
        let fence = if violate == "fence" { i64::MAX } else { fence };
        accepted += u64::from(scratch.guard(name, fence, LATE)?);
        if violate == "late" {
            scratch.write_unguarded(name, LATE)?;
        }
    }
    Ok(accepted)
}

fn name(once: &Once) -> &'static str {
    match once {
        Once::Done(receipt) if receipt.is_fresh => "sent",
        Once::Done(_) => "stored",
        Once::Failed(_) => "failed",
        Once::Busy(_) => "busy",
        Once::Unknown(_) => "unknown",
    }
}
