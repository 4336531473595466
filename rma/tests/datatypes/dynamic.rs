//! Selections of attached memory.

use farside_rma::{DynamicWindow, ErrorKind, Op, Result, Selection, Team};

use crate::checks::config::{Config, everywhere_with};

const ROWS: usize = 60;
const COLUMNS: usize = 40;

/// Rank 1 puts, gets and adds columns of memory that rank 0 has attached.
fn columns(team: &Team, _: &Config) -> Result<()> {
    let window = DynamicWindow::<u64>::new(team)?;
    let mine: Vec<u64> = (0..1 + (ROWS * COLUMNS) as u64).map(|i| 1000 * team.rank() as u64 + i).collect();
    let attachment = window.attach(mine)?;
    // Attachments are equal, since each is the first of its rank.
    team.barrier()?;
    let columns = Selection::<u64>::subarray([ROWS, COLUMNS], [0..ROWS, 5..9])?;
    let packed = Selection::<u64>::contiguous(columns.len())?;
    if team.rank() == 1 {
        let data: Vec<u64> = (0..(ROWS * COLUMNS) as u64).map(|i| 1 << 40 | i).collect();
        let mut got = vec![7; columns.len() + 1];
        window.get_selected(&mut got, &packed, 0, attachment, 1, &columns)?;
        for (i, x) in got.iter().enumerate() {
            let expected = if i == columns.len() { 7 } else { (1 + i / 4 * COLUMNS + 5 + i % 4) as u64 };
            assert_eq!(*x, expected, "element {i}");
        }
        window.put_selected(&data, &columns, 0, attachment, 1, &columns)?;
        window.accumulate_selected(Op::Sum, &data, &packed, 0, attachment, 1, &columns)?;
        let e = window.put_selected(&data, &columns, 0, attachment, 33, &columns).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}");
    }
    team.barrier()?;
    let memory = window.detach(attachment)?;
    for (i, x) in memory.iter().enumerate() {
        let initial = 1000 * team.rank() as u64 + i as u64;
        let at = i.wrapping_sub(1);
        let inside = i > 0 && (5..9).contains(&(at % COLUMNS)) && team.rank() == 0;
        let packed = (at / COLUMNS * 4 + at % COLUMNS - 5 * usize::from(inside)) as u64;
        let expected = if inside { (1 << 40 | at as u64) + (1 << 40 | packed) } else { initial };
        assert_eq!(*x, expected, "element {i} of rank {}", team.rank());
    }
    team.barrier()?;
    if team.rank() == 1 {
        let data = vec![0; ROWS * COLUMNS];
        let e = window.put_selected(&data, &columns, 0, attachment, 1, &columns).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotAttached, "{e}");
    }
    team.barrier()?;
    window.free()
}

#[test]
fn selected_columns_of_attached_memory() {
    everywhere_with(&[2], columns);
}
