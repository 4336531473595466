//! Lists of devices (`FARSIDE_DEVICES`).

/// A kind of device in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// Shared memory, between ranks of one node.
    Shm,
    /// An HCA.
    Verbs,
    /// TCP connections.
    Tcp,
    /// A network by libfabric.
    Ofi,
}

impl ListedKind {
    /// Every kind; the place of each is its number.
    pub const ALL: [Self; 4] = [Self::Shm, Self::Verbs, Self::Tcp, Self::Ofi];

    /// The name of the device.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
            Self::Ofi => "ofi",
        }
    }
}

/// A device of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// Its kind.
    pub kind: ListedKind,
    /// The RDMA device, the interface or the provider; `None` if the other settings determine it.
    pub name: Option<String>,
    /// Whether the device is used for small, medium-sized and large reads and writes.
    pub sizes: [bool; 3],
}

impl ListedDevice {
    /// A device for all sizes.
    pub(crate) fn new(kind: ListedKind) -> Self {
        Self { kind, name: None, sizes: [true; 3] }
    }

    /// The name of the device in a list, without sizes.
    pub(crate) fn text(&self) -> String {
        let name = self.name.iter().map(|name| format!(":{name}"));
        name.fold(self.kind.name().to_owned(), |text, name| text + &name)
    }

    fn parse(text: &str) -> Option<Self> {
        let (device, sizes) = match text.trim().split_once('@') {
            Some((device, sizes)) => (device, sizes_of(sizes)?),
            None => (text.trim(), [true; 3]),
        };
        let (kind, name) = match device.split_once(':') {
            Some((kind, name)) => (kind, Some(name.to_owned()).filter(|name| !name.is_empty())),
            None => (device, None),
        };
        if device.contains(':') && name.is_none() {
            return None;
        }
        let kind = ListedKind::ALL.into_iter().find(|k| k.name() == kind)?;
        let is_plain = name.is_none() && sizes == [true; 3];
        (kind != ListedKind::Shm || is_plain).then_some(Self { kind, name, sizes })
    }
}

fn sizes_of(text: &str) -> Option<[bool; 3]> {
    text.split('+').try_fold([false; 3], |mut sizes, size| {
        sizes[["small", "medium", "large"].iter().position(|name| *name == size)?] = true;
        Some(sizes)
    })
}

/// The devices of the ranks of a job, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLists(Vec<Vec<ListedDevice>>);

impl DeviceLists {
    /// The list of every rank.
    pub(crate) fn of(devices: &[ListedKind]) -> Self {
        Self(vec![devices.iter().map(|kind| ListedDevice::new(*kind)).collect()])
    }

    /// Parses `auto` (`Some(None)`), or lists separated by semicolons, which are assigned to ranks in turn. Either all
    /// lists have shared memory or none, each at most once.
    pub(super) fn parse(text: &str) -> Option<Option<Self>> {
        if text == "auto" {
            return Some(None);
        }
        let list = |text: &str| text.split(',').map(ListedDevice::parse).collect::<Option<Vec<_>>>();
        let lists = Self(text.split(';').map(list).collect::<Option<_>>()?);
        let shared = |list: &Vec<ListedDevice>| list.iter().filter(|device| device.kind == ListedKind::Shm).count();
        let first = shared(&lists.0[0]);
        (first <= 1 && lists.0.iter().all(|list| shared(list) == first)).then_some(Some(lists))
    }

    /// The devices of `rank`.
    pub(crate) fn of_rank(&self, rank: u32) -> &[ListedDevice] {
        &self.0[rank as usize % self.0.len()]
    }

    /// Whether ranks of one node use shared memory.
    pub(crate) fn has_shared_memory(&self) -> bool {
        self.0[0].iter().any(|device| device.kind == ListedKind::Shm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_devices_sizes_and_ranks() {
        let lists = DeviceLists::parse("shm,verbs:rxe0,tcp:fd00::2@medium+large;shm, tcp").unwrap().unwrap();
        let device = |kind, name: Option<&str>, sizes| ListedDevice { kind, name: name.map(Into::into), sizes };
        let first = [
            device(ListedKind::Shm, None, [true; 3]),
            device(ListedKind::Verbs, Some("rxe0"), [true; 3]),
            device(ListedKind::Tcp, Some("fd00::2"), [false, true, true]),
        ];
        assert_eq!((lists.of_rank(0), lists.of_rank(4)), (&first[..], &first[..]));
        assert_eq!(lists.of_rank(1), [ListedDevice::new(ListedKind::Shm), ListedDevice::new(ListedKind::Tcp)]);
        assert!(lists.has_shared_memory());
        assert_eq!(DeviceLists::parse("auto"), Some(None));
        for wrong in ["", "shm;", "sim", "tcp:", "shm:0", "shm@small", "tcp@tiny", "shm,tcp;tcp", "shm,shm", "tcp,"] {
            assert_eq!(DeviceLists::parse(wrong), None, "{wrong}");
        }
    }
}
