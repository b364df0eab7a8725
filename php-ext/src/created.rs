//! `Rowclaim\Created`: the answer to a creation.

use ext_php_rs::prelude::*;

/// The answer to a creation.
#[php_class]
#[php(name = "Rowclaim\\Created", flags = crate::CLASS)]
pub struct Created(pub rowclaim::Created);

#[php_impl]
impl Created {
    /// The job's id.
    #[php(getter)]
    pub fn get_id(&self) -> i64 {
        self.0.id
    }

    /// True when it was there already.
    #[php(getter)]
    pub fn get_exists(&self) -> bool {
        self.0.exists
    }

    /// Where it stands.
    #[php(getter)]
    pub fn get_state(&self) -> String {
        self.0.state.name().to_owned()
    }
}
