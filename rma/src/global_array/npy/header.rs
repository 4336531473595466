//! The header of a `.npy` file: `\x93NUMPY`, the version, the length of a Python dictionary, and the dictionary (NumPy
//! Enhancement Proposal 1, and the documentation of `numpy.lib.format`).

use std::io::{ErrorKind as IoErrorKind, Read};
use std::path::Path;

use farside_core::{Error, ErrorKind, Result};

use super::{LOAD, failed};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The data begins at a multiple of this number of bytes.
const ALIGNMENT: usize = 64;

/// Maximum length of a dictionary that is read: enough for more than 10,000 dimensions. A longer one is not a header.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// The contents of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The type of an element, such as `<f8`.
    pub(super) descr: String,
    /// Whether the first index varies fastest.
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// An error of a file that is not in the format.
pub(super) fn malformed(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::BadArgument, LOAD)
        .cause(format!("{}: {cause}", path.display()))
        .remedy("load a file that `numpy.save` has written")
}

impl Header {
    /// The bytes of the header. Version 1.0, or 2.0 if it is too long for that.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let order = if self.fortran_order { "True" } else { "False" };
        // A tuple with one number ends with a comma.
        let shape: String = self.shape.iter().map(|n| format!("{n}, ")).collect();
        let shape = if self.shape.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
        let text = format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}", self.descr);
        // The padded length of the text, with its newline, after a prefix of this many bytes.
        let len = |before: usize| (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
        let (version, len, number) = match u16::try_from(len(MAGIC.len() + 4)) {
            Ok(short) => (1, usize::from(short), short.to_le_bytes().to_vec()),
            Err(_) => (2, len(MAGIC.len() + 6), (len(MAGIC.len() + 6) as u32).to_le_bytes().to_vec()),
        };
        let mut all = [MAGIC, &[version, 0], &number, text.as_bytes()].concat();
        all.resize(all.len() + len - text.len() - 1, b' ');
        all.push(b'\n');
        all
    }

    /// Reads a header, and returns the position of the data after it.
    ///
    /// # Errors
    /// `BadArgument` for bytes that are not a header; `System`.
    pub(super) fn read(path: &Path, mut from: impl Read) -> Result<(Self, u64)> {
        let failed = |e: std::io::Error| match e.kind() {
            IoErrorKind::UnexpectedEof => malformed(path, "the file ends inside its header"),
            _ => failed(LOAD, path)(e),
        };
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(failed)?;
        if !start.starts_with(MAGIC) {
            return Err(malformed(path, "the file does not begin with the .npy magic string"));
        }
        let mut len = [0; 4];
        let bytes = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(malformed(path, format!("version {version} of the .npy format is not supported"))),
        };
        from.read_exact(&mut len[..bytes]).map_err(failed)?;
        let len = u64::from(u32::from_le_bytes(len));
        if len > MAX_HEADER_BYTES {
            return Err(malformed(path, format!("the header has {len} bytes; at most {MAX_HEADER_BYTES} are allowed")));
        }
        // Memory is allocated for the bytes that the file contains, not for the length that its header claims.
        let mut text = Vec::new();
        from.take(len).read_to_end(&mut text).map_err(failed)?;
        if (text.len() as u64) < len {
            return Err(failed(IoErrorKind::UnexpectedEof.into()));
        }
        let header = Dictionary(&text).read();
        let header = header.ok_or_else(|| {
            malformed(path, "the header is not a dictionary with `descr`, `fortran_order` and `shape`")
        })?;
        Ok((header, (start.len() + bytes) as u64 + len))
    }
}

/// The unparsed rest of the text of a dictionary. Each method consumes the part that it returns.
struct Dictionary<'a>(&'a [u8]);

impl<'a> Dictionary<'a> {
    /// Parses the whole dictionary, in which each key occurs once. `None` if it is malformed.
    fn read(mut self) -> Option<Header> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        self.token(b"{").then_some(())?;
        while !self.token(b"}") {
            let key = self.string()?;
            self.token(b":").then_some(())?;
            let twice = match key {
                "descr" => descr.replace(self.string()?.to_owned()).is_some(),
                "fortran_order" => order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                _ => return None,
            };
            if twice {
                return None;
            }
            if !self.token(b",") {
                self.token(b"}").then_some(())?;
                break;
            }
        }
        self.blanks();
        self.0.is_empty().then_some(Header { descr: descr?, fortran_order: order?, shape: shape? })
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    /// Consumes `token` and the blanks before it, if it comes next.
    fn token(&mut self, token: &[u8]) -> bool {
        self.blanks();
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.blanks();
        let (quote, rest) = self.0.split_first().filter(|(quote, _)| matches!(quote, b'\'' | b'"'))?;
        let end = rest.iter().position(|byte| byte == quote)?;
        self.0 = &rest[end + 1..];
        std::str::from_utf8(&rest[..end]).ok()
    }

