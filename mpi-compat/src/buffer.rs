//! Buffered sends and the buffers that they copy to (MPI-5.0 section 3.6).
//!
//! A buffered send uses the buffer of its communicator; without one, the buffer of the communicator's session; without
//! either, the buffer of the process.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use farside_core::two_sided::Mode;

use crate::arguments::{LongOut, Out, check_buffer, count};
use crate::constants::*;
use crate::errhandler::HasErrhandler;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Request, Session};
use crate::message::start_send;
use crate::objects::{Attached, AttachedBuffer, Buffered, CommObject, Data, Outcome, SessionObject, room_for};
use crate::runtime::{Call, Operation};
use crate::status::Status;

impl AttachedBuffer {
    fn flush(&self, call: &Call<'_>) -> Result {
        let last = self.sent.get();
        call.wait(|| self.is_sent(last))?;
        self.clear();
        Ok(())
    }

    /// Waits until the buffer's messages have been sent. On failure the messages are abandoned, since their copies are
    /// freed with the buffer.
    fn end(&self, call: &Call<'_>) -> Result {
        let (job, sent) = (call.job()?, self.flush(call));
        if sent.is_err() {
            self.open.take().iter().for_each(|message| job.forget_send(&message.sending));
        }
        sent
    }
}

/// Starts a buffered send.
pub fn send(call: &Call<'_>, comm: &CommObject, to: (u32, c_int), data: &Data) -> Result {
    let of_session = || comm.group.session.as_ref().and_then(|session| session.buffer.borrow().clone());
    let of_comm = comm.buffer.borrow().clone();
    let buffer = of_comm.or_else(of_session).or_else(|| call.buffer.borrow().clone());
    let Some(buffer) = buffer else {
        return Err(fail(MPI_ERR_BUFFER, "a buffered send needs an attached buffer, but none is attached"));
    };
    let needed = room_for(data.len());
    let fits = || buffer.used.get().saturating_add(needed) <= buffer.size || buffer.is_automatic();
    buffer.clear();
    if !fits() {
        // The peer may have received a message in the meantime, which frees its copy.
        call.job()?.progress()?;
        buffer.clear();
    }
    if !fits() {
        let (used, size) = (buffer.used.get(), buffer.size);
        return Err(fail(
            MPI_ERR_BUFFER,
            format!("the message needs {needed} bytes of the attached buffer, which has {used} of {size} in use"),
        ));
    }
    let copy = data.copied()?;
    let sending = start_send(comm, to, (Mode::Standard, false), &Data::of(&copy))?;
    let number = buffer.sent.get() + 1;
    buffer.sent.set(number);
    if !sending.is_done() {
        buffer.used.set(buffer.used.get() + needed);
        buffer.open.borrow_mut().push_back(Buffered { number, sending, copy });
    }
    Ok(())
}

/// Waits for a flush of a buffer.
struct Flush {
    owner: Owner,
    buffer: Rc<AttachedBuffer>,
    last: u64,
}

impl Operation for Flush {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        match &self.owner {
            Owner::Process => None,
            Owner::Comm(comm) => Some(comm),
            Owner::Session(session) => Some(session),
        }
    }

    fn has_ended(&self) -> bool {
        self.buffer.is_sent(self.last)
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        Outcome::from(Status::EMPTY)
    }
}

/// The owner of the buffer of a call.
enum Owner {
    Process,
    Comm((Comm, Rc<CommObject>)),
    Session((Session, Rc<SessionObject>)),
}

impl Owner {
    fn process(_: &Call<'_>) -> Result<Self> {
        Ok(Self::Process)
    }

    fn comm(call: &Call<'_>, comm: Comm) -> Result<Self> {
        Ok(Self::Comm((comm, call.comms.get(comm)?)))
    }

    fn session(call: &Call<'_>, session: Session) -> Result<Self> {
        Ok(Self::Session((session, call.sessions.get(session)?)))
    }

