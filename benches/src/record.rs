//! The record of one measurement, and its form as a line of JSON. `benches/peers/measure.c` writes the same.

use std::fmt;
use std::io::BufRead;

use farside_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// A line longer than this is no record.
const LINE_BYTES_MAX: usize = 4096;

macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $type { $($(#[$vdoc])* #[serde(rename = $text)] $name,)* }

        impl $type {
            /// Every value, in the order in which reports show them.
            pub const ALL: &'static [$type] = &[$($type::$name),*];

            /// The name as it stands in records.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$name => $text,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// Who was measured.
    Library {
        /// Farside itself.
        Farside = "farside",
        /// The machine: what nobody can go below.
        Limit = "limit",
        /// A loop written by hand for just this.
        Loop = "loop",
        /// MPICH.
        Mpich = "mpich",
        /// Intel MPI.
        IntelMpi = "impi",
        /// Open MPI.
        OpenMpi = "openmpi",
    }
}

impl Library {
    /// The MPI libraries that Farside is compared with.
    pub const PEERS: &'static [Library] = &[Library::Mpich, Library::IntelMpi, Library::OpenMpi];

    /// The name that its users write.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Library::Farside => "Farside",
            Library::Limit => "limit of the machine",
            Library::Loop => "loop by hand",
            Library::Mpich => "MPICH",
            Library::IntelMpi => "Intel MPI",
            Library::OpenMpi => "Open MPI",
        }
    }
}

names! {
    /// A group of measurements.
    Suite {
        /// Whole synchronization epochs with one put each.
        Epoch = "epoch",
        /// Single operations and their completion inside one open epoch.
        Op = "op",
        /// A round trip of a short message.
        Am = "am",
        /// The barrier.
        Barrier = "barrier",
        /// The ghost-area exchange with four neighbours.
        Ghost = "ghost",
        /// Packing and unpacking of a datatype; one rank.
        Pack = "pack",
        /// Puts from layout to layout.
        Put = "put",
        /// Floors of the machine.
        Limit = "limit",
    }
}

names! {
    /// Whose memory a window exposes.
    Window {
        /// No window is used.
        None = "none",
        /// Memory that the library allocated for the window.
        Allocated = "allocated",
        /// Memory of the user, page-aligned.
        User = "user",
        /// The same where it is not mapped, but reached by system calls (`FARSIDE_SHM_USER_MEMORY=vm`).
        Unmapped = "unmapped",
    }
}

names! {
    /// The synchronization.
    Sync {
        /// None.
        None = "none",
        /// Fence; in Farside's epochs on allocated windows, one of a chain: each fence closes an epoch and opens the next.
        Fence = "fence",
        /// Farside's self-contained fence epoch, which opens by itself: no peer has it.
        FenceClosure = "fence-closure",
        /// Post, start, complete, wait.
        Pscw = "pscw",
        /// A shared lock round the operation.
        Lock = "lock",
        /// An exclusive lock round the operation.
        LockExclusive = "lock_exclusive",
        /// A flush inside an epoch that locks all.
        Flush = "flush",
        /// Two-sided: non-blocking sends and receives, and waiting for all.
        Twosided = "twosided",
        /// Active messages.
        Am = "am",
    }
}

names! {
    /// The layout of the memory side; [`crate::shapes`] has the measures.
    Shape {
        /// Without gaps.
        None = "none",
        /// Blocks of 4 bytes, two lengths from start to start.
        Vector4 = "vector_4",
        /// The same with blocks of 8 bytes.
        Vector8 = "vector_8",
        /// The same with blocks of 16 bytes.
        Vector16 = "vector_16",
        /// The same with blocks of 64 bytes.
        Vector64 = "vector_64",
        /// The same with blocks of 512 bytes.
        Vector512 = "vector_512",
        /// The same with blocks of 4096 bytes.
        Vector4096 = "vector_4096",
        /// One column of a matrix of 4096 ints a row.
        Column = "column",
        /// Columns of 64 rows of such a matrix.
        Columns64 = "columns_64",
        /// Columns of 128 rows of such a matrix.
        Columns128 = "columns_128",
        /// The face of a cube of doubles whose blocks are one double.
        FaceX = "face_x",
        /// The face whose blocks are rows.
        FaceY = "face_y",
        /// The face that is one block.
        FaceZ = "face_z",
        /// Doubles at places chosen at random, in random order.
        Indexed8 = "indexed_8",
        /// Blocks of 64 bytes, likewise.
        Indexed64 = "indexed_64",
        /// An array of structures with gaps: an int, three doubles and a char.
        Struct = "struct",
        /// Four doubles, two doubles' room between them; and these again and again.
        Nested = "nested",
        /// So many blocks of equal length with gaps as long as they; suite "put" only, as those that follow.
        Blocks4 = "blocks_4",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks8 = "blocks_8",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks16 = "blocks_16",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks32 = "blocks_32",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks64 = "blocks_64",
        /// The two leading block diagonals of a square matrix of ints.
        Diagonals = "diagonals",
    }
}

names! {
    /// The operation.
    Op {
        /// A put; in fence epochs, one by each of the two.
        Put = "put",
        /// A put by one of the two only.
        Put1 = "put1",
        /// A get.
        Get = "get",
        /// One of many puts before one flush: 64, between layouts 16.
        PutBandwidth = "put_bw",
        /// One of 64 gets before one flush.
        GetBandwidth = "get_bw",
        /// Fetch-and-add of one 64-bit integer.
        FetchOp = "fetch_op",
        /// Compare-and-swap of one 64-bit integer.
        Cas = "cas",
        /// Accumulate (sum) of one 64-bit integer.
        Accumulate = "accumulate",
        /// A message there and back.
        Pingpong = "pingpong",
        /// A barrier.
        Barrier = "barrier",
        /// An epoch without operations.
        Empty = "empty",
        /// One exchange with all four neighbours.
        Ghost = "ghost",
        /// From a layout to consecutive bytes.
        Pack = "pack",
        /// From consecutive bytes to a layout.
        Unpack = "unpack",
        /// From a layout to the same one elsewhere.
        Copy = "copy",
        /// Processor time of the origin for a put and its flush.
        OriginCpu = "origin_cpu",
        /// Processor time of the target meanwhile, which waits in a barrier.
        TargetCpu = "target_cpu",
        /// An exchange of all ranks with all, themselves included.
        Alltoall = "alltoall",
        /// A cache line from one core to another and back.
        LineRoundTrip = "line_round_trip",
        /// The same with a line for each way.
        TwoLinesRoundTrip = "two_lines_round_trip",
        /// A cache line there and back, with a little work between seeing it and sending it back at either end.
        WorkedRoundTrip = "worked_round_trip",
        /// Two processes that wait for each other.
        BareMeeting = "bare_meeting",
        /// From giving a core away to having it again, with so many ranks on it.
        YieldTurn = "yield_turn",
        /// A cache line from one core to another.
        LineOneWay = "line_one_way",
        /// A warm copy within memory.
        Memcpy = "memcpy",
        /// An atomic addition that nobody contends.
        Atomic = "atomic",
        /// perftest's RDMA write from one rank to another: half of a ping-pong in which both look at their memory.
        RawWrite = "raw_write",
        /// perftest's RDMA write, from its posting to its completion: with the way back of the acknowledgement.
        RawWriteDone = "raw_write_done",
        /// perftest's RDMA read.
        RawRead = "raw_read",
        /// perftest's fetch-and-add.
        RawAtomic = "raw_atomic",
        /// One of many RDMA writes of perftest.
        RawWriteBandwidth = "raw_write_bw",
        /// One of many bare RDMA reads.
        RawReadBandwidth = "raw_read_bw",
    }
}

impl Op {
    /// Whether the bytes per second are the point.
    #[must_use]
    pub const fn is_bandwidth(self) -> bool {
        matches!(self, Op::PutBandwidth | Op::GetBandwidth | Op::RawWriteBandwidth | Op::RawReadBandwidth)
    }
}

/// What was measured, apart from whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The suite.
    pub suite: Suite,
    /// The kind of window.
    pub window: Window,
    /// The synchronization.
    pub sync: Sync,
    /// The operation.
    pub op: Op,
    /// The layout.
    pub shape: Shape,
    /// Bytes per operation; in the ghost-area exchange, to each neighbour.
    pub bytes: u64,
    /// How many ranks took part.
    pub ranks: u32,
}

