//! Encoding and decoding of little-endian fields; decoding checks every length, since the bytes come from a peer.

/// Builds a byte string.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Default for Writer {
    fn default() -> Self {
        /// Initial capacity in bytes: enough for a key, so that the string seldom grows.
        const CAPACITY: usize = 112;
        Self(Vec::with_capacity(CAPACITY))
    }
}

impl Writer {
    /// An empty string.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one byte.
    #[must_use]
    pub fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }

    /// Appends 4 bytes.
    #[must_use]
    pub fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    /// Appends 8 bytes.
    #[must_use]
    pub fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    /// Appends a length (4 bytes) and the bytes.
    pub(crate) fn bytes(self, v: &[u8]) -> Self {
        let mut w = self.u32(v.len() as u32);
        w.0.extend(v);
        w
    }

    /// The finished string.
    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Parses a byte string; every call returns `None` once too few bytes are left.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    /// Whether no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    /// Reads 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a length (4 bytes) and that many bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    /// The remaining bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}
