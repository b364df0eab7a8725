//! Faults on order, for tests: errors, lost connections and crashes at chosen statements. Feature `faults`.

use crate::error::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// What happens instead of, or after, a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A deadlock is reported; the statement is not sent.
    Deadlock,
    /// A lock wait time-out is reported; the statement is not sent and the transaction stays open.
    LockWait,
    /// The connection is lost before the statement is sent.
    LostBefore,
    /// The statement is carried out, and the connection is lost before its answer comes.
    LostAfter,
    /// The statement is sent half a second late.
    Pause,
    /// The process is killed before the statement is sent.
    Crash,
}

#[derive(Debug)]
struct Rule {
    contains: String,
    fault: Fault,
    /// Matching statements that pass first.
    skip: u32,
    times: u32,
}

/// The faults of one engine, shared with the test that orders them.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
}

impl Faults {
    /// Orders `fault` for the next `times` statements that contain a text, after `skip` of them have passed.
    pub fn order(&self, contains: &str, fault: Fault, skip: u32, times: u32) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.push(Rule { contains: contains.to_owned(), fault, skip, times });
    }

    /// How many ordered faults have not happened yet.
    pub fn left(&self) -> u32 {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|rule| rule.times).sum()
    }

    fn draw(&self, sql: &str) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter_mut().find(|rule| rule.times > 0 && sql.contains(&rule.contains))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault)
    }

    /// Called before each statement; true when the connection is to be lost after it.
    pub(crate) fn before(&self, sql: &str) -> Result<bool> {
        match self.draw(sql) {
            None => Ok(false),
            Some(Fault::Deadlock) => Err(Error::new(ErrorKind::Contention, "ordered deadlock").with_code(1213)),
            Some(Fault::LockWait) => Err(Error::new(ErrorKind::Contention, "ordered lock wait time-out").with_code(1205)),
            Some(Fault::LostBefore) => Err(lost()),
            Some(Fault::LostAfter) => Ok(true),
            Some(Fault::Pause) => {
                std::thread::sleep(std::time::Duration::from_millis(500));
                Ok(false)
            }
            Some(Fault::Crash) => {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
                Err(lost())
            }
        }
    }
}

pub(crate) fn lost() -> Error {
    Error::unavailable("ordered loss of the connection")
}

/// Every statement of a database under its name, for the snapshot and EXPLAIN tests.
pub fn statements(flavor: rowclaim_migrations::Flavor, shape: crate::ClaimShape, prefix: &str) -> Vec<(&'static str, String)> {
    let names = rowclaim_migrations::Names::new(flavor, prefix);
    let statements = crate::dialect::Statements::new(flavor, shape, &names);
    statements.all().into_iter().map(|(name, sql)| (name, sql.to_owned())).collect()
}
