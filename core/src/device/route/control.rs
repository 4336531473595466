//! Control messages, each announced by an empty packet, of the [failover protocol](super::failover).

/// Length in bytes of the message that follows an empty packet.
const CONTROL: usize = 10;

/// The message that an empty packet announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// An empty packet of the program.
    Empty,
    /// This many packets have arrived.
    Received(u64),
    /// The sender has left these devices, as bits by their numbers in the job, after this many packets had arrived.
    Left(u8, u64),
}

impl Control {
    pub(super) fn write(self) -> [u8; CONTROL] {
        let (kind, devices, count) = match self {
            Self::Empty => (0, 0, 0),
            Self::Received(count) => (1, 0, count),
            Self::Left(devices, count) => (2, devices, count),
        };
        let mut bytes = [0; CONTROL];
        (bytes[0], bytes[1]) = (kind, devices);
        bytes[2..].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [kind, devices, count @ ..] = <&[u8; CONTROL]>::try_from(bytes).ok()?;
        let count = u64::from_le_bytes(*count);
        match kind {
            0 => Some(Self::Empty),
            1 => Some(Self::Received(count)),
            2 => Some(Self::Left(*devices, count)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back() {
        for control in [Control::Empty, Control::Received(u64::MAX), Control::Left(5, 1 << 40)] {
            assert_eq!(Control::read(&control.write()), Some(control));
        }
        assert_eq!((Control::read(&[3; CONTROL]), Control::read(&[0; CONTROL - 1])), (None, None));
    }
}
