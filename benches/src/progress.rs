//! Progress over the planned measurements: a bar on a terminal, else a line per suite.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::{Key, Library, Suite};

/// Shows how far a run has come, on standard error.
pub struct Progress(Kind);

enum Kind {
    Bar(ProgressBar),
    Lines { output: Box<dyn Write + Send>, total: u64, done: u64, last: Option<(Library, u32, Suite)> },
}

impl Progress {
    /// Over `total` measurements of all libraries together: a bar if standard error is a terminal.
    #[must_use]
    pub fn new(total: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self::lines(total, Box::new(io::stderr()));
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed_precise} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(Kind::Bar(bar))
    }

    /// A line per library, number of ranks and suite to `output`.
    #[must_use]
    pub fn lines(total: u64, output: Box<dyn Write + Send>) -> Self {
        Self(Kind::Lines { output, total, done: 0, last: None })
    }

    /// Says what is done now, where a bar has room for it.
    pub fn doing(&mut self, what: &str) {
        if let Kind::Bar(bar) = &self.0 {
            bar.set_message(what.to_owned());
            bar.tick();
        }
    }

    /// One measurement of `library` has come in.
    pub fn step(&mut self, library: Library, key: &Key) {
        match &mut self.0 {
            Kind::Bar(bar) => {
                bar.set_message(message(library, key));
                bar.inc(1);
            }
            Kind::Lines { output, total, done, last } => {
                let part = (library, key.ranks, key.suite);
                if *last != Some(part) {
                    *last = Some(part);
                    // Whoever cannot read about the progress still wants the results.
                    let _ =
                        writeln!(output, "[{done}/{total}] {}, {} ranks: {}", library.title(), key.ranks, key.suite);
                }
                *done += 1;
            }
        }
    }

    /// `missing` planned measurements will not come.
    pub fn skip(&mut self, missing: u64) {
        match &mut self.0 {
            Kind::Bar(bar) => bar.inc(missing),
            Kind::Lines { done, .. } => *done += missing,
        }
    }

    /// Prints a line without tearing the bar.
    pub fn say(&mut self, line: &str) {
        match &mut self.0 {
            Kind::Bar(bar) => bar.println(line),
            Kind::Lines { output, .. } => {
                let _ = writeln!(output, "{line}");
            }
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Kind::Bar(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}

/// What the bar says of a measurement: each word once, and none that says nothing.
fn message(library: Library, key: &Key) -> String {
    let mut words = vec![key.suite.name()];
    for word in [key.sync.name(), key.op.name(), key.shape.name()] {
        if word != "none" && !words.contains(&word) {
            words.push(word);
        }
    }
    format!("{}, {} ranks: {}", library.title(), key.ranks, words.join(" "))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::plan::{Effort, Plan};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn message_says_each_word_once() {
        let plan = Plan::new(Effort::Quick, &[2]);
        let messages: Vec<_> = plan.keys(2).iter().map(|key| message(Library::Farside, key)).collect();
        for wanted in ["epoch lock_exclusive put", "am pingpong", "barrier", "ghost pscw"] {
            let wanted = format!("Farside, 2 ranks: {wanted}");
            assert!(messages.contains(&wanted), "{wanted} is not in {messages:?}");
        }
    }

    #[test]
    fn step_without_terminal_writes_a_line_per_suite() {
        let sink = Sink::default();
        let plan = Plan { suites: vec![Suite::Epoch, Suite::Op], ..Plan::new(Effort::Quick, &[2]) };
        let keys = plan.keys(2);
        let mut progress = Progress::lines(keys.len() as u64, Box::new(sink.clone()));
        for key in &keys {
            progress.step(Library::Farside, key);
        }
        progress.skip(3);
        progress.say("done");
        progress.finish();
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "[0/60] Farside, 2 ranks: epoch",
                "[15/60] Farside, 2 ranks: op",
                "[30/60] Farside, 2 ranks: epoch",
                "[45/60] Farside, 2 ranks: op",
                "done"
            ]
        );
    }
}
