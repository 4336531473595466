#![allow(unsafe_code)]
//! Work requests: checked against the imported regions, and passed to the connection; requests to this rank itself are
//! executed immediately.

use super::engine::Engine;
use super::frame::{Header, Kind, MAX_LENT_PACKET, MAX_PACKET};
use super::peer::Call;
use super::{Import, TcpDevice};
use crate::device::imports::{self, ImportedRegion};
use crate::device::{Change, Operation, Posted, Range, Update, WorkRequest, code};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::stats::Kind as Counted;

/// If more than this many operations to a peer are in progress, further short ones are batched, so that the next poll
/// sends them together.
const COLLECTS: usize = 2;
/// Maximum number of bytes that are batched.
const COLLECTED: u64 = 8 << 10;

/// Operation name in errors of notifications.
const SIGNAL: &str = "signal a peer";

impl ImportedRegion for Import {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }

    fn alignment(&self) -> usize {
        self.align.into()
    }
}

impl TcpDevice {
    pub(super) fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device("tcp")
    }

    /// Checks a request; returns its common fields.
    fn check(&self, request: &WorkRequest<'_>) -> Result<Call> {
        let WorkRequest { peer, ref operation, notify, id } = *request;
        let (name, imports) = (operation.name(), self.imports.borrow());
        let key = match operation {
            Operation::Packet(packet) if packet.len() > MAX_LENT_PACKET => {
                let (e, len) = (Error::new(ErrorKind::BadArgument, name).peer(peer), packet.len());
                return Err(e.cause(format!("the packet has {len} bytes, but at most {MAX_LENT_PACKET} are allowed")));
            }
            Operation::Update(update) if !update.is_integer() && update.code() == code::COMPARE_SWAP => {
                return Err(Error::new(ErrorKind::Misaligned, name)
                    .peer(peer)
                    .cause("this accumulate code is reserved: it marks a compare-and-swap"));
            }
            Operation::List { .. } | Operation::Barrier(_) => return Err(operation.unsupported(peer, "tcp")),
            _ => match operation.region() {
                Some(region) => {
                    let import = imports::region(imports.get(region), peer, region, name)?;
                    imports::access(import, operation)?;
                    import.key
                }
                None => 0,
            },
        };
        let call = Call { id, name, key, notify: None };
        let Some((at, value)) = notify else { return Ok(call) };
        let cell = imports::region(imports.get(at.region), peer, at.region, SIGNAL)?;
        imports::integer(cell, at.offset, 8, SIGNAL)?;
        Ok(Call { notify: Some((cell.key, at.offset as u64, value)), ..call })
    }

    /// Posts a request.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    pub(super) unsafe fn post_checked(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = request.peer;
        if peer >= self.size {
            return Err(self.fail(ErrorKind::NoSuchRank, "post a work request", peer));
        }
        let call = self.check(request).map_err(|e| e.rank(self.me).device("tcp"))?;
        let mut engine = self.shared.lock();
        // SAFETY: the same contract, in both.
        let posted = unsafe {
            if peer == self.me {
                engine.perform(&call, &request.operation).map_err(|kind| self.fail(kind, call.name, peer))?
            } else {
                engine.post(peer, &call, &request.operation).map_err(|e| e.rank(self.me))?
            }
        };
        if posted == Posted::Busy {
            engine.turn(&self.stats);
        }
        self.pass_to_agent(&mut engine);
        if posted == Posted::Busy {
            return Ok(posted);
        }
        let (kind, len) = request.operation.counted();
        self.stats.add(kind, len);
        if call.notify.is_some() {
            self.stats.add(Counted::Notify, 8);
        }
        Ok(posted)
    }
}

