//! Floors of RDMA devices: perftest (`ib_write_lat`, `ib_read_lat`, `ib_atomic_lat`, `ib_write_bw`)
//! between the devices of this machine that the ranks use.
//!
//! | floor | |
//! |---|---|
//! | `raw_write` | one way of a ping-pong of writes: each side polls its memory, and does not wait for completions |
//! | `raw_write_done` | a write from its posting to its completion, one at a time (`ib_write_bw -t 1`): an average |
//! | `raw_read`, `raw_atomic` | from posting to completion |
//! | `raw_write_bw` | one of 64 writes in progress |
//!
//! Medians are perftest's "typical" times; if it reports only an average, they are the minimum and the median of
//! several runs.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farside_core::error::{Error, ErrorKind, Result};

use crate::record::{Key, Library, Op, Record, Suite};

/// The number of runs if perftest reports only an average.
const AVERAGES: usize = 3;
/// The time limit of one run.
const LIMIT: Duration = Duration::from_secs(30);

/// The devices of rank 0 and of rank 1, and the index of their GIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Devices {
    names: [String; 2],
    gid: u8,
}

impl Devices {
    /// The devices from `FARSIDE_VERBS_DEVICE` and `FARSIDE_VERBS_GID`, as the ranks read them; without these, the
    /// first two devices and GID 1, which is the IPv4 address of most RoCE devices.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is no device.
    pub(crate) fn find() -> Result<Self> {
        let set = |name| std::env::var(name).ok().filter(|value| value != "auto");
        let names: Vec<String> = match set("FARSIDE_VERBS_DEVICE") {
            Some(list) => list.split(',').map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect(),
            None => {
                let folder = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
                let mut names: Vec<String> =
                    folder.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                names
            }
        };
        let first = names.first().cloned().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "find RDMA devices")
                .cause("this machine has no RDMA device")
                .remedy("run it in ci/rxe")
        })?;
        let second = names.get(1).unwrap_or(&first).clone();
        let gid = set("FARSIDE_VERBS_GID").and_then(|index| index.parse().ok()).unwrap_or(1);
        Ok(Self { names: [first, second], gid })
    }

    /// The device of a rank; ranks use the devices in turn.
    pub(crate) fn of(&self, rank: usize) -> &str {
        &self.names[rank % 2]
    }

    /// Both devices, as a value of `FARSIDE_VERBS_DEVICE`. If it is not set, ranks may choose the same device, and
    /// their messages then stay inside the device instead of crossing the link on which the floors are measured.
    pub(crate) fn setting(&self) -> String {
        self.names.join(",")
    }

    /// The index of their GIDs.
    pub(crate) fn gid(&self) -> u8 {
        self.gid
    }
}

