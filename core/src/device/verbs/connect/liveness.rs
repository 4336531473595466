//! Detects lost peers. Processes of this machine are watched: such a peer is lost when its process has ended, but not
//! while it is stopped. Any other peer is alive if a message came from it within the last two seconds; otherwise it is
//! pinged by datagrams half a second apart, which its agent answers even while the rank computes. A peer that answers
//! no ping for `FARSIDE_VERBS_SILENCE_S` is lost. At most 32 peers are pinged at a time, in turn. While its own port is
//! down, a rank blames the port and no peer.

use std::time::{Duration, Instant};

use super::super::address::EndpointAddress;
use super::links::{Links, Peer};
use crate::error::{Error, ErrorKind, Result};
use crate::processes::{self, Process};

const OP: &str = "check the other ranks";
/// Interval between two pings of the same peer.
const ASK: Duration = Duration::from_millis(500);
/// Silence after which a peer is pinged.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum number of peers pinged at a time.
const AT_ONCE: usize = 32;
/// Maximum time from the end of a rank's process to the arrival of its last datagram.
const WORD: Duration = Duration::from_secs(1);

/// Maximum wait for an answer of a peer that has refused an operation, beyond the silence after which the peer is lost.
const REFUSAL_WAIT: Duration = Duration::from_secs(2);

/// Operations that a peer's HCA has refused. A rank that ends, even by a kill, may lose its memory before its queue
/// pairs, so that operations are refused. So a refusal is reported only once the peer has answered a ping sent after
/// it.
#[derive(Default)]
pub(crate) struct Suspects(Vec<(u64, u32, u64, Instant, Error)>);

impl Suspects {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Withholds the result of operation `id`, and pings the peer.
    pub(crate) fn suspect(&mut self, id: u64, error: Error, links: &Links) {
        let peer = error.blamed_number().filter(|p| (*p as usize) < links.addresses.len()).unwrap_or(links.me);
        let answers = if peer == links.me { 0 } else { links.ask(peer) };
        self.0.push((id, peer, answers, Instant::now(), error));
    }

    /// Takes out the operations whose result is certain, with their errors.
    pub(crate) fn known(&mut self, lost: Option<&Error>, links: &Links, silence: Duration) -> Vec<(u64, Error)> {
        let mut out = Vec::new();
        self.0.retain(|(id, peer, answers, since, error)| {
            let known =
                *peer == links.me || links.answers(*peer) > *answers || since.elapsed() > silence + REFUSAL_WAIT;
            if let Some(lost) = lost {
                out.push((*id, lost.again()));
            } else if known {
                out.push((*id, error.again()));
            }
            lost.is_none() && !known
        });
        out
    }

    pub(crate) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        self.0.retain(|(id, ..)| !which(*id));
    }
}

/// The liveness of each peer, as known to this rank.
pub(crate) struct Heartbeat {
    seen: Vec<bool>,
    last: Vec<Instant>,
    asked: Instant,
    turn: usize,
    /// The first rank whose loss this rank has detected.
    met: Option<u32>,
    /// Watched processes, for ranks on this machine.
    processes: Vec<Option<Process>>,
    /// The time since which a process that has not left in order is known to have ended.
    ended: Option<Instant>,
    /// Maximum time for which the port may be down, and for which a peer may be silent.
    down: Duration,
    silence: Duration,
}

impl Heartbeat {
    /// # Errors
    /// `PeerLost` for a process of this machine that has already ended.
    pub(crate) fn new(addresses: &[EndpointAddress], me: u32, (down, silence): (Duration, Duration)) -> Result<Self> {
        let now = Instant::now();
        let own = &addresses[me as usize];
        let mut processes = Vec::with_capacity(addresses.len());
        for (rank, address) in addresses.iter().enumerate() {
            let here = !own.node.is_empty() && address.node == own.node && address.pid != own.pid;
            processes.push(match here.then(|| Process::watch(address.pid)) {
                Some(Ok(process)) => Some(process),
                Some(Err(e)) if e.kind() == std::io::ErrorKind::NotFound => return Err(ended(rank, address.pid)),
                // A peer whose process cannot be watched is pinged later.
                Some(Err(_)) | None => None,
            });
        }
        let ranks = addresses.len();
        Ok(Self {
            seen: vec![false; ranks],
            last: vec![now; ranks],
            asked: now,
            turn: 0,
            met: None,
            processes,
            ended: None,
            down,
            silence,
        })
    }

    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// Returns a rank of this machine whose process is stopped.
    pub(crate) fn stopped_rank(&self) -> Option<u32> {
        processes::first_stopped(&self.processes).map(|rank| rank as u32)
    }

