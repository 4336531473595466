//! The connections to the ranks, and the PMI-1 server behind them.

use std::cell::RefCell;
use std::io::{ErrorKind as Io, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::server::{Answer, Replies, Server};
use super::watched::Watched;
use crate::bootstrap::pmi1_wire::LineBuffer;

/// The most that is read from one rank before the others get their turn, in bytes.
const TURN: usize = 256 * 1024;

/// How long a rank may run on without its connection, before those who wait for it are told.
const CLOSED_TO_GONE: Duration = Duration::from_millis(500);

/// What a rank did that concerns the whole job.
#[derive(Debug)]
pub enum Notice {
    /// It asked for the end of the job.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code asked for.
        code: i32,
        /// Why, if it said so.
        reason: String,
    },
    /// It broke the protocol.
    Broken {
        /// The rank.
        rank: u32,
        /// What it did.
        what: String,
    },
}

/// How a turn of reading ended.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// There is nothing more for now.
    Drained,
    /// There is more.
    Unfinished,
    /// The connection is closed.
    Closed,
}

struct Connection {
    socket: Rc<Watched<UnixStream>>,
    lines: LineBuffer,
}

/// All connections of a job.
pub struct Hub {
    server: Server,
    connections: Vec<Option<Connection>>,
    notices: UnboundedSender<Notice>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Hub {
    /// No connection yet.
    #[must_use]
    pub fn new(server: Server, size: u32, notices: UnboundedSender<Notice>) -> Rc<RefCell<Self>> {
        let connections = (0..size).map(|_| None).collect();
        Rc::new(RefCell::new(Self { server, connections, notices }))
    }

    /// The rank has ended, which was found out by other means: serves what it wrote before, and tells those who wait
    /// for it. Whether it ended without saying goodbye.
    pub fn ended(&mut self, rank: u32, why: &str) -> bool {
        // What it wrote is in the socket's buffer already; a turn is more than that buffer holds.
        self.turn(rank);
        self.gone(rank, why);
        self.connections[rank as usize] = None;
        self.server.is_unfinished(rank)
    }

    /// Reads and serves what the rank wrote.
    fn turn(&mut self, rank: u32) -> Turn {
        let mut bytes = [0; 8192];
        for _ in 0..TURN / bytes.len() {
            let Some(connection) = &mut self.connections[rank as usize] else { return Turn::Closed };
            match connection.socket.get().read(&mut bytes) {
                Ok(0) => return self.close(rank),
                Ok(n) => connection.lines.push(&bytes[..n]),
                Err(e) if e.kind() == Io::WouldBlock => return Turn::Drained,
                Err(e) if e.kind() == Io::Interrupted => continue,
                Err(_) => return self.close(rank),
            }
            self.serve(rank);
        }
        Turn::Unfinished
    }

    /// Serves the whole lines that are there.
    fn serve(&mut self, rank: u32) {
        while let Some(connection) = &mut self.connections[rank as usize] {
            match connection.lines.pop() {
                Ok(None) => return,
                Err(what) => self.broken(rank, what),
                Ok(Some(line)) => match self.server.line(rank, &line) {
                    Answer::Replies(replies) => self.deliver(replies),
                    Answer::Abort { code, reason } => self.tell(Notice::Abort { rank, code, reason }),
                    Answer::Broken(what) => self.broken(rank, what),
                },
            }
        }
    }

    fn deliver(&mut self, replies: Replies) {
        let mut deaf = Vec::new();
        for (rank, line) in replies {
            let Some(connection) = &self.connections[rank as usize] else { continue };
            match connection.socket.get().write(line.as_bytes()) {
                Ok(n) if n == line.len() => {}
                // It is gone; its end is seen elsewhere.
                Err(e) if e.kind() != Io::WouldBlock => {}
                // The buffer holds hundreds of replies, and a rank that keeps to the protocol awaits one at a time.
                _ => deaf.push(rank),
            }
        }
        for rank in deaf {
            self.broken(rank, "it does not read its replies".into());
        }
    }

    fn broken(&mut self, rank: u32, what: String) {
        self.tell(Notice::Broken { rank, what });
        self.close(rank);
        self.gone(rank, "it broke the PMI-1 protocol");
    }

    fn close(&mut self, rank: u32) -> Turn {
        self.connections[rank as usize] = None;
        Turn::Closed
    }

    /// The rank will say nothing more: tells those who wait for it, unless they know.
    fn gone(&mut self, rank: u32, why: &str) {
        let replies = self.server.gone(rank, why);
        self.deliver(replies);
    }

    fn tell(&self, notice: Notice) {
        // The receiver lives as long as the job does.
        let _ = self.notices.send(notice);
    }
}

/// Serves one rank until its connection ends.
///
/// # Errors
/// When the runtime cannot watch the socket.
pub fn connect(hub: &Rc<RefCell<Hub>>, rank: u32, socket: UnixStream) -> std::io::Result<()> {
    let socket = Rc::new(Watched::socket(socket)?);
    let connection = Connection { socket: Rc::clone(&socket), lines: LineBuffer::default() };
    hub.borrow_mut().connections[rank as usize] = Some(connection);
    let hub = Rc::clone(hub);
    tokio::task::spawn_local(async move {
        while let Ok(mut ready) = socket.readable().await {
            let turn = hub.borrow_mut().turn(rank);
            match turn {
                Turn::Drained => ready.clear_ready(),
                Turn::Unfinished => tokio::task::yield_now().await,
                Turn::Closed => break,
            }
        }
        // A process that ends closes its descriptors first and can be waited for a moment later. Whoever waits for it
        // should hear how it ended, and not fail before that is known.
        tokio::time::sleep(CLOSED_TO_GONE).await;
        hub.borrow_mut().gone(rank, "its connection to the launcher ended");
    });
    Ok(())
}
