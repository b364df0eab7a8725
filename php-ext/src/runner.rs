//! `Rowclaim\Runner` and `Rowclaim\RunnerAnswer`: work behind an HTTP request or a line of a crontab.
//!
//! Who may start it and what is answered is the core's; here is what PHP does to a request: it cuts one whose client has hung
//! up at its next output, and one that is over its time anywhere.

use crate::arguments::Text;
use crate::exceptions::{invalid, refuse};
use crate::ini;
use crate::process::{Drain, gate, is_leaving};
use crate::work::Work;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use rowclaim::blocking::{Admission, RunnerRequest};
use rowclaim::{Error, ErrorKind};
use std::time::Duration;

/// Work that a request starts.
#[php_class]
#[php(name = "Rowclaim\\Runner", flags = crate::CLASS)]
pub struct Runner {
    door: RunnerRequest,
    work: Work,
}

impl Runner {
    /// A runner for PHP code.
    ///
    /// # Errors
    /// `InvalidException` for a token that can be guessed, and for a wrong name.
    pub fn new(token: Option<Text>, name: Option<Text>, work: Work) -> PhpResult<Self> {
        let mut door = RunnerRequest::new(token.map(|token| token.utf8("token")).transpose()?);
        door.name = name.map(|name| name.utf8("name")).transpose()?;
        gate(|| door.check())?;
        Ok(Runner { door, work })
    }

    fn answer(&self, door: &RunnerRequest, method: &str, token: Option<&str>) -> PhpResult<RunnerAnswer> {
        self.check_time_limit()?;
        let drain = Drain::begin();
        gate(|| {
            let answer = match self.work.engine().admit(door, method, token) {
                Admission::Refused(answer) => answer,
                Admission::Work(admitted) => {
                    let worked = self.work.run();
                    if is_leaving() {
                        // The name is given back first.
                        drop(admitted);
                        return Err(Error::new(ErrorKind::Interrupted, "the script ended in the middle"));
                    }
                    admitted.answer(&worked, self.work.waiting())
                }
            };
            drop(drain);
            Ok(answer)
        })
        .map(RunnerAnswer)
    }

    /// PHP's own limit would end the work in the middle of a job.
    fn check_time_limit(&self) -> PhpResult<()> {
        let Some(limit) = ini::max_execution_time() else { return Ok(()) };
        match self.work.max_time() {
            Some(time) if time < Duration::from_secs(limit) => Ok(()),
            _ => refuse(ErrorKind::Config, format!("maxSeconds must be less than max_execution_time, which is {limit}")),
        }
    }
}

#[php_impl]
impl Runner {
    /// Works when the request may. Throws `InvalidException` without a token to compare with, `ConfigException`; what a signal
    /// handler throws.
    pub fn handle(&self, method: Text, token: Option<Text>) -> PhpResult<RunnerAnswer> {
        if self.door.token.is_none() {
            return invalid("handle needs a runner with a token; run() is for crontabs, where nobody asks");
        }
        // Bytes that are not UTF-8 are no method and no token: both are refused as any other wrong one.
        let (method, token) = (method.lossy(), token.map(Text::lossy));
        ini::ignore_user_abort();
        self.answer(&self.door, &method, token.as_deref())
    }

    /// Works without being asked for a token. Throws `ConfigException`; what a signal handler throws.
    pub fn run(&self) -> PhpResult<RunnerAnswer> {
        let door = RunnerRequest { token: None, ..self.door.clone() };
        self.answer(&door, "", None)
    }
}

/// What is answered to a request.
#[php_class]
#[php(name = "Rowclaim\\RunnerAnswer", flags = crate::CLASS)]
pub struct RunnerAnswer(rowclaim::blocking::RunnerAnswer);

#[php_impl]
impl RunnerAnswer {
    /// The HTTP status.
    #[php(getter)]
    pub fn get_status(&self) -> i64 {
        i64::from(self.0.status)
    }

    /// JSON text.
    #[php(getter)]
    pub fn get_body(&self) -> String {
        self.0.body.clone()
    }
}
