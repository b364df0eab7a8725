//! Who gets the message: a CSV with the column `recipient`. Other columns travel in the payload.

use super::provider::mix;
use crate::fault::Fault;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// One line of the CSV.
pub struct Recipient {
    /// The address; with the queue it is the business key.
    pub name: String,
    /// A JSON object of all columns.
    pub payload: String,
}

const GIVEN: [&str; 8] = ["Mary", "José", "王伟", "Zoë", "Łukasz", "李娜", "O'Neil", "Ananya"];

/// Makes a CSV up, in `folder`.
pub fn generate(folder: &Path, count: u32, seed: u64) -> Result<PathBuf, Fault> {
    let path = folder.join("recipients.csv");
    let write = || -> csv::Result<()> {
        let mut file = csv::Writer::from_path(&path)?;
        file.write_record(["recipient", "name", "text"])?;
        for number in 1..=count {
            let drawn = mix(seed, u64::from(number));
            let name = GIVEN.get((drawn % 8) as usize).copied().unwrap_or_default();
            let text = format!("Hello {name}, your order {} is on its way", 10_000 + drawn % 90_000);
            file.write_record([format!("r{number:06}@shop.example").as_str(), name, &text])?;
        }
        Ok(file.flush()?)
    };
    write().map_err(|error| Fault::unexpected(format!("{}: {error}", path.display())))?;
    Ok(path)
}

/// Reads the first `limit` recipients, each once.
pub fn read(path: &Path, limit: Option<u32>) -> Result<Vec<Recipient>, Fault> {
    let wrong = |message: String| Fault::Usage(format!("{}: {message}", path.display()));
    let mut file = csv::Reader::from_path(path).map_err(|error| wrong(error.to_string()))?;
    let titles = file.headers().map_err(|error| wrong(error.to_string()))?.clone();
    let column = titles.iter().position(|title| title.trim_start_matches('\u{feff}') == "recipient");
    let column = column.ok_or_else(|| wrong("there is no column named recipient".to_owned()))?;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let (mut people, mut seen) = (Vec::new(), HashSet::new());
    for (number, record) in file.records().enumerate() {
        if people.len() >= limit {
            break;
        }
        let record = record.map_err(|error| wrong(error.to_string()))?;
        let name = record.get(column).unwrap_or_default();
        if name.is_empty() {
            return Err(wrong(format!("recipient {} is empty", number + 1)));
        }
        if seen.insert(name.to_owned()) {
            let pairs = titles.iter().zip(record.iter()).map(|(title, value)| (title.to_owned(), value.into()));
            let mut payload: serde_json::Map<String, serde_json::Value> = pairs.collect();
            payload.insert("recipient".to_owned(), name.into());
            people.push(Recipient { name: name.to_owned(), payload: serde_json::Value::Object(payload).to_string() });
        }
    }
    match people.is_empty() {
        true => Err(wrong("no recipients".to_owned())),
        false => Ok(people),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_listed_twice_counts_once_and_columns_travel_in_the_payload() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "name,recipient\n王伟,a@x\nZoë,b@x\n王伟,a@x\n").unwrap();
        let people = read(&path, None).unwrap();
        assert_eq!(people.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["a@x", "b@x"]);
        assert_eq!(people[0].payload, r#"{"name":"王伟","recipient":"a@x"}"#);
    }

    #[test]
    fn a_csv_without_the_column_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "name\nx\n").unwrap();
        assert!(matches!(read(&path, None), Err(Fault::Usage(message)) if message.contains("recipient")));
    }
}
