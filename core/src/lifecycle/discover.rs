//! The network between the hosts of a job: which pairs of hosts each device connects, and with what performance.
//!
//! The first rank of each host represents it. Hosts are paired in rounds, as in a round-robin tournament: for each kind
//! of device, the two ranks open a device that connects only them, as a separate job, and measure it. All ranks enter
//! the fences of the launcher, so all pairs of a round are measured at the same time.

use std::time::Duration;

use crate::bootstrap::Bootstrap;
use crate::device::report::devices;
use crate::device::tcp;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::lifecycle::start::{connect, publish};
use crate::model::Models;
use crate::processors::Sharing;
use crate::service::open::group::Group;
use crate::service::open::open_one;
use crate::settings::{ListedKind, Settings};
use crate::wire::{Reader, Writer};

const OP: &str = "discover the network";
/// The kinds of devices, in the order of their bits.
const KINDS: [ListedKind; 3] = [ListedKind::Shm, ListedKind::Verbs, ListedKind::Tcp];

/// A host, as reported by its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name according to the kernel.
    pub name: String,
    /// Its devices, and the interfaces or ports of each, as text.
    pub ports: Vec<String>,
}

/// Two hosts that a device may connect, or one host whose ranks it may connect.
#[derive(Clone, Debug)]
pub struct Link {
    /// The numbers of the hosts, the lower one first; the same number twice within a host.
    pub hosts: [usize; 2],
    /// The name of the device.
    pub device: &'static str,
    /// The models that were fitted, or the reason why there is no link.
    pub models: std::result::Result<Models, String>,
}

/// A network that was discovered.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The hosts, in the order of their first ranks.
    pub hosts: Vec<Host>,
    /// All pairs of hosts for each kind of device that both have.
    pub links: Vec<Link>,
}

/// The data that a rank announces.
#[derive(Debug)]
struct Announced {
    /// Equal for processes in the same network namespace.
    identity: Vec<u8>,
    host: Host,
    /// Bit set of the [`KINDS`] that work.
    kinds: u8,
}

impl Announced {
    fn here(settings: &Settings) -> Result<Self> {
        let (mut kinds, mut ports) = (0, Vec::new());
        for device in devices(settings) {
            let Some(kind) = KINDS.iter().position(|kind| kind.name() == device.name) else { continue };
            kinds |= u8::from(device.usable.is_ok()) << kind;
            let state = device.usable.err().map_or(String::new(), |why| format!(": not used: {why}"));
            ports.push(format!("{}{state}", device.name));
            ports.extend(device.ports.iter().map(|port| format!("{}: {port}", device.name)));
        }
        let (identity, name) = tcp::host()?;
        Ok(Self { identity, host: Host { name, ports }, kinds })
    }

    fn write(&self) -> Vec<u8> {
        let w = Writer::new().u8(self.kinds).bytes(&self.identity).bytes(self.host.name.as_bytes());
        self.host.ports.iter().fold(w, |w, port| w.bytes(port.as_bytes())).done()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (kinds, identity, name) = (r.u8()?, r.bytes()?.to_vec(), text(r.bytes()?));
        let mut ports = Vec::new();
        while !r.is_empty() {
            ports.push(text(r.bytes()?));
        }
        Some(Self { identity, host: Host { name, ports }, kinds })
    }
}

/// A host with its ranks.
#[derive(Debug)]
struct Member {
    announced: Announced,
    ranks: Vec<u32>,
}

/// The hosts of all ranks.
fn members(all: Vec<Announced>) -> Result<Vec<Member>> {
    let mut members: Vec<Member> = Vec::new();
    for (rank, announced) in (0..).zip(all) {
        match members.iter_mut().find(|member| member.announced.identity == announced.identity) {
            Some(member) => member.ranks.push(rank),
            None => members.push(Member { announced, ranks: vec![rank] }),
        }
    }
    let name = |member: &Member| member.announced.host.name.clone();
    for (n, member) in members.iter().enumerate() {
        if let Some(other) = members[..n].iter().find(|other| name(other) == name(member)) {
            return Err(Error::new(ErrorKind::Unsupported, OP)
                .rank(other.ranks[0])
                .peer(member.ranks[0])
                .cause(format!("two hosts have the name {}", name(member)))
                .remedy("give each host a unique name: routing tables identify hosts by name"));
        }
    }
    Ok(members)
}

/// The host with which `host` is paired in a round of a tournament of `hosts`; `None` if it has no partner in the
/// round.
fn partner(host: usize, round: usize, hosts: usize) -> Option<usize> {
    let circle = rounds(hosts);
    let meets = |host: usize| (round + circle - host) % circle;
    // Circle method: the host that would be paired with itself is paired with the last host, which is outside the
    // circle, if there is one.
    let other = match host == circle {
        true => (0..circle).find(|host| meets(*host) == *host)?,
        false if meets(host) == host => circle,
        false => meets(host),
    };
    (other < hosts).then_some(other)
}

