//! The record of one measurement, and its JSON form, one line per record. `benches/peers/measure.c` writes the same
//! form.

use std::fmt;
use std::str::FromStr;

use farside_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Maximum length of a record's line in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// The version of Farside's own records.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An enumeration whose values have a name, as in records and arguments, and a label for reports.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $name:ident = $text:literal $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(clippy::enum_variant_names)]
        pub(crate) enum $type { $($(#[$vdoc])* #[serde(rename = $text)] $name,)* }

        impl $type {
            /// Every value, in the order in which reports show them.
            pub(crate) const ALL: &'static [$type] = &[$($type::$name),*];

            /// The name in records and arguments.
            pub(crate) const fn name(self) -> &'static str {
                match self { $($type::$name => $text,)* }
            }

            /// The name for reports; may be empty.
            pub(crate) const fn label(self) -> &'static str {
                match self { $($type::$name => $label,)* }
            }
        }

        impl Default for $type {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().copied().find(|value| value.name() == text);
                found.ok_or_else(|| format!("not one of {}", Self::ALL.iter().map(|v| v.name()).collect::<Vec<_>>().join(", ")))
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
    /// The library that was measured.
    Library {
        /// Farside itself.
        Farside = "farside" "Farside",
        /// The machine, whose limits bound every library.
        Limit = "limit" "limit of the machine",
        /// A loop written by hand for only this measurement.
        Loop = "loop" "loop by hand",
        /// MPICH.
        Mpich = "mpich" "MPICH",
        /// Intel MPI.
        IntelMpi = "impi" "Intel MPI",
        /// Open MPI.
        OpenMpi = "openmpi" "Open MPI",
    }
}

names! {
    /// A group of measurements.
    Suite {
        /// Whole synchronization epochs with one put each.
        Epoch = "epoch" "Synchronization epochs",
        /// Single operations and their completion inside one open epoch.
        Op = "op" "Operations inside an open epoch",
        /// A round trip of a short message.
        Am = "am" "Message round trip",
        /// The barrier.
        Barrier = "barrier" "Barrier",
        /// The ghost-area exchange with four neighbours.
        Ghost = "ghost" "Ghost-area exchange",
        /// Packing and unpacking of a datatype; one rank.
        Pack = "pack" "Packing and unpacking",
        /// Puts from layout to layout.
        Put = "put" "Puts from layout to layout",
        /// Collectives, each with every algorithm.
        Coll = "coll" "Collectives",
        /// Two-sided messages; bytes are those of a message, or the number of outstanding messages.
        TwoSided = "two-sided" "Two-sided messages",
        /// The loops of IMB and OSU, each by size.
        Loops = "loops" "Loops by size",
        /// Operations of several threads; bytes are the threads of a rank.
        Threads = "threads" "Several threads of a rank",
        /// Floors of the machine.
        Limit = "limit" "Limits of the machine",
    }
}

names! {
    /// The kind of memory that a window exposes.
    Window {
        /// No window is used.
        None = "none" "",
        /// Memory that the library allocated for the window.
        Allocated = "allocated" "allocated window",
        /// Memory of the user, page-aligned.
        User = "user" "user window",
        /// Memory of the user that is not mapped, but accessed with system calls (`FARSIDE_SHM_USER_MEMORY=vm`).
        Unmapped = "unmapped" "user window, unmapped",
    }
}

names! {
    /// The synchronization.
    Sync {
        /// No window.
        None = "none" "",
        /// Fence; Farside's epochs on allocated windows form a chain: each fence closes an epoch and opens the next.
        Fence = "fence" "fence",
        /// Farside's self-contained fence epoch, with its own opening fence; no peer has an equivalent.
        FenceClosure = "fence-closure" "fence by itself",
        /// Post, start, complete, wait.
        Pscw = "pscw" "PSCW",
        /// A shared lock around the operation.
        Lock = "lock" "shared lock",
        /// An exclusive lock around the operation.
        LockExclusive = "lock_exclusive" "exclusive lock",
        /// A flush inside an epoch that locks all.
        Flush = "flush" "flush",
        /// Two-sided: non-blocking sends and receives, and a wait for all.
        Twosided = "twosided" "two-sided",
        /// Active messages.
        Am = "am" "active messages",
    }
}

names! {
    /// The layout of the memory side; [`crate::shapes`] has the sizes.
    Shape {
        /// Contiguous bytes.
        None = "none" "",
        /// Blocks of 4 bytes, with starts two block lengths apart.
        Vector4 = "vector_4" "vector, blocks of 4 B",
        /// The same with blocks of 8 bytes.
        Vector8 = "vector_8" "vector, blocks of 8 B",
        /// The same with blocks of 16 bytes.
        Vector16 = "vector_16" "vector, blocks of 16 B",
        /// The same with blocks of 64 bytes.
        Vector64 = "vector_64" "vector, blocks of 64 B",
        /// The same with blocks of 512 bytes.
        Vector512 = "vector_512" "vector, blocks of 512 B",
        /// The same with blocks of 4096 bytes.
        Vector4096 = "vector_4096" "vector, blocks of 4 KiB",
        /// One column of a matrix of 4096 ints a row.
        Column = "column" "one column of ints",
        /// Columns of 64 rows of such a matrix.
        Columns64 = "columns_64" "columns, 64 rows",
        /// Columns of 128 rows of such a matrix.
        Columns128 = "columns_128" "columns, 128 rows",
        /// The face of a cube of doubles whose blocks are one double.
        FaceX = "face_x" "x face of a cube",
        /// The face whose blocks are rows.
        FaceY = "face_y" "y face of a cube",
        /// The face that is one block.
        FaceZ = "face_z" "z face of a cube",
        /// Doubles at random offsets, in random order.
        Indexed8 = "indexed_8" "doubles at random places",
        /// The same with blocks of 64 bytes.
        Indexed64 = "indexed_64" "64 B at random places",
        /// An array of structures with gaps: an int, three doubles and a char.
        Struct = "struct" "struct with gaps",
        /// Four doubles with gaps of two doubles; and a vector of these.
        Nested = "nested" "nested vector",
        /// A number of blocks of equal length with gaps of the same length; only in suite "put", as the next four.
        Blocks4 = "blocks_4" "4 blocks",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks8 = "blocks_8" "8 blocks",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks16 = "blocks_16" "16 blocks",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks32 = "blocks_32" "32 blocks",
        /// See [`Blocks4`](Self::Blocks4).
        Blocks64 = "blocks_64" "64 blocks",
        /// The two leading block diagonals of a square matrix of ints.
        Diagonals = "diagonals" "block diagonals",
    }
}

names! {
    /// The operation.
    #[allow(clippy::enum_variant_names)] // "fetch-and-op" is a name of MPI
    Op {
        /// A put; in fence epochs, one by each of the two ranks.
        Put = "put" "put",
        /// A put by only one of the two ranks.
        Put1 = "put1" "put by one rank",
        /// A get.
        Get = "get" "get",
        /// One of many puts before one flush: 64, between layouts 16.
        PutBandwidth = "put_bw" "put of a burst",
        /// One of 64 gets before one flush.
        GetBandwidth = "get_bw" "get of a burst",
        /// Fetch-and-add of one 64-bit integer.
        FetchOp = "fetch_op" "fetch-and-op",
        /// Compare-and-swap of one 64-bit integer.
        Cas = "cas" "compare-and-swap",
        /// Accumulate (sum) of one 64-bit integer.
        Accumulate = "accumulate" "accumulate",
        /// A round trip of a message.
        Pingpong = "pingpong" "there and back",
        /// A message one way, of a ping-pong.
        Latency = "latency" "one way",
        /// Two concurrent messages in opposite directions.
        Exchange = "exchange" "exchange",
        /// One of 64 consecutive messages.
        Bandwidth = "bandwidth" "message of a burst",
        /// A message one way while a number of receives with other tags is posted.
        PostedTag = "posted_tag" "posted, by tag",
        /// The same with posted receives from another source.
        PostedSource = "posted_source" "posted, by source",
        /// The same with receives from any source, with other tags.
        PostedAny = "posted_any" "posted, any source",
        /// A message one way while a number of messages with other tags is unexpected.
        EarlyTag = "early_tag" "early, by tag",
        /// The same with unexpected messages from another source.
        EarlySource = "early_source" "early, by source",
        /// The same with a receive from any source.
        EarlyAny = "early_any" "early, any source",
        /// A barrier.
        Barrier = "barrier" "barrier",
        /// An epoch without operations.
        Empty = "empty" "empty",
        /// One exchange with all four neighbours.
        Ghost = "ghost" "exchange",
        /// From a layout to consecutive bytes.
        Pack = "pack" "pack",
        /// From consecutive bytes to a layout.
        Unpack = "unpack" "unpack",
        /// From a layout to the same layout in other memory.
        Copy = "copy" "copy",
        /// CPU time of the origin for a put and its flush.
        OriginCpu = "origin_cpu" "origin CPU time",
        /// CPU time of the target, which waits in a barrier meanwhile.
        TargetCpu = "target_cpu" "target CPU time",
        /// An exchange of all ranks with all, themselves included.
        Alltoall = "alltoall" "all-to-all",
        /// A collective, like the operations that follow.
        Broadcast = "broadcast" "broadcast",
        /// See [`Broadcast`](Self::Broadcast).
        Scatter = "scatter" "scatter",
        /// See [`Broadcast`](Self::Broadcast).
        Gather = "gather" "gather",
        /// See [`Broadcast`](Self::Broadcast).
        Allgather = "allgather" "allgather",
        /// See [`Broadcast`](Self::Broadcast).
        Reduce = "reduce" "reduce",
        /// See [`Broadcast`](Self::Broadcast).
        Allreduce = "allreduce" "allreduce",
        /// See [`Broadcast`](Self::Broadcast).
        ReduceScatter = "reduce_scatter" "reduce-scatter",
        /// See [`Broadcast`](Self::Broadcast).
        Scan = "scan" "scan",
        /// See [`Broadcast`](Self::Broadcast).
        Exscan = "exscan" "exclusive scan",
        /// See [`Broadcast`](Self::Broadcast).
        NeighborAllgather = "neighbor_allgather" "allgather of neighbours",
        /// See [`Broadcast`](Self::Broadcast).
        NeighborAlltoall = "neighbor_alltoall" "all-to-all of neighbours",
        /// A cache line from one core to another and back.
        LineRoundTrip = "line_round_trip" "cache line there and back",
        /// The same with a line for each direction.
        TwoLinesRoundTrip = "two_lines_round_trip" "two lines there and back",
        /// A round trip of a cache line, with a little work between receiving and returning it at both ends.
        WorkedRoundTrip = "worked_round_trip" "line with work, there and back",
        /// A bare barrier of two processes.
        BareMeeting = "bare_meeting" "bare meeting",
        /// From yielding a core to running again, with a number of ranks on that core.
        YieldTurn = "yield_turn" "turn of a core",
        /// A cache line from one core to another.
        LineOneWay = "line_one_way" "cache line one way",
        /// A memcpy with warm caches.
        Memcpy = "memcpy" "memcpy",
        /// An uncontended atomic addition.
        Atomic = "atomic" "atomic",
        /// perftest's RDMA write from one rank to another: half of a ping-pong in which both poll their memory.
        RawWrite = "raw_write" "bare write, one way",
        /// perftest's RDMA write, from its posting to its completion: including the acknowledgement.
        RawWriteDone = "raw_write_done" "bare write, completed",
        /// perftest's RDMA read.
        RawRead = "raw_read" "bare read",
        /// perftest's fetch-and-add.
        RawAtomic = "raw_atomic" "bare fetch-add",
        /// One of many RDMA writes of perftest.
        RawWriteBandwidth = "raw_write_bw" "bare write of a burst",
        /// One of many bare RDMA reads.
        RawReadBandwidth = "raw_read_bw" "bare read of a burst",
    }
}

impl Library {
    /// The MPI libraries with which Farside is compared.
    pub(crate) const PEERS: &'static [Library] = &[Library::Mpich, Library::IntelMpi, Library::OpenMpi];
}

impl Suite {
    /// Whether the peers' C program also measures the operation on Farside's MPI library.
    pub(crate) const fn is_of_mpi(self) -> bool {
        matches!(self, Suite::TwoSided | Suite::Loops | Suite::Threads)
    }
}

impl Op {
    /// Whether it measures bandwidth.
    const fn is_bandwidth(self) -> bool {
        matches!(self, Op::PutBandwidth | Op::GetBandwidth | Op::RawWriteBandwidth | Op::RawReadBandwidth)
    }
}

impl Shape {
    /// The number in the name of a shape of this kind, "vector", "columns" or "blocks": bytes of a block, rows, blocks.
    pub(crate) fn number_of(self, kind: &str) -> Option<u64> {
        self.name().strip_prefix(kind)?.strip_prefix('_')?.parse().ok()
    }

    /// The kind of a shape; shapes that differ only in their number of blocks have the same kind.
    pub(crate) fn kind(self) -> Shape {
        if self.number_of("blocks").is_some() { Shape::Blocks4 } else { self }
    }
}

/// The measured operation, without the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    /// The suite.
    pub(crate) suite: Suite,
    /// The kind of window.
    pub(crate) window: Window,
    /// The synchronization.
    pub(crate) sync: Sync,
    /// The operation.
    pub(crate) op: Op,
    /// The layout; [`Shape::None`] if the operation has only one.
    #[serde(default)]
    pub(crate) shape: Shape,
    /// Bytes per operation; in the ghost-area exchange, to each neighbour.
    pub(crate) bytes: u64,
    /// The number of ranks.
    pub(crate) ranks: u32,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The library that was measured.
    pub(crate) library: Library,
    /// The library's version.
    pub(crate) version: String,
    /// The measured operation.
    #[serde(flatten)]
    pub(crate) key: Key,
    /// Iterations in all blocks together.
    pub(crate) iterations: u64,
    /// Microseconds of one epoch or operation, median of the blocks.
    pub(crate) us_median: f64,
    /// Microseconds of one epoch or operation in the fastest block.
    pub(crate) us_min: f64,
    /// Megabytes (10^6) per second, if the operation measures bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mb_per_s: Option<f64>,
    /// Packets of one epoch or operation, of all ranks together and including acknowledgements, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packets: Option<f64>,
    /// Work requests of one epoch or operation, of all ranks together, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<f64>,
    /// The algorithm of a collective, if it was given; otherwise the library selects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) algorithm: Option<String>,
}

