//! Names of machines on a command line: all must be names of this one.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

/// The number of ranks for which a list of hosts has slots, if given: each host is `NAME`, `NAME:N` or `NAME slots=N`.
///
/// # Errors
/// Names the first host that is another machine.
pub(crate) fn room<'a>(hosts: impl Iterator<Item = &'a str>) -> Result<Option<u32>, String> {
    let mut room = None;
    for host in hosts.filter(|host| !host.is_empty()) {
        let (name, slots) = parse(host)?;
        if !is_here(name) {
            return Err(format!(
                "{name} is another machine, and ranks are started on this one only; for several machines use a launcher \
                 that speaks PMI-1, as MPICH's mpiexec.hydra or Slurm's srun --mpi=pmi2"
            ));
        }
        room = slots.map(|slots| room.unwrap_or(0) + slots).or(room);
    }
    Ok(room)
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

    #[test]
    fn this_machine_has_room_and_others_are_named() {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let room = |list: &str| room(list.split(','));
        assert_eq!(room("localhost"), Ok(None));
        assert_eq!(room(&format!("{}:2,127.0.0.1:3,::1", own.trim())), Ok(Some(5)));
        assert_eq!(room("localhost slots=4 max_slots=8"), Ok(Some(4)));
        assert!(room("localhost,192.0.2.1:4").unwrap_err().contains("192.0.2.1 is another machine"));
        assert!(room("localhost:x").unwrap_err().contains("'x' is not a number"));
    }
}
