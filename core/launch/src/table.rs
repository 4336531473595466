//! The options of `farside run` and of `mpiexec`, in one table.

use crate::options::{Bind, Inherited, Reading, help};

/// One option.
pub(crate) struct Row {
    /// Names, without dashes.
    pub(crate) names: &'static [&'static str],
    /// Values; empty for an option without one.
    pub(crate) values: &'static str,
    /// Effect, for the help; empty for an option that is not for users.
    pub(crate) help: &'static str,
    /// Reads its values; it gets the option as it was written.
    pub(crate) read: fn(&mut Reading, &str) -> Result<(), String>,
}

/// The option with this name.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.names.contains(&name))
}

/// All options.
pub(crate) const TABLE: &[Row] = &[
    Row {
        names: &["n", "np", "c", "ranks"],
        values: "N",
        help: "Number of ranks of the program (default 1).",
        read: |r, option| r.number(option).map(|number| r.ranks = Some(number)),
    },
    Row {
        names: &["ppn", "perhost", "npernode", "N"],
        values: "N",
        help: "Ranks per node. On one node this is the number of ranks if -n is not given.",
        read: |r, option| {
            r.launch.per_node = Some(r.number(option)?);
            r.hosts(std::iter::empty())
        },
    },
    Row {
        names: &["soft"],
        values: "LIST",
        help: "Acceptable numbers of ranks, as in 2,4:16:4; the largest of them that is at most N is used.",
        read: |r, option| {
            let list = r.value(option)?;
            let numbers = list.split(',').map(triplet).collect::<Option<Vec<_>>>();
            let wrong = || format!("{option} needs numbers, FROM:TO or FROM:TO:STEP, not '{list}'");
            numbers.map(|numbers| r.soft = numbers.concat()).ok_or_else(wrong)
        },
    },
    Row {
        names: &["host", "hosts", "H"],
        values: "NAME[:N],..",
        help: "Machines to run on, with the numbers of ranks that they have room for, which consecutive ranks fill. If \
               one of them is not this machine, all ranks are started by -launcher.",
        read: |r, option| {
            let list = r.value(option)?;
            r.hosts(list.split(','))
        },
    },
    Row {
        names: &["f", "hostfile", "machinefile"],
        values: "FILE",
        help: "Like -host, from a file with one name per line: NAME, NAME:N or NAME slots=N.",
        read: |r, option| {
            let file = r.value(option)?;
            let text = crate::options::read(&file)?;
            let lines = text.lines().filter_map(|line| line.split('#').next()).map(str::trim);
            r.hosts(lines).map_err(|e| format!("{file}: {e}"))
        },
    },
    Row {
        names: &["launcher"],
        values: "hydra, prrte or PATH",
        help: "The launcher that starts ranks on several machines: Hydra (mpiexec.hydra of MPICH) or PRRTE (prterun, or \
               mpirun of Open MPI). The default is the first of mpiexec.hydra and prterun on PATH.",
        read: |r, option| r.value(option).map(|name| r.launch.launcher = Some(name)),
    },
    Row {
        names: &["launch-agent"],
        values: "COMMAND",
        help: "The command by which that launcher runs a command on a machine, like ssh: COMMAND MACHINE TEXT..",
        read: |r, option| {
            let command = r.value(option)?;
            if command.trim().is_empty() {
                return Err(format!("{option} needs a command"));
            }
            r.launch.agent = Some(command);
            Ok(())
        },
    },
    Row {
        names: &["configfile"],
        values: "FILE",
        help: "Read the programs from a file: one per line, each with its options.",
        read: Reading::file,
    },
    Row {
        names: &["env", "genv"],
        values: "NAME=VALUE or NAME VALUE",
        help: "Set an environment variable for the program's ranks; with -genv, for all ranks.",
        read: |r, option| r.variable(option).map(|variable| r.environment(option).set.push(variable)),
    },
    Row {
        names: &["x"],
        values: "NAME or NAME=VALUE",
        help: "Like -genv. NAME alone passes on the launcher's own variable, which happens by default.",
        read: |r, option| {
            let word = r.value(option)?;
            let own = || std::env::var(&word).map(|value| (word.clone(), value)).ok();
            let given = word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            r.everywhere.set.extend(given.or_else(own));
            Ok(())
        },
    },
    Row {
        names: &["envall", "genvall"],
        values: "",
        help: "Pass the launcher's environment to the program's ranks; with -genvall, to all ranks (the default).",
        read: |r, option| {
            r.environment(option).inherited = Some(Inherited::All);
            Ok(())
        },
    },
    Row {
        names: &["envnone", "genvnone"],
        values: "",
        help: "Pass no variables to the program's ranks (-genvnone: to any rank) except those that options set.",
        read: |r, option| {
            r.environment(option).inherited = Some(Inherited::Only(Vec::new()));
            Ok(())
        },
    },
    Row {
        names: &["envlist", "genvlist"],
        values: "NAME,..",
        help: "Pass only these variables of the launcher's environment to the program's ranks; with -genvlist, to all ranks.",
        read: |r, option| {
            let list = r.value(option)?.split(',').map(str::to_owned).collect();
            r.environment(option).inherited = Some(Inherited::Only(list));
            Ok(())
        },
    },
    Row {
        names: &["wdir", "wd", "cwd"],
        values: "DIR",
        help: "Working directory of the program's ranks.",
        read: |r, option| {
            let folder = r.value(option)?;
            if !std::path::Path::new(&folder).is_dir() {
                return Err(format!("{option}: no directory '{folder}'"));
            }
            r.program.folder = Some(folder.into());
            Ok(())
        },
    },
    Row {
        names: &["path"],
        values: "DIR[:DIR]..",
        help: "Directories that are searched for the program before PATH.",
        read: |r, option| r.value(option).map(|list| r.program.path.extend(std::env::split_paths(&list))),
    },
    Row {
        names: &["bind", "bind-to"],
        values: "core, numa or none",
        help: "core (or hwthread): bind each rank to one of the processors that this command may use, in turn; numa: to \
               those of one NUMA node, in turn; none (the default): ranks may use all of them.",
        read: |r, option| {
            let what = r.value(option)?;
            r.launch.bind = match what.split(':').next().unwrap_or_default() {
                "none" => Bind::None,
                "core" | "hwthread" => Bind::Core,
                "numa" => Bind::Numa,
                _ if matches!(option, "--bind" | "-bind") => {
                    return Err(format!("{option} needs core, numa or none, not '{what}'"));
                }
                _ => return r.note(format!("{option} {what}: ranks are bound to core, numa or none")),
            };
            Ok(())
        },
    },
    Row {
        names: &["map-by", "rank-by"],
        values: "WHAT",
        help: "Ranks are always placed by number; a line says so unless WHAT is slot, core, hwthread or node.",
        read: |r, option| {
            let what = r.value(option)?;
            match what.split(':').next().unwrap_or_default() {
                "slot" | "core" | "hwthread" | "node" => Ok(()),
                _ => r.note(format!("{option} {what}: ranks are always placed by number")),
            }
        },
    },
    Row {
        names: &["oversubscribe", "allow-run-as-root", "use-hwthread-cpus"],
        values: "",
        help: "No effect: this is always allowed.",
        read: |_, _| Ok(()),
    },
    Row {
        names: &["mca"],
        values: "NAME VALUE",
        help: "No effect; a line says so.",
        read: |r, option| {
            let (name, value) = (r.value(option)?, r.value(option)?);
            r.note(format!("{option} {name} {value}: this is for Open MPI; `farside info` lists Farside's settings"))
        },
    },
    Row {
        names: &["l", "prepend-rank", "prefix", "tag-output"],
        values: "",
        help: "Put the rank in front of every line of output, as in `[3] text`.",
        read: |r, _| {
            r.launch.prefix = true;
            Ok(())
        },
    },
    Row {
        names: &["timeout"],
        values: "SECONDS",
        help: "End the job after this time with exit code 124, and first show which rank waits for which other one.",
        read: |r, option| r.number(option).map(|number| r.launch.timeout = Some(number)),
    },
    Row {
        names: &["version", "V"],
        values: "",
        help: "Print the version.",
        read: |r, _| {
            r.print = Some(format!("{} (Farside) {}\n", r.front.name(), env!("CARGO_PKG_VERSION")));
            Ok(())
        },
    },
    Row {
        names: &["help", "h"],
        values: "",
        help: "Print this text.",
        read: |r, _| {
            r.print = Some(help(r.front));
            Ok(())
        },
    },
    Row {
        names: &["guard"],
        values: "PID",
        help: "",
        read: |r, option| r.number(option).map(|number| r.launch.guard = Some(number)),
    },
];

/// The numbers `N`, `FROM:TO` or `FROM:TO:STEP` (MPI-5.0 section 11.8.4, info key `soft`).
fn triplet(text: &str) -> Option<Vec<u32>> {
    let numbers: Vec<u32> = text.split(':').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    match numbers[..] {
        [n] => Some(vec![n]),
        [from, to] => Some((from..=to).collect()),
        [from, to, step] if step > 0 => Some((from..=to).step_by(step as usize).collect()),
        _ => None,
    }
}
