//! The ranks agree on a port for each before they open one: every rank tells rank 0 through the bootstrap what it can
//! take, rank 0 chooses, and all read what was chosen. A value and two fences for each rank, and a value from each to
//! rank 0; nothing in a job of one.

use super::choose::{Agreement, choose};
use super::find::{Found, Opened, here};
use super::reach::Offer;
use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Reader, Writer};

const OP: &str = "choose a verbs device";

/// The longest text of a decision.
const TEXT: usize = 8192;

/// What rank 0 tells all.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Agreed(Agreement),
    /// There is no choice.
    Apart(String),
    /// This rank's offer makes no sense.
    Malformed(u32),
}

impl Decision {
    fn by(offers: &[Vec<u8>]) -> Self {
        let mut all = Vec::with_capacity(offers.len());
        for (rank, bytes) in offers.iter().enumerate() {
            match Offer::read(bytes) {
                Some(offer) => all.push(offer),
                None => return Self::Malformed(rank as u32),
            }
        }
        choose(&all).map_or_else(Self::Apart, Self::Agreed)
    }

    fn write(&self) -> Vec<u8> {
        let cut = |text: &str| text.as_bytes()[..text.len().min(TEXT)].to_vec();
        match self {
            Self::Agreed(a) => Writer::new().u8(0).bytes(&a.picks).bytes(&cut(&a.how)).u8(u8::from(a.trusted)),
            Self::Apart(why) => Writer::new().u8(1).bytes(&cut(why)),
            Self::Malformed(rank) => Writer::new().u8(2).u32(*rank),
        }
        .done()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let text = |r: &mut Reader<'_>| r.bytes().map(|b| String::from_utf8_lossy(b).into_owned());
        let decision = match r.u8()? {
            0 => {
                let (picks, how) = (r.bytes()?.to_vec(), text(&mut r)?);
                Self::Agreed(Agreement { picks, how, trusted: r.u8()? != 0 })
            }
            1 => Self::Apart(text(&mut r)?),
            2 => Self::Malformed(r.u32()?),
            _ => return None,
        };
        r.rest().is_empty().then_some(decision)
    }
}

/// The port that this rank takes, of those that were `found`. Collective: a rank that found none takes part, so that
/// all hear why.
///
/// # Errors
/// Its own error for the rank that found none; `Unsupported` at all ranks if no choice connects them; `Protocol`; as
/// those of `bootstrap`.
pub(super) fn agree(bootstrap: &mut dyn Bootstrap, found: Result<Found>) -> Result<Opened> {
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    let lacking = |e: &Error| Offer { lacks: e.to_string(), ..here() };
    let found = found.and_then(|f| if f.ports.is_empty() { Err(f.nothing()) } else { Ok(f) });
    let offer = found.as_ref().map_or_else(lacking, |f| f.offer.clone()).write();
    let decision = if size == 1 {
        Decision::by(&[offer])
    } else {
        bootstrap.put(&format!("ports.{me}"), &offer)?;
        bootstrap.fence()?;
        if me == 0 {
            let offers = (0..size).map(|r| bootstrap.get(&format!("ports.{r}"))).collect::<Result<Vec<_>>>()?;
            bootstrap.put("ports", &Decision::by(&offers).write())?;
        }
        bootstrap.fence()?;
        let fail = || Error::new(ErrorKind::Protocol, OP).peer(0).device("verbs").cause("malformed choice");
        Decision::read(&bootstrap.get("ports")?).ok_or_else(fail)?
    };
    take(decision, found?, me, size)
}

