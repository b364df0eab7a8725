//! What a table is: its columns, their types and its indexes, and what may be written into a column.
//!
//! Values are converted to the column's type or refused before any SQL: a text compared with a number column would match
//! every row whose number is 0, and a number compared with a text column uses no index.

use crate::error::{Error, Result};
use crate::mapping::Unit;
use crate::time::{Timestamp, Zone};
use crate::value::{Row, Value};
use jiff::civil::DateTime;

/// A column as the database describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub name: String,
    pub kind: Kind,
    pub is_nullable: bool,
}

/// What a column can hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Int {
        min: i64,
        max: u64,
    },
    /// FLOAT, DOUBLE, DECIMAL.
    Number,
    Text {
        /// How much it holds: characters, or bytes where TEXT columns count those.
        chars: u64,
        in_bytes: bool,
        charset: String,
    },
    /// ENUM.
    Choice(Vec<String>),
    Bytes {
        length: u64,
        is_fixed: bool,
    },
    /// Without a zone of its own.
    DateTime {
        digits: u8,
    },
    /// Kept as UTC by the server.
    Timestamp {
        digits: u8,
    },
    /// Anything else, by its type's name.
    Other(String),
}

/// An index that can be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Index {
    pub name: String,
    pub is_unique: bool,
    /// Whole ascending columns; shorter than the index where a part of it is neither.
    pub columns: Vec<String>,
    /// All columns are in `columns`.
    pub is_whole: bool,
}

/// A whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layout {
    /// `InnoDB`; empty where there is only one.
    pub engine: String,
    pub is_view: bool,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// The columns of the primary key.
    pub primary: Vec<String>,
}