    /// Records a sign of life of a peer, without reading the clock.
    pub(crate) fn alive(&mut self, peer: u32) {
        if let Some(h) = self.seen.get_mut(peer as usize) {
            *h = true;
        }
    }

    pub(crate) fn met(&self) -> Option<u32> {
        self.met
    }

    /// Records the first loss that this rank has detected; it is reported to peers that then find this rank lost too.
    pub(crate) fn note(&mut self, error: &Error) {
        if error.kind() == ErrorKind::PeerLost && self.met.is_none() {
            self.met = error.blamed_number();
        }
    }

    /// Fails if the device, the port or a peer is lost; requests pings of silent peers.
    pub(crate) fn check(&mut self, links: &Links) -> Result<()> {
        let now = Instant::now();
        let mut table = links.lock();
        let system = |why: String| Error::new(ErrorKind::System, OP).device("verbs").cause(why);
        if let Some(why) = &table.fatal {
            return Err(system(format!("{} has failed: {why}", links.choice.device))
                .remedy("check the kernel log; the device may need a reset"));
        }
        if table.down.is_some_and(|since| now.duration_since(since) > self.down) {
            return Err(links.down(OP));
        }
        let ranks = table.peers.len();
        // Farewell messages are checked first: a process may have ended because another rank was lost.
        if let Some(rank) = table.peers.iter().position(|p| p.lost.is_some()) {
            return Err(self.farewell(links.me, rank, &table.peers));
        }
        let mut over = processes::ended(&self.processes);
        over.retain(|rank| !table.peers[*rank].left);
        if over.is_empty() {
            self.ended = None;
        }
        if let Some(rank) = over.first().copied() {
            // A process that has left, or has ended because another rank was lost, has sent a datagram, which may
            // arrive after its end.
            if now.duration_since(*self.ended.get_or_insert(now)) < WORD {
                return Ok(());
            }
            self.met.get_or_insert(rank as u32);
            return Err(ended(rank, links.addresses[rank].pid));
        }
        if table.down.is_some() {
            // No message can arrive from a peer now; its silence counts from the time at which the port is up again.
            self.last.fill(now);
            table.peers.iter_mut().for_each(|peer| peer.unanswered = 0);
            return Ok(());
        }
        let mut due = now.duration_since(self.asked) >= ASK;
        if due {
            self.asked = now;
        }
        let mut asked = 0;
        let start = self.turn;
        for i in 0..ranks {
            let rank = (start + i) % ranks;
            let peer = &mut table.peers[rank];
            if std::mem::take(&mut self.seen[rank]) {
                self.last[rank] = now;
                peer.unanswered = 0;
            }
            let watched = rank == links.me as usize || self.processes[rank].is_some() || peer.left;
            if !due || watched || now.duration_since(self.last[rank]) < QUIET {
                continue;
            }
            if ASK * peer.unanswered + QUIET >= self.silence {
                self.met.get_or_insert(rank as u32);
                return Err(Error::new(ErrorKind::PeerLost, OP)
                    .peer(rank as u32)
                    .device("verbs")
                    .cause(format!(
                        "the peer has not answered for {:?}: it is stopped, or the network in between is down",
                        self.silence
                    ))
                    .remedy(
                        "raise FARSIDE_VERBS_SILENCE_S if ranks may be stopped for longer, for example by a debugger",
                    ));
            }
            peer.unanswered += 1;
            peer.ping_due = true;
            asked += 1;
            if asked == AT_ONCE {
                self.turn = rank + 1;
                due = false;
            }
        }
        drop(table);
        if asked > 0 {
            links.agent_wake.wake();
        }
        Ok(())
    }

    /// The error for `rank`, which has announced its end, or for the rank that it blames.
    fn farewell(&mut self, me: u32, rank: usize, peers: &[Peer]) -> Error {
        let (blamed, why) = peers[rank].lost.clone().unwrap_or_default();
        let (blamed, cause) = match blamed {
            Some(first) if first as usize != rank && (first as usize) < peers.len() && first != me => {
                (first, format!("rank {rank} reported the loss and has ended too: {why}"))
            }
            _ => (rank as u32, why),
        };
        self.met.get_or_insert(blamed);
        Error::new(ErrorKind::PeerLost, OP).peer(blamed).device("verbs").cause(cause)
    }
}

fn ended(rank: usize, pid: u32) -> Error {
    let cause = format!("process {pid} ended without leaving the job");
    Error::new(ErrorKind::PeerLost, OP).peer(rank as u32).device("verbs").cause(cause)
}
