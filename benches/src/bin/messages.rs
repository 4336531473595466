//! `messages`: how many messages and bytes each synchronization call sends, counted beside the formula.

use std::process::ExitCode;

use comfy_table::{CellAlignment, presets};
use farside_benches::messages::{Memory, RANKS, Row, rows};
use farside_core::error::Result;

use clap::Parser;

/// Counts what every synchronization call sends, by ranks P and neighbours k, on windows that are mapped and on windows
/// that are not, and compares it with the formula. Fails if one differs.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_values_t = RANKS, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Numbers of neighbours, for each number of ranks those below it; 1 and P - 1 unless given.
    #[arg(long, value_delimiter = ',')]
    neighbours: Vec<usize>,
}

fn all(arguments: &Arguments) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for memory in [Memory::Mapped, Memory::Unmapped] {
        for &ranks in &arguments.ranks {
            let most = ranks as usize - 1;
            let mut neighbours =
                if arguments.neighbours.is_empty() { vec![1, most] } else { arguments.neighbours.clone() };
            neighbours.retain(|k| *k <= most);
            neighbours.dedup();
            for k in neighbours {
                all.extend(rows(memory, ranks, k)?);
            }
        }
    }
    // Call by call, in the order in which they were made.
    let mut calls: Vec<&str> = Vec::new();
    for row in &all {
        if !calls.contains(&row.call) {
            calls.push(row.call);
        }
    }
    let place = |row: &Row| calls.iter().position(|call| *call == row.call);
    all.sort_by_key(|row| (row.memory == Memory::Unmapped, place(row)));
    Ok(all)
}

fn print(rows: &[Row]) {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["window", "call", "P", "k", "messages", "formula", "bytes", "formula", ""]);
    for row in rows {
        let window = if row.memory == Memory::Mapped { "mapped" } else { "not mapped" };
        let mut cells = vec![window.to_owned(), row.call.to_owned()];
        let numbers = [
            row.ranks as u64,
            row.neighbours as u64,
            row.most().messages,
            row.formula.messages,
            row.most().bytes,
            row.formula.bytes,
        ];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.push(if row.holds() { "" } else { "differs" }.to_owned());
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(2).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("Messages and bytes that each rank sends (the rank that sends most); puts are of 8 bytes.\n{table}");
}

fn main() -> ExitCode {
    let rows = match all(&Arguments::parse()) {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("messages: {error}");
            return ExitCode::FAILURE;
        }
    };
    print(&rows);
    let equal = rows.iter().filter(|row| row.holds()).count();
    println!("{equal} of {} rows equal the formula on every rank", rows.len());
    if equal == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
