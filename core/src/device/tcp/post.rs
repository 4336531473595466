#![allow(unsafe_code)]
//! Work requests: checked against the imported regions, and given to the connection; requests to this rank itself are
//! carried out at once.

use super::engine::Engine;
use super::frame::{Header, Kind, MAX_PACKET};
use super::peer::Call;
use super::send_buffer::append;
use super::{Import, TcpDevice};
use crate::device::{self, Block, Operation, Place, Posted, Range, WorkRequest, code};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;
use crate::stats::Kind as Counted;

/// Operations in progress to a peer from which short ones are collected, to be sent together by the next poll.
const COLLECTS: usize = 2;
/// Bytes that are collected at most.
const COLLECTED: u64 = 8 << 10;

fn len(blocks: &[Block]) -> usize {
    blocks.iter().map(|b| b.len).sum()
}

impl TcpDevice {
    pub(super) fn fail(&self, kind: ErrorKind, operation: &'static str, peer: u32) -> Error {
        Error::new(kind, operation).rank(self.me).peer(peer).device("tcp")
    }

    /// The imported region at a place of `peer`, which has `len` bytes there.
    fn region(&self, peer: u32, at: Place, len: usize, name: &'static str) -> Result<Import> {
        let import = self.imports.borrow().get(at.region).copied();
        let import = import.ok_or_else(|| self.fail(ErrorKind::BadKey, name, peer))?;
        if import.peer != peer {
            return Err(self.fail(ErrorKind::BadArgument, name, peer).cause("the region belongs to another rank"));
        }
        if at.offset.checked_add(len).is_none_or(|end| end > import.len) {
            let cause = format!("{len} bytes at byte {} of a region of {}", at.offset, import.len);
            return Err(self.fail(ErrorKind::OutOfRange, name, peer).cause(cause));
        }
        Ok(import)
    }

    /// [`region`](Self::region) for an integer.
    fn integer(&self, peer: u32, at: Place, len: usize, name: &'static str) -> Result<Import> {
        let import = self.region(peer, at, len, name)?;
        if !(at.offset + usize::from(import.align)).is_multiple_of(len) {
            let cause = format!("offset {}", at.offset);
            return Err(self.fail(ErrorKind::Misaligned, name, peer).cause(cause));
        }
        Ok(import)
    }

