//! `farside routes --discover`: ranks of this program, at least one on each host, search for links between the hosts
//! and measure them; the first rank describes the network.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use farside_core::bootstrap::detect::{Start, choose};
use farside_core::discovery::{Discovery, Link, discover};
use farside_core::model::{Models, PLogP};
use farside_core::settings::Settings;
use farside_core::{Error, ErrorKind, Result};

use super::network::RANGES;
use crate::spawn::end_with_parent;

const OP: &str = "discover the network";
/// The limits of the ranges of sizes of a job with several devices, and a length of large messages.
const SIZES: [u64; RANGES.len() + 1] = [1, 8 << 10, 256 << 10, 1 << 20];
/// The bounds of bandwidths in MB/s: the minimum in a description, and the value for times that do not differ.
const BANDWIDTHS: [f64; 2] = [1e-3, 1e7];

/// The options of `farside routes --discover`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DiscoverOptions {
    /// Discover the network and print its description. As a rank of a job, it discovers the network between the hosts of
    /// that job: `srun -N 4 farside routes --discover`.
    #[arg(long, conflicts_with = "network")]
    pub(super) discover: bool,
    /// The hosts on which this command starts a rank each, as `farside run --hosts` does.
    #[arg(long, value_name = "HOST,..", conflicts_with = "network")]
    hosts: Option<String>,
    /// Number of ranks that this command starts, instead of one per host; without --hosts, two on this machine.
    #[arg(short, long = "ranks", value_name = "N", conflicts_with = "network", value_parser = clap::value_parser!(u32).range(1..=1024))]
    n: Option<u32>,
    /// Seconds to measure each link, from 0.2 to 600. Disjoint pairs of hosts are measured at the same time.
    #[arg(long, default_value_t = 0.5, value_parser = seconds, conflicts_with = "network")]
    seconds: f64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.2..=600.0).contains(value));
    value.ok_or_else(|| "not a number from 0.2 to 600".to_owned())
}

/// The description of the network; `None` at ranks other than the first one.
///
/// # Errors
/// `Launcher` if the ranks cannot be started, or fail; those of [`discover`].
pub(super) fn describe(options: &DiscoverOptions) -> Result<Option<String>> {
    match choose(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))? {
        Start::Singleton => launch(options).map(Some),
        _ => Ok(discover(Duration::from_secs_f64(options.seconds))?.map(|found| text(&found))),
    }
}

