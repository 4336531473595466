//! Output of ranks, in whole lines, so that lines of different ranks do not mix.

use std::io::{PipeReader, Write};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum length in bytes of a line that is not split.
pub(crate) const LINE_MAX: usize = 1024 * 1024;
/// Number of pieces of output that may wait for a slow reader before the ranks must wait.
const QUEUE: usize = 64;
/// Time without output after which a pipe is given up once its writers have ended; by then, all their output is in the
/// pipe.
const IDLE: Duration = Duration::from_millis(100);

/// Cuts the output of one rank into pieces that may follow pieces of other ranks.
pub(crate) struct Cutter {
    prefix: Vec<u8>,
    /// Whether everything is passed on as it arrives, since there is no other rank.
    alone: bool,
    line: Vec<u8>,
}

impl Cutter {
    /// A cutter for `rank` of `size`; with `prefix` it puts `[rank] ` in front of each line.
    pub(crate) fn new(rank: u32, size: u32, prefix: bool) -> Self {
        let text = if prefix { format!("[{rank}] ") } else { String::new() };
        Self { prefix: text.into_bytes(), alone: size == 1 && !prefix, line: Vec::new() }
    }

    /// Takes bytes; returns the whole lines so far, each with its newline.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.alone {
            return bytes.to_vec();
        }
        let mut out = Vec::new();
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let mut rest = piece;
            while self.line.len() + rest.len() > LINE_MAX {
                let (fits, more) = rest.split_at(LINE_MAX - self.line.len());
                self.line.extend_from_slice(fits);
                self.end_line(&mut out);
                rest = more;
            }
            self.line.extend_from_slice(rest);
            if self.line.ends_with(b"\n") {
                self.end_line(&mut out);
            }
        }
        out
    }

    /// The last line, if it had no newline; it gets one.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut out);
        }
        out
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.append(&mut self.line);
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
}

/// One output of the launcher, which its own thread writes: a reader that stops must not stop the launcher.
#[derive(Clone, Debug)]
pub(crate) struct Sink(mpsc::Sender<Vec<u8>>);

impl Sink {
    /// Starts the thread. The second part is done when all clones are dropped and everything is written, or cannot be
    /// written.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(mut to: impl Write + Send + 'static) -> std::io::Result<(Self, oneshot::Receiver<()>)> {
        let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(QUEUE);
        let (done, is_done) = oneshot::channel::<()>();
        std::thread::Builder::new().name("farside-output".into()).spawn(move || {
            while let Some(piece) = receiver.blocking_recv() {
                // The reader has ended. When the queue closes, the ranks' pipes close, so the ranks learn of it.
                if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
                    break;
                }
            }
            drop(done);
        })?;
        Ok((Self(sender), is_done))
    }

    /// Writes a whole piece, waiting while the reader is slow; `false` if the reader has ended.
    pub(crate) async fn write(&self, piece: Vec<u8>) -> bool {
        piece.is_empty() || self.0.send(piece).await.is_ok()
    }
}

/// Forwards one pipe until its end or, once `finish` is true, until it has been idle for a moment, since a process that
/// is not a descendant of the launcher might hold it open.
///
/// # Errors
/// When the runtime cannot watch the pipe.
pub(crate) fn forward(
    from: PipeReader,
    mut cutter: Cutter,
    to: Sink,
    mut finish: watch::Receiver<bool>,
) -> std::io::Result<impl Future<Output = ()> + 'static> {
    let mut from = Receiver::from_owned_fd(from.into())?;
    Ok(async move {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let idle = async {
                // An error means that the job is over as well.
                let _ = finish.wait_for(|finish| *finish).await;
                tokio::time::sleep(IDLE).await;
            };
            let n = tokio::select! {
                // Bytes are handled first: a launcher that was not scheduled for a while finds both branches ready.
                biased;
                n = from.read(&mut bytes) => n.unwrap_or(0),
                () = idle => 0,
            };
            if n == 0 {
                to.write(cutter.finish()).await;
                return;
            }
            if !to.write(cutter.push(&bytes[..n])).await {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cutter_keeps_lines_whole_and_the_last_one_too() {
        let mut c = Cutter::new(3, 4, true);
        assert_eq!(c.push(b"ab"), b"");
        assert_eq!(c.push(b"c\nde\n\nf"), b"[3] abc\n[3] de\n[3] \n");
        assert_eq!(c.finish(), b"[3] f\n");
        assert_eq!(c.finish(), b"");
    }

    #[test]
    fn cutter_splits_a_line_that_is_too_long() {
        let mut c = Cutter::new(0, 2, true);
        let out = c.push(&vec![b'x'; LINE_MAX + 1]);
        assert_eq!(out.len(), 4 + LINE_MAX + 1);
        assert_eq!(c.push(b"\n"), b"[0] x\n");
    }

    #[test]
    fn cutter_of_a_lone_rank_changes_nothing() {
        let mut c = Cutter::new(0, 1, false);
        assert_eq!(c.push(b"ab"), b"ab");
        assert_eq!(c.push(b"\nc"), b"\nc");
        assert_eq!(c.finish(), b"");
    }

    #[test]
    fn output_that_came_while_the_launcher_was_not_scheduled_is_forwarded() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..8 {
                let (from, mut to) = std::io::pipe().unwrap();
                let (sender, mut pieces) = mpsc::channel(QUEUE);
                let (_finish, finished) = watch::channel(true);
                let task = tokio::spawn(forward(from, Cutter::new(0, 2, false), Sink(sender), finished).unwrap());
                tokio::task::yield_now().await;
                to.write_all(b"last line\n").unwrap();
                std::thread::sleep(IDLE + Duration::from_millis(5)); // all the runtime sleeps
                assert_eq!(pieces.recv().await.as_deref(), Some(&b"last line\n"[..]));
                drop(to);
                task.await.unwrap();
            }
        });
    }

    proptest! {
        #[test]
        fn cutter_loses_nothing(text in "[a-c\n]{0,300}", cut in 1usize..40) {
            let mut c = Cutter::new(0, 2, false);
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                let lines = c.push(piece);
                prop_assert!(lines.is_empty() || lines.ends_with(b"\n"));
                out.extend(lines);
            }
            out.extend(c.finish());
            let mut want = text.clone().into_bytes();
            if !want.is_empty() && !want.ends_with(b"\n") {
                want.push(b'\n');
            }
            prop_assert_eq!(out, want);
        }
    }
}