    fn place<'a>(&'a self, call: &'a Call<'_>) -> &'a Attached {
        match self {
            Self::Process => &call.buffer,
            Self::Comm((_, object)) => &object.buffer,
            Self::Session((_, object)) => &object.buffer,
        }
    }

    fn attach(self, call: &Call<'_>, address: *mut c_void, size: i64) -> Result {
        let size = count(size, "size")?;
        if self.place(call).borrow().is_some() {
            return Err(
                fail(MPI_ERR_BUFFER, "cannot be attached, since another buffer is already attached").named("buffer")
            );
        }
        if size > 0 && address.addr() != MPI_BUFFER_AUTOMATIC {
            check_buffer(address, false, "buffer")?;
        }
        let (open, used, sent) = Default::default();
        let buffer = Rc::new(AttachedBuffer { address, size, open, used, sent });
        call.buffers.borrow_mut().push(Rc::clone(&buffer));
        *self.place(call).borrow_mut() = Some(buffer);
        Ok(())
    }

    fn attached(&self, call: &Call<'_>) -> Result<Rc<AttachedBuffer>> {
        self.place(call).borrow().clone().ok_or_else(|| fail(MPI_ERR_BUFFER, "no buffer is attached"))
    }

    fn detach(self, call: &Call<'_>, address: Out<usize>, size: LongOut) -> Result {
        let buffer = self.attached(call)?;
        // Buffered sends that other threads start during the wait fail, because no buffer is attached.
        *self.place(call).borrow_mut() = None;
        let sent = buffer.end(call);
        size.set(if buffer.is_automatic() { 0 } else { buffer.size as i64 })?;
        address.set(buffer.address.expose_provenance());
        call.buffers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &buffer));
        sent
    }

    fn flush(self, call: &Call<'_>) -> Result {
        self.attached(call)?.flush(call)
    }

    fn iflush(self, call: &Call<'_>, request: Out<Request>) -> Result {
        let buffer = self.attached(call)?;
        let last = buffer.sent.get();
        let flush = Flush { owner: self, buffer, last };
        request.set(call.requests.insert(Rc::new(flush)));
        Ok(())
    }
}

macro_rules! calls {
    ($($owner:path, ($($name:ident: $kind:ty)?): $attach:ident, $detach:ident, $flush:ident, $iflush:ident;)*) => {$(
        pub fn $attach(call: &Call<'_>, $($name: $kind,)? buffer: *mut c_void, size: i64) -> Result {
            $owner(call, $($name)?)?.attach(call, buffer, size)
        }

        pub fn $detach(call: &Call<'_>, $($name: $kind,)? address: Out<usize>, size: LongOut) -> Result {
            $owner(call, $($name)?)?.detach(call, address, size)
        }

        pub fn $flush(call: &Call<'_>, $($name: $kind)?) -> Result {
            $owner(call, $($name)?)?.flush(call)
        }

        pub fn $iflush(call: &Call<'_>, $($name: $kind,)? request: Out<Request>) -> Result {
            $owner(call, $($name)?)?.iflush(call, request)
        }
    )*};
}

calls! {
    Owner::process, (): buffer_attach, buffer_detach, buffer_flush, buffer_iflush;
    Owner::comm, (comm: Comm): comm_attach_buffer, comm_detach_buffer, comm_flush_buffer, comm_iflush_buffer;
    Owner::session, (session: Session):
        session_attach_buffer, session_detach_buffer, session_flush_buffer, session_iflush_buffer;
}

/// Waits, before MPI ends, until the messages in all buffers have been sent.
pub fn drain(call: &Call<'_>) -> Result {
    let buffers = call.buffers.borrow().clone();
    buffers.iter().map(|buffer| buffer.end(call)).fold(Ok(()), Result::and)
}

/// Waits until the messages in a buffer have been sent, and detaches it.
pub fn end(call: &Call<'_>, place: &Attached) -> Result {
    let Some(buffer) = place.take() else { return Ok(()) };
    let sent = buffer.end(call);
    call.buffers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &buffer));
    sent
}
