//! The compact wire form of a type map, for the rank that plans a transfer against it. Input is validated.
//!
//! It consists of a version byte, the code of the signature's elements if all have the same code, otherwise 255, then
//! numbers in 7-bit groups, least significant first (LEB128), signed ones zigzag: hash and number of the signature's
//! elements, offset of the first block, and the tree in prefix order, where a level is its tag and its numbers.

use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::shape::{MAX_DEPTH, Node, Sequence, Shape};
use crate::signature::Signature;
use crate::typemap::TypeMap;

const VERSION: u8 = 2;
const EMPTY: u8 = 0;
const BLOCK: u8 = 1;
const RUN: u8 = 2;
const REPEAT: u8 = 3;
const SAME: u8 = 4;
const BLOCKS: u8 = 5;
const PARTS: u8 = 6;

const CALL: &str = "TypeMap::from_wire";

impl TypeMap {
    /// Encodes the type map. A vector takes about 20 bytes, independent of its count.
    #[must_use]
    pub fn to_wire(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.signature.code()];
        unsigned(&mut out, self.signature.hash());
        unsigned(&mut out, self.signature.elements());
        signed(&mut out, self.shape.offset);
        write(&mut out, &self.shape.node);
        out
    }

    /// Decodes a type map from the wire form that a peer has sent.
    ///
    /// The tree is rebuilt with the checks of the constructors, so every returned type map can be walked. It takes at
    /// most about 50 bytes of memory for each byte of the form. The signature cannot be checked against the layout: an
    /// incorrect one makes a transfer fail, or lets elements pass as other types of the same total size.
    ///
    /// # Errors
    /// `Wire` for anything that [`TypeMap::to_wire`] does not produce; `Overflow` and `TooDeep` as from the
    /// constructors.
    pub fn from_wire(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader { bytes };
        if reader.byte()? != VERSION {
            return Err(bad("the version is unknown"));
        }
        let code = reader.byte()?;
        let (hash, elements) = (reader.unsigned()?, reader.unsigned()?);
        let offset = reader.signed()?;
        let shape = reader.shape(0)?;
        if !reader.bytes.is_empty() {
            return Err(bad("there are bytes after the end of the layout"));
        }
        let signature = Signature::from_parts(hash, elements, code)
            // Every element has at least one byte, so there are bytes if and only if there are elements.
            .filter(|signature| signature.elements() <= shape.size && (elements == 0) == (shape.size == 0))
            .ok_or_else(|| bad("the signature does not match the layout"))?;
        if shape.size == 0 && offset != 0 {
            return Err(bad("an empty layout has an offset"));
        }
        Ok(Self::new(shape.shift(offset, CALL)?, signature))
    }
}

#[cold]
fn bad(cause: &str) -> DatatypeError {
    DatatypeError::new(DatatypeErrorKind::Wire, CALL, cause)
}

fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    unsigned(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn write(out: &mut Vec<u8>, node: &Node) {
    match node {
        Node::Run { count: 0, .. } => out.push(EMPTY),
        Node::Run { count: 1, len, .. } => {
            out.push(BLOCK);
            unsigned(out, *len);
        }
        Node::Run { count, stride, len, .. } => {
            out.push(RUN);
            unsigned(out, *count);
            signed(out, *stride);
            unsigned(out, *len);
        }
        Node::Repeat { count, stride, inner } => {
            out.push(REPEAT);
            unsigned(out, *count);
            signed(out, *stride);
            write(out, &inner.node);
        }
        Node::Same { at, inner } => {
            displacements(out, SAME, at.iter().copied());
            write(out, &inner.node);
        }
        Node::Blocks(blocks) => {
            displacements(out, BLOCKS, blocks.iter().map(|block| block.at));
            let mut start = 0;
            for block in blocks.iter() {
                unsigned(out, block.end - start);
                start = block.end;
            }
        }
        Node::Parts(parts) => {
            displacements(out, PARTS, parts.items.iter().map(|part| part.at));
            for part in &parts.items {
                write(out, &part.node);
            }
        }
    }
}

/// Displacements, each as the distance from the previous one.
fn displacements(out: &mut Vec<u8>, tag: u8, at: impl ExactSizeIterator<Item = i64>) {
    out.push(tag);
    unsigned(out, at.len() as u64);
    let mut before = 0;
    for at in at {
        signed(out, at - before);
        before = at;
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.bytes.split_first().ok_or_else(|| bad("ends early"))?;
        self.bytes = rest;
        Ok(*first)
    }

    fn unsigned(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    Err(bad("an integer is not in its shortest encoding"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(bad("an integer exceeds 64 bits"))
    }

    fn signed(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The number of entries of a list; each entry takes at least one byte, so the input length bounds the memory.
    fn entries(&mut self) -> Result<usize> {
        let entries = usize::try_from(self.unsigned()?).map_err(|_| bad("a list has too many entries"))?;
        if entries < 2 || entries > self.bytes.len() {
            return Err(bad("the length of a list is less than 2 or exceeds the remaining bytes"));
        }
        Ok(entries)
    }

    fn displacements(&mut self) -> Result<Vec<i64>> {
        let entries = self.entries()?;
        let mut at = 0_i64;
        let mut list = Vec::with_capacity(entries);
        for _ in 0..entries {
            at = at.checked_add(self.signed()?).ok_or_else(|| bad("a displacement exceeds 64 bits"))?;
            list.push(at);
        }
        if list.first() != Some(&0) {
            return Err(bad("the first child of a level does not start at offset 0"));
        }
        Ok(list)
    }

    fn block(&mut self, at: i64) -> Result<Shape> {
        let len = self.unsigned()?;
        if len == 0 {
            return Err(bad("a block is empty"));
        }
        Shape::block(at, len).ok_or_else(|| DatatypeError::overflow(CALL, "a block"))
    }

    fn repeats(&mut self) -> Result<(u64, i64)> {
        let (count, stride) = (self.unsigned()?, self.signed()?);
        if count < 2 {
            return Err(bad("a repetition has a count below 2"));
        }
        Ok((count, stride))
    }

    fn shape(&mut self, depth: usize) -> Result<Shape> {
        if depth > MAX_DEPTH {
            let cause = format!("the layout has more than {MAX_DEPTH} levels");
            return Err(DatatypeError::new(DatatypeErrorKind::TooDeep, CALL, cause));
        }
        match self.byte()? {
            EMPTY if depth == 0 => Ok(Shape::EMPTY),
            BLOCK => self.block(0),
            RUN => {
                let (count, stride) = self.repeats()?;
                self.block(0)?.repeat(count, stride, CALL)
            }
            REPEAT => {
                let (count, stride) = self.repeats()?;
                self.shape(depth + 1)?.repeat(count, stride, CALL)
            }
            SAME => {
                let list = self.displacements()?;
                let inner = self.shape(depth + 1)?;
                sequence(list.iter().map(|at| inner.shift(*at, CALL)))
            }
            BLOCKS => {
                let list = self.displacements()?;
                sequence(list.iter().map(|at| self.block(*at)))
            }
            PARTS => {
                let list = self.displacements()?;
                sequence(list.iter().map(|at| self.shape(depth + 1)?.shift(*at, CALL)))
            }
            _ => Err(bad("unknown tag")),
        }
    }
}

fn sequence(shapes: impl Iterator<Item = Result<Shape>>) -> Result<Shape> {
    let mut sequence = Sequence::new(CALL);
    for shape in shapes {
        sequence.push(&shape?)?;
    }
    sequence.finish()
}
