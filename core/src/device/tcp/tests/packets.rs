#![allow(unsafe_code)]
//! Long packets, which are sent from memory of the caller.

use std::io::Write;

use super::{CALL, devices, is_complete, peer, send_all, sent, until};
use crate::device::tcp::frame::{HEADER, Header, Kind, LAST};
use crate::device::tcp::memory::Memory;
use crate::device::tcp::peer::Peer;
use crate::device::{Block, Device, PeerCheck};
use crate::error::ErrorKind;

/// A long packet is sent from memory of the caller, which it uses until the peer has all of it, and needs credits.
#[test]
fn long_packet_is_lent_until_it_has_arrived() {
    let (bytes, memory) = (vec![1u8; 60 << 10], Memory::default());
    let body = [Block::of(bytes.as_ptr(), bytes.len())];
    let mut origin = Peer::new();
    // SAFETY: the bytes outlive the operation.
    let lend = |origin: &mut Peer| unsafe { origin.lend(&CALL, &[7; 5], &body, 5 + bytes.len()) };
    assert!(lend(&mut origin));
    let blocks = sent(&mut origin, &memory, usize::MAX);
    assert_eq!((blocks[0].len, blocks[1].base), (HEADER + 5, bytes.as_ptr().cast_mut()));
    origin.sends.acknowledge(origin.sends.end() - 1).unwrap();
    assert!(origin.complete(Ok(())).is_err(), "the last byte has not arrived");
    assert!(is_complete(&mut origin));
    let mut lent = 1;
    while lend(&mut origin) {
        send_all(&mut origin);
        lent += 1;
    }
    assert_eq!(lent, 4, "the peer has at most 256 KiB that its program has not received");
}

/// A peer that sends a long packet without credits breaks the protocol before the packet takes any memory.
#[test]
fn long_packets_without_credits_are_refused() {
    let ranks = devices(2, &[]);
    let mut socket = peer(&ranks[0], &ranks[1].secret, 1);
    let header = Header { flags: LAST, len: 60 << 10, ..Header::new(Kind::Packet) }.bytes();
    let packet = [&header[..], &[1; 60 << 10]].concat();
    // Nothing is received by the program: `check_peers` serves the peer alone.
    let mut lost = None;
    let mut left = 5 * packet.len();
    until(|| {
        let at = (5 * packet.len() - left) % packet.len();
        left -= socket.write(&packet[at..]).unwrap_or(0).min(left);
        lost = ranks[0].check_peers(PeerCheck::Alive).err();
        lost.is_some()
    });
    assert_eq!(lost.unwrap().kind(), ErrorKind::Protocol);
    assert_eq!(ranks[0].shared.lock().inbox.packets.len(), 4);
}
