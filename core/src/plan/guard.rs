//! A fenced write as its table takes it.

use super::table::layout::Column;
use crate::value::Value;

/// Checked columns and values that fit them.
pub(crate) struct Fitted {
    pub table: String,
    pub key: Vec<(Column, Value)>,
    pub set: Vec<(Column, Value)>,
    pub fence: (Column, Value),
}
