//! `farside routes`: fastest routes through a network of several devices, from its description, which it can discover.

mod description;
mod discover;
mod explain;
mod fastest;
mod network;
mod picture;
mod table;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use farside_core::{Error, ErrorKind, Result};

use network::{Network, parse_size};
use table::Routes;

/// The options of `farside routes`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = format!("A description:\n\n{}", description::EXAMPLE))]
pub(crate) struct Options {
    /// The description of the network, in TOML: nodes, devices, links with their performance, and the weight of forwarding.
    #[arg(value_name = "NETWORK.toml", required_unless_present = "discover")]
    network: Option<PathBuf>,
    #[command(flatten)]
    discovery: discover::DiscoverOptions,
    /// Write the table of every node: to each other node the next one, and the device that leads there, for each range of
    /// sizes.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the network, its links and how many routes use them.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Explain the route of a message, such as `--explain a b 64KiB`, instead of printing the tables, or the description.
    #[arg(long, num_args = 3, value_names = ["FROM", "TO", "SIZE"])]
    explain: Option<Vec<String>>,
}

/// Computes the routes, prints them, or the description that was discovered, and writes the files.
///
/// # Errors
/// Those of the description or of its discovery; `BadArgument` for an unknown node or size; `System` if a file cannot be
/// written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (discovered, network) = match &options.network {
        Some(path) => (None, description::read(path)?),
        None => {
            let Some(text) = discover::describe(&options.discovery)? else { return Ok(()) };
            let network = description::parse("the network that was discovered", &text)?;
            (Some(text), network)
        }
    };
    let question = options.explain.as_deref().map(|words| question(&network, words)).transpose()?;
    let routes = Routes::of(&network);
    routes.check(&network)?;
    let text = match (question, discovered) {
        (Some((from, to, bytes)), _) => explain::explain(&network, &routes, from, to, bytes),
        (None, Some(description)) => description,
        (None, None) => routes.text(&network),
    };
    let printed = std::io::stdout().lock().write_all(text.as_bytes());
    printed.map_err(|e| Error::system("write the answer", e))?;
    if let Some(path) = &options.output {
        write(path, &routes.file(&network)?)?;
    }
    if let Some(path) = &options.picture {
        write(path, &picture::svg(&network, &routes)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| {
        let e = Error::system("write a file", e).cause(path.display().to_string());
        e.remedy("name a file in a writable directory")
    })
}

/// The nodes and the size of `--explain`.
fn question(network: &Network, words: &[String]) -> Result<(usize, usize, u64)> {
    let bad = |cause: String| Error::new(ErrorKind::BadArgument, "routes --explain").cause(cause);
    let node = |name: &String| {
        network.nodes.iter().position(|node| node.name == *name).ok_or_else(|| {
            let known: Vec<&str> = network.nodes.iter().take(20).map(|node| node.name.as_str()).collect();
            let more = if network.nodes.len() > known.len() { ", .." } else { "" };
            bad(format!("there is no node {name:?}")).remedy(format!("name one of {}{more}", known.join(", ")))
        })
    };
    let [from, to, size] = words else { return Err(bad("--explain needs FROM, TO and SIZE".into())) };
    Ok((node(from)?, node(to)?, parse_size(size).map_err(bad)?))
}
