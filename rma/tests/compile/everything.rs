//! Every epoch and operation, with the intended borrows. Compiled but not run.
use farside_rma::block_on;
use farside_rma::prelude::*;

pub(crate) fn active(team: &Team, others: &[usize]) -> Result<u64> {
    let none = Assert::empty();
    let mut window = Window::<u64>::from_vec(team, vec![1; 16])?;
    let from = vec![2u64; 4];
    let (mut into, mut old, mut one) = (vec![0u64; 4], vec![0u64; 4], 0);
    window.local_mut()?[0] = 3;
    let got = window.fence(none, |epoch| {
        epoch.put(&from, 0, 0)?;
        // A buffer may be read by several operations.
        epoch.accumulate(Op::Sum, &from, 0, 4)?;
        epoch.get(&mut into, 0, 8)?;
        epoch.get_accumulate(Op::Prod, &from, &mut old, 0, 12)?;
        epoch.compare_and_swap(1, 2, &mut one, 0, 8)?;
        // Selections need not outlive the call.
        let every_other = Selection::vector(2, 1, 2)?;
        epoch.put_selected(&from, &every_other, 0, 4, &Selection::contiguous(2)?)?;
        epoch.len_at(0)
    })?;
    // Buffers may be reused, and results have arrived.
    into[0] = got as u64 + old[0] + one;
    let (left, right) = into.split_at_mut(2);
    window.fences(|fences| {
        fences.epoch(none, |epoch| epoch.get(left, 0, 0))?;
        left[0] += 1;
        fences.epoch(none, |epoch| epoch.get(right, 0, 2))
    })?;
    window.expose(others, none, |exposure| {
        exposure.start(others, none, |epoch| epoch.put(&from, 0, 0))?;
        exposure.test()
    })?;
    window.start(&[], none, |_| Ok(()))?;
    drop(from);
    let _: Vec<u64> = window.into_vec()?;
    let mut lent = [0u64; 8];
    let first = Window::over(team, &mut lent, |window| {
        window.fence(none, |epoch| epoch.put_value(1, 0, 0))?;
        Ok(window.local()?[0])
    })?;
    lent[0] += first;
    Ok(lent[0])
}

pub(crate) fn passive(team: &Team) -> Result<()> {
    let none = Assert::empty();
    let window = LockWindow::<i32>::allocate(team, 8)?;
    let from = [1, 2];
    let mut into = [0; 2];
    window.lock(LockKind::Exclusive, 0, none, |outer| {
        outer.put(&from, 0, 0)?;
        window.lock(LockKind::Shared, 0, none, |inner| inner.put(&from, 0, 0))
    })?;
    window.lock_all(none, |epoch| {
        block_on(async { epoch.rput(&from, 0, 0)?.await })??;
        let request = epoch.rget(&mut into, 0, 0)?;
        request.wait()?;
        epoch.flush_all()?;
        epoch.fetch_and_op_blocking(Op::Sum, 1, 0, 0)
    })?;
    window.with_local(|local| {
        local[0] = into[0];
        Ok(())
    })?;
    window.free()
}
