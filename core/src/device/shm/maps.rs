//! The mappings of this process, read from `/proc/self/maps` without an allocation: a child made by `fork` reads them
//! while its allocator cannot be called.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::str;

/// Maximum length of a line: the path of a file, and the other fields.
const LINE: usize = 2 * libc::PATH_MAX as usize;

/// A mapping of this process.
pub(super) struct Area<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) rights: &'a str,
    pub(super) offset: u64,
    pub(super) inode: u64,
    /// The first word of the file's path or of the area's name.
    pub(super) name: Option<&'a str>,
}

impl<'a> Area<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|bound| usize::from_str_radix(bound, 16).ok());
        let rights = fields.next()?;
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Self { start: start?, end: end?, rights, offset, inode, name: fields.next() })
    }

    /// Whether the memory is readable, writable, private, and without a file or a name other than the heap's.
    pub(super) fn is_plain(&self) -> bool {
        let plain = self.name.is_none_or(|name| name == "[heap]" || name.starts_with("[anon:"));
        self.rights == "rw-p" && plain
    }

    /// Whether the area shares the pages of an unnamed file (`memfd`) with this name and inode.
    pub(super) fn shares(&self, name: &str, inode: u64) -> bool {
        let named = self.name.and_then(|path| path.strip_prefix("/memfd:")) == Some(name);
        named && self.inode == inode && self.rights.ends_with('s')
    }
}

/// Calls `each` with the mappings that overlap `[lo, hi)`, in order, until it fails. Reads the list only as far as
/// needed. `each` may replace the mapping that it was called with.
pub(super) fn areas(lo: usize, hi: usize, mut each: impl FnMut(&Area<'_>) -> io::Result<()>) -> io::Result<()> {
    let (mut maps, mut text, mut len) = (File::open("/proc/self/maps")?, [0; LINE], 0);
    loop {
        let read = maps.read(&mut text[len..])?;
        len += read;
        let mut rest = &text[..len];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, next) = (&rest[..end], &rest[end + 1..]);
            // A path need not be UTF-8; all other fields are, and come before it.
            let line = str::from_utf8(line).or_else(|e| str::from_utf8(&line[..e.valid_up_to()]));
            let area = line.ok().and_then(Area::read).ok_or(ErrorKind::InvalidData)?;
            if area.start >= hi {
                return Ok(());
            }
            if area.end > lo {
                each(&area)?;
            }
            rest = next;
        }
        let kept = rest.len();
        text.copy_within(len - kept..len, 0);
        len = kept;
        if read == 0 {
            // The last line ends in a newline; the buffer is full if a line is longer.
            return if kept == 0 { Ok(()) } else { Err(ErrorKind::InvalidData.into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;
    use crate::memory::segment::PAGE;

    #[test]
    fn every_mapping_is_found_once_and_in_order() {
        // More mappings than the kernel returns in one read, with different rights, so that they are not merged.
        let mut made: Vec<_> = (0..400).map(|_| MmapMut::map_anon(2 * PAGE).unwrap()).collect();
        let odd: Vec<_> = made.drain(..).enumerate().filter(|(i, _)| i % 2 == 1).map(|(_, m)| m).collect();
        let (mut found, mut last) = (vec![0; odd.len()], 0);
        areas(0, usize::MAX, |area| {
            assert!(last <= area.start && area.start < area.end);
            last = area.end;
            for (found, map) in found.iter_mut().zip(&odd) {
                *found += usize::from((area.start..area.end).contains(&map.as_ptr().addr()));
            }
            Ok(())
        })
        .unwrap();
        assert!(found.iter().all(|count| *count == 1), "{found:?}");
        let (lo, mut of_one) = (odd[7].as_ptr().addr(), 0);
        areas(lo, lo + 1, |area| {
            of_one += usize::from(area.start <= lo && lo < area.end);
            Ok(())
        })
        .unwrap();
        assert_eq!(of_one, 1);
    }
}