fn take(decision: Decision, found: Found, me: u32, size: u32) -> Result<Opened> {
    let fail = |kind| Error::new(kind, OP).rank(me).device("verbs");
    let agreed = match decision {
        Decision::Agreed(a) => a,
        Decision::Apart(why) => {
            return Err(fail(ErrorKind::Unsupported).cause(why).remedy(
                "give each rank a port in a network that all have, or name ports that reach each other by \
                 FARSIDE_VERBS_DEVICE (`farside info` on each host says what there is)",
            ));
        }
        Decision::Malformed(rank) => return Err(fail(ErrorKind::Protocol).peer(rank).cause("malformed list of ports")),
    };
    let pick = agreed.picks.get(me as usize).filter(|_| agreed.picks.len() == size as usize);
    let taken = pick.and_then(|p| found.ports.into_iter().nth(usize::from(*p)));
    let (mut choice, context) =
        taken.ok_or_else(|| fail(ErrorKind::Protocol).peer(0).cause("a port was chosen that there is not"))?;
    if agreed.trusted {
        tracing::warn!(rank = me, "verbs: {}, {}", choice.why, agreed.how);
    }
    choice.why = format!("{}, {}", choice.why, agreed.how);
    Ok((choice, context))
}

#[cfg(test)]
mod tests {
    use super::super::reach::GidKind;
    use super::super::reach::tests::{candidate, offer};
    use super::*;
    use crate::bootstrap::threads::{ThreadBootstrap, threads};
    use proptest::prelude::*;

    /// What the ranks hear that have these offers, which hold no device that could be opened.
    fn heard(offers: Vec<Result<Found>>) -> Vec<Error> {
        let members: Vec<(ThreadBootstrap, Result<Found>)> =
            threads(offers.len() as u32).into_iter().zip(offers).collect();
        std::thread::scope(|s| {
            let run = |(mut b, own)| s.spawn(move || agree(&mut b, own).unwrap_err());
            let all: Vec<_> = members.into_iter().map(run).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn rank_without_a_device_has_its_own_error_and_the_others_hear_of_it() {
        let none = || Err(Error::new(ErrorKind::Setting, "read FARSIDE_VERBS_DEVICE").cause("no device is called x"));
        let errors = heard(vec![none(), none(), Ok(Found::default())]);
        assert_eq!(errors[0].kind(), ErrorKind::Setting, "{}", errors[0]);
        assert_eq!(errors[2].kind(), ErrorKind::Unsupported, "{}", errors[2]);
    }

    #[test]
    fn decisions_are_those_of_the_offers_and_come_back_as_they_were() {
        let rank = |i: u8| offer(&i.to_string(), &[candidate("r", GidKind::RoceV2, &format!("10.0.0.{i}/24"), &[])]);
        let far = offer("9", &[candidate("r", GidKind::RoceV2, "10.1.0.1/24", &[])]);
        let (a, b, c) = (rank(1).write(), rank(2).write(), far.write());
        let agreed = Decision::by(&[a.clone(), b.clone()]);
        assert!(matches!(&agreed, Decision::Agreed(g) if g.picks == [0, 0]), "{agreed:?}");
        let apart = Decision::by(&[a.clone(), c]);
        let e = take(apart.clone(), Found::default(), 1, 2).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        for word in ["rank 1 on `host-9` has r port 1 (RoCE v2, 10.1.0.0/24)", "FARSIDE_VERBS_DEVICE", "farside info"] {
            assert!(e.to_string().contains(word), "{e}");
        }
        let malformed = Decision::by(&[a, b[1..].to_vec()]);
        assert_eq!(malformed, Decision::Malformed(1));
        let e = take(malformed.clone(), Found::default(), 0, 2).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(1)));
        for d in [agreed, apart, malformed] {
            assert_eq!(Decision::read(&d.write()), Some(d));
        }
    }

    #[test]
    fn choice_that_there_is_not_is_refused() {
        let how = String::new;
        for picks in [vec![], vec![0], vec![0, 0], vec![0, 7], vec![0, 0, 0]] {
            let decision = Decision::Agreed(Agreement { picks, how: how(), trusted: false });
            let e = take(decision, Found::default(), 1, 2).unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(0)), "{e}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(offer in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(decision) = Decision::read(&offer) {
                let _ = take(decision, Found::default(), 0, 2);
            }
            let _ = Decision::by(&[offer.clone(), offer]);
        }
    }
}
