//! `instructions` counts the instructions of single calls of the typed interface with callgrind.

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{CellAlignment, presets};
use farside_core::error::{Error, ErrorKind, Result};
use farside_instructions::{self as instructions, CALLED};

/// Counts the instructions of single calls on a mapped window, checks included; needs valgrind.
#[derive(Parser)]
struct Arguments {
    /// The calls to make; the program runs itself under valgrind with this option.
    #[arg(long, hide = true)]
    run: Option<String>,
    /// The number of calls.
    #[arg(long, hide = true, default_value_t = instructions::CALLS)]
    calls: u64,
}

fn report() -> Result<()> {
    if !instructions::has_valgrind() {
        return Err(Error::new(ErrorKind::Unsupported, "count instructions")
            .cause("valgrind does not start")
            .remedy("install valgrind"));
    }
    let program = std::env::current_exe().map_err(|error| Error::system("find this program", error))?;
    let mut table = comfy_table::Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(["call", "instructions", "without the loop"]);
    let mut of_loop = 0.0;
    for (name, what) in CALLED {
        let count = instructions::of_one(&program, name, &[])?;
        if name == "loop" {
            of_loop = count;
        }
        table.add_row([what.to_owned(), format!("{count:.1}"), format!("{:.1}", count - of_loop)]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("Instructions of one call on a mapped window, one rank, checks included.\n{table}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.run {
        Some(name) => instructions::run(name, arguments.calls),
        None => report(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}
