//! Sends (MPI-5.0 sections 3.2, 3.4, 3.7, 3.9): four modes, each blocking, non-blocking and persistent.

use std::ffi::{c_int, c_void};

use super::{Message, begin_send};
use crate::arguments::{Out, StatusOut};
use crate::fail::Result;
use crate::handle::{Comm, Request, Type};
use crate::message::Names;
use crate::objects::Mode;
use crate::request::{complete_send, finish};
use crate::runtime::Call;

const NAMES: Names = Names { buffer: "buf", count: "count", rank: "dest", tag: "tag" };

macro_rules! sends {
    ($($mode:ident: $send:ident, $start:ident, $init:ident;)*) => {$(
        #[inline(always)]
        pub fn $send(
            call: &Call<'_>,
            buf: *const c_void,
            n: i64,
            datatype: Type,
            dest: c_int,
            tag: c_int,
            comm: Comm,
        ) -> Result {
            match begin_send(call, &NAMES, (buf, n, datatype), (dest, tag, comm), Mode::$mode)? {
                None => Ok(()),
                Some(open) => finish(call, open, StatusOut::IGNORE),
            }
        }

        #[inline(always)]
        pub fn $start(
            call: &Call<'_>,
            buf: *const c_void,
            n: i64,
            datatype: Type,
            dest: c_int,
            tag: c_int,
            comm: Comm,
            request: Out<Request>,
        ) -> Result {
            request.set(match begin_send(call, &NAMES, (buf, n, datatype), (dest, tag, comm), Mode::$mode)? {
                None => complete_send(call),
                Some(open) => call.requests.insert(open),
            });
            Ok(())
        }

        pub fn $init(
            call: &Call<'_>,
            buf: *const c_void,
            n: i64,
            datatype: Type,
            dest: c_int,
            tag: c_int,
            comm: Comm,
            request: Out<Request>,
        ) -> Result {
            let message = Message::send(call, &NAMES, (buf, n, datatype), (dest, tag, comm), Mode::$mode)?;
            request.set(message.persistent(call));
            Ok(())
        }
    )*};
}

sends! {
    Standard: send, isend, send_init;
    Buffered: bsend, ibsend, bsend_init;
    Synchronous: ssend, issend, ssend_init;
    Ready: rsend, irsend, rsend_init;
}
