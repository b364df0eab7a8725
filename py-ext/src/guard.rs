//! What a fenced write on any table is told.

use crate::column_values::columns;
use crate::values::text;
use pyo3::prelude::*;
use rowclaim::GuardedWrite;

/// What a caller says about a write beside its fence.
pub(crate) struct Write<'a, 'py> {
    pub(crate) table: &'a Bound<'py, PyAny>,
    pub(crate) key: &'a Bound<'py, PyAny>,
    pub(crate) set: &'a Bound<'py, PyAny>,
    pub(crate) fence_column: &'a Bound<'py, PyAny>,
}

impl Write<'_, '_> {
    /// The write that the arguments describe; its fence is put in by who makes it.
    pub(crate) fn read(&self) -> PyResult<GuardedWrite> {
        Ok(GuardedWrite {
            table: text("table", self.table)?,
            key: columns("key", Some(self.key))?,
            set: columns("set", Some(self.set))?,
            fence_column: text("fence_column", self.fence_column)?,
            fence: 0,
        })
    }
}
