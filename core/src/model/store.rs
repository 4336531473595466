//! Models as rows of numbers: lines of text in the file of measured quantities, and for other ranks.

use std::io;
use std::path::PathBuf;

use super::fit::Fitted;
use super::{Fits, LoP, LogGP, Models, Overhead, PLogP, Posting, Primitive, RoundTrip, Table, Transfers};
use crate::cache::CacheFile;
use crate::device::CutOffs;
use crate::error::{Error, ErrorKind, Result};
use crate::load::Load;
use crate::settings::Settings;

/// Names of the rows of a primitive.
const ROWS: [&str; 8] =
    ["log-gp", "p-log-p", "gap", "send-overhead", "receive-overhead", "lo-p-normal", "lo-p-inline", "lo-p-list"];
/// Maximum number of numbers in a row.
const MAX_NUMBERS: usize = 256;
/// Maximum time in nanoseconds: about eleven days.
const MAX_TIME_NS: f64 = 1e15;
/// Number of messages up to which LoP must yield valid times, and for which it is always measured; beyond the measured
/// range its times are arbitrary.
const FANS: u32 = 16;
/// The name of the row of cut-offs.
const CUT_OFFS: &str = "cut-offs";

/// Whether a value is a valid time in nanoseconds.
fn is_time(value: &f64) -> bool {
    (0.0..=MAX_TIME_NS).contains(value)
}

impl Transfers {
    /// The numbers of a row.
    fn numbers(&self) -> [u64; 6] {
        let CutOffs { gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment } = self.cut_offs;
        [gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment, self.read_inter]
    }

    /// Returns `Some(None)` for an empty row, and `None` for a malformed one.
    fn of_numbers(row: &[u64]) -> Option<Option<Self>> {
        match *row {
            [] => Some(None),
            [gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment, read_inter] if segment > 0 => {
                let cut_offs = CutOffs { gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment };
                Some(Some(Self { cut_offs, read_inter }))
            }
            _ => None,
        }
    }
}

/// Whether all times are finite.
pub(super) fn is_usable(lo_p: &LoP) -> bool {
    let times = |p: f64| [lo_p.send_overhead.at(p), lo_p.receive_overhead.at(p), lo_p.round_trip.at(p)];
    (1..=FANS).flat_map(|p| times(p.into())).all(|time| time.abs() <= MAX_TIME_NS)
}

fn known<M>(model: M, residual: f64) -> Option<Fitted<M>> {
    (residual.is_finite() && residual >= 0.0).then_some(Fitted { model, residual, points: Vec::new() })
}

fn of_table(table: &Table) -> Vec<f64> {
    table.0.iter().flat_map(|(bytes, time)| [*bytes as f64, *time]).collect()
}

