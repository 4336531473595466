//! Names of machines on a command line, and the number of ranks of each.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

/// A machine that ranks are to run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Name or address.
    pub name: String,
    /// Number of ranks for which it has room, if given.
    pub slots: Option<u32>,
    /// Whether it is this machine.
    pub is_here: bool,
}

/// Adds hosts to a list: each is `NAME`, `NAME:N` or `NAME slots=N`; a repeated name adds its slots.
///
/// # Errors
/// The first host whose number of slots is not a number.
pub(crate) fn add<'a>(list: &mut Vec<Host>, hosts: impl Iterator<Item = &'a str>) -> Result<(), String> {
    for host in hosts.filter(|host| !host.is_empty()) {
        let (name, slots) = parse(host)?;
        match list.iter_mut().find(|known| known.name == name) {
            Some(known) => known.slots = Some(known.slots.unwrap_or(1).saturating_add(slots.unwrap_or(1))),
            None => list.push(Host { name: name.to_owned(), slots, is_here: is_here(name) }),
        }
    }
    Ok(())
}

/// The number of ranks for which hosts have room; `None` if it is not given. Each has room for `per_node` ranks if that
/// is given, otherwise for its slots, otherwise for one rank. If all names are names of this machine, they count as one
/// machine, whose room only slots or `per_node` determine.
pub(crate) fn room(hosts: &[Host], per_node: Option<u32>) -> Option<u32> {
    if hosts.iter().all(|host| host.is_here) {
        let slots = hosts.iter().filter_map(|host| host.slots);
        return per_node.or_else(|| slots.reduce(u32::saturating_add));
    }
    Some(capacities(hosts, per_node).fold(0, u32::saturating_add))
}

fn capacities(hosts: &[Host], per_node: Option<u32>) -> impl Iterator<Item = u32> {
    hosts.iter().map(move |host| per_node.or(host.slots).unwrap_or(1))
}

/// The host of each of `ranks` ranks: consecutive ranks fill one host after the other. More ranks than there is room for
/// are divided in the proportion of the room.
pub(crate) fn placement(hosts: &[Host], per_node: Option<u32>, ranks: u32) -> Vec<&str> {
    let all = capacities(hosts, per_node).map(u64::from).sum::<u64>().max(1);
    let (rounds, mut rest) = (u64::from(ranks) / all, u64::from(ranks) % all);
    let mut placed = Vec::new();
    for (host, capacity) in hosts.iter().zip(capacities(hosts, per_node).map(u64::from)) {
        let more = rest.min(capacity);
        rest -= more;
        placed.extend(std::iter::repeat_n(host.name.as_str(), (rounds * capacity + more) as usize));
    }
    placed
}

/// The name and the number of slots of one host.
fn parse(host: &str) -> Result<(&str, Option<u32>), String> {
    let mut words = host.split_whitespace();
    let name = words.next().unwrap_or_default();
    let slots = words.filter_map(|word| word.strip_prefix("slots=")).next();
    let (name, number) = match name.rsplit_once(':') {
        Some((name, number)) if host.parse::<IpAddr>().is_err() => (name, Some(number)),
        _ => (name, None),
    };
    let Some(text) = number.or(slots) else { return Ok((name, None)) };
    let slots = text.parse().ok().filter(|n| (1..=100_000).contains(n));
    slots.map(|n| (name, Some(n))).ok_or_else(|| format!("{name}: '{text}' is not a number of ranks"))
}

/// Whether this is a name or an address of this machine.
fn is_here(name: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let own = own.trim();
    let is_first_label = |label: &str, of: &str| of.split('.').next() == Some(label) && label.parse::<u8>().is_err();
    if name == "localhost" || name == own || is_first_label(name, own) || is_first_label(own, name) {
        return true;
    }
    // Only addresses of this machine can be bound.
    (name, 0).to_socket_addrs().is_ok_and(|found| found.into_iter().any(|a| UdpSocket::bind((a.ip(), 0)).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &str) -> Vec<Host> {
        let mut hosts = Vec::new();
        add(&mut hosts, list.split(',')).unwrap();
        hosts
    }

    #[test]
    fn room_of_this_machine_is_given_and_that_of_others_is_one_rank_or_more() {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(room(&hosts("localhost"), None), None);
        assert_eq!(room(&hosts(&format!("{}:2,127.0.0.1:3,::1", own.trim())), None), Some(5));
        assert_eq!(room(&hosts("localhost slots=4 max_slots=8"), None), Some(4));
        assert_eq!(room(&hosts("localhost:4"), Some(3)), Some(3));
        assert_eq!(room(&hosts("localhost,192.0.2.1:4"), None), Some(5));
        assert_eq!(room(&hosts("localhost,192.0.2.1:4"), Some(2)), Some(4));
        assert_eq!(room(&hosts("localhost,localhost:2"), None), Some(3));
        assert!(add(&mut Vec::new(), ["localhost:x"].into_iter()).unwrap_err().contains("'x' is not a number"));
    }

    #[test]
    fn placement_fills_hosts_and_divides_what_is_more() {
        let counts = |list: &str, per_node, ranks| {
            let hosts = hosts(list);
            let placed = placement(&hosts, per_node, ranks);
            assert!(placed.is_sorted(), "{placed:?}");
            [1, 2].map(|n| placed.iter().filter(|name| name.ends_with(&format!(".{n}"))).count())
        };
        let (equal, unequal) = ("192.0.2.1,192.0.2.2", "192.0.2.1:4,192.0.2.2:2");
        assert_eq!([2, 5, 8].map(|n| counts(equal, None, n)), [[1, 1], [3, 2], [4, 4]]);
        assert_eq!([1, 4, 5, 6, 9].map(|n| counts(unequal, None, n)), [[1, 0], [4, 0], [4, 1], [4, 2], [7, 2]]);
        assert_eq!([3, 4, 5].map(|n| counts(unequal, Some(2), n)), [[2, 1], [2, 2], [3, 2]]);
    }
}