    fn boolean(&mut self) -> Option<bool> {
        self.token(b"True").then_some(true).or_else(|| self.token(b"False").then_some(false))
    }

    fn number(&mut self) -> Option<usize> {
        self.blanks();
        let len = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(len);
        // Python 2 wrote a long number with an L.
        self.0 = rest.strip_prefix(b"L").unwrap_or(rest);
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Numbers in parentheses.
    fn tuple(&mut self) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        self.token(b"(").then_some(())?;
        while !self.token(b")") {
            all.push(self.number()?);
            if !self.token(b",") {
                // One number in parentheses is not a tuple.
                return (self.token(b")") && all.len() > 1).then_some(all);
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<(Header, u64)> {
        Header::read(Path::new("file"), bytes)
    }

    /// A version 1.0 header with this text.
    fn with_text(text: &str) -> Vec<u8> {
        [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let header = |shape: &[usize]| Header { descr: "<f8".into(), fortran_order: false, shape: shape.into() };
        let text = |shape: &[usize]| String::from_utf8(header(shape).bytes()[10..].to_vec()).unwrap();
        assert_eq!(text(&[3, 4]).trim_end(), "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }");
        assert_eq!(text(&[3]).trim_end(), "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }");
        assert_eq!(text(&[]).trim_end(), "{'descr': '<f8', 'fortran_order': False, 'shape': (), }");
        for dimensions in [0, 1, 2, 5, 6, 20, 21_000, 22_000, 40_000] {
            let header = header(&vec![0; dimensions]);
            let bytes = header.bytes();
            assert_eq!((bytes.len() % ALIGNMENT, bytes.last()), (0, Some(&b'\n')));
            assert_eq!(bytes[6], if dimensions < 21_850 { 1 } else { 2 });
            assert_eq!(read(&bytes).unwrap(), (header, bytes.len() as u64));
        }
    }

    #[test]
    fn other_texts_of_a_dictionary() {
        for text in [
            "{'shape':(2,3),'fortran_order':True,'descr':'|u1'}",
            " {\"descr\" : \"|u1\" , 'fortran_order': True, 'shape': (2L, 3L,), } \n",
        ] {
            let (header, data) = read(&with_text(text)).unwrap();
            assert_eq!(header, Header { descr: "|u1".into(), fortran_order: true, shape: vec![2, 3] });
            assert_eq!(data, 10 + text.len() as u64);
        }
        for text in [
            "",
            "{}",
            "{'descr': '<f8', 'fortran_order': False}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} + x",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'more': 1}",
            "{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f8', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f8, 'fortran_order': False, 'shape': (3,)}",
        ] {
            assert_eq!(read(&with_text(text)).unwrap_err().kind(), ErrorKind::BadArgument, "{text}");
        }
        let long = [MAGIC, &[2, 0], &u32::MAX.to_le_bytes()].concat();
        assert!(read(&long).unwrap_err().to_string().contains("4294967295 bytes"));
        let other = [MAGIC, &[9, 0, 0, 0]].concat();
        assert!(read(&other).unwrap_err().to_string().contains("version 9"));
        assert!(read(b"PK\x03\x04 and more").unwrap_err().to_string().contains("does not begin"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 2000 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Arbitrary bytes, and a header whose bytes were changed or cut off, are read or refused.
        #[test]
        fn hostile_headers_are_refused(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            changes in prop::collection::vec((0..128usize, any::<u8>()), 0..4),
            shape in prop::collection::vec(any::<usize>(), 0..4),
            kept in 0..200usize,
        ) {
            let mut bytes = Header { descr: "<f8".into(), fortran_order: false, shape: shape.clone() }.bytes();
            let (whole, _) = read(&bytes).unwrap();
            prop_assert_eq!(whole.shape, shape);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(kept);
            for bytes in [&bytes, &noise, &with_text(&String::from_utf8_lossy(&noise))] {
                match read(bytes) {
                    Ok((_, data)) => prop_assert!(data <= bytes.len() as u64),
                    Err(e) => prop_assert_eq!(e.kind(), ErrorKind::BadArgument),
                }
            }
        }
    }
}