/// Parses the table of a row: integral numbers of bytes in ascending order, each with a time. An empty row means that
/// there is no time.
fn table(row: &[f64]) -> Option<Table> {
    let (pairs, []) = row.as_chunks::<2>() else { return None };
    let is_size = |bytes: f64| bytes >= 0.0 && bytes.fract() == 0.0 && bytes < (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let ascend = pairs.windows(2).all(|two| two[0][0] < two[1][0]);
    let fine = pairs.len() != 1 && ascend && pairs.iter().all(|[bytes, time]| is_size(*bytes) && is_time(time));
    fine.then(|| Table(pairs.iter().map(|[bytes, time]| (*bytes as u64, *time)).collect()))
}

impl Fits {
    fn rows(&self) -> [Vec<f64>; ROWS.len()] {
        let LogGP {
            latency,
            send_overhead,
            receive_overhead,
            gap,
            gap_per_byte,
            overhead_per_byte,
            threshold,
            reduction,
            // Not measured.
            gate: _,
        } = self.log_gp.model;
        let threshold = threshold.map_or(-1.0, |bytes| bytes as f64);
        let lo_p = |posting: Posting| {
            let known = self.lo_p.iter().find(|(known, _)| *known == posting);
            known.map_or_else(
                Vec::new,
                |(_, Fitted { model: LoP { send_overhead, receive_overhead, round_trip }, residual, .. })| {
                    [&[*residual][..], &send_overhead.0, &receive_overhead.0, &round_trip.0].concat()
                },
            )
        };
        let p_log_p = &self.p_log_p.model;
        let log_gp =
            [latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, reduction, threshold];
        let [normal, inline, list] = Posting::ALL.map(lo_p);
        [
            [&[self.log_gp.residual][..], &log_gp].concat(),
            vec![self.p_log_p.residual, p_log_p.latency, p_log_p.reduction],
            of_table(&p_log_p.gap),
            of_table(&p_log_p.send_overhead),
            of_table(&p_log_p.receive_overhead),
            normal,
            inline,
            list,
        ]
    }

    fn of_rows(rows: &[Vec<f64>; ROWS.len()]) -> Option<Self> {
        let [log_gp, p_log_p, gap, send, receive, normal, inline, list] = rows;
        let [residual, times @ .., threshold] = *<&[f64; 9]>::try_from(&log_gp[..]).ok()?;
        let [latency, send_overhead, receive_overhead, gap_time, gap_per_byte, overhead_per_byte, reduction] = times;
        let threshold = if threshold < 0.0 { None } else { Some(threshold as u64) };
        times.iter().all(is_time).then_some(())?;
        let log_gp = LogGP {
            latency,
            send_overhead,
            receive_overhead,
            gap: gap_time,
            gap_per_byte,
            overhead_per_byte,
            threshold,
            reduction,
            gate: 0.0,
        };
        let log_gp = known(log_gp, residual)?;
        let [residual, latency, reduction] = *<&[f64; 3]>::try_from(&p_log_p[..]).ok()?;
        (is_time(&latency) && is_time(&reduction)).then_some(())?;
        let (gap, send_overhead, receive_overhead) = (table(gap)?, table(send)?, table(receive)?);
        let p_log_p = known(PLogP { latency, gap, send_overhead, receive_overhead, reduction }, residual)?;
        let mut lo_p = Vec::new();
        for (posting, row) in Posting::ALL.into_iter().zip([normal, inline, list]).filter(|(_, row)| !row.is_empty()) {
            let [residual, s0, s1, s2, r0, r1, r2, trip @ ..] = *<&[f64; 13]>::try_from(&row[..]).ok()?;
            let (send_overhead, receive_overhead) = (Overhead([s0, s1, s2]), Overhead([r0, r1, r2]));
            let model = LoP { send_overhead, receive_overhead, round_trip: RoundTrip(trip) };
            is_usable(&model).then_some(())?;
            lo_p.push((posting, known(model, residual)?));
        }
        Some(Self { log_gp, p_log_p, lo_p })
    }
}

impl Models {
    /// The rows of both primitives; those of writes are empty if they are not known.
    fn numbers(&self) -> [[Vec<f64>; ROWS.len()]; 2] {
        Primitive::ALL.map(|primitive| self.of(primitive).map_or_else(Default::default, Fits::rows))
    }

    fn of_rows(device: String, rows: &[[Vec<f64>; ROWS.len()]; 2], transfers: &[u64]) -> Option<Self> {
        rows.iter().flatten().flatten().all(|value| value.is_finite()).then_some(())?;
        let [messages, writes] = rows;
        let is_known = writes.iter().any(|row| !row.is_empty());
        let writes = if is_known { Some(Fits::of_rows(writes)?) } else { None };
        let (messages, transfers) = (Fits::of_rows(messages)?, Transfers::of_numbers(transfers)?);
        Some(Self { device, messages, writes, transfers, transfer_times: Vec::new(), load: Load::default() })
    }

    /// The name of the models of a device in the table of measured quantities.
    pub(crate) fn name(device: &str) -> String {
        format!("models {device}")
    }

    /// The file in which models are cached; `None` if `FARSIDE_CALIBRATION` turns that off, or the user has no home.
    #[must_use]
    pub fn file(settings: &Settings) -> Option<PathBuf> {
        CacheFile::new(settings).map(|file| file.file().to_owned())
    }

    /// The models of a device, as [`Capabilities`](crate::device::Capabilities) name it, that were
    /// [stored](Self::store) on this machine with this version and kernel. `None` if there are none, or the file is damaged.
    #[must_use]
    pub fn load(settings: &Settings, device: &str) -> Option<Self> {
        CacheFile::new(settings)?.read()?.get(&Self::name(device), |lines| Self::parse(device, lines))
    }

    /// The models as text, with a line for each row.
    pub(crate) fn lines(&self) -> String {
        let mut lines = CUT_OFFS.to_owned();
        self.transfers.iter().flat_map(Transfers::numbers).for_each(|value| lines += &format!(" {value}"));
        lines.push('\n');
        for (primitive, rows) in Primitive::ALL.iter().zip(self.numbers()) {
            for (name, row) in ROWS.iter().zip(rows) {
                lines += &format!("{} {name}", primitive.name());
                row.iter().for_each(|value| lines += &format!(" {value:?}"));
                lines.push('\n');
            }
        }
        lines
    }

    /// The device and the text, for other ranks: some 5 KiB.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{}\n{}", self.device, self.lines()).into_bytes()
    }

    /// Parses the format of [`to_bytes`](Self::to_bytes); `None` if it is malformed, or a parameter is out of its
    /// bounds.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (device, lines) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        Self::parse(device, lines)
    }

    /// Parses the format of [`lines`](Self::lines); `None` if it is malformed, or a parameter is out of its bounds.
    pub(crate) fn parse(device: &str, lines: &str) -> Option<Self> {
        let mut lines = lines.strip_suffix('\n')?.split('\n');
        let mut words = lines.next()?.split(' ');
        (words.next()? == CUT_OFFS).then_some(())?;
        let transfers = words.take(MAX_NUMBERS).map(|word| word.parse().ok()).collect::<Option<Vec<_>>>()?;
        let mut rows: [[Vec<f64>; ROWS.len()]; 2] = Default::default();
        for (primitive, rows) in Primitive::ALL.iter().zip(&mut rows) {
            for (name, row) in ROWS.iter().zip(rows) {
                let mut words = lines.next()?.split(' ');
                (words.next()? == primitive.name() && words.next()? == *name).then_some(())?;
                *row = words.take(MAX_NUMBERS + 1).map(|word| word.parse().ok()).collect::<Option<_>>()?;
                (row.len() <= MAX_NUMBERS).then_some(())?;
            }
        }
        if lines.next().is_some() { None } else { Self::of_rows(device.to_owned(), &rows, &transfers) }
    }

    /// Stores the models in a file for later jobs on this machine; returns the file and the line that identifies the
    /// machine. An older file is replaced.
    ///
    /// # Errors
    /// `Setting` if `FARSIDE_CALIBRATION` turns files off; `System` if the file cannot be written, another user may write its
    /// folder, or [the processors were loaded](Self::are_of_loaded_processors).
    pub fn store(&self, settings: &Settings) -> Result<(PathBuf, String)> {
        self.keep(settings, |_| true)
    }

    /// Like [`store`](Self::store), but only if `replaces` returns true for the models in the file.
    pub(crate) fn keep(
        &self,
        settings: &Settings,
        replaces: impl FnOnce(Option<Self>) -> bool,
    ) -> Result<(PathBuf, String)> {
        const STORE: &str = "store models";
        let file = CacheFile::new(settings).ok_or_else(|| {
            let e = Error::new(ErrorKind::Setting, STORE)
                .cause("FARSIDE_CALIBRATION is off, or the user has no home directory");
            e.remedy("set FARSIDE_CALIBRATION to a writable directory")
        })?;
        let kept = (file.file().to_owned(), file.identity().to_owned());
        let parse = |lines: &str| Self::parse(&self.device, lines);
        let change = |old: Option<&str>| replaces(old.and_then(parse)).then(|| self.lines());
        let written = file.replace().and_then(|file| file.set(&Self::name(&self.device), self.load, change));
        written.map(|()| kept.clone()).map_err(|e| {
            let remedy = match e.kind() {
                io::ErrorKind::ResourceBusy => "measure again while the machine is idle",
                _ => "set FARSIDE_CALIBRATION to a writable directory",
            };
            Error::system(STORE, e).cause(kept.0.display().to_string()).remedy(remedy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn models() -> Models {
        let table = |base: f64| Table(vec![(0, base), (8, base + 0.5), (1 << 20, 1e5 / 3.0)]);
        let fits = |threshold| Fits {
            log_gp: known(LogGP { latency: 1234.5, gap: 0.1 + 0.2, threshold, ..LogGP::default() }, 0.03).unwrap(),
            p_log_p: known(
                PLogP {
                    latency: 7.0,
                    gap: table(3.0),
                    send_overhead: table(1.0),
                    receive_overhead: table(2.0),
                    reduction: 0.25,
                },
                0.0,
            )
            .unwrap(),
            lo_p: vec![(
                Posting::Inline,
                known(LoP { round_trip: RoundTrip([1.0, 2.0, 3.0, -4.0, 0.01, 1.0]), ..LoP::default() }, 0.5).unwrap(),
            )],
        };
        let cut_offs = CutOffs { multi_w_block: u64::MAX, ..CutOffs::UNMEASURED };
        Models {
            device: "shm".into(),
            messages: fits(Some(4072)),
            writes: Some(fits(None)),
            transfers: Some(Transfers { cut_offs, read_inter: 16_384 }),
            transfer_times: Vec::new(),
            load: Load::default(),
        }
    }

    fn settings(folder: &str) -> Settings {
        Settings::from_lookup(|name| (name == "FARSIDE_CALIBRATION").then(|| folder.to_owned())).unwrap()
    }

    #[test]
    fn models_round_trip_through_text_and_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path().to_str().unwrap());
        for models in [models(), Models { writes: None, transfers: None, ..models() }] {
            assert_eq!(Models::from_bytes(&models.to_bytes()).as_ref(), Some(&models));
            let (file, identity) = models.store(&settings).unwrap();
            assert!(file.is_file() && !identity.is_empty(), "{identity}");
            assert_eq!(Models::load(&settings, "shm"), Some(models));
            assert_eq!(Models::load(&settings, "verbs"), None);
        }
    }

    #[test]
    fn file_that_is_damaged_counts_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path().to_str().unwrap());
        let (file, _) = models().store(&settings).unwrap();
        let good = std::fs::read_to_string(&file).unwrap();
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Models::load(&settings, "shm")
        };
        assert_eq!(load(&good), Some(models()));
        // The last rows are empty, so shorter files are parsed as if they had them.
        assert!((0..good.len()).step_by(7).all(|end| load(&good[..end]).is_none()));
        for (from, to) in [
            ("1234.5", "-1234.5"),
            ("1234.5", "NaN"),
            ("1234.5", "inf"),
            ("1234.5", "1e300"),
            ("1234.5", "1234.5 1"),
            ("messages gap 0.0 3.0 8.0", "messages gap 8.0 3.0 8.0"),
            ("messages gap 0.0", "messages gap 0.5"),
            ("-4.0 0.01", "-4.0 1000"),
            ("writes gap", "writes gab"),
            ("measured 1", "measured 2"),
            ("cut-offs 256", "cut-offs"),
            ("65536 16384", "0 16384"),
        ] {
            let wrong = good.replace(from, to);
            assert!(wrong != good && load(&wrong).is_none(), "{from} is {to}");
        }
    }

    #[test]
    fn folder_that_cannot_be_written_is_an_error() {
        for (folder, cause) in [("/proc/farside", "/proc/farside/measured-"), ("off", "FARSIDE_CALIBRATION is off")] {
            let e = models().store(&settings(folder)).unwrap_err().to_string();
            assert!(e.contains(cause) && e.contains("set FARSIDE_CALIBRATION"), "{e}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_gives_finite_times(at in 0..2000_usize, byte in 0..128_u8, len in 0..2000_usize) {
            let lines = models().lines();
            prop_assert_eq!(Models::parse("shm", &lines[..len.min(lines.len() - 1)]), None);
            let mut bytes = lines.into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(models) = Models::parse("shm", str::from_utf8(&bytes).unwrap()) {
                prop_assert!(models.numbers().iter().flatten().flatten().all(|value| value.is_finite()));
                let fits = Primitive::ALL.into_iter().filter_map(|primitive| models.of(primitive));
                for (_, lo_p) in fits.flat_map(|fits| &fits.lo_p) {
                    prop_assert!((1..=16).all(|p| lo_p.model.latency(p).is_finite()));
                }
            }
        }
    }
}