impl Record {
    /// A record of `library` for `key` from the times of its blocks, each in microseconds per epoch or operation.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] without blocks, or with a time that is not finite or negative.
    pub(crate) fn from_blocks(library: Library, key: Key, iterations: u64, blocks_us: &[f64]) -> Result<Self> {
        let mut sorted = blocks_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() || sorted.iter().any(|us| !us.is_finite() || *us < 0.0) {
            let cause = "there are no blocks, or a time is negative or not finite";
            return Err(Error::new(ErrorKind::BadArgument, "create a benchmark record").cause(cause));
        }
        let us_median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let mb_per_s = (key.op.is_bandwidth() && us_median > 0.0).then(|| key.bytes as f64 / us_median);
        let (version, us_min) = (VERSION.to_owned(), sorted[0]);
        let (packets, requests, algorithm) = (None, None, None);
        Ok(Self { library, version, key, iterations, us_median, us_min, mb_per_s, packets, requests, algorithm })
    }

    /// Reads one line of JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the line is not a record: too long, not JSON, a field missing or unknown in its
    /// value, a time that is not positive and finite, no ranks.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let refuse = |cause: String| Error::new(ErrorKind::Protocol, "read a benchmark record").cause(cause);
        if line.len() > LINE_BYTES_MAX {
            return Err(refuse(format!("the line has {} bytes; at most {LINE_BYTES_MAX} are allowed", line.len())));
        }
        let record: Self = serde_json::from_str(line).map_err(|error| refuse(error.to_string()))?;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let counted = [record.packets, record.requests].into_iter().flatten().all(|n| n.is_finite() && n >= 0.0);
        let timed = positive(record.us_min) && positive(record.us_median) && record.us_min <= record.us_median;
        if !counted
            || !timed
            || !record.mb_per_s.is_none_or(positive)
            || record.key.ranks == 0
            || record.iterations == 0
        {
            return Err(refuse("a number is negative, zero or not finite where it must not be".to_owned()));
        }
        Ok(record)
    }

    /// The reported time in microseconds: the median; for measurements of a single rank, collectives and messages the
    /// minimum, since other load of the machine only increases times.
    pub(crate) fn us(&self) -> f64 {
        let put = self.key.suite == Suite::Put && matches!(self.key.op, Op::Put | Op::PutBandwidth);
        if put || matches!(self.key.suite, Suite::Pack | Suite::Coll | Suite::TwoSided) {
            self.us_min
        } else {
            self.us_median
        }
    }

    /// The record as a line of JSON, without the line end.
    pub(crate) fn line(&self) -> String {
        // Serialization fails only for maps whose keys are not strings, and if `Serialize` itself fails.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The fastest record of each library, key and algorithm, in the order of first appearance: other load of the machine
/// only increases times.
pub(crate) fn best(records: &[Record]) -> Vec<Record> {
    let mut best: Vec<Record> = Vec::new();
    for record in records {
        let same = |held: &Record| (held.library, held.key) == (record.library, record.key);
        match best.iter_mut().find(|held| same(held) && held.algorithm == record.algorithm) {
            None => best.push(record.clone()),
            Some(held) if record.us() < held.us() => *held = record.clone(),
            Some(_) => {}
        }
    }
    best
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const LINE: &str = r#"{"library":"impi","version":"2021.18.1","suite":"op","window":"user","sync":"flush","op":"put_bw","bytes":64,"ranks":2,"iterations":7,"us_median":0.5,"us_min":0.25,"mb_per_s":128}"#;

    /// A record of the suite to which `op` belongs.
    pub(crate) fn record(library: Library, op: Op, bytes: u64, us: f64) -> Record {
        let key = match op {
            Op::Barrier => Key { suite: Suite::Barrier, op, bytes, ranks: 2, ..Key::default() },
            op if op >= Op::LineRoundTrip => Key { suite: Suite::Limit, op, bytes, ranks: 2, ..Key::default() },
            op => {
                let (window, sync) = (Window::Allocated, Sync::Flush);
                Key { suite: Suite::Op, window, sync, op, bytes, ranks: 2, ..Key::default() }
            }
        };
        Record::from_blocks(library, key, 1, &[us]).unwrap()
    }

    #[test]
    fn parse_good_line_gives_every_field() {
        let record = Record::parse(LINE).unwrap();
        let (suite, window, sync, op) = (Suite::Op, Window::User, Sync::Flush, Op::PutBandwidth);
        assert_eq!(record.library, Library::IntelMpi);
        assert_eq!(record.key, Key { suite, window, sync, op, shape: Shape::None, bytes: 64, ranks: 2 });
        assert_eq!((record.us_median, record.us_min, record.mb_per_s), (0.5, 0.25, Some(128.0)));
        assert_eq!(Record::parse(&record.line()).unwrap(), record);
    }

    #[test]
    fn parse_hostile_line_is_refused() {
        let mut hostile: Vec<String> = ["", "{", "null", "[1,2]"].map(str::to_owned).to_vec();
        for (from, to) in [
            ("\"impi\"", "\"nobody\""),
            ("\"user\"", "3"),
            ("\"bytes\":64", "\"bytes\":-64"),
            ("\"bytes\":64", "\"bytes\":99999999999999999999999"),
            ("\"bytes\":64,", ""),
            ("\"ranks\":2", "\"ranks\":0"),
            ("\"iterations\":7", "\"iterations\":0"),
            ("0.5", "NaN"),
            ("0.5", "-0.5"),
            ("0.5", "1e999"),
            ("0.25", "0.75"),
            ("128}", "0}"),
        ] {
            hostile.push(LINE.replace(from, to));
        }
        hostile.extend([format!("{LINE}{LINE}"), LINE.replace("2021", &"2".repeat(5000)), "[".repeat(4000)]);
        for line in hostile {
            assert_eq!(Record::parse(&line).expect_err(&line).kind(), ErrorKind::Protocol, "{line}");
        }
    }

    #[test]
    fn from_blocks_takes_median_and_minimum() {
        let key = Record::parse(LINE).unwrap().key;
        let odd = Record::from_blocks(Library::Farside, key, 9, &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.us_median, odd.us_min, odd.mb_per_s), (2.0, 1.0, Some(32.0)));
        let even = Record::from_blocks(Library::Farside, key, 9, &[4.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!((even.us_median, even.us_min), (3.0, 1.0));
        for bad in [&[] as &[f64], &[1.0, f64::NAN], &[-1.0]] {
            let error = Record::from_blocks(Library::Farside, key, 9, bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
        }
    }

    #[test]
    fn names_of_every_value_are_unique_and_read_back() {
        for op in Op::ALL {
            let text = serde_json::to_string(op).unwrap();
            assert_eq!(text, format!("\"{op}\""));
            assert_eq!(op.name().parse(), Ok(*op));
        }
        assert!("nobody".parse::<Library>().unwrap_err().contains("farside, limit"));
    }

    #[test]
    fn best_keeps_the_smallest_median_of_each() {
        let of = |library, bytes, us| record(library, Op::Put, bytes, us);
        let (mpich, farside) = (Library::Mpich, Library::Farside);
        let records =
            [of(mpich, 8, 3.0), of(farside, 8, 2.0), of(mpich, 8, 1.0), of(mpich, 64, 5.0), of(mpich, 8, 2.0)];
        let kept: Vec<_> = best(&records).iter().map(|r| (r.library, r.key.bytes, r.us_median)).collect();
        assert_eq!(kept, [(mpich, 8, 1.0), (farside, 8, 2.0), (mpich, 64, 5.0)]);
    }
}
