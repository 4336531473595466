//! Selection of the port that a rank opens: discovery of the local ports ([`discover`]), the choice of ports that reach
//! each other ([`choose`]), and the agreement of all ranks before any of them opens its port.
//!
//! Every rank publishes its candidates, rank 0 chooses, and all ranks read the choice. This takes one value and two
//! fences of the bootstrap per rank; rank 0 reads one value from each rank. A job of one rank exchanges nothing.

mod candidate;
mod choose;
mod discover;
mod merit;
mod network;

use std::sync::Arc;

use super::sys::{Context, Gid};
use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};
use candidate::PortsOfRank;
use choose::{Choice, choose};
pub(super) use discover::LocalPorts;

const OP: &str = "choose a verbs device";

/// A port of this rank, with one of its GIDs.
#[derive(Clone, Debug)]
pub(super) struct LocalPort {
    pub(super) device: String,
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) ethernet: bool,
    /// Whether the port needs a global routing header in all packets, as virtual functions may.
    pub(super) global: bool,
    /// The reason why the port was chosen, for messages.
    pub(super) why: String,
}

/// A port with its device.
pub(super) type Opened = (LocalPort, Arc<Context>);

/// The message of rank 0 to all ranks: its choice, or the reason why it has none, and the rank whose malformed data is
/// that reason, if any.
type Decision = std::result::Result<Choice, (Option<u32>, String)>;

fn decide(published: &[Vec<u8>]) -> Decision {
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        PortsOfRank::read(bytes).ok_or_else(|| (Some(rank as u32), "malformed list of ports".to_owned()))
    };
    let all = published.iter().enumerate().map(read).collect::<std::result::Result<Vec<_>, _>>()?;
    choose(&all).map_err(|why| (None, why))
}

fn write(decision: &Decision) -> Vec<u8> {
    match decision {
        Ok(c) => Writer::new().u8(u8::from(c.trusted)).bytes(&c.picks).bytes(c.description.as_bytes()),
        Err((blamed, why)) => Writer::new().u8(2).u32(blamed.map_or(0, |b| b + 1)).bytes(why.as_bytes()),
    }
    .done()
}

fn read(bytes: &[u8]) -> Option<Decision> {
    let r = &mut Reader::new(bytes);
    let text = |r: &mut Reader<'_>| Some(String::from_utf8_lossy(r.bytes()?).into_owned());
    let decision = match r.u8()? {
        2 => Err((r.u32()?.checked_sub(1), text(r)?)),
        trusted => Ok(Choice { trusted: trusted != 0, picks: r.bytes()?.to_vec(), description: text(r)? }),
    };
    r.rest().is_empty().then_some(decision)
}

/// Returns the port that this rank opens, out of `found`. Collective: a rank that found no port participates too, so
/// that all ranks get the error.
///
/// # Errors
/// Its own error for a rank that found no port; `Unsupported` at all ranks if no choice connects them; `Protocol`;
/// errors of `bootstrap`.
pub(super) fn agree(bootstrap: &mut dyn Bootstrap, found: Result<LocalPorts>) -> Result<Opened> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let found = found.and_then(|f| if f.ports.is_empty() { Err(f.nothing()) } else { Ok(f) });
    if size == 1 {
        return found?.alone();
    }
    let own = match &found {
        Ok(found) => found.published.write(),
        Err(e) => PortsOfRank { lacks: e.to_string(), ..PortsOfRank::here() }.write(),
    };
    bootstrap.put(&format!("ports.{me}"), &own)?;
    bootstrap.fence()?;
    if me == 0 {
        let all = (0..size).map(|r| bootstrap.get(&format!("ports.{r}"))).collect::<Result<Vec<_>>>()?;
        bootstrap.put("ports", &write(&decide(&all)))?;
    }
    bootstrap.fence()?;
    let malformed = || Error::new(ErrorKind::Protocol, OP).peer(0).device("verbs").cause("malformed choice");
    let decision = read(&bootstrap.get("ports")?).ok_or_else(malformed)?;
    found?.take(decision, me, size)
}

impl LocalPorts {
    /// Returns the port for a job of one rank.
    ///
    /// # Errors
    /// `Unsupported` if no port can be opened.
    pub(super) fn alone(self) -> Result<Opened> {
        let decision = choose(std::slice::from_ref(&self.published)).map_err(|_| self.nothing())?;
        self.take(Ok(decision), 0, 1)
    }