/// Starts ranks of this program; returns the output of the first rank.
fn launch(options: &DiscoverOptions) -> Result<String> {
    let failed = |e| Error::system("start the ranks that discover the network", e);
    Settings::from_env()?;
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(&own);
    command.arg("run");
    if let Some(hosts) = &options.hosts {
        command.args(["--hosts", hosts]);
    }
    if let Some(n) = options.n.or(options.hosts.is_none().then_some(2)) {
        command.args(["-n", &n.to_string()]);
    }
    command.arg("--").arg(&own).args(["routes", "--discover", "--seconds", &options.seconds.to_string()]);
    end_with_parent(&mut command);
    let output = command.stdout(Stdio::piped()).spawn().and_then(|ranks| ranks.wait_with_output()).map_err(failed)?;
    if !output.status.success() {
        let e = Error::new(ErrorKind::Launcher, OP).cause(format!("the ranks have ended with {}", output.status));
        return Err(e.remedy("see their errors above; with other options of a launcher, start the ranks by `farside run OPTIONS farside routes --discover`"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Microseconds until a message of `bytes` has arrived.
fn time(model: &PLogP, bytes: u64) -> f64 {
    (model.latency + model.gap.at(bytes)) / 1e3
}

/// Latency and bandwidth of the line through the times of the shortest and the longest message of a range.
fn line(model: &PLogP, [low, high]: [u64; 2]) -> (f64, f64) {
    let (first, last) = (time(model, low), time(model, high));
    let bandwidth = (high - low) as f64 / (last - first).max(f64::MIN_POSITIVE);
    let bandwidth = bandwidth.clamp(BANDWIDTHS[0], BANDWIDTHS[1]);
    ((first - low as f64 / bandwidth).max(0.0), bandwidth)
}

/// Text in quotes, as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn comment(text: &mut String, line: &str) {
    let plain: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(text, "# {plain}");
}

/// The description of a network that was discovered.
fn text(found: &Discovery) -> String {
    let models = |link: &Link| link.models.as_ref().ok().map(Models::log_gp).copied();
    // The minimum cost of a message for the processor of a host that receives and forwards it.
    let forward = |host: usize| {
        let of_host = found.links.iter().filter(|link| link.hosts[0] != link.hosts[1] && link.hosts.contains(&host));
        let weights = of_host.filter_map(models).map(|model| (model.send_overhead + model.receive_overhead) / 1e3);
        weights.fold(0.0, f64::max)
    };
    let mut text = String::new();
    comment(&mut text, "Made by `farside routes --discover`. Latencies are in microseconds, bandwidths in MB/s.");
    let [_, small, medium, _] = SIZES;
    let _ = writeln!(text, "ranges = [{small}, {medium}]");
    for (n, host) in found.hosts.iter().enumerate() {
        text.push('\n');
        host.ports.iter().for_each(|port| comment(&mut text, port));
        let _ = writeln!(text, "[[nodes]]\nname = {}\nforward = {:.3}", quoted(&host.name), forward(n));
    }
    if found.links.iter().all(|link| link.models.is_err()) {
        // Consecutive tables form a list, which may not be missing.
        text = text.replacen("\n\n", "\nlinks = []\n\n", 1);
    }
    for link in &found.links {
        let names = link.hosts.map(|host| quoted(&found.hosts[host].name));
        let between = if link.hosts[0] == link.hosts[1] { names[0].clone() } else { names.join(", ") };
        text.push('\n');
        match &link.models {
            Err(why) => comment(&mut text, &format!("no {} between {between}: {why}", link.device)),
            Ok(models) => {
                let range = |range: usize| {
                    let (latency, bandwidth) = line(models.p_log_p(), [SIZES[range], SIZES[range + 1]]);
                    format!("{} = {{ latency = {latency:.3}, bandwidth = {bandwidth:.3} }}", RANGES[range])
                };
                let ranges = (0..RANGES.len()).map(range).collect::<Vec<_>>().join(", ");
                let _ = writeln!(
                    text,
                    "[[links]]\ndevice = \"{}\"\nbetween = [{between}]\nperformance = {{ {ranges} }}",
                    link.device
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use farside_core::Job;
    use farside_core::discovery::Host;
    use farside_core::model::Table;
    use farside_core::sim::{Interface, Network, Simulation};

    use super::super::description::parse;
    use super::super::table::Routes;
    use super::*;

    /// Models of a simulated network of this latency in nanoseconds, and of 1 GB/s.
    fn models(latency: f64) -> Models {
        let interface = Interface { latency, gap_per_byte: 1.0, ..Interface::log_p(latency, 200.0, 300.0) };
        let simulation = Simulation::new(2).network(Network { interface, ..Network::default() });
        let measured = simulation.run(|job: &Job| Models::measure(job, &[0, 1], Duration::from_millis(20)));
        measured.unwrap().results.remove(0)
    }

    #[test]
    fn description_is_read_back_with_the_measured_times_and_routes_follow_from_it() {
        let host = |name: &str| Host { name: name.into(), ports: vec![format!("tcp: v0 {name}\u{7}\nversion = 3")] };
        let link = |hosts, device, models| Link { hosts, device, models };
        let (fast, slow) = (models(1000.0), models(50_000.0));
        let unreachable = || Err("it cannot be reached\nat all".into());
        let links = vec![
            link([0, 0], "shm", Ok(fast.clone())),
            link([0, 1], "tcp", Ok(fast.clone())),
            link([1, 2], "tcp", Ok(fast.clone())),
            link([0, 2], "tcp", unreachable()),
            link([0, 2], "verbs", Ok(slow)),
        ];
        let mut found = Discovery { hosts: ["a", "b.example.org", "it's"].map(host).into(), links };
        let text = text(&found);
        let network = parse("text", &text).unwrap();
        assert_eq!(
            (network.nodes.len(), network.links.len(), &network.devices[..]),
            (3, 4, &["shm", "tcp", "verbs"].map(String::from)[..])
        );
        let routes = Routes::of(&network);
        routes.check(&network).unwrap();
        // Two fast links instead of a slow one; the missing one is not used.
        assert_eq!(routes.route(0, 0, 2).unwrap().iter().map(|hop| hop.to).collect::<Vec<_>>(), [1, 2]);
        let [small, large] = [(0, 1000), (2, 1 << 20)].map(|(range, bytes)| network.link_time(1, range, bytes).sum());
        let model = fast.p_log_p();
        assert!((small / time(model, 1000) - 1.0).abs() < 0.2, "{small} {}: {text}", time(model, 1000));
        assert!((large / time(model, 1 << 20) - 1.0).abs() < 0.01, "{large} {}: {text}", time(model, 1 << 20));
        found.links.retain(|link| link.models.is_err());
        assert!(parse("text", &super::text(&found)).unwrap().links.is_empty());
    }

    #[test]
    fn lines_of_odd_times_are_allowed_ones() {
        let model = |times: &[(u64, f64)]| PLogP { latency: 0.0, gap: Table(times.into()), ..PLogP::default() };
        assert_eq!(line(&model(&[(0, 5e3), (1 << 20, 5e3)]), [1, 8192]), (5.0 - 1e-7, BANDWIDTHS[1]));
        let (latency, bandwidth) = line(&model(&[(0, 9e3), (1 << 20, 5e3)]), [1, 8192]);
        assert!(latency > 8.0 && bandwidth == BANDWIDTHS[1]);
        let (latency, bandwidth) = line(&model(&[(0, 0.0), (8192, 1e30)]), [1, 8192]);
        assert!(latency >= 0.0 && bandwidth == BANDWIDTHS[0]);
    }
}
