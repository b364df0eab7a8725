//! `Rowclaim\Summary`: what a `work` call did.

use ext_php_rs::prelude::*;

/// What a `work` call did.
#[php_class]
#[php(name = "Rowclaim\\Summary", flags = crate::CLASS)]
pub struct Summary(pub rowclaim::blocking::Summary);

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[php_impl]
impl Summary {
    /// Jobs claimed.
    #[php(getter)]
    pub fn get_claimed(&self) -> i64 {
        int(self.0.claimed)
    }

    /// Completions accepted.
    #[php(getter)]
    pub fn get_completed(&self) -> i64 {
        int(self.0.completed)
    }

    /// Failures accepted.
    #[php(getter)]
    pub fn get_failed(&self) -> i64 {
        int(self.0.failed)
    }

    /// Jobs given back.
    #[php(getter)]
    pub fn get_released(&self) -> i64 {
        int(self.0.released)
    }

    /// Jobs whose claim was lost before their outcome was written.
    #[php(getter)]
    pub fn get_lost(&self) -> i64 {
        int(self.0.lost)
    }

    /// True when it ended because SIGTERM or SIGINT came.
    #[php(getter)]
    pub fn get_stopped(&self) -> bool {
        self.0.stopped
    }

    /// Seconds from start to end.
    #[php(getter)]
    pub fn get_seconds(&self) -> f64 {
        self.0.seconds
    }
}
