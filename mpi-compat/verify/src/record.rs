//! The record of a call, which a rank sends to the other ranks.

use crate::pmpi::class;

/// The amount and type of data that one rank sends to, or expects from, another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The number of bytes.
    pub size: i64,
    /// The hash of the signature; -1 where any type matches (`MPI_PACKED`).
    pub hash: i64,
    /// The number of basic elements.
    pub elements: i64,
    /// The handle of the first element's type; negative if elements of other types follow.
    pub first: i64,
}

/// The data that a rank sends to, or expects from, the other ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blocks {
    /// No data that is compared.
    #[default]
    None,
    /// The same block for each rank.
    All(Block),
    /// A block for each rank.
    Each(Vec<Block>),
    /// Blocks for some ranks; several for a rank that is a neighbour more than once.
    List(Vec<(i64, Block)>),
}

impl Blocks {
    /// The blocks for a rank, and whether they are part of a list.
    pub fn of(&self, rank: i64) -> (Vec<Block>, bool) {
        match self {
            Blocks::None => (Vec::new(), false),
            Blocks::All(block) => (vec![*block], false),
            Blocks::Each(list) => {
                (usize::try_from(rank).ok().and_then(|rank| list.get(rank)).copied().into_iter().collect(), true)
            }
            Blocks::List(list) => {
                (list.iter().filter(|(peer, _)| *peer == rank).map(|(_, block)| *block).collect(), list.len() > 1)
            }
        }
    }
}

/// A value that must be the same on all ranks, and its text in a complaint: "root 2".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedValue {
    pub name: String,
    pub values: Vec<i64>,
    pub text: String,
}

/// The call of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The call, as an index into `names::NAMES`.
    pub call: i64,
    /// The error that the rank itself has found: its class and text.
    pub fault: Option<(i64, String)>,
    pub same: Vec<SharedValue>,
    pub sends: Blocks,
    pub recvs: Blocks,
    /// Values that later calls need: a window's size and displacement unit.
    pub note: Vec<i64>,
}

impl Record {
    pub fn value(&self, name: &str) -> Option<&SharedValue> {
        self.same.iter().find(|same| same.name == name)
    }

    /// Encodes the record as a message.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.call);
        let (code, text) = self.fault.as_ref().map_or((class::SUCCESS, ""), |(code, text)| (*code, text.as_str()));
        put(&mut out, code);
        put_text(&mut out, text);
        put(&mut out, self.same.len() as i64);
        for same in &self.same {
            put_text(&mut out, &same.name);
            put_list(&mut out, &same.values);
            put_text(&mut out, &same.text);
        }
        put_blocks(&mut out, &self.sends);
        put_blocks(&mut out, &self.recvs);
        put_list(&mut out, &self.note);
        out
    }

    /// Decodes a message; `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let call = take(&mut rest)?;
        let fault = (take(&mut rest)?, take_text(&mut rest)?);
        let mut same = Vec::new();
        for _ in 0..take(&mut rest)? {
            let name = take_text(&mut rest)?;
            same.push(SharedValue { name, values: take_list(&mut rest)?, text: take_text(&mut rest)? });
        }
        let (sends, recvs) = (take_blocks(&mut rest)?, take_blocks(&mut rest)?);
        let note = take_list(&mut rest)?;
        let known = usize::try_from(call).is_ok_and(|call| call < crate::names::NAMES.len());
        (rest.is_empty() && known).then_some(Self {
            call,
            fault: (fault.0 != class::SUCCESS).then_some(fault),
            same,
            sends,
            recvs,
            note,
        })
    }
}

fn put(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as i64);
    out.extend_from_slice(text.as_bytes());
}

fn put_list(out: &mut Vec<u8>, values: &[i64]) {
    put(out, values.len() as i64);
    values.iter().for_each(|value| put(out, *value));
}

fn put_blocks(out: &mut Vec<u8>, blocks: &Blocks) {
    let (kind, list): (i64, Vec<(i64, Block)>) = match blocks {
        Blocks::None => (0, Vec::new()),
        Blocks::All(block) => (1, vec![(-1, *block)]),
        Blocks::Each(list) => (2, list.iter().map(|block| (-1, *block)).collect()),
        Blocks::List(list) => (3, list.clone()),
    };
    put(out, kind);
    put(out, list.len() as i64);
    list.iter().for_each(|(peer, block)| put_block(out, *peer, block));
}

fn put_block(out: &mut Vec<u8>, peer: i64, block: &Block) {
    for word in [peer, block.size, block.hash, block.elements, block.first] {
        put(out, word);
    }
}

fn take(rest: &mut &[u8]) -> Option<i64> {
    let (word, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(i64::from_le_bytes(*word))
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

fn take_list(rest: &mut &[u8]) -> Option<Vec<i64>> {
    (0..take(rest)?).map(|_| take(rest)).collect()
}

fn take_block(rest: &mut &[u8]) -> Option<(i64, Block)> {
    let peer = take(rest)?;
    let (size, hash) = (take(rest)?, take(rest)?);
    Some((peer, Block { size, hash, elements: take(rest)?, first: take(rest)? }))
}

fn take_blocks(rest: &mut &[u8]) -> Option<Blocks> {
    let kind = take(rest)?;
    let list = (0..take(rest)?).map(|_| take_block(rest)).collect::<Option<Vec<_>>>()?;
    match (kind, &list[..]) {
        (0, []) => Some(Blocks::None),
        (1, [(_, block)]) => Some(Blocks::All(*block)),
        (2, _) => Some(Blocks::Each(list.into_iter().map(|(_, block)| block).collect())),
        (3, _) => Some(Blocks::List(list)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let block = Block { size: 8, hash: 77, elements: 2, first: 0x209 };
        Record {
            call: 3,
            fault: Some((class::COUNT, "count=-1 < 0".into())),
            same: vec![SharedValue { name: "root".into(), values: vec![2], text: "root 2".into() }],
            sends: Blocks::All(block),
            recvs: Blocks::List(vec![(0, block), (2, Block::default())]),
            note: vec![64, 8],
        }
    }

    #[test]
    fn a_record_comes_as_it_was_sent() {
        for record in [record(), Record::default(), Record { recvs: Blocks::Each(vec![Block::default()]), ..record() }]
        {
            assert_eq!(Record::parse(&record.bytes()), Some(record));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let bytes = record().bytes();
        assert!((0..bytes.len()).all(|length| Record::parse(&bytes[..length]).is_none()));
        assert!(Record::parse(&[&bytes[..], &[0]].concat()).is_none());
        for at in (0..bytes.len()).step_by(8) {
            for word in [i64::MAX, i64::MIN, 1 << 40] {
                let mut bytes = bytes.clone();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                let _ = Record::parse(&bytes); // it ends, and takes no memory
            }
        }
    }
}
