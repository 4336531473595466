//! Every rank publishes a value, and checks those of all the others: the bootstrap alone, without a job.
//!
//! `kvs [BYTES [RANK PHASE HOW]]`: RANK ends in PHASE (`start`, `init`, `put`, `fence`, `finalize`), HOW is `kill`
//! (SIGKILL), `abort` (through the launcher, code 7), or an exit code; with `stay` it stays there for 1000 seconds; with
//! `child` it starts this program once more, as one that is not a rank, and continues.

use std::process::ExitCode;
use std::time::Duration;

use farside_core::bootstrap::{Bootstrap, connect};
use farside_core::error::Result;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bytes = arguments.first().map_or(5000, |a| a.parse().expect("BYTES is a number"));
    let fault = match &arguments[..] {
        [_, rank, phase, how] => Some(Fault { rank, phase, how }),
        _ => None,
    };
    match exchange(bytes, fault.as_ref()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

struct Fault<'a> {
    rank: &'a str,
    phase: &'a str,
    how: &'a str,
}

impl Fault<'_> {
    fn strike(&self, rank: &str, phase: &str, job: Option<&mut dyn Bootstrap>) {
        if (self.rank, self.phase) != (rank, phase) {
            return;
        }
        match (self.how, job) {
            ("kill", _) => {
                // The `kill` built into the shell is used, since the program of that name may be missing.
                let me = format!("kill -KILL {}", std::process::id());
                let _ = std::process::Command::new("sh").args(["-c", &me]).status();
                std::process::exit(99);
            }
            ("stay", _) => {
                println!("stays");
                std::thread::sleep(Duration::from_secs(1000));
            }
            ("child", _) => {
                let own = std::env::current_exe().expect("this program has a path");
                let status = std::process::Command::new(own).status().expect("a child");
                println!("its child ended with {:?}", status.code());
            }
            ("abort", Some(job)) => {
                job.abort(7, "asked to: set FARSIDE_SHM_DIR, 100% sure");
                std::process::exit(0);
            }
            (code, _) => std::process::exit(code.parse().expect("HOW is kill, abort or an exit code")),
        }
    }
}

fn exchange(bytes: usize, fault: Option<&Fault<'_>>) -> Result<String> {
    let strike = |rank: &str, phase, job: Option<&mut dyn Bootstrap>| {
        if let Some(fault) = fault {
            fault.strike(rank, phase, job);
        }
    };
    strike(&std::env::var("PMI_RANK").unwrap_or_default(), "start", None);
    let mut job = connect(Duration::from_secs(20))?;
    let (rank, size) = (job.rank(), job.size());
    let name = rank.to_string();
    strike(&name, "init", Some(&mut *job));
    job.put(&format!("value.{rank}"), &value(rank, bytes))?;
    strike(&name, "put", Some(&mut *job));
    job.fence()?;
    for peer in 0..size {
        let got = job.get(&format!("value.{peer}"))?;
        assert!(got == value(peer, bytes), "rank {rank}: the value of rank {peer} is damaged");
    }
    let missing = job.get("nobody.put.this").expect_err("a key that no rank put").kind();
    strike(&name, "fence", Some(&mut *job));
    job.fence()?;
    strike(&name, "finalize", Some(&mut *job));
    let text = format!("rank {rank} of {size}: {} values by {}, missing: {missing:?}", size, job.kind());
    job.finalize()?;
    Ok(text)
}

/// Bytes with all values, different at every rank.
fn value(rank: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 77).to_le_bytes()[3]).collect()
}
