//! Frames that have arrived: requests are served, and answers complete operations of this rank.

use smallvec::SmallVec;

use super::engine::Engine;
use super::frame::{HEADER, Header, Kind, LAST, NOTIFY, RETURN};
use super::input::{Input, Payload};
use super::sys::Blocks;
use crate::device::Block;
use crate::error::ErrorKind;
use crate::stats::{Kind as Counted, Stats};

impl Engine {
    /// Processes all frames in the buffer of a connection.
    ///
    /// # Errors
    /// The peer's violation of the protocol.
    pub(super) fn process(&mut self, from: u32, input: &mut Input, stats: &Stats) -> Result<(), &'static str> {
        // Bytes in the buffer of the connection are kept if the connection breaks.
        self.peers[from as usize].received = input.total;
        let mut weight = 0;
        self.frames(from, input, &mut weight, stats)?;
        if self.peers[from as usize].note_received(input.total, weight) {
            self.touch(from);
        }
        Ok(())
    }

    /// Processes frames, and adds up their weight.
    fn frames(&mut self, from: u32, input: &mut Input, weight: &mut usize, stats: &Stats) -> Result<(), &'static str> {
        loop {
            if let Some(mut payload) = input.payload.take() {
                let len = payload.left.min(input.held().len());
                self.place(from, &mut payload, &input.held()[..len]);
                input.consume(len);
                if payload.left > 0 {
                    input.payload = Some(payload);
                    return Ok(());
                }
                self.placed(from, &payload, stats);
            }
            let Some(frame) = input.frame() else { return Ok(()) };
            let (header, is_whole) = frame?;
            if header.is_bulk() {
                input.consume(HEADER);
                *weight += HEADER + header.payload() / 16;
                input.is_bulky = true;
                input.payload = Some(self.bulk(from, &header)?);
            } else if is_whole {
                *weight += HEADER + header.payload();
                self.frame(from, &header, input.whole(&header), stats)?;
                input.consume(HEADER + header.payload());
            } else {
                return Ok(());
            }
        }
    }

    /// Begins a payload that is placed as it arrives.
    fn bulk(&mut self, from: u32, header: &Header) -> Result<Payload, &'static str> {
        let left = header.payload();
        let peer = &mut self.peers[from as usize];
        if header.kind == Kind::Data {
            peer.data_begins(header)?;
        } else if header.kind == Kind::Packet {
            peer.sends.acknowledge(header.key)?;
            peer.count_queued(left)?;
            peer.arriving = std::mem::take(&mut self.inbox.spare);
            if peer.arriving.len() < left {
                peer.arriving.resize(left, 0);
            }
            return Ok(Payload { offset: 0, ..Payload::of(header) });
        } else if !peer.has_failed() {
            let whole = self.memory.address((header.key, header.offset), left);
            peer.served(0, whole.map(drop));
        }
        Ok(Payload::of(header))
    }

    /// The blocks into which the next bytes of a payload are received directly; none if they are to be discarded.
    pub(super) fn direct(&mut self, from: u32, payload: &Payload) -> Blocks {
        let (mut blocks, peer) = (Blocks::new(), &mut self.peers[from as usize]);
        if payload.kind == Kind::Data {
            peer.data_blocks(payload.left, &mut blocks);
        } else if payload.kind == Kind::Packet {
            let room = &mut peer.arriving[payload.offset as usize..][..payload.left];
            blocks.push(Block { base: room.as_mut_ptr(), len: payload.left });
        } else if !peer.has_failed()
            && let Ok(base) = self.memory.address((payload.key, payload.offset), payload.left)
        {
            blocks.push(Block { base, len: payload.left });
        }
        blocks
    }

    /// Counts bytes of a payload that have arrived at their destination.
    pub(super) fn arrived(&mut self, from: u32, payload: &mut Payload, len: usize) {
        if payload.kind == Kind::Data {
            self.peers[from as usize].data_placed(len);
        }
        // A rejected write may have any offset, so the addition wraps.
        payload.offset = payload.offset.wrapping_add(len as u64);
        payload.left -= len;
    }

    /// Copies bytes of a payload to their destination.
    fn place(&mut self, from: u32, payload: &mut Payload, bytes: &[u8]) {
        let peer = &mut self.peers[from as usize];
        if payload.kind == Kind::Data {
            peer.place(bytes);
        } else if payload.kind == Kind::Packet {
            peer.arriving[payload.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        } else if !peer.has_failed() {
            let written = self.memory.write((payload.key, payload.offset), bytes);
            peer.served(0, written);
        }
        payload.offset = payload.offset.wrapping_add(bytes.len() as u64);
        payload.left -= bytes.len();
    }

    /// Ends a payload.
    fn placed(&mut self, from: u32, payload: &Payload, stats: &Stats) {
        if payload.kind == Kind::Packet {
            let bytes = std::mem::take(&mut self.peers[from as usize].arriving);
            self.inbox.push_long(from, bytes, payload.offset as usize);
        }
        if payload.kind != Kind::Data {
            self.served(from, payload.flags, Ok(()), stats);
        } else {
            // Fewer bytes are outstanding now, so more requests may be sent.
            self.touch(from);
        }
    }

    fn served(&mut self, from: u32, flags: u8, result: Result<(), ErrorKind>, stats: &Stats) {
        if self.peers[from as usize].served(flags, result) {
            stats.add(Counted::Served, 0);
            self.touch(from);
        }
    }

    /// Serves a frame that has arrived completely.
    fn frame(&mut self, from: u32, header: &Header, payload: &[u8], stats: &Stats) -> Result<(), &'static str> {
        let place = (header.key, header.offset);
        let peer = &mut self.peers[from as usize];
        let failed = peer.has_failed();
        if matches!(header.kind, Kind::Packet | Kind::Ack | Kind::Done | Kind::Credit | Kind::Received) {
            peer.sends.acknowledge(header.key)?;
        }
        let skipped = Err(ErrorKind::BadKey);
        match header.kind {
            Kind::Write => {
                let written = if failed { skipped } else { self.memory.write(place, payload) };
                self.served(from, header.flags, written, stats);
            }
            Kind::Read => {
                peer.answer_read(header);
                if header.flags & LAST > 0 {
                    stats.add(Counted::Served, 0);
                }
                self.touch(from);
            }
            Kind::FetchAdd | Kind::CompareSwap | Kind::Accumulate => {
                let is_integer = header.kind != Kind::Accumulate;
                let returns = is_integer || header.flags & RETURN > 0;
                let mut old = SmallVec::<[u8; 8]>::from_elem(0, if returns { header.updated_bytes() } else { 0 });
                let done = if failed { skipped } else { self.memory.serve(header, payload, &mut old) };
                // The values are zeros if an accumulate has failed, since the origin counts the data of every frame.
                if returns && (done.is_ok() || !is_integer) {
                    peer.answer_data(&old);
                    // Data is also returned before the last frame, which the origin may send only after it has received
                    // answers.
                    self.touch(from);
                }
                self.served(from, header.flags, done, stats);
            }
            Kind::Signal => {
                if header.flags & NOTIFY == 0 || !failed {
                    let set = self.memory.signal(place, header.len);
                    if let (Err(kind), true) = (set, header.flags & LAST == 0) {
                        tracing::debug!("a signal of rank {from} was dropped: {}", kind.text());
                    } else {
                        self.served(from, header.flags, set, stats);
                    }
                } else {
                    self.served(from, header.flags, Ok(()), stats);
                }
            }
            Kind::Packet => {
                peer.count_queued(payload.len())?;
                self.inbox.push(from, payload);
                self.served(from, header.flags, Ok(()), stats);
            }
            Kind::Data => {
                peer.data_begins(header)?;
                peer.place(payload);
                self.touch(from);
            }
            Kind::Ack => (0..header.code).try_for_each(|_| self.completed(from, Ok(())))?,
            Kind::Done => {
                let result = match header.size {
                    0 => Ok(()),
                    status => Err(crate::device::target::failure(status.into())),
                };
                self.completed(from, result)?;
            }
            Kind::Credit => peer.credit(header.code)?,
            Kind::News => self.receive_report(from, header, payload),
            Kind::Received => {}
        }
        if self.peers[from as usize].exceeds_reply_limit() {
            return Err("the peer has more outstanding data requests than allowed");
        }
        Ok(())
    }

    fn completed(&mut self, from: u32, result: Result<(), ErrorKind>) -> Result<(), &'static str> {
        if let Some((id, result)) = self.peers[from as usize].complete(result)? {
            self.done.push_back((id, result.map_err(|e| e.peer(from).device("tcp"))));
        }
        // Requests that waited for a limit may now continue.
        self.touch(from);
        Ok(())
    }
}
