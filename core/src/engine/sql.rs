//! Plain SQL over the engine's own connections, for the drill of the console: its scratch tables are nobody else's.
//!
//! Not a part of the surface. Statements are repeated after a lost connection, so they must bear that.

use super::Engine;
use crate::error::Result;
use crate::plan::plain;
use crate::value::{Row, Value};

impl Engine {
    #[doc(hidden)]
    pub async fn sql(&self, text: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let statement = plain(text, values.to_vec());
        self.run_without_tables("sql", async |_, session, _| {
            let (_, rows) = session.query_typed(&statement).await?;
            Ok(rows.into_iter().map(|Row(values)| values).collect())
        })
        .await
    }
}
