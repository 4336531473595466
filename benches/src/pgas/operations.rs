//! Operations between two ranks. Rank 0 makes them; rank 1 waits in a barrier, and takes turns for flags.

use farside_core::error::Result;
use farside_rma::calls::{Caller, Calls};
use farside_rma::prelude::*;

use super::{Meter, wrong_data};

/// Bytes of puts and gets.
pub(crate) const SIZES: [usize; 3] = [8, 4096, 1 << 20];

/// Measures all operations.
///
/// # Errors
/// Those of the calls; `Protocol` for wrong data.
pub(crate) fn measure(meter: &Meter<'_>) -> Result<()> {
    transfers(meter)?;
    atomics(meter)?;
    flags(meter)?;
    calls(meter)
}

fn transfers(meter: &Meter<'_>) -> Result<()> {
    let (team, first) = (meter.team, meter.team.rank() == 0);
    let table = Symmetric::<u64>::allocate(team, SIZES[2] / 8)?;
    for size in SIZES {
        let from: Vec<u64> = (0..size as u64 / 8).map(|i| i + size as u64).collect();
        let mut into = vec![0; from.len()];
        meter.microseconds("put", size, 1.0, |count| {
            (0..if first { count } else { 0 }).try_for_each(|_| table.put(&from, 1, 0))
        })?;
        meter.microseconds("get", size, 1.0, |count| {
            (0..if first { count } else { 0 }).try_for_each(|_| table.get(&mut into, 1, 0))
        })?;
        if first && into != from {
            return Err(wrong_data("the data put and read back"));
        }
    }
    table.free()
}

fn atomics(meter: &Meter<'_>) -> Result<()> {
    let (team, first) = (meter.team, meter.team.rank() == 0);
    let table = Symmetric::<u64>::allocate(team, 2)?;
    let (added, fetched) = (table.atomic(1, 0)?, table.atomic(1, 1)?);
    let (mut adds, mut fetches) = (0, 0);
    meter.microseconds("add", 8, 1.0, |count| {
        let count = if first { count } else { 0 };
        adds += count;
        (0..count).try_for_each(|_| {
            added.add(1)?;
            table.quiet()
        })
    })?;
    meter.microseconds("fetch_add", 8, 1.0, |count| {
        let count = if first { count } else { 0 };
        for _ in 0..count {
            if fetched.fetch_add(1)? != fetches {
                return Err(wrong_data("a fetched value"));
            }
            fetches += 1;
        }
        Ok(())
    })?;
    if first && added.load()? != adds {
        return Err(wrong_data("a counter"));
    }
    table.barrier()?;
    table.free()
}

/// Puts with a flag in both directions in turn; the time is that of one direction.
fn flags(meter: &Meter<'_>) -> Result<()> {
    let (team, me) = (meter.team, meter.team.rank());
    let table = Symmetric::<u64>::allocate(team, SIZES[2] / 8)?;
    let flags = Flags::allocate(team, 1)?;
    let mut turn = 0;
    for size in SIZES {
        let mut data = vec![0; size / 8];
        meter.microseconds("put_signal", size, 0.5, |count| {
            for _ in 0..if me < 2 { count } else { 0 } {
                turn += 1;
                if me == 0 {
                    data[0] = turn;
                    table.put_notify(&data, 1, 0, &flags, 0, turn)?;
                }
                flags.wait_until(0, ge(turn))?;
                if me == 1 {
                    if table.local().load(0)? != turn {
                        return Err(wrong_data("the data put before a flag"));
                    }
                    data[0] = turn;
                    table.put_notify(&data, 0, 0, &flags, 0, turn)?;
                }
            }
            Ok(())
        })?;
    }
    flags.free()?;
    table.free()
}

fn same(_: &Caller<'_>, number: u64) -> u64 {
    number
}

fn same_short(_: &Caller<'_>, number: u64) -> u64 {
    number
}

fn calls(meter: &Meter<'_>) -> Result<()> {
    let first = meter.team.rank() == 0;
    let calls = Calls::new(meter.team)?;
    let (late, short) = (calls.register(same)?, calls.register_short(same_short)?);
    for (operation, function) in [("call", late), ("call_short", short)] {
        meter.microseconds(operation, 8, 1.0, |count| {
            for number in 0..if first { count } else { 0 } {
                if calls.call(1, function, number).wait()? != number {
                    return Err(wrong_data("a result"));
                }
            }
            Ok(())
        })?;
    }
    calls.free()
}