impl Layout {
    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

/// A row of `columns` of MySQL: name, data type, whole type, nullable, characters, character set, digits.
pub(crate) fn mysql_column(row: &Row) -> Result<Column> {
    let (data, whole) = (row.text(1)?.to_lowercase(), row.text(2)?);
    let is_unsigned = whole.to_lowercase().contains("unsigned");
    let length = || row.opt(4, Row::int).ok().flatten().and_then(|length| u64::try_from(length).ok()).unwrap_or(u64::MAX);
    let charset = || row.opt(5, Row::text).ok().flatten().unwrap_or_default();
    let digits = || row.opt(6, Row::int).ok().flatten().and_then(|digits| u8::try_from(digits).ok()).unwrap_or(0);
    let int = |bits: u32| match is_unsigned {
        true => Kind::Int { min: 0, max: u64::MAX >> (64 - bits) },
        false => Kind::Int { min: i64::MIN >> (64 - bits), max: (i64::MAX as u64) >> (64 - bits) },
    };
    let kind = match data.as_str() {
        "tinyint" => int(8),
        "smallint" => int(16),
        "mediumint" => int(24),
        "int" => int(32),
        "bigint" => int(64),
        "float" | "double" | "decimal" => Kind::Number,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => {
            Kind::Text { chars: length(), in_bytes: data.ends_with("text"), charset: charset() }
        }
        // MariaDB's own types for identifiers.
        "uuid" => Kind::Other(data),
        "binary" => Kind::Bytes { length: length(), is_fixed: true },
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes { length: length(), is_fixed: false },
        "enum" => Kind::Choice(choices(&whole)),
        "datetime" => Kind::DateTime { digits: digits() },
        "timestamp" => Kind::Timestamp { digits: digits() },
        _ => Kind::Other(data),
    };
    Ok(Column { name: row.text(0)?, kind, is_nullable: row.text(3)? == "YES" })
}

/// The words of `enum('a','b')`.
fn choices(whole: &str) -> Vec<String> {
    let inside = whole.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    let mut words = Vec::new();
    let mut rest = inside;
    while let Some(after) = rest.trim_start_matches(',').strip_prefix('\'') {
        let mut word = String::new();
        let mut letters = after.char_indices().peekable();
        let mut end = after.len();
        while let Some((at, letter)) = letters.next() {
            let is_doubled = letter == '\'' && letters.peek().is_some_and(|(_, next)| *next == '\'');
            if is_doubled {
                letters.next();
            } else if letter == '\'' {
                end = at + 1;
                break;
            }
            word.push(letter);
        }
        words.push(word);
        rest = after.get(end..).unwrap_or_default();
    }
    words
}

/// A row of `columns` of SQLite: name, declared type, nullable, position in the primary key. Types by affinity.
pub(crate) fn sqlite_column(row: &Row) -> Result<Column> {
    let declared = row.text(1)?.to_uppercase();
    let has = |word: &str| declared.contains(word);
    let kind = if has("INT") || has("BOOL") {
        Kind::Int { min: i64::MIN, max: i64::MAX as u64 }
    } else if declared == "TIME" {
        Kind::Other("time".to_owned())
    } else if has("DATE") || has("TIME") {
        Kind::DateTime { digits: 0 }
    } else if has("CHAR") || has("CLOB") || has("TEXT") || has("JSON") || has("UUID") {
        Kind::Text { chars: u64::MAX, in_bytes: false, charset: String::new() }
    } else if has("BLOB") || has("BINARY") {
        Kind::Bytes { length: u64::MAX, is_fixed: false }
    } else if has("REAL") || has("FLOA") || has("DOUB") || has("NUM") || has("DEC") {
        Kind::Number
    } else {
        Kind::Other(declared.to_lowercase())
    };
    // INTEGER PRIMARY KEY is the row's own number and never NULL.
    let is_nullable = row.int(2)? == 1 && row.int(3)? == 0;
    Ok(Column { name: row.text(0)?, kind, is_nullable })
}

impl Column {
    /// `value` as this column takes it.
    ///
    /// # Errors
    /// `Invalid`, naming the column and the value, when it does not fit.
    pub(crate) fn fit(&self, value: &Value, zone: Option<&Zone>, unit: Unit) -> Result<Value> {
        let wrong = |what: &str| {
            let shown = crate::mapping::json_of(value).to_string();
            let shown: String = shown.chars().take(60).collect();
            Error::invalid(format!("column {} takes {what}, not {shown}", self.name))
        };
        match (value, &self.kind) {
            (Value::Null, _) if self.is_nullable => Ok(Value::Null),
            (Value::Null, _) => Err(wrong("no NULL")),
            (Value::At(at), _) => self.moment(*at, zone, unit).ok_or_else(|| wrong("no such instant")),
            // SQLite would store NaN as NULL.
            (Value::Float(number), _) if !number.is_finite() => {
                Err(Error::invalid(format!("column {} takes no {number}", self.name)))
            }
            (_, Kind::Int { min, max }) => {
                let number = match value {
                    Value::Int(number) => Some(i128::from(*number)),
                    Value::UInt(number) => Some(i128::from(*number)),
                    // A number in a text, as requests and CSV files have it; nothing that merely begins with one.
                    Value::Text(text) => text.parse::<i128>().ok().filter(|number| number.to_string() == *text),
                    _ => None,
                };
                let number = number.ok_or_else(|| wrong("a whole number"))?;
                if number < i128::from(*min) || number > i128::from(*max) {
                    return Err(wrong(&format!("numbers from {min} to {max}")));
                }
                i64::try_from(number)
                    .map(Value::Int)
                    .or_else(|_| u64::try_from(number).map(Value::UInt).map_err(|_| wrong("a whole number")))
            }
            (Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Decimal(_), Kind::Number) => Ok(value.clone()),
            (Value::Text(text), Kind::Number) if text.parse::<f64>().is_ok_and(f64::is_finite) => {
                Ok(Value::Decimal(text.clone()))
            }
            (_, Kind::Number) => Err(wrong("a number")),
            (_, Kind::Text { chars, in_bytes, .. }) => {
                let text = text_of(value).ok_or_else(|| wrong("text"))?;
                let length = if *in_bytes { text.len() } else { text.chars().count() };
                if length as u64 > *chars {
                    let what = if *in_bytes { "bytes" } else { "characters" };
                    return Err(wrong(&format!("at most {chars} {what}")));
                }
                Ok(Value::Text(text))
            }
            (Value::Text(text), Kind::Choice(words)) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                word.map(|word| Value::Text(word.clone())).ok_or_else(|| wrong(&format!("one of {}", words.join(", "))))
            }
            (_, Kind::Choice(words)) => Err(wrong(&format!("one of {}", words.join(", ")))),
            (_, Kind::Bytes { length, is_fixed }) => {
                let bytes = match value {
                    Value::Bytes(bytes) => bytes.clone(),
                    _ => text_of(value).ok_or_else(|| wrong("bytes"))?.into_bytes(),
                };
                let is_long = bytes.len() as u64 > *length;
                if is_long || (*is_fixed && bytes.len() as u64 != *length) {
                    return Err(wrong(&format!("{}{length} bytes", if *is_fixed { "" } else { "at most " })));
                }
                Ok(Value::Bytes(bytes))
            }
            (Value::Text(text) | Value::Moment(text), Kind::DateTime { .. }) => civil(text)
                .map(|_| Value::Moment(text.clone()))
                .ok_or_else(|| wrong("a date and time such as 2026-11-29 08:30:00")),
            (Value::Text(text) | Value::Moment(text), Kind::Timestamp { digits }) => {
                // Read in the mapping's zone, as the application does; kept as UTC by the server.
                let wrong = || wrong("a date and time such as 2026-11-29 08:30:00, up to the year 2038");
                let local = civil(text).ok_or_else(wrong)?;
                let at =
                    zone.map_or_else(|| Some(Timestamp::of_civil(local, 0)), |zone| zone.instant_of(local)).ok_or_else(wrong)?;
                shown(at, 0, *digits).filter(|_| at.0 < i64::from(i32::MAX) * 1_000_000).map(Value::Moment).ok_or_else(wrong)
            }
            (_, Kind::DateTime { .. } | Kind::Timestamp { .. }) => Err(wrong("a date and time")),
            (_, Kind::Other(_)) => Ok(value.clone()),
        }
    }