/// The number of rounds in which each of `hosts` hosts is paired with every other host.
fn rounds(hosts: usize) -> usize {
    hosts.saturating_sub(1) | 1
}

/// Links that are measured at the same time: disjoint pairs of hosts.
struct Step {
    kind: ListedKind,
    pairs: Vec<[usize; 2]>,
}

fn steps(members: &[Member]) -> Vec<Step> {
    let has = |host: usize, kind: usize| members[host].announced.kinds >> kind & 1 == 1;
    let inside = (0..members.len()).filter(|host| members[*host].ranks.len() > 1 && has(*host, 0));
    let mut steps = vec![Step { kind: KINDS[0], pairs: inside.map(|host| [host, host]).collect() }];
    for round in 0..rounds(members.len()) {
        for (number, kind) in KINDS.into_iter().enumerate().skip(1) {
            let met = (0..members.len()).filter_map(|host| Some([host, partner(host, round, members.len())?]));
            let pairs = met.filter(|[a, b]| a < b && has(*a, number) && has(*b, number)).collect();
            steps.push(Step { kind, pairs });
        }
    }
    steps.retain(|step| !step.pairs.is_empty());
    steps
}

/// The two ranks of a link.
fn ranks(members: &[Member], [a, b]: [usize; 2]) -> [u32; 2] {
    let mut ranks = [members[a].ranks[0], members[b].ranks[if a == b { 1 } else { 0 }]];
    ranks.sort_unstable();
    ranks
}

/// The key-value exchange of two ranks whose device is open, and which therefore no longer need it.
struct Opened {
    rank: u32,
}

impl Bootstrap for Opened {
    fn kind(&self) -> &'static str {
        "pair"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        2
    }

    fn job_id(&self) -> &str {
        "pair"
    }

    fn put(&mut self, key: &str, _: &[u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "publish a value")
            .cause(format!("key {key} was put after start-up, when there is no further fence")))
    }

    fn fence(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Unsupported, "look up a value")
            .cause(format!("key {key} was looked up after start-up, when there is no further fence")))
    }

    fn finalize(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, _: i32, _: &str) {}
}

/// The entry of a list by rank.
fn entry(list: &str, rank: u32) -> String {
    let entries: Vec<&str> = list.split(',').collect();
    entries[rank as usize % entries.len()].trim().to_owned()
}

/// Measures one link; the result is that of its lower rank.
fn measure_link(
    bootstrap: &mut dyn Bootstrap,
    (pair, kind): ([u32; 2], ListedKind),
    prefix: &str,
    (settings, sharing): (&Settings, (Sharing, bool)),
    limit: Duration,
) -> Result<std::result::Result<Models, String>> {
    let mut group = Group::new(bootstrap, &pair, format!("{prefix}{}.", pair[0]));
    let rank = group.rank();
    let opened = open_one(kind, &mut group, settings);
    group.end()?;
    let job = opened.and_then(|device| Job::on_open(Box::new(Opened { rank }), settings.clone(), device, sharing));
    let measured = job.as_ref().map_err(Error::again).and_then(|job| {
        let measured = Models::measure(job, &[0, 1], limit).and_then(|models| job.finalize().map(|()| models));
        measured.inspect_err(|_| _ = job.device().leave(crate::device::Leave::Lost))
    });
    // Neither device is closed before both ranks have finished.
    bootstrap.fence()?;
    drop(job);
    // If two connected ranks have too little time to measure, the link is used nevertheless.
    match measured {
        Err(e) if e.kind() == ErrorKind::Timeout => {
            Err(e.renumbered(|number| pair.get(number).map_or(number, |rank| *rank as usize)))
        }
        measured => Ok(measured.map_err(|e| e.reason())),
    }
}