impl Engine {
    /// Queues a checked request, and sends it unless it is worthwhile to batch it because of requests in progress.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    unsafe fn post(&mut self, to: u32, call: &Call, operation: &Operation<'_>) -> Result<Posted> {
        let peer = &mut self.peers[to as usize];
        if let Some(e) = &peer.lost {
            return Err(e.again().during(call.name));
        }
        if peer.is_full() {
            self.touch(to);
            return Ok(Posted::Busy);
        }
        let mut is_urgent = call.notify.is_some();
        // SAFETY: by the contract, in all arms.
        unsafe {
            match *operation {
                Operation::Transfer(transfer) if transfer.write => peer.write(call, transfer.local, &transfer.ranges),
                Operation::Transfer(transfer) => peer.read(call, transfer.local, &transfer.ranges),
                Operation::Update(Update { change, at, len, old }) => match change {
                    Change::Add(add) => {
                        let header = Header { offset: at.offset as u64, len: add, ..Header::new(Kind::FetchAdd) };
                        peer.word(call, header, &[], old, 8);
                    }
                    Change::CompareSwap { expected, desired } => {
                        let header = Header::new(Kind::CompareSwap);
                        let header = Header { offset: at.offset as u64, size: len as u16, ..header };
                        let words = [expected.to_le_bytes(), desired.to_le_bytes()];
                        peer.word(call, header, words.as_flattened(), old, len);
                    }
                    Change::Accumulate { code, operand } => {
                        peer.accumulate(call, Range { offset: at.offset, len }, code, operand, old);
                    }
                },
                Operation::Signal { at, value } => {
                    peer.signal(call.key, at.offset, value);
                    self.touch(to);
                    self.send(to);
                    return Ok(Posted::Done);
                }
                Operation::Packet(packet) => {
                    let len = packet.len();
                    let (sent, posted) = packet.with_parts(|header, body| match len > MAX_PACKET {
                        true => (peer.lend(call, header, body, len), Posted::Pending),
                        false => (peer.send(header, body, len), Posted::Done),
                    });
                    self.touch(to);
                    if sent {
                        self.send(to);
                    }
                    return Ok(if sent { posted } else { Posted::Busy });
                }
                Operation::List { .. } | Operation::Barrier(_) => {}
            }
        }
        is_urgent |= peer.open() <= COLLECTS || peer.sends.unsent() > COLLECTED;
        self.touch(to);
        if is_urgent {
            self.send(to);
        }
        Ok(Posted::Pending)
    }

    /// Executes a checked request on memory of this rank.
    ///
    /// # Safety
    /// The contract of [`Device::post`](crate::device::Device::post).
    unsafe fn perform(&mut self, call: &Call, operation: &Operation<'_>) -> Result<Posted, ErrorKind> {
        let memory = &self.memory;
        let place = |offset: usize| (call.key, offset as u64);
        let mut bytes = Vec::new();
        // SAFETY: local blocks are valid by the contract, and have the lengths that were checked.
        unsafe {
            match *operation {
                Operation::Transfer(transfer) if transfer.write => {
                    copy::gather(&[], transfer.local, &mut bytes);
                    let mut rest = &bytes[..];
                    for range in transfer.ranges.iter() {
                        let (part, left) = rest.split_at(range.len);
                        memory.write(place(range.offset), part)?;
                        rest = left;
                    }
                }
                Operation::Transfer(transfer) => {
                    for range in transfer.ranges.iter() {
                        memory.read(place(range.offset), range.len, &mut bytes)?;
                    }
                    copy::scatter(&bytes, transfer.local);
                }
                Operation::Update(update) => memory.update(place(update.at.offset), &update)?,
                Operation::Signal { at, value } => memory.signal(place(at.offset), value)?,
                Operation::Packet(packet) => {
                    packet.with_parts(|header, body| copy::gather(header, body, &mut bytes));
                    self.inbox.push(self.me, &bytes);
                }
                Operation::List { .. } | Operation::Barrier(_) => {}
            }
        }
        if let Some((key, offset, value)) = call.notify {
            self.memory.signal((key, offset), value)?;
        }
        Ok(Posted::Done)
    }
}
