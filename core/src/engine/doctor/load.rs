//! What other sessions do to claims: transactions that stay open, and the old versions of rows they keep.

use super::Finding;
use super::look::{Look, one_number};
use crate::dialect::doctor as dialect;
use crate::error::Result;
use crate::value::{Row, Value};

/// Old versions of rows from which on scans over claimed entries are felt.
const HISTORY: i64 = 1_000_000;

pub(super) async fn look(look: &mut Look<'_>) -> Result<()> {
    let seconds = i64::try_from(look.request.long_transaction.as_secs()).unwrap_or(i64::MAX);
    let open = look.see_by_process("long transactions", dialect::LONG_TRANSACTIONS, vec![Value::Int(seconds)]).await?;
    for finding in open.iter().filter_map(long_transaction) {
        look.find(finding);
    }
    let history = look.see_by_process("the history list", dialect::HISTORY, vec![]).await?;
    if let Some(length) = one_number(&history).filter(|length| *length >= HISTORY) {
        look.find(
            Finding::warning("history-long", "server", format!("{length} old versions of rows wait for purge"))
                .so("claims step over entries of rows that were claimed long ago, and get slower by the hour")
                .mend("end what keeps a snapshot: SELECT * FROM information_schema.innodb_trx ORDER BY trx_started"),
        );
    }
    Ok(())
}

fn long_transaction(row: &Row) -> Option<Finding> {
    let (id, age) = (row.int(0).ok()?, row.int(1).ok()?);
    let text = |at: usize| row.text(at).ok().filter(|text| !text.is_empty());
    let locked = row.int(5).unwrap_or(0);
    let who = match (id, text(2)) {
        (0, _) => "a prepared XA transaction".to_owned(),
        (id, Some(user)) => {
            format!("connection {id} of {user}@{} ({})", text(3).unwrap_or_default(), text(4).unwrap_or_default())
        }
        (id, None) => format!("connection {id}"),
    };
    let finding = Finding::warning(
        "long-transaction",
        "server",
        format!("{who} has had a transaction open for {age} seconds; it has locked {locked} rows"),
    );
    let finding = finding.so("its snapshot keeps every claimed entry from being purged: claims get slower until it ends");
    Some(match id {
        0 => finding.mend("XA RECOVER, then XA COMMIT or XA ROLLBACK"),
        id => finding.mend(format!("KILL {id}")),
    })
}