    /// Checks a request; returns the key of its region, the kind that is counted, and the number of bytes.
    fn check(&self, request: &WorkRequest<'_>) -> Result<(&'static str, u64, Counted, usize)> {
        let peer = request.peer;
        let vector = |name, to: device::RemoteVector<'_>, local: &[Block]| {
            let mut total = 0usize;
            let mut key = self.region(peer, Place { region: to.region, offset: 0 }, 0, name)?.key;
            for Range { offset, len } in to.ranges {
                key = self.region(peer, Place { region: to.region, offset: *offset }, *len, name)?.key;
                total = total.saturating_add(*len);
            }
            if total != len(local) {
                let cause = format!("{} local bytes and {total} remote ones", len(local));
                return Err(self.fail(ErrorKind::BadArgument, name, peer).cause(cause));
            }
            Ok((key, total))
        };
        Ok(match request.operation {
            Operation::Write { from, to } => {
                let name = "write remote memory";
                (name, self.region(peer, to, len(from), name)?.key, Counted::Write, len(from))
            }
            Operation::Read { into, from } => {
                let name = "read remote memory";
                (name, self.region(peer, from, len(into), name)?.key, Counted::Read, len(into))
            }
            Operation::WriteBlocks { from, to } => {
                let (key, len) = vector("write remote memory", to, from)?;
                ("write remote memory", key, Counted::Write, len)
            }
            Operation::ReadBlocks { into, from } => {
                let (key, len) = vector("read remote memory", from, into)?;
                ("read remote memory", key, Counted::Read, len)
            }
            Operation::FetchAdd { at, .. } => {
                let name = "fetch and add";
                (name, self.integer(peer, at, 8, name)?.key, Counted::FetchAdd, 8)
            }
            Operation::CompareSwap { at, len, .. } => {
                let name = "compare and swap";
                if !matches!(len, 1 | 2 | 4 | 8) {
                    return Err(self.fail(ErrorKind::Unsupported, name, peer).cause(format!("{len} bytes")));
                }
                (name, self.integer(peer, at, len, name)?.key, Counted::CompareSwap, len)
            }
            Operation::Accumulate { code: code::SWAP, .. } => {
                return Err(self.fail(ErrorKind::Misaligned, "accumulate", peer).cause("reserved accumulate code"));
            }
            Operation::Accumulate { at, operand, .. } => {
                let name = "accumulate";
                (name, self.region(peer, at, operand.len, name)?.key, Counted::Accumulate, operand.len)
            }
            Operation::Signal { at, .. } => {
                let name = "signal a peer";
                (name, self.integer(peer, at, 8, name)?.key, Counted::Signal, 8)
            }
            Operation::SendShort(packet) => ("send a packet", 0, Counted::Send, packet.len()),
            Operation::Send { header, body } => {
                let len = header.len() + len(body);
                if len > MAX_PACKET {
                    let cause = format!("{len} bytes, {MAX_PACKET} allowed");
                    return Err(self.fail(ErrorKind::BadArgument, "send a packet", peer).cause(cause));
                }
                ("send a packet", 0, Counted::Send, len)
            }
            Operation::Scatter { .. } | Operation::Gather { .. } => return Err(device::no_lists(peer, "tcp")),
            Operation::Barrier(_) => return Err(device::no_barrier("tcp")),
        })
    }

    /// Posts a request.
    ///
    /// # Safety
    /// The contract of [`Device::post`](device::Device::post).
    pub(super) unsafe fn post_checked(&self, request: &WorkRequest<'_>) -> Result<Posted> {
        let peer = request.peer;
        if peer >= self.size {
            return Err(self.fail(ErrorKind::NoSuchRank, "post a work request", peer));
        }
        let (name, key, counted, len) = self.check(request)?;
        let notify = match request.notify {
            Some((at, value)) => {
                let cell = self.integer(peer, at, 8, "signal a peer")?;
                Some((cell.key, at.offset as u64, value))
            }
            None => None,
        };
        let call = Call { id: request.id, name, key, notify };
        let mut engine = self.shared.lock();
        // SAFETY: the same contract, in both.
        let posted = unsafe {
            if peer == self.me {
                engine.perform(&call, &request.operation).map_err(|kind| self.fail(kind, name, peer))?
            } else {
                engine.post(peer, &call, &request.operation).map_err(|e| e.rank(self.me))?
            }
        };
        if posted == Posted::Busy {
            engine.turn(&self.stats);
        }
        self.hand_on(&mut engine);
        if posted == Posted::Busy {
            return Ok(posted);
        }
        self.stats.add(counted, len);
        if notify.is_some() {
            self.stats.add(Counted::Notify, 8);
        }
        Ok(posted)
    }
}

