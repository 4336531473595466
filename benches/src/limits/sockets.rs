//! Floors of TCP: bare sockets over the loopback interface, between two polling threads with a core each.
//!
//! - `latency`: half of a round trip.
//! - `bandwidth`: one of 64 messages in a row, which the receiver answers with one byte when all have arrived.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};

use crate::cores::{Pinned, allowed, bind_to_nth};
use crate::record::{Key, Library, Op, Record, Suite};

const OP: &str = "measure sockets";
const BURST: u64 = 64;
const BLOCKS: usize = 15;
const BLOCK: Duration = Duration::from_millis(10);

/// Measures both floors with each of `sizes` bytes. Takes about half a second per size.
///
/// # Errors
/// `Limit` with one core; [`ErrorKind::System`] of sockets.
pub(crate) fn measure(sizes: &[u64]) -> Result<(Vec<Record>, Option<Error>)> {
    let cores = allowed();
    if cores.len() < 2 {
        return Err(Error::new(ErrorKind::Limit, OP).cause("two cores are needed, but this process may use only one"));
    }
    let failed = |e| Error::system(OP, e);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let near = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let far = listener.accept().map_err(failed)?.0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
    }
    thread::scope(|scope| {
        let other = scope.spawn(move || -> Result<()> {
            bind_to_nth(1)?;
            answer(&far).map_err(failed)
        });
        let _pinned = Pinned::to(cores[0])?;
        let each = sizes.iter().flat_map(|bytes| [(*bytes, Op::Latency, 1), (*bytes, Op::Bandwidth, BURST)]);
        let records =
            each.map(|(bytes, op, messages)| floor(&near, bytes, op, messages).map_err(failed)?).collect::<Result<_>>();
        drop(near);
        other.join().map_err(|_| Error::new(ErrorKind::Aborted, OP))??;
        Ok((records?, None))
    })
}

/// Bursts of one size: a header with the length and number of messages, and then the messages. The reply to a single
/// message has the same length, the reply to a burst one byte.
fn floor(stream: &TcpStream, bytes: u64, op: Op, messages: u64) -> std::io::Result<Result<Record>> {
    let (message, mut answer) = (vec![1u8; bytes as usize], vec![0u8; if messages == 1 { bytes as usize } else { 1 }]);
    let mut block = |times: u64| -> std::io::Result<Duration> {
        let header = [bytes, messages, times].map(u64::to_le_bytes);
        send(stream, header.as_flattened())?;
        receive(stream, &mut answer[..1])?;
        let start = Instant::now();
        for _ in 0..times {
            (0..messages).try_for_each(|_| send(stream, &message))?;
            receive(stream, &mut answer)?;
        }
        Ok(start.elapsed())
    };
    let warm = block(8)?;
    let times = (8.0 * BLOCK.as_secs_f64() / warm.as_secs_f64()).ceil().clamp(1.0, 1e6) as u64;
    let one = (times * messages) as f64 * if messages == 1 { 2.0 } else { 1.0 };
    let us = (0..BLOCKS).map(|_| Ok(block(times)?.as_secs_f64() * 1e6 / one)).collect::<std::io::Result<Vec<_>>>()?;
    let key = Key { suite: Suite::TwoSided, op, bytes, ranks: 2, ..Key::default() };
    Ok(Record::from_blocks(Library::Limit, key, times * BLOCKS as u64, &us))
}

/// The peer, which runs until the connection is closed.
fn answer(stream: &TcpStream) -> std::io::Result<()> {
    let mut header = [0; 24];
    loop {
        match receive(stream, &mut header) {
            Err(e) if e.kind() == Io::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let word = |at: usize| header[at * 8..][..8].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        let (bytes, messages, times) = (word(0), word(1), word(2));
        let mut message = vec![0; bytes as usize];
        send(stream, &[1])?;
        for _ in 0..times {
            (0..messages).try_for_each(|_| receive(stream, &mut message))?;
            send(stream, if messages == 1 { &message } else { &[1] })?;
        }
    }
}

fn send(mut stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if matches!(e.kind(), Io::WouldBlock | Io::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn receive(mut stream: &TcpStream, mut bytes: &mut [u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.read(bytes) {
            Ok(0) => return Err(Io::UnexpectedEof.into()),
            Ok(come) => bytes = &mut bytes[come..],
            Err(e) if matches!(e.kind(), Io::WouldBlock | Io::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measure_gives_latency_and_bandwidth_of_each_size() {
        let records = measure(&[8, 100_000]).unwrap().0;
        let keys: Vec<_> = records.iter().map(|record| (record.key.op, record.key.bytes)).collect();
        let both = |bytes| [(Op::Latency, bytes), (Op::Bandwidth, bytes)];
        assert_eq!(keys, [both(8), both(100_000)].concat());
    }
}