    fn take(self, decision: Decision, me: u32, size: u32) -> Result<Opened> {
        let fail = |kind| Error::new(kind, OP).rank(me).device("verbs");
        let choice = decision.map_err(|(blamed, why)| match blamed {
            Some(peer) => fail(ErrorKind::Protocol).peer(peer).cause(why),
            None => fail(ErrorKind::Unsupported).cause(why).remedy(
                "give each rank a port in a network that all have, or name ports that reach each other by \
                 FARSIDE_VERBS_DEVICE (`farside info` on each host says what there is)",
            ),
        })?;
        let pick = choice.picks.get(me as usize).filter(|_| choice.picks.len() == size as usize);
        let taken = pick.and_then(|p| self.ports.into_iter().nth(usize::from(*p)));
        let (mut local, context) = taken.ok_or_else(|| {
            fail(ErrorKind::Protocol).peer(0).cause("rank 0 chose a port that this rank does not have")
        })?;
        local.why = format!("{}, {}", local.why, choice.description);
        if choice.trusted {
            tracing::warn!(rank = me, "verbs: {}", local.why);
        }
        Ok((local, context))
    }
}

#[cfg(test)]
mod tests {
    use super::candidate::GidKind;
    use super::candidate::tests::{candidate, ports};
    use super::*;
    use crate::bootstrap::threads::{ThreadBootstrap, threads};
    use proptest::prelude::*;

    /// The errors of ranks with these ports, none of which can be opened.
    fn errors(found: Vec<Result<LocalPorts>>) -> Vec<Error> {
        let members: Vec<(ThreadBootstrap, Result<LocalPorts>)> = threads(found.len()).into_iter().zip(found).collect();
        std::thread::scope(|s| {
            let run = |(mut b, own)| s.spawn(move || agree(&mut b, own).unwrap_err());
            let all: Vec<_> = members.into_iter().map(run).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn take(decision: Decision, me: u32, size: u32) -> Error {
        LocalPorts::default().take(decision, me, size).unwrap_err()
    }

    #[test]
    fn rank_without_a_device_has_its_own_error_and_the_others_are_informed() {
        let no_device =
            || Err(Error::new(ErrorKind::Setting, "read FARSIDE_VERBS_DEVICE").cause("no device is called x"));
        let errors = errors(vec![no_device(), no_device(), Ok(LocalPorts::default())]);
        assert_eq!(errors[0].kind(), ErrorKind::Setting, "{}", errors[0]);
        assert_eq!(errors[2].kind(), ErrorKind::Unsupported, "{}", errors[2]);
    }

    #[test]
    fn decisions_are_those_of_the_ports_and_round_trip() {
        let rank = |i: u8| ports(&i.to_string(), &[candidate("r", GidKind::RoceV2, &format!("10.0.0.{i}/24"), &[])]);
        let apart = ports("9", &[candidate("r", GidKind::RoceV2, "10.1.0.1/24", &[])]);
        let (a, b, c) = (rank(1).write(), rank(2).write(), apart.write());
        let agreed = decide(&[a.clone(), b.clone()]);
        assert!(agreed.as_ref().is_ok_and(|c| c.picks == [0, 0]), "{agreed:?}");
        let apart = decide(&[a.clone(), c]);
        let e = take(apart.clone(), 1, 2);
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        for word in ["rank 1 on `host-9` has r port 1 (RoCE v2, 10.1.0.0/24)", "FARSIDE_VERBS_DEVICE", "farside info"] {
            assert!(e.to_string().contains(word), "{e}");
        }
        let malformed = decide(&[a, b[1..].to_vec()]);
        let e = take(malformed.clone(), 0, 2);
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(1)));
        for d in [agreed, apart, malformed] {
            assert_eq!(read(&write(&d)), Some(d));
        }
    }

    #[test]
    fn choice_that_there_is_not_is_refused() {
        for picks in [vec![], vec![0], vec![0, 0], vec![0, 7], vec![0, 0, 0]] {
            let e = take(Ok(Choice { picks, trusted: false, description: String::new() }), 1, 2);
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(0)), "{e}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(decision) = read(&bytes) {
                take(decision, 0, 2);
            }
            let _ = decide(&[bytes.clone(), bytes]);
        }
    }
}
