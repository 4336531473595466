//! Events of the runtime, emitted with `tracing` to the program's subscriber. If the program has no subscriber,
//! `FARSIDE_LOG` installs one that writes lines to stderr, each prefixed with the rank.

use std::io::{self, Write};

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// Shows events of Farside's crates from `level` on, unless the program has a subscriber.
pub(crate) fn show(level: Level, rank: u32) {
    let own =
        Targets::new().with_targets(["farside_core", "farside_rma", "farside_datatype"].map(|name| (name, level)));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Ranked { rank, to: io::stderr });
    // A failure is not an error: a subscriber of the program takes precedence.
    let _ = tracing_subscriber::registry().with(lines).with(own).try_init();
}

/// Makes writers that prefix lines with the rank.
struct Ranked<F> {
    rank: u32,
    to: F,
}

/// Writes each event, which is passed in one call, prefixed with the rank.
struct Line<W> {
    rank: u32,
    to: W,
}

impl<'a, W: Write, F: Fn() -> W> MakeWriter<'a> for Ranked<F> {
    type Writer = Line<W>;

    fn make_writer(&'a self) -> Line<W> {
        Line { rank: self.rank, to: (self.to)() }
    }
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // A single write keeps lines of several ranks from mixing.
        let mut line = format!("farside rank {}: ", self.rank).into_bytes();
        line.extend_from_slice(event);
        self.to.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn event_is_one_write_with_the_rank_in_front() {
        let kept = Kept::default();
        let to = kept.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false);
        let lines = lines.with_writer(Ranked { rank: 7, to: move || to.clone() });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!("one");
            tracing::warn!(number = 3, "two");
        });
        let lines: Vec<String> =
            kept.0.lock().unwrap().iter().map(|l| String::from_utf8_lossy(l).into_owned()).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|l| l.starts_with("farside rank 7: ") && l.ends_with('\n')), "{lines:?}");
        assert!(lines[1].contains("WARN") && lines[1].contains("two") && lines[1].contains("number=3"), "{lines:?}");
    }
}
