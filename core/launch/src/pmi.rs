//! The connections to the ranks, and the PMI-1 server behind them.

use std::cell::RefCell;
use std::io::{ErrorKind as Io, Result};
use std::os::unix::net::UnixStream as Socket;
use std::rc::Rc;
use std::time::Duration;

use farside_core::bootstrap::pmi1_wire::LineBuffer;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;

use crate::server::{Answer, Replies, Server};

/// Maximum number of bytes that are read from one rank before the others get their turn.
const TURN: usize = 256 * 1024;

/// Time between the end of a rank's connection and the notification of the ranks that wait for it.
const CLOSED_TO_GONE: Duration = Duration::from_millis(500);

/// A notice that concerns the whole job: a rank requested the end of the job, or broke the protocol.
pub(crate) type Notice = (u32, Answer);

struct Connection {
    /// The socket is read and written directly, not through the runtime: data that a process wrote before it ended is
    /// read when its end is known, and not only when the runtime has noticed it.
    socket: Rc<UnixStream>,
    lines: LineBuffer,
}

/// All connections of a job.
pub(crate) struct Hub {
    server: Server,
    connections: Vec<Option<Connection>>,
    notices: UnboundedSender<Notice>,
}

impl Hub {
    /// A hub without connections.
    pub(crate) fn new(server: Server, notices: UnboundedSender<Notice>) -> Rc<RefCell<Self>> {
        let connections = (0..server.size()).map(|_| None).collect();
        Rc::new(RefCell::new(Self { server, connections, notices }))
    }

    /// Called when the process of `rank` has ended: serves the requests that it wrote before, and notifies the ranks
    /// that wait for it. Returns whether it ended without a farewell.
    pub(crate) fn ended(&mut self, rank: u32, why: &str) -> bool {
        // All its data is in the socket's buffer; one turn reads more than that buffer holds.
        let _ = self.turn(rank);
        self.gone(rank, why);
        self.connections[rank as usize] = None;
        self.server.is_unfinished(rank)
    }

    /// Reads and serves requests of the rank. Returns whether the connection is still open; `WouldBlock` if all is
    /// read.
    fn turn(&mut self, rank: u32) -> Result<bool> {
        let mut bytes = [0; 8192];
        for _ in 0..TURN / bytes.len() {
            let Some(connection) = &mut self.connections[rank as usize] else { return Ok(false) };
            match recv(&connection.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((n @ 1.., _)) => connection.lines.push(&bytes[..n]),
                Err(e @ Errno::AGAIN) => return Err(e.into()),
                Err(Errno::INTR) => continue,
                Ok((0, _)) | Err(_) => self.connections[rank as usize] = None,
            }
            self.serve(rank);
        }
        Ok(true)
    }

    /// Serves the complete lines that have arrived.
    fn serve(&mut self, rank: u32) {
        while let Some(connection) = &mut self.connections[rank as usize] {
            match connection.lines.pop() {
                Ok(None) => return,
                Err(what) => self.broken(rank, what),
                Ok(Some(line)) => match self.server.line(rank, &line) {
                    Answer::Replies(replies) => self.deliver(replies),
                    Answer::Broken(what) => self.broken(rank, what),
                    // The receiver lives as long as the job does.
                    notice @ (Answer::Abort { .. } | Answer::Waits(_)) => drop(self.notices.send((rank, notice))),
                },
            }
        }
    }

    /// Asks all ranks that support questions what they wait for; returns their number.
    pub(crate) fn ask(&mut self) -> usize {
        let questions = self.server.questions();
        let asked = questions.len();
        self.deliver(questions);
        asked
    }

    /// A description of the state of a rank that has not answered.
    pub(crate) fn doing(&self, rank: u32) -> &'static str {
        self.server.doing(rank)
    }

    fn deliver(&mut self, replies: Replies) {
        for (rank, line) in replies {
            let Some(connection) = &self.connections[rank as usize] else { continue };
            match send(&connection.socket, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) if n == line.len() => {}
                // The buffer holds hundreds of replies, and a rank that keeps to the protocol awaits one at a time.
                Ok(_) | Err(Errno::AGAIN) => self.broken(rank, "it does not read its replies".into()),
                // The rank has ended, which is handled elsewhere.
                Err(_) => {}
            }
        }
    }

    fn broken(&mut self, rank: u32, what: String) {
        let _ = self.notices.send((rank, Answer::Broken(what)));
        self.connections[rank as usize] = None;
        self.gone(rank, "it broke the PMI-1 protocol");
    }

    /// Called when the rank can send nothing more: notifies the ranks that wait for it, unless they know already.
    fn gone(&mut self, rank: u32, why: &str) {
        let replies = self.server.gone(rank, why);
        self.deliver(replies);
    }
}

/// Serves one rank until its connection ends; returns the rank's end of the connection.
///
/// # Errors
/// When the system gives no socket, or the runtime cannot watch it.
pub(crate) fn connect(hub: &Rc<RefCell<Hub>>, rank: u32) -> Result<Socket> {
    let (ours, theirs) = Socket::pair()?;
    ours.set_nonblocking(true)?;
    let socket = Rc::new(UnixStream::from_std(ours)?);
    let connection = Connection { socket: Rc::clone(&socket), lines: LineBuffer::default() };
    hub.borrow_mut().connections[rank as usize] = Some(connection);
    let hub = Rc::clone(hub);
    tokio::task::spawn_local(async move {
        while socket.readable().await.is_ok() {
            match socket.try_io(Interest::READABLE, || hub.borrow_mut().turn(rank)) {
                Ok(true) => tokio::task::yield_now().await,
                Err(e) if e.kind() == Io::WouldBlock => {}
                _ => break,
            }
        }
        // A process that ends closes its descriptors first, and its exit status is known a moment later. Ranks that
        // wait for it should get that status in their error.
        tokio::time::sleep(CLOSED_TO_GONE).await;
        hub.borrow_mut().gone(rank, "its connection to the launcher ended");
    });
    Ok(theirs)
}