impl Engine {
    /// Queues a checked request, and sends it unless others are on their way with which it can be sent together.
    ///
    /// # Safety
    /// The contract of [`Device::post`](device::Device::post).
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
                Operation::Write { from, to } => {
                    peer.write(call, from, &[Range { offset: to.offset, len: len(from) }]);
                }
                Operation::WriteBlocks { from, to } => peer.write(call, from, to.ranges),
                Operation::Read { into, from } => {
                    peer.read(call, into, &[Range { offset: from.offset, len: len(into) }]);
                }
                Operation::ReadBlocks { into, from } => peer.read(call, into, from.ranges),
                Operation::FetchAdd { at, add, old } => {
                    let header = Header { offset: at.offset as u64, len: add, ..Header::new(Kind::FetchAdd) };
                    peer.word(call, header, &[], old.cast(), 8);
                }
                Operation::CompareSwap { at, len, expected, desired, old } => {
                    let header = Header::new(Kind::CompareSwap);
                    let header = Header { offset: at.offset as u64, size: len as u16, ..header };
                    let words = [expected.to_le_bytes(), desired.to_le_bytes()].concat();
                    peer.word(call, header, &words, old, len);
                }
                Operation::Accumulate { at, code, operand, old } => {
                    let range = Range { offset: at.offset, len: operand.len };
                    peer.accumulate(call, range, code, operand.base, old);
                }
                Operation::Signal { at, value } => {
                    peer.signal(call.key, at.offset, value);
                    self.touch(to);
                    self.send(to);
                    return Ok(Posted::Done);
                }
                Operation::SendShort(_) | Operation::Send { .. } => {
                    let sent = match *operation {
                        Operation::SendShort(packet) => peer.send_short(packet),
                        Operation::Send { header, body } => peer.send(header, body, header.len() + len(body)),
                        _ => false,
                    };
                    self.touch(to);
                    if sent {
                        self.send(to);
                    }
                    return Ok(if sent { Posted::Done } else { Posted::Busy });
                }
                Operation::Scatter { .. } | Operation::Gather { .. } | Operation::Barrier(_) => {}
            }
        }
        is_urgent |= peer.open() <= COLLECTS || peer.sends.unsent() > COLLECTED;
        self.touch(to);
        if is_urgent {
            self.send(to);
        }
        Ok(Posted::Pending)
    }

    /// Carries out a checked request on memory of this rank.
    ///
    /// # Safety
    /// The contract of [`Device::post`](device::Device::post).
    unsafe fn perform(&mut self, call: &Call, operation: &Operation<'_>) -> Result<Posted, ErrorKind> {
        let memory = &self.memory;
        let place = |offset: usize| (call.key, offset as u64);
        let mut bytes = Vec::new();
        // SAFETY: local blocks are valid by the contract, and have the lengths that were checked.
        unsafe {
            match *operation {
                Operation::Write { from, to } => {
                    append(from, &mut bytes);
                    memory.write(place(to.offset), &bytes)?;
                }
                Operation::WriteBlocks { from, to } => {
                    append(from, &mut bytes);
                    let mut rest = &bytes[..];
                    for range in to.ranges {
                        let (part, left) = rest.split_at(range.len);
                        memory.write(place(range.offset), part)?;
                        rest = left;
                    }
                }
                Operation::Read { into, from } => {
                    memory.read(place(from.offset), len(into), &mut bytes)?;
                    scatter(&bytes, into);
                }
                Operation::ReadBlocks { into, from } => {
                    for range in from.ranges {
                        memory.read(place(range.offset), range.len, &mut bytes)?;
                    }
                    scatter(&bytes, into);
                }
                Operation::FetchAdd { at, add, old } => {
                    let former = memory.fetch_add(place(at.offset), add)?;
                    if !old.is_null() {
                        old.write_unaligned(former);
                    }
                }
                Operation::CompareSwap { at, len, expected, desired, old } => {
                    let former = memory.compare_swap(place(at.offset), len, [expected, desired])?;
                    copy::bytes(former.to_le_bytes().as_ptr(), old, len);
                }
                Operation::Accumulate { at, code, operand, old } => {
                    append(&[Block { len: code::operand_len(code, operand.len), ..operand }], &mut bytes);
                    let mut former = vec![0; if old.is_null() { 0 } else { operand.len }];
                    memory.accumulate(place(at.offset), (code, operand.len), &bytes, &mut former)?;
                    copy::bytes(former.as_ptr(), old, former.len());
                }
                Operation::Signal { at, value } => memory.signal(place(at.offset), value)?,
                Operation::SendShort(packet) => self.inbox.push(self.me, &packet.bytes()[..packet.len()]),
                Operation::Send { header, body } => {
                    bytes.extend(header);
                    append(body, &mut bytes);
                    self.inbox.push(self.me, &bytes);
                }
                Operation::Scatter { .. } | Operation::Gather { .. } | Operation::Barrier(_) => {}
            }
        }
        if let Some((key, offset, value)) = call.notify {
            self.memory.signal((key, offset), value)?;
        }
        Ok(Posted::Done)
    }
}

/// Copies bytes to blocks of the same total length.
///
/// # Safety
/// The blocks are valid for writes.
unsafe fn scatter(mut bytes: &[u8], into: &[Block]) {
    for block in into {
        let (part, rest) = bytes.split_at(block.len);
        // SAFETY: by the contract.
        unsafe { copy::store(part.as_ptr(), block.base, block.len) };
        bytes = rest;
    }
}
