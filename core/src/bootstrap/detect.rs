//! Detects the launcher of this process, from the environment alone.

use std::os::fd::RawFd;
use std::time::Duration;

use super::connection::Connection;
use super::pmi1::Pmi1;
use super::pmi2::Pmi2;
use super::pmix::Pmix;
use super::{Bootstrap, standard, threads};
use crate::error::{Error, ErrorKind, Result};

/// The launch method, as far as the environment shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Started by hand: rank 0 of 1.
    Singleton,
    /// Started by a launcher that passes a connected socket, on which it speaks PMI-1 or, if not, PMI-2.
    Pmi1Socket {
        /// The socket's descriptor.
        fd: RawFd,
        /// This rank.
        rank: u32,
        /// The number of ranks.
        size: u32,
    },
    /// Started by a PMI-2 launcher that passes a connected socket. Only PMI-2 reports the number of ranks.
    Pmi2Socket {
        /// The socket's descriptor.
        fd: RawFd,
        /// This rank.
        rank: u32,
    },
    /// Started by a PMI-1 launcher that listens on a port.
    Pmi1Port {
        /// Host and port.
        address: String,
        /// The process's id at the launcher.
        id: String,
    },
    /// Started by a PMIx launcher.
    Pmix {
        /// The name of the job.
        namespace: String,
        /// This rank.
        rank: u32,
    },
}

/// Variables that, when all are set, indicate a launcher.
struct Sign {
    variables: &'static [&'static str],
    /// Whether the last variable must also be a number greater than one.
    several: bool,
    launcher: &'static str,
}