const fn contiguous() -> Shape {
    Shape::None
}

fn is_contiguous(shape: &Shape) -> bool {
    *shape == Shape::None
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Whose it is.
    pub library: Library,
    /// The library's version.
    pub version: String,
    /// The suite.
    pub suite: Suite,
    /// The kind of window.
    pub window: Window,
    /// The synchronization.
    pub sync: Sync,
    /// The operation.
    pub op: Op,
    /// The layout, where there are several.
    #[serde(default = "contiguous", skip_serializing_if = "is_contiguous")]
    pub shape: Shape,
    /// Bytes per operation.
    pub bytes: u64,
    /// How many ranks took part.
    pub ranks: u32,
    /// Iterations in all blocks together.
    pub iterations: u64,
    /// Microseconds of one epoch or operation, median of the blocks.
    pub us_median: f64,
    /// Microseconds of one epoch or operation in the fastest block.
    pub us_min: f64,
    /// Megabytes (10^6) per second, where bandwidth is the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Packets of one epoch or operation, of all ranks together and acknowledgements included, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<f64>,
    /// Work requests of one epoch or operation, of all ranks together, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<f64>,
}

impl Record {
    /// A record of `library` for `key` from the times of its blocks, each in microseconds per epoch or operation.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] without blocks, or with a time that is not finite or negative.
    pub fn from_blocks(library: Library, version: &str, key: Key, iterations: u64, blocks_us: &[f64]) -> Result<Self> {
        let mut sorted = blocks_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let bad = || Error::new(ErrorKind::BadArgument, "benchmark record");
        let (Some(&us_min), Some(&upper)) = (sorted.first(), sorted.get(middle)) else {
            return Err(bad().cause("no blocks were measured"));
        };
        if sorted.iter().any(|us| !us.is_finite() || *us < 0.0) {
            return Err(bad().cause("a block's time is not a number of microseconds"));
        }
        let us_median = if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) };
        let bandwidth = key.op.is_bandwidth() && us_median > 0.0;
        Ok(Self {
            library,
            version: version.to_owned(),
            suite: key.suite,
            window: key.window,
            sync: key.sync,
            op: key.op,
            shape: key.shape,
            bytes: key.bytes,
            ranks: key.ranks,
            iterations,
            us_median,
            us_min,
            mb_per_s: bandwidth.then(|| key.bytes as f64 / us_median),
            packets: None,
            requests: None,
        })
    }

    /// Reads one line of JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the line is no record: too long, not JSON, a field missing or unknown in its value,
    /// a time that is not positive and finite, no ranks.
    pub fn parse(line: &str) -> Result<Self> {
        let refuse = |cause: String| Err(Error::new(ErrorKind::Protocol, "benchmark record").cause(cause));
        if line.len() > LINE_BYTES_MAX {
            return refuse(format!("a line of {} bytes", line.len()));
        }
        let record: Self = match serde_json::from_str(line) {
            Ok(record) => record,
            Err(error) => return refuse(error.to_string()),
        };
        let usable = |us: f64| us.is_finite() && us > 0.0;
        let counted = |count: Option<f64>| count.is_none_or(|n| n.is_finite() && n >= 0.0);
        if !counted(record.packets) || !counted(record.requests) {
            return refuse("a count that is negative or not finite".to_owned());
        }
        if !usable(record.us_median) || !usable(record.us_min) || record.mb_per_s.is_some_and(|rate| !usable(rate)) {
            return refuse("a time or rate that is not positive and finite".to_owned());
        }
        if record.us_min > record.us_median {
            return refuse("a smallest time above the median".to_owned());
        }
        if record.ranks == 0 || record.iterations == 0 {
            return refuse("no ranks or no iterations".to_owned());
        }
        Ok(record)
    }

    /// What was measured.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            suite: self.suite,
            window: self.window,
            sync: self.sync,
            op: self.op,
            shape: self.shape,
            bytes: self.bytes,
            ranks: self.ranks,
        }
    }

    /// The time that counts, in microseconds: the median; where one rank works alone the smallest, for whatever else the
    /// machine does only makes it longer.
    #[must_use]
    pub fn us(&self) -> f64 {
        let alone = match self.suite {
            Suite::Pack => true,
            Suite::Put => matches!(self.op, Op::Put | Op::PutBandwidth),
            _ => false,
        };
        if alone { self.us_min } else { self.us_median }
    }

    /// The record as a line of JSON, without the line end.
    #[must_use]
    pub fn line(&self) -> String {
        // Only maps with keys that are not strings, and failing Serialize implementations, make an error here.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What [`read`] finds.
#[derive(Debug, Default)]
pub struct Lines {
    /// The records, in their order.
    pub records: Vec<Record>,
    /// Lines that are neither empty nor a record: the number of the line, from 1, and what is wrong.
    pub refused: Vec<(usize, Error)>,
}

/// Reads records from lines of JSON.
///
/// # Errors
/// [`ErrorKind::System`] if reading fails.
pub fn read(input: impl BufRead) -> Result<Lines> {
    let mut lines = Lines::default();
    for (index, line) in input.split(b'\n').enumerate() {
        let line = line.map_err(|error| Error::system("read benchmark records", error))?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        match Record::parse(line.trim()) {
            Ok(record) => lines.records.push(record),
            Err(error) => lines.refused.push((index + 1, error)),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"library":"impi","version":"2021.18.1","suite":"op","window":"user","sync":"flush","op":"put_bw","bytes":64,"ranks":2,"iterations":7,"us_median":0.5,"us_min":0.25,"mb_per_s":128}"#;

    #[test]
    fn parse_good_line_gives_every_field() {
        let record = Record::parse(LINE).unwrap();
        assert_eq!(record.library, Library::IntelMpi);
        assert_eq!(
            record.key(),
            Key {
                suite: Suite::Op,
                window: Window::User,
                sync: Sync::Flush,
                op: Op::PutBandwidth,
                shape: Shape::None,
                bytes: 64,
                ranks: 2
            }
        );
        assert_eq!((record.us_median, record.us_min, record.mb_per_s), (0.5, 0.25, Some(128.0)));
        assert_eq!(Record::parse(&record.line()).unwrap(), record);
    }

    #[test]
    fn parse_hostile_line_is_refused() {
        let hostile = [
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
            "[1,2]".to_owned(),
            LINE.replace("\"impi\"", "\"nobody\""),
            LINE.replace("\"user\"", "3"),
            LINE.replace("\"bytes\":64", "\"bytes\":-64"),
            LINE.replace("\"bytes\":64", "\"bytes\":99999999999999999999999"),
            LINE.replace("\"bytes\":64,", ""),
            LINE.replace("\"ranks\":2", "\"ranks\":0"),
            LINE.replace("\"iterations\":7", "\"iterations\":0"),
            LINE.replace("0.5", "NaN"),
            LINE.replace("0.5", "-0.5"),
            LINE.replace("0.5", "1e999"),
            LINE.replace("0.25", "0.75"),
            LINE.replace("128}", "0}"),
            format!("{LINE}{LINE}"),
            LINE.replace("2021", &"2".repeat(5000)),
            "[".repeat(4000),
        ];
        for line in hostile {
            let error = Record::parse(&line).expect_err(&line);
            assert_eq!(error.kind(), ErrorKind::Protocol, "{line}");
        }
    }

    #[test]
    fn read_mixed_input_keeps_records_and_numbers_the_rest() {
        let input = [b"\n  \nwarning: \xff\xfe\n" as &[u8], LINE.as_bytes(), b"\r\n{}\n", LINE.as_bytes()].concat();
        let lines = read(input.as_slice()).unwrap();
        assert_eq!(lines.records.len(), 2);
        assert_eq!(lines.refused.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn from_blocks_takes_median_and_minimum() {
        let key = Record::parse(LINE).unwrap().key();
        let odd = Record::from_blocks(Library::Farside, "0", key, 9, &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.us_median, odd.us_min, odd.mb_per_s), (2.0, 1.0, Some(32.0)));
        let even = Record::from_blocks(Library::Farside, "0", key, 9, &[4.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!((even.us_median, even.us_min), (3.0, 1.0));
        for bad in [&[] as &[f64], &[1.0, f64::NAN], &[-1.0]] {
            assert_eq!(
                Record::from_blocks(Library::Farside, "0", key, 9, bad).unwrap_err().kind(),
                ErrorKind::BadArgument
            );
        }
    }

    #[test]
    fn names_of_every_value_are_unique_and_read_back() {
        for library in Library::ALL {
            let text = serde_json::to_string(library).unwrap();
            assert_eq!(text, format!("\"{}\"", library.name()));
            assert_eq!(serde_json::from_str::<Library>(&text).unwrap(), *library);
        }
        let mut ops: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
        ops.sort_unstable();
        ops.dedup();
        assert_eq!(ops.len(), Op::ALL.len());
    }
}
