//! `Rowclaim\Record`: a row of a mapped table as it stands, for looking at; and what rows in a worker's hands have of it.

use crate::column_values::{array, zval};
use crate::exceptions::invalid;
use crate::rows::Array;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::flags::DataType;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, ZendObject, Zval};
use ext_php_rs::zend::{ClassEntry, ce};
use rowclaim::ClaimedRow;

unsafe extern "C" {
    static php_json_serializable_ce: *mut ClassEntry;
}

/// The interface `JsonSerializable`.
pub fn json_serializable() -> &'static ClassEntry {
    // SAFETY: json is part of every PHP and started before extensions that are loaded; the entry lives as long as PHP.
    unsafe { php_json_serializable_ce.as_ref() }.unwrap_or_else(ce::arrayaccess)
}

/// The column that an offset names.
fn name(offset: &Zval) -> String {
    let offset = offset.dereference();
    let text = offset.zend_str().map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    text.or_else(|| offset.long().map(|number| number.to_string())).unwrap_or_default()
}

/// As isset of an array: false for a column that is not there, and for NULL.
pub fn is_set(row: &ClaimedRow, offset: &Zval) -> bool {
    row.get(&name(offset)).is_some_and(|value| *value != rowclaim::Value::Null)
}

/// A column's value.
///
/// # Errors
/// `InvalidException`, naming the columns that are there.
pub fn column(row: &ClaimedRow, offset: &Zval) -> PhpResult<Zval> {
    let name = name(offset);
    match row.get(&name) {
        Some(value) => zval(value),
        None => invalid(format!("the row comes without a column {name:?}; it has {}", row.columns().names().join(", "))),
    }
}

/// An iterator over columns and their values.
///
/// # Errors
/// As [`zval`].
pub fn iterator(row: &ClaimedRow) -> PhpResult<Traversable> {
    let Some(class) = ClassEntry::try_find("ArrayIterator") else { return invalid("PHP has no ArrayIterator") };
    let mut values = Zval::new();
    values.set_hashtable(array(row)?);
    let iterator = class.new();
    iterator.try_call_method("__construct", vec![&values])?;
    Ok(Traversable(iterator))
}

/// An object that PHP knows as a `Traversable`.
pub struct Traversable(ZBox<ZendObject>);

impl IntoZval for Traversable {
    const TYPE: DataType = DataType::object("Traversable");
    const NULLABLE: bool = false;

    fn set_zval(self, zval: &mut Zval, persistent: bool) -> ext_php_rs::error::Result<()> {
        self.0.set_zval(zval, persistent)
    }
}

/// What var_dump shows: the properties, and the columns.
///
/// # Errors
/// As [`zval`].
pub fn shown(row: &ClaimedRow, token: Option<String>) -> PhpResult<Array> {
    let mut out = ZendHashTable::with_capacity(8);
    out.insert("key", zval(&row.key)?)?;
    out.insert("attempts", row.attempts)?;
    out.insert("maxAttempts", row.max_attempts)?;
    out.insert("fence", row.fence)?;
    if token.is_some() {
        out.insert("token", token)?;
    }
    out.insert("columns", array(row)?)?;
    Ok(out)
}

/// A row as it stands in the table.
#[php_class]
#[php(name = "Rowclaim\\Record", flags = crate::CLASS)]
#[php(implements(ce = ce::arrayaccess, stub = "\\ArrayAccess"))]
#[php(implements(ce = ce::aggregate, stub = "\\IteratorAggregate"))]
#[php(implements(ce = json_serializable, stub = "\\JsonSerializable"))]
pub struct Record(pub ClaimedRow);

#[php_impl]
impl Record {
    /// The value of its key column.
    #[php(getter)]
    pub fn get_key(&self) -> PhpResult<Zval> {
        zval(&self.0.key)
    }

    /// Attempts so far; 1 where they are not mapped.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.0.attempts
    }

    /// Attempts before it is failed, or null.
    #[php(getter)]
    pub fn get_max_attempts(&self) -> Option<i64> {
        self.0.max_attempts
    }

    /// The fence of its last claim; 0 where it is not mapped.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.0.fence
    }

    /// As isset of an array.
    pub fn offset_exists(&self, offset: &Zval) -> bool {
        is_set(&self.0, offset)
    }

    /// A column's value. `InvalidException` for one that is not there.
    pub fn offset_get(&self, offset: &Zval) -> PhpResult<Zval> {
        column(&self.0, offset)
    }

    /// Throws `InvalidException`.
    #[allow(unused_variables)]
    pub fn offset_set(&self, offset: &Zval, value: &Zval) -> PhpResult<()> {
        invalid("a record is read-only")
    }

    /// Throws `InvalidException`.
    #[allow(unused_variables)]
    pub fn offset_unset(&self, offset: &Zval) -> PhpResult<()> {
        invalid("a record is read-only")
    }

    /// Over columns and their values, in order, for foreach.
    pub fn get_iterator(&self) -> PhpResult<Traversable> {
        iterator(&self.0)
    }

    /// Its columns and their values, in order.
    pub fn to_array(&self) -> PhpResult<Array> {
        array(&self.0)
    }

    /// The same.
    pub fn json_serialize(&self) -> PhpResult<Array> {
        array(&self.0)
    }

    /// What `var_dump` shows.
    #[php(name = "__debugInfo")]
    pub fn debug_info(&self) -> PhpResult<Array> {
        shown(&self.0, None)
    }
}