/// Discovers the network between the hosts of the launcher's job. All ranks call this function, and have no other job.
/// Each link is measured for about `limit` with messages of up to 1 MiB. Rank 0 gets the result, the others `None`.
///
/// Verbs and tcp are tested between hosts, shared memory within each host that has two ranks. Two hosts that do not
/// connect within 3 seconds have no link. Messages: five fences of the launcher for each kind in each of about as many
/// rounds as there are hosts; and those of [`Models::measure`].
///
/// # Errors
/// `Launcher`, `Setting`; `Unsupported` if two hosts have the same name; `Timeout` if the limit is too short to
/// measure.
pub fn discover(limit: Duration) -> Result<Option<Discovery>> {
    let (mut bootstrap, settings) = connect()?;
    let bootstrap = &mut *bootstrap;
    let (me, size) = (bootstrap.rank(), bootstrap.size());
    publish(bootstrap, &settings)?;
    bootstrap.put(&format!("host.{me}"), &Announced::here(&settings)?.write())?;
    bootstrap.fence()?;
    let sharing = Sharing::collect(bootstrap)?;
    let settings = settings.for_pairs(entry(&settings.tcp_interface, me), entry(&settings.verbs_device, me));
    let malformed = |rank: u32| Error::new(ErrorKind::Protocol, OP).rank(me).peer(rank).cause("malformed answer");
    let mut all = Vec::new();
    for rank in 0..size {
        all.push(Announced::read(&bootstrap.get(&format!("host.{rank}"))?).ok_or_else(|| malformed(rank))?);
    }
    let members = members(all)?;
    let steps = steps(&members);
    for (number, step) in steps.iter().enumerate() {
        let own = step.pairs.iter().map(|pair| ranks(&members, *pair)).find(|pair| pair.contains(&me));
        let Some(own) = own else {
            Group::pass(bootstrap)?;
            bootstrap.fence()?;
            continue;
        };
        let found = measure_link(bootstrap, (own, step.kind), &format!("l{number}."), (&settings, sharing), limit)?;
        if own[0] == me {
            let bytes = match found {
                Ok(models) => Writer::new().u8(1).bytes(&models.to_bytes()),
                Err(why) => Writer::new().u8(0).bytes(why.as_bytes()),
            };
            bootstrap.put(&format!("link.{number}.{me}"), &bytes.done())?;
        }
    }
    bootstrap.fence()?;
    let mut links = Vec::new();
    for (number, step) in steps.iter().enumerate().filter(|_| me == 0) {
        for pair in &step.pairs {
            let first = ranks(&members, *pair)[0];
            let bytes = bootstrap.get(&format!("link.{number}.{first}"))?;
            let models = read_link(&bytes).ok_or_else(|| malformed(first))?;
            links.push(Link { hosts: *pair, device: step.kind.name(), models });
        }
    }
    bootstrap.fence()?;
    bootstrap.finalize()?;
    let hosts = members.into_iter().map(|member| member.announced.host).collect();
    Ok((me == 0).then_some(Discovery { hosts, links }))
}

fn read_link(bytes: &[u8]) -> Option<std::result::Result<Models, String>> {
    let mut r = Reader::new(bytes);
    let is_there = r.u8()? == 1;
    let bytes = r.bytes()?;
    Some(match is_there {
        true => Ok(Models::from_bytes(bytes)?),
        false => Err(String::from_utf8_lossy(bytes).into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(name: &str, kinds: u8) -> Announced {
        let host = Host { name: name.into(), ports: vec![format!("tcp: {name}"), String::new()] };
        Announced { identity: format!("id {name}").into(), host, kinds }
    }

    #[test]
    fn every_two_hosts_meet_once() {
        for hosts in 1..20 {
            let mut met = Vec::new();
            for round in 0..rounds(hosts) {
                for host in 0..hosts {
                    let Some(other) = partner(host, round, hosts) else { continue };
                    assert_eq!(partner(other, round, hosts), Some(host), "{hosts} hosts, round {round}");
                    assert_ne!(other, host);
                    met.extend((host < other).then_some([host, other]));
                }
            }
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len(), hosts * (hosts - 1) / 2);
        }
    }

    #[test]
    fn hosts_are_compared_by_their_common_devices() {
        let read = |announced: Announced| {
            let read = Announced::read(&announced.write()).unwrap();
            assert_eq!((read.kinds, &read.host), (announced.kinds, &announced.host));
            read
        };
        let all =
            [("a", 0b111), ("b", 0b101), ("a", 0b111), ("c", 0b110)].map(|(name, kinds)| read(announced(name, kinds)));
        let members = members(all.into()).unwrap();
        assert_eq!(members.iter().map(|member| &member.ranks[..]).collect::<Vec<_>>(), [&[0, 2][..], &[1], &[3]]);
        let steps = steps(&members);
        let of = |kind| steps.iter().filter(|step| step.kind == kind).flat_map(|step| step.pairs.clone()).collect();
        let [shm, verbs, mut tcp]: [Vec<[usize; 2]>; 3] = KINDS.map(of);
        tcp.sort_unstable();
        assert_eq!((shm, verbs, tcp), (vec![[0, 0]], vec![[0, 2]], vec![[0, 1], [0, 2], [1, 2]]));
        assert_eq!((ranks(&members, [0, 0]), ranks(&members, [0, 2])), ([0, 2], [0, 3]));
    }

    #[test]
    fn hosts_of_one_name_are_an_error() {
        let other = Announced { identity: b"other".to_vec(), ..announced("a", 1) };
        let e = members(vec![announced("a", 1), other]).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("two hosts have the name a"), "{e}");
        assert_eq!((entry("auto", 5), entry("v0, v1+v2", 3)), ("auto".into(), "v1+v2".into()));
        assert!(read_link(&[1, 0]).is_none() && Announced::read(&[7, 9, 0, 0, 0]).is_none());
    }
}
