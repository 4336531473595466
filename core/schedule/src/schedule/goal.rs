//! Schedules as text of the Group Operation Assembly Language, as `txt2bin` of LogGOPSim reads it (Hoefler, Siebert,
//! Lumsdaine 2009; Hoefler, Schneider, Lumsdaine 2010), so that other simulators can run them.

use std::io::{Error, ErrorKind, Result, Write};

use super::predict::Bytes;
use super::{Action, Port, Schedule, Slice};

/// Writes the schedules of `size` ranks, where `of(rank)` is that of a rank. A step has the label `l` and its number,
/// from 1 on; the reduction of a received message is a separate step with the label `c`. A signal is a message of one
/// byte, and a reduction takes `reduction` nanoseconds for each byte. GOAL has no access to remote memory: the data of
/// a loan is sent with it, or with its return.
///
/// # Errors
/// Those of `out`; `Unsupported` for an in-switch barrier, which GOAL does not have.
pub fn write(
    out: &mut impl Write,
    size: u32,
    mut of: impl FnMut(u32) -> Schedule,
    bytes: Bytes<'_>,
    reduction: f64,
) -> Result<()> {
    writeln!(out, "num_ranks {size}")?;
    for rank in 0..size {
        let schedule = of(rank);
        // The label of the line for which the steps after `step` wait.
        let last = |step: u32| match schedule.step(step as usize).action {
            Action::ReceiveReduce { .. } => format!("c{}", step + 1),
            _ => format!("l{}", step + 1),
        };
        writeln!(out, "\nrank {rank} {{")?;
        for (step, number) in schedule.steps().zip(1u32..) {
            let nanoseconds = |b: u64| (b as f64 * reduction).round();
            let of = |slices: &[Slice]| bytes.of(&schedule, slices);
            match step.action {
                Action::Reduce { .. } | Action::ReadReduce { .. } => {
                    writeln!(out, "l{number}: calc {}", nanoseconds(of(step.into)))?;
                }
                Action::EnterSwitch => {
                    return Err(Error::new(ErrorKind::Unsupported, "GOAL has no barrier in a switch"));
                }
                action => match action.message(rank) {
                    Some((Port::Out, (_, to, tag))) => {
                        writeln!(out, "l{number}: send {}b to {to} tag {tag}", of(&schedule.carried(step)).max(1))?;
                    }
                    Some((Port::In, (source, _, tag))) => {
                        writeln!(
                            out,
                            "l{number}: recv {}b from {source} tag {tag}",
                            of(&schedule.carried(step)).max(1)
                        )?;
                    }
                    None => writeln!(out, "l{number}: calc 0")?,
                },
            }
            for d in step.after {
                writeln!(out, "l{number} requires {}", last(*d))?;
            }
            if let Action::ReceiveReduce { .. } = step.action {
                writeln!(out, "c{number}: calc {}\nc{number} requires l{number}", nanoseconds(of(step.into)))?;
            }
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}
