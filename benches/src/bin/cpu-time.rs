//! `cpu-time`: the processor time of ranks that wait for one that sleeps.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use comfy_table::{CellAlignment, presets};
use farside_benches::launch::Launcher;
use farside_benches::usage::Of;
use farside_benches::waiting::{self, Waited};
use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};

/// Lets rank 0 sleep while all others wait for it, and prints the processor time that they spend meanwhile.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Milliseconds that rank 0 sleeps.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    sleep_ms: u64,
    /// Be one rank: what `farside run` starts.
    #[arg(long, hide = true)]
    worker: bool,
}

fn work(arguments: &Arguments) -> Result<()> {
    let job = Job::init()?;
    let waited = waiting::measure(&job, Duration::from_millis(arguments.sleep_ms), Of::Process)?;
    if job.rank() == 0 {
        print(&waited, job.size(), arguments.sleep_ms);
    }
    job.finalize()
}

fn print(waited: &[Waited], ranks: u32, sleep_ms: u64) {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["waiting in", "CPU ms, most", "CPU ms, all", "sleeps, most", "voluntary switches, most"]);
    for row in waited {
        let ms = |cpu: Duration| format!("{:.1}", cpu.as_secs_f64() * 1e3);
        let most = |f: fn(&waiting::Spent) -> u64| row.spent.iter().map(f).max().unwrap_or(0).to_string();
        table.add_row([
            row.call.to_owned(),
            ms(row.spent.iter().map(|spent| spent.usage.cpu).max().unwrap_or_default()),
            ms(row.spent.iter().map(|spent| spent.usage.cpu).sum()),
            most(|spent| spent.parks),
            most(|spent| spent.usage.switches),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{ranks} ranks, of which one sleeps for {sleep_ms} ms; the others, each:\n{table}");
}

fn drive(arguments: &Arguments) -> Result<()> {
    let launcher = Launcher::locate()?;
    for &ranks in &arguments.ranks {
        let words = ["--worker".to_owned(), "--sleep-ms".to_owned(), arguments.sleep_ms.to_string()];
        let limit = Duration::from_millis(5 * arguments.sleep_ms) + Duration::from_secs(60);
        let status = launcher
            .command(ranks, limit, &words)
            .status()
            .map_err(|error| Error::system("start farside run", error))?;
        if !status.success() {
            return Err(
                Error::new(ErrorKind::Aborted, "measure waiting ranks").cause(format!("{ranks} ranks: {status}"))
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match if arguments.worker { work(&arguments) } else { drive(&arguments) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cpu-time: {error}");
            ExitCode::FAILURE
        }
    }
}
