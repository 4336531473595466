//! The results of a run, and its output files.

use std::fs;
use std::path::{Path, PathBuf};

use farside_core::error::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::launch::Note;
use crate::limits::Floors;
use crate::machine::Machine;
use crate::options::Options;
use crate::record::{Library, Record};
use crate::table::Table;

/// The records and notes of one run on one machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// The subject.
    pub(crate) title: String,
    /// The machine and the time.
    pub(crate) machine: Machine,
    /// The records of Farside, the limits and the peers. If two have the same library and key, the later one is used.
    pub(crate) records: Vec<Record>,
    /// Notes for the reader.
    pub(crate) notes: Vec<Note>,
}

impl Results {
    /// Empty results, on this machine.
    pub(crate) fn here(title: String) -> Self {
        Self { title, machine: Machine::here(), records: Vec::new(), notes: Vec::new() }
    }

    /// Prints the notes.
    pub(crate) fn print_notes(&self) {
        self.notes.iter().for_each(|note| println!("note: {note}"));
    }

    /// Checks whether Farside has been measured.
    ///
    /// # Errors
    /// [`ErrorKind::Launcher`] if not.
    pub(crate) fn check(&self) -> Result<bool> {
        if self.records.iter().any(|record| record.library == Library::Farside) {
            return Ok(true);
        }
        let cause = "no measurement has succeeded; see the notes";
        Err(Error::new(ErrorKind::Launcher, "measure Farside").cause(cause))
    }

    /// The table with all libraries side by side.
    pub(crate) fn table(&self) -> Table {
        Table::new(&self.records, &Floors::from_records(&self.records, self.machine.cores))
    }

    /// Writes one JSON object: machine, records, notes.
    ///
    /// # Errors
    /// [`farside_core::error::ErrorKind::System`] if the file cannot be written.
    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(self).map_err(|error| Error::system("write the results", error.into()))?;
        write(path, &text)
    }

    /// Prints the notes, and writes the records and the report of a benchmark of this name. Returns the result of
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// [`ErrorKind::System`] if a file cannot be written; those of `check`.
    pub(crate) fn write(&self, name: &str, options: &Options, report: &str) -> Result<bool> {
        self.print_notes();
        let file = |given: &Option<PathBuf>, kind| given.clone().unwrap_or_else(|| format!("out/{name}.{kind}").into());
        let (json, html) = (file(&options.json, "json"), file(&options.html, "html"));
        self.write_json(&json)?;
        write(&html, report)?;
        println!("written: {} and {}", json.display(), html.display());
        self.check()
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error| Error::system("write the results", error).cause(path.display().to_string());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Library, Op};

    #[test]
    fn write_json_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("folder/results.json");
        let mut results = Results::here("title".to_owned());
        results.notes.push(Note { subject: "a \"peer\"".to_owned(), text: "was\nnot there".to_owned() });
        results.records.push(crate::record::tests::record(Library::OpenMpi, Op::PutBandwidth, 64, 0.375));
        results.write_json(&path).unwrap();
        let read: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(serde_json::from_value::<Vec<Record>>(read["records"].clone()).unwrap(), results.records);
        assert_eq!(serde_json::from_value::<Vec<Note>>(read["notes"].clone()).unwrap(), results.notes);
        assert_eq!(serde_json::from_value::<Machine>(read["machine"].clone()).unwrap(), results.machine);
    }

    #[test]
    fn write_to_a_folder_that_cannot_be_names_the_file() {
        let error = write(Path::new("/proc/nonexistent/report.html"), "").unwrap_err();
        assert!(error.to_string().contains("/proc/nonexistent/report.html"), "{error}");
    }
}
