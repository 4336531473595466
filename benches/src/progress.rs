//! Progress over the planned measurements: a bar on a terminal, else a line per suite.

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::{Key, Library, Suite};

/// Shows the progress of a run on standard error.
pub struct Progress {
    /// Hidden if standard error is not a terminal.
    bar: ProgressBar,
    last: Option<(Library, u32, Suite)>,
}

impl Progress {
    /// Progress over `total` measurements of all libraries together.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let bar = ProgressBar::new(total as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, last: None }
    }

    /// Counts one measurement of `library`.
    pub fn step(&mut self, library: Library, key: &Key) {
        let part = (library, key.ranks, key.suite);
        if self.bar.is_hidden() && self.last.replace(part) != Some(part) {
            let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("[{done}/{total}] {}, {} ranks: {}", library.label(), key.ranks, key.suite);
        }
        self.bar.set_message(message(library, key));
        self.bar.inc(1);
    }

    /// Skips `missing` planned measurements.
    pub fn skip(&mut self, missing: usize) {
        self.bar.inc(missing as u64);
    }

    /// Prints a line without disturbing the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The text of the bar for a measurement.
fn message(library: Library, key: &Key) -> String {
    let words = [key.suite.name(), key.sync.label(), key.op.label(), key.shape.label()];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    format!("{}, {} ranks: {}", library.label(), key.ranks, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn message_says_what_is_measured() {
        let plan = Plan::new(true, &[2]);
        let messages: Vec<_> = plan.keys(2).iter().map(|key| message(Library::Farside, key)).collect();
        for wanted in ["epoch, exclusive lock, put", "am, there and back", "ghost, PSCW, exchange"] {
            let wanted = format!("Farside, 2 ranks: {wanted}");
            assert!(messages.contains(&wanted), "{wanted} is not in {messages:?}");
        }
    }

    #[test]
    fn step_and_skip_count_up_to_the_total() {
        let keys = Plan::new(true, &[2]).keys(2);
        let mut progress = Progress::new(keys.len() + 3);
        keys.iter().for_each(|key| progress.step(Library::Farside, key));
        progress.skip(3);
        progress.say("done");
        assert_eq!(Some(progress.bar.position()), progress.bar.length());
    }
}
