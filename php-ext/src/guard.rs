//! What a fenced write on any table is told.

use crate::arguments::Text;
use crate::column_values::written;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::ZendHashTable;
use rowclaim::GuardedWrite;

/// What a caller says about a write beside its fence.
pub struct GuardArguments<'a> {
    /// `table`
    pub table: Text,
    /// `key`
    pub key: &'a ZendHashTable,
    /// `set`
    pub set: &'a ZendHashTable,
    /// `fenceColumn`
    pub fence_column: Text,
}

impl GuardArguments<'_> {
    /// The write that the arguments describe; its fence is put in by who makes it.
    ///
    /// # Errors
    /// `InvalidException`, `TypeError`, naming the column.
    pub fn write(self) -> PhpResult<GuardedWrite> {
        Ok(GuardedWrite {
            table: self.table.utf8("table")?,
            key: written("key", self.key)?,
            set: written("set", self.set)?,
            fence_column: self.fence_column.utf8("fenceColumn")?,
            fence: 0,
        })
    }
}