    /// An instant in the column's own form.
    fn moment(&self, at: Timestamp, zone: Option<&Zone>, unit: Unit) -> Option<Value> {
        match &self.kind {
            Kind::Int { .. } => {
                let step = unit_micros(unit);
                Some(Value::Int(at.0.div_euclid(step)))
            }
            Kind::DateTime { digits } => shown(at, zone.map_or(0, |zone| zone.offset_at(at)), *digits).map(Value::Moment),
            // TIMESTAMP ends in January 2038; what is behind becomes a zero date on a lenient server.
            Kind::Timestamp { digits } if at.0 < i64::from(i32::MAX) * 1_000_000 => shown(at, 0, *digits).map(Value::Moment),
            _ => None,
        }
    }

    /// What the database handed out, as the application knows it: TIMESTAMP in the mapping's zone.
    pub(crate) fn read(&self, value: Value, zone: Option<&Zone>) -> Value {
        // SQLite keeps moments as text.
        let value = match (value, &self.kind) {
            (Value::Text(text), Kind::DateTime { .. }) => Value::Moment(text),
            (other, _) => other,
        };
        let (Value::Moment(text), Kind::Timestamp { digits }, Some(zone)) = (&value, &self.kind, zone) else { return value };
        let Some(utc) = civil(text) else { return value };
        let at = Timestamp::of_civil(utc, 0);
        shown(at, zone.offset_at(at), *digits).map_or(value, Value::Moment)
    }
}