const fn sign(launcher: &'static str, variables: &'static [&'static str]) -> Sign {
    Sign { variables, several: false, launcher }
}

/// Signs of launchers that provide no connection.
const SIGNS: &[Sign] = &[
    sign("a PMIx launcher with only one of the two variables set", &["PMIX_RANK"]),
    sign("a PMIx launcher with only one of the two variables set", &["PMIX_NAMESPACE"]),
    sign("mpirun of Open MPI", &["OMPI_COMM_WORLD_SIZE"]),
    sign("mpirun of Open MPI", &["OMPI_COMM_WORLD_RANK"]),
    Sign { several: true, ..sign("Slurm without PMI", &["SLURM_PROCID", "SLURM_NTASKS"]) },
    Sign { several: true, ..sign("Slurm without PMI", &["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"]) },
    sign("a PMI launcher without a connection", &["PMI_RANK"]),
    sign("a PMI launcher without a connection", &["PMI_SIZE"]),
    sign("a PMI launcher without a connection", &["PMI_ID"]),
    sign("mpiexec.hydra without PMI", &["MPI_LOCALRANKID"]),
    sign("Flux without PMI", &["FLUX_TASK_RANK"]),
    sign("Flux without PMI", &["FLUX_JOB_ID"]),
    sign("Cray PALS", &["PALS_RANKID"]),
    sign("Cray ALPS", &["ALPS_APP_PE"]),
    sign("jsrun of LSF", &["JSM_NAMESPACE_RANK"]),
    sign("mpirun_rsh of MVAPICH", &["MV2_COMM_WORLD_RANK"]),
    sign("mpirun_rsh of MVAPICH", &["MPIRUN_RANK"]),
    sign("poe of IBM", &["MP_CHILD"]),
];

/// Decides from the variables that `lookup` returns.
///
/// # Errors
/// `Launcher` if the environment shows a launcher but no connection to it. The program must not start as rank 0 of 1
/// then: every process of the job would do so.
pub fn choose(lookup: impl Fn(&str) -> Option<String>) -> Result<Start> {
    if lookup("PMI_FD").is_some() {
        let (fd, rank) = (number(&lookup, "PMI_FD")?, number(&lookup, "PMI_RANK")?);
        return Ok(match lookup("PMI_SIZE") {
            Some(_) => Start::Pmi1Socket { fd, rank, size: number(&lookup, "PMI_SIZE")? },
            None => Start::Pmi2Socket { fd, rank },
        });
    }
    if let Some(address) = lookup("PMI_PORT") {
        let id = lookup("PMI_ID").or_else(|| lookup("PMI_RANK"));
        let id = id.ok_or_else(|| refusal("PMI_PORT is set, but neither PMI_ID nor PMI_RANK is".into()))?;
        return Ok(Start::Pmi1Port { address, id });
    }
    if let (Some(namespace), Some(_)) = (lookup("PMIX_NAMESPACE"), lookup("PMIX_RANK")) {
        return Ok(Start::Pmix { namespace, rank: number(&lookup, "PMIX_RANK")? });
    }
    let seen: Vec<&Sign> = SIGNS.iter().filter(|s| is_seen(s, &lookup)).collect();
    let Some(first) = seen.first() else { return Ok(Start::Singleton) };
    let mut variables: Vec<String> = Vec::new();
    for name in seen.iter().flat_map(|s| s.variables) {
        let text = format!("{name}={}", lookup(name).unwrap_or_default());
        if !variables.contains(&text) {
            variables.push(text);
        }
    }
    Err(refusal(format!(
        "the environment looks like {} ({}), but there is no connection to it (PMI_FD, PMI_PORT, or PMIX_NAMESPACE and PMIX_RANK); \
         the program refuses to start as rank 0 of 1",
        first.launcher,
        variables.join(", ")
    )))
}

/// Joins the job that this process was started for. `timeout` bounds every wait, including later ones.
///
/// # Errors
/// Those of [`choose`]; `Launcher` or `Timeout` if the launcher does not answer as it should.
pub fn connect(timeout: Duration) -> Result<Box<dyn Bootstrap>> {
    standard::fill();
    // A variable counts as a sign even if its value is not UTF-8.
    let lookup = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    // PMI-2 launchers require the job name that they have assigned.
    let job = || lookup("PMI_JOBID").unwrap_or_else(|| "0".into());
    Ok(match choose(lookup)? {
        Start::Singleton => Box::new(threads::singleton()),
        Start::Pmi1Socket { fd, rank, size } => match Pmi1::negotiate(Connection::from_fd(fd, rank, timeout)?, size)? {
            Ok(launcher) => Box::new(launcher),
            Err(launcher) => Box::new(Pmi2::start(launcher, &job())?),
        },
        Start::Pmi2Socket { fd, rank } => Box::new(Pmi2::start(Connection::from_fd(fd, rank, timeout)?, &job())?),
        Start::Pmix { namespace, rank } => Box::new(Pmix::join(&namespace, rank, timeout)?),
        Start::Pmi1Port { address, id } => Box::new(Pmi1::from_port(&address, &id, timeout)?),
    })
}

fn is_seen(sign: &Sign, lookup: &impl Fn(&str) -> Option<String>) -> bool {
    let values: Option<Vec<String>> = sign.variables.iter().map(|v| lookup(v)).collect();
    values.is_some_and(|v| !sign.several || v.last().is_some_and(|n| n.trim().parse::<u64>().is_ok_and(|n| n > 1)))
}

fn number<T: std::str::FromStr>(lookup: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<T> {
    let Some(text) = lookup(name) else {
        return Err(refusal(format!("PMI_FD is set, but {name} is not")));
    };
    text.trim().parse().map_err(|_| refusal(format!("{name}={text:?} is not a number, or out of range")))
}

fn refusal(cause: String) -> Error {
    Error::new(ErrorKind::Launcher, "connect to the launcher").cause(cause).remedy(
        "start with `farside run -n N ..`, or with a launcher that speaks PMI-1, PMI-2 or PMIx (mpiexec.hydra, srun --mpi=pmi2, prterun); \
         for a single rank on purpose, `farside run -n 1 ..`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Start> {
        choose(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn choose_in_an_empty_environment_is_singleton() {
        assert_eq!(with(&[]).unwrap(), Start::Singleton);
        assert_eq!(with(&[("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "1")]).unwrap(), Start::Singleton);
        assert_eq!(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]).unwrap(), Start::Singleton);
    }

    #[test]
    fn choose_takes_pmi_before_the_signs_of_others() {
        let pmi = [("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
        let want = Start::Pmi1Socket { fd: 7, rank: 2, size: 4 };
        assert_eq!(with(&pmi).unwrap(), want);
        let slurm = [pmi.as_slice(), &[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4")]].concat();
        assert_eq!(with(&slurm).unwrap(), want);
        let port = Start::Pmi1Port { address: "host:1".into(), id: "3".into() };
        assert_eq!(with(&[("PMI_PORT", "host:1"), ("PMI_ID", "3")]).unwrap(), port);
        assert_eq!(with(&pmi[..2]).unwrap(), Start::Pmi2Socket { fd: 7, rank: 2 });
        let pmix = [("PMIX_NAMESPACE", "prterun-a-1@1"), ("PMIX_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(with(&pmix).unwrap(), Start::Pmix { namespace: "prterun-a-1@1".into(), rank: 3 });
        assert_eq!(with(&[&pmix[..], &[("PMI_PORT", "host:1"), ("PMI_ID", "3")]].concat()).unwrap(), port);
    }

    #[test]
    fn choose_refuses_every_foreign_sign_and_names_it() {
        for sign in SIGNS {
            let set: Vec<(&str, &str)> = sign.variables.iter().map(|v| (*v, "4")).collect();
            let e = with(&set).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Launcher);
            let text = e.to_string();
            assert!(sign.variables.iter().all(|v| text.contains(&format!("{v}=4"))), "{text}");
            assert!(text.contains("rank 0 of 1") && text.contains("farside run"), "{text}");
        }
    }

    #[test]
    fn choose_refuses_half_a_pmi_environment() {
        for (set, missing) in [
            (&[("PMI_FD", "7")] as &[_], "PMI_RANK is not"),
            (&[("PMI_FD", "7"), ("PMI_SIZE", "4")], "PMI_RANK is not"),
            (&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "PMI_FD=\"x\""),
            (&[("PMI_FD", "7"), ("PMI_RANK", "-1"), ("PMI_SIZE", "1")], "PMI_RANK=\"-1\""),
            (&[("PMI_PORT", "host:1")], "neither PMI_ID"),
            (&[("PMIX_NAMESPACE", "a@1"), ("PMIX_RANK", "x")], "PMIX_RANK=\"x\""),
        ] {
            let text = with(set).unwrap_err().to_string();
            assert!(text.contains(missing), "{text}");
        }
    }
}
