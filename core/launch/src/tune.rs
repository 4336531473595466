//! `farside tune`: ranks of this program measure the network between them, fit the models, and store them.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use farside_core::bootstrap::detect::{Start, choose};
use farside_core::model::Models;
use farside_core::settings::Settings;
use farside_core::{Error, ErrorKind, Job, Result, say};

const OP: &str = "tune";

/// The options of `farside tune`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Number of ranks, if this command starts them. As a rank of a job, it measures that job: `srun -N 2 farside
    /// tune`.
    #[arg(short, long = "ranks", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1024))]
    n: u32,
    /// Seconds to measure, from 0.02 to 600.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Write a page with plots of the measured times and the fitted curves.
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.02..=600.0).contains(value));
    value.ok_or_else(|| "not a number from 0.02 to 600".to_owned())
}

/// Measures as a rank of a job, or starts the ranks.
///
/// # Errors
/// Those of the measurement; `BadArgument` for a job of one rank; `System` if a file cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    match choose(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))? {
        Start::Singleton => launch(options),
        _ => measure(options),
    }
}

/// Becomes the launcher of ranks of this program.
fn launch(options: &Options) -> Result<()> {
    let failed = |e| Error::system("start the measuring ranks", e);
    Settings::from_env()?;
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(&own);
    command.args(["run", "-n", &options.n.to_string(), "--"]).arg(&own);
    command.args(["tune", "--seconds", &options.seconds.to_string()]);
    if let Some(page) = &options.page {
        command.arg("--page").arg(page);
    }
    Err(failed(command.exec()))
}

fn measure(options: &Options) -> Result<()> {
    let job = Job::init()?;
    if job.size() < 2 {
        let e = Error::new(ErrorKind::BadArgument, OP).cause("a job of one rank has no network");
        return Err(e.remedy("start at least two ranks"));
    }
    let ranks: Vec<u32> = (0..job.size_number()).collect();
    let begin = job.device().now();
    let models = Models::measure(&job, &ranks, Duration::from_secs_f64(options.seconds))?;
    let time = job.device().now().duration_since(begin);
    let reported = if job.rank() == 0 { report(&job, options, &models, time) } else { Ok(()) };
    // The other ranks end in order, even if the files cannot be written.
    job.finalize().and(reported)
}

/// Stores and prints the models.
fn report(job: &Job, options: &Options, models: &Models, time: Duration) -> Result<()> {
    if job.is_on_oversubscribed_node() {
        say(format_args!("tune: ranks share processors, so the times are also those of the kernel's scheduler"));
    }
    let seconds = time.as_secs_f64();
    let head = format!("device {}, {} ranks, measured and fitted in {seconds:.2} s", models.device(), job.size());
    print!("{head}\n{models}");
    if models.are_of_loaded_processors() {
        say(format_args!("tune: other programs needed the processors meanwhile, so the models are not stored"));
    }
    let stored = models.store(job.settings());
    let (file, machine) = stored.as_ref().map_or_else(
        |e| (e.to_string(), "unknown".to_owned()),
        |(file, machine)| (file.display().to_string(), machine.clone()),
    );
    if stored.is_ok() {
        println!("machine {machine}\nstored in {file}");
    }
    if let Some(page) = &options.page {
        let about = [head, format!("Machine: {machine}"), format!("Stored in: {file}")];
        let failed = |e| Error::system("write the page", e).cause(page.display().to_string());
        std::fs::write(page, models.page(&about)).map_err(failed)?;
        println!("page {}", page.display());
    }
    stored.map(drop)
}