/// Microseconds of a unit.
pub(crate) fn unit_micros(unit: Unit) -> i64 {
    match unit {
        Unit::Seconds => 1_000_000,
        Unit::Milliseconds => 1_000,
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Decimal(text) | Value::Moment(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::Null | Value::At(_) => None,
    }
}

fn civil(text: &str) -> Option<DateTime> {
    text.parse::<DateTime>().ok().filter(|at| (1_000..=9_999).contains(&at.year()))
}

fn shown(at: Timestamp, offset: i32, digits: u8) -> Option<String> {
    let civil = at.civil(offset)?;
    let text = civil.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let micros = format!(".{:06}", civil.subsec_nanosecond() / 1_000);
    Some(if digits == 0 { text } else { text + micros.get(..=usize::from(digits.min(6))).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: Kind) -> Column {
        Column { name: "c".into(), kind, is_nullable: false }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn values_fit_their_columns_or_are_refused_by_name() {
        let tiny = column(Kind::Int { min: 0, max: 255 });
        let fit = |column: &Column, value: Value| column.fit(&value, None, Unit::Seconds);
        assert_eq!(fit(&tiny, text("42")).unwrap(), Value::Int(42));
        for wrong in [
            text("42 OR 1=1"),
            text("0x10"),
            text(" 1"),
            text(""),
            Value::Int(256),
            Value::Int(-1),
            Value::Float(1.0),
            Value::Null,
        ] {
            let error = fit(&tiny, wrong.clone()).unwrap_err().to_string();
            assert!(error.contains("column c takes"), "{wrong:?}: {error}");
        }
        let word = column(Kind::Text { chars: 3, in_bytes: false, charset: "utf8mb4".into() });
        assert_eq!(fit(&word, Value::Int(5)).unwrap(), text("5"));
        assert_eq!(fit(&word, text("äöü")).unwrap(), text("äöü"));
        assert!(fit(&word, text("long")).is_err());
        let choice = column(Kind::Choice(choices("enum('new','it''s','a,b')")));
        assert_eq!(choice.kind, Kind::Choice(vec!["new".into(), "it's".into(), "a,b".into()]));
        assert!(fit(&choice, text("old")).unwrap_err().to_string().contains("one of new, it's, a,b"));
        assert!(fit(&choice, Value::Int(1)).is_err());
    }

    #[test]
    fn moments_go_in_and_out_in_the_zone_of_the_mapping() {
        let zone = Zone::parse("Asia/Shanghai").unwrap();
        let at = Timestamp(1_590_285_600_250_000);
        let fit = |kind: Kind, value: Value| column(kind).fit(&value, Some(&zone), Unit::Milliseconds).unwrap();
        assert_eq!(fit(Kind::DateTime { digits: 0 }, Value::At(at)), Value::Moment("2020-05-24 10:00:00".into()));
        assert_eq!(fit(Kind::DateTime { digits: 3 }, Value::At(at)), Value::Moment("2020-05-24 10:00:00.250".into()));
        assert_eq!(fit(Kind::Timestamp { digits: 0 }, Value::At(at)), Value::Moment("2020-05-24 02:00:00".into()));
        assert_eq!(fit(Kind::Timestamp { digits: 0 }, text("2020-05-24 10:00:00")), Value::Moment("2020-05-24 02:00:00".into()));
        assert_eq!(fit(Kind::Int { min: 0, max: u64::MAX }, Value::At(at)), Value::Int(1_590_285_600_250));
        let kept = column(Kind::Timestamp { digits: 0 });
        let read = kept.read(Value::Moment("2020-05-24 02:00:00".into()), Some(&zone));
        assert_eq!(read, Value::Moment("2020-05-24 10:00:00".into()));
        assert!(kept.fit(&text("2500-01-01 12:00:00"), None, Unit::Seconds).unwrap_err().to_string().contains("2038"));
        assert!(kept.fit(&text("0000-00-00 00:00:00"), None, Unit::Seconds).is_err());
    }
}
