//! Errors have the location of the call in the program, not a location in the library: in epochs and in the calls that
//! close them, in symmetric memory, messages, collectives, remote calls and arrays.

use std::panic::Location;

use farside_rma::calls::Calls;
use farside_rma::prelude::*;

/// The line of this call.
#[track_caller]
fn here() -> u32 {
    Location::caller().line()
}

/// Checks that the error names a call in this file, at `line`.
#[track_caller]
fn made<R>(result: Result<R>, line: u32) {
    let Err(e) = result else { panic!("an error is expected, line {line}") };
    let caller = e.caller().unwrap_or_else(|| panic!("no caller: {e}"));
    assert!(caller.file().ends_with("callers.rs") && caller.line() == line, "{line}: {e}");
    assert!(e.to_string().ends_with(&format!("callers.rs:{line})")), "{e}");
}

#[test]
fn error_names_the_line_of_the_call() {
    Job::threads(2, |job| {
        let team = job.world()?;
        let none = Assert::empty();
        let mut window = Window::<u64>::allocate(&team, 4)?;
        let data = [1, 2, 3];
        window.fence(none, |epoch| {
            made(epoch.put(&data, 0, 2), here());
            made(epoch.put_value(1, 7, 0), here());
            made(epoch.accumulate(Op::Sum, &data, 0, usize::MAX), here());
            Ok::<_, Error>(())
        })?;
        // The error of the body is that of the inner call.
        let (mut line, mut inner) = (0, 0);
        let failed = window.fence(none, |epoch| {
            line = here();
            inner = line + 2;
            epoch.put(&data, 0, 3)?;
            Ok::<_, Error>(())
        });
        made(failed, inner);
        made(window.start(&[5], none, |_| Ok::<_, Error>(())), here());
        made(window.expose(&[0, 0], none, |_| Ok::<_, Error>(())), here());
        window.free()?;

        let locked = LockWindow::<u32>::allocate(&team, 2)?;
        made(locked.lock(LockKind::Shared, 9, none, |_| Ok::<_, Error>(())), here());
        locked.lock_all(none, |epoch| {
            made(epoch.get_blocking(0, 2), here());
            made(epoch.flush(4), here());
            made(locked.with_local(|_| Ok::<_, Error>(())), here());
            Ok::<_, Error>(())
        })?;
        locked.free()?;

        let (array, flags) = (Symmetric::<i32>::allocate(&team, 3)?, Flags::allocate(&team, 1)?);
        made(array.put(&[1, 2], 1, 2), here());
        made(array.get_value(1, 3), here());
        made(array.atomic(2, 0), here());
        made(array.get_nbi([0; 4], 1, 0), here());
        made(array.put_notify(&[1], 0, 0, &flags, 1, 1), here());
        made(flags.wait_until(1, ge(1)), here());
        flags.free()?;
        array.free()?;

        made(team.send(&[1], 2, 0), here());
        made(team.recv(&mut [0], 3, 0), here());
        made(team.broadcast(&mut [1], 2), here());
        made(Symmetric::<u8>::allocate(&team, 1 + team.rank()), here());

        let calls = Calls::new(&team)?;
        made(calls.call(0, |_: &farside_rma::calls::Caller<'_>, x: u32| x, 1).wait(), here());
        made(calls.cast(5, |_: &farside_rma::calls::Caller<'_>, x: u32| x, 1), here());
        calls.free()?;

        let array = GlobalArray::<f64, 2>::new(&team, [4, 4])?;
        made(array.get_element([4, 0]), here());
        made(array.gather(&[[0, 9]]), here());
        made(array.put(farside_rma::Section::whole([5, 4]), &[0.0; 20]), here());
        array.free()
    })
    .unwrap();
}