/// Measures the floors for transfers of `sizes` bytes.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without devices or without perftest.
pub(crate) fn measure(sizes: &[u64]) -> Result<(Vec<Record>, Option<Error>)> {
    let devices = Devices::find()?;
    let mut records = Vec::new();
    let mut failed = None;
    for &bytes in sizes {
        let iterations = if bytes > 16384 { 100 } else { 2000 };
        let mut floors = vec![(Op::RawWriteBandwidth, "ib_write_bw", vec!["-t", "64"])];
        // The floor of a transfer of many packets is its bandwidth.
        if bytes <= 64 {
            floors.push((Op::RawWrite, "ib_write_lat", vec![]));
            floors.push((Op::RawRead, "ib_read_lat", vec![]));
            floors.push((Op::RawWriteDone, "ib_write_bw", vec!["-t", "1", "-Q", "1"]));
        }
        if bytes == 8 {
            floors.push((Op::RawAtomic, "ib_atomic_lat", vec!["-A", "FETCH_AND_ADD"]));
        }
        for (op, tool, arguments) in floors {
            match floor(&devices, op, tool, &arguments, bytes, iterations) {
                Ok(record) => records.push(record),
                Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
    }
    Ok((records, failed))
}

fn floor(devices: &Devices, op: Op, tool: &str, arguments: &[&str], bytes: u64, iterations: u64) -> Result<Record> {
    let key = Key { suite: Suite::Limit, op, bytes, ranks: 2, ..Key::default() };
    let averages = tool.ends_with("_bw");
    let mut us = Vec::new();
    for _ in 0..if op == Op::RawWriteDone { AVERAGES } else { 1 } {
        let text = run(devices, tool, arguments, bytes, iterations)?;
        us.extend(times(&text, bytes, averages).ok_or_else(|| {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
            Error::new(ErrorKind::Protocol, "measure with perftest").cause(format!("{tool}: {last}"))
        })?);
    }
    let count = iterations * us.len() as u64;
    let mut record = Record::from_blocks(Library::Limit, key, count, &us)?;
    record.version = "perftest".to_owned();
    if !averages {
        // The minimum and the typical time.
        record.us_median = us.iter().copied().fold(record.us_min, f64::max);
        record.iterations = iterations;
    }
    Ok(record)
}

/// Microseconds of one operation in perftest's table: minimum and typical, or the average.
fn times(text: &str, bytes: u64, averages: bool) -> Option<Vec<f64>> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let row = lines.nth(1)?;
    let numbers: Vec<f64> = row.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let us = if averages {
        // Millions of messages a second have six decimals, which is imprecise for long messages; MiB a second have two.
        let (mib_per_s, mega) = (numbers.get(3)?, numbers.get(4)?);
        vec![if bytes < 4096 { 1.0 / mega } else { bytes as f64 / (mib_per_s * 1.048_576) }]
    } else {
        vec![*numbers.get(2)?, *numbers.get(4)?]
    };
    us.iter().all(|us| us.is_finite() && *us > 0.0).then_some(us)
}

/// The server process, killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client's output.
fn run(devices: &Devices, tool: &str, arguments: &[&str], bytes: u64, iterations: u64) -> Result<String> {
    const OP: &str = "run perftest";
    // `timeout` ends a run that hangs.
    let command = |device: &str, limit: Duration| {
        let [gid, bytes, iterations] = [u64::from(devices.gid), bytes, iterations].map(|number| number.to_string());
        let mut command = Command::new("timeout");
        command.args([&limit.as_secs().to_string(), tool, "-d", device, "-x", &gid, "-s", &bytes, "-n", &iterations]);
        // The same timeout as that of the ranks, since a slow machine retransmits with a shorter one.
        command.args(["-u", "19", "-F", "-p", "18615"]).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let failed = |error| Error::system(OP, error);
    let _server = Server(command(&devices.names[1], 2 * LIMIT).stdout(Stdio::null()).spawn().map_err(failed)?);
    let start = Instant::now();
    // The server measures the processor's clock before it listens.
    sleep(Duration::from_secs(1));
    loop {
        // The client fails immediately while the server does not listen.
        let output = command(&devices.names[0], LIMIT).arg("127.0.0.1").output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() == Some(127) {
            let missing = Error::new(ErrorKind::Unsupported, OP).cause(format!("{tool} is not installed"));
            return Err(missing.remedy("apt-get install perftest"));
        }
        if text.contains("#bytes") || start.elapsed() > LIMIT {
            return Ok(text);
        }
        sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAT: &str = " local address: LID 0000\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 8       2000          28.57          353.35       33.06    \t       36.84 \t2.1\n---\n";
    const BW: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 8   5000   0.15   0.14   0.020000\n";

    #[test]
    fn times_of_latencies_are_least_and_typical() {
        assert_eq!(times(LAT, 8, false), Some(vec![28.57, 33.06]));
        assert_eq!(times("Unable to init the socket connection\n", 8, false), None);
        assert_eq!(times(" #bytes x\n", 8, false), None);
    }

    #[test]
    fn times_of_bandwidths_come_from_the_finer_figure() {
        assert_eq!(times(BW, 8, true), Some(vec![50.0]));
        let long = BW.replace("0.14", "100.00");
        let us = times(&long, 1 << 20, true).unwrap()[0];
        assert!((us - 10_000.0).abs() < 1e-6, "{us}");
        assert_eq!(times(&BW.replace("0.020000", "0.000000"), 8, true), None);
    }
}
