//! `schemes`: transfers between strided layouts over verbs by each scheme, and the cut-offs that follow.

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{CellAlignment, presets};
use farside_benches::schemes::{Cost, Diagonals, Shape, Way, cut_offs, measure, measure_diagonals};
use farside_core::device::CutOffs;
use farside_core::error::Result;

/// Puts columns of a matrix of ints, and messages of some blocks, by every scheme, and block diagonals by lists with layouts
/// that are known or not; two ranks of this process, by the device of the settings.
#[derive(Parser)]
struct Arguments {
    /// Measure each so often; the best counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Fewer shapes.
    #[arg(long)]
    quick: bool,
}

fn print_diagonals(rows: &[Diagonals]) {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["message", "blocks", "layout known", "sent bytes", "layout new", "sent bytes"]);
    for row in rows {
        let [known, new] = row.layout_bytes.map(|bytes| bytes.to_string());
        let (bytes, blocks) = (row.bytes.to_string(), row.blocks.to_string());
        table.add_row([bytes, blocks, format!("{:.0}", row.known_us), known, format!("{:.0}", row.new_us), new]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!(
        "two leading block diagonals by SGRS: microseconds of a put and its fence, bytes of layouts sent\n{table}"
    );
}

fn print(title: &str, rows: &[(String, Shape, [Cost; 4])]) {
    type Part = (&'static str, fn(&Cost) -> f64);
    let parts: [Part; 4] = [
        ("microseconds of a put and its fence", |c| c.us),
        ("MB/s", |c| c.mb_per_s),
        ("CPU microseconds of the origin", |c| c.origin_us),
        ("CPU microseconds of the target", |c| c.target_us),
    ];
    for (what, part) in parts {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["", "block", "message", "Generic", "Multi-W", "SGRS", "contiguous"]);
        for (name, shape, costs) in rows {
            let mut row = vec![name.clone(), shape.block.to_string(), shape.bytes().to_string()];
            row.extend(costs.iter().map(|c| format!("{:.0}", part(c))));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{title}: {what}\n{table}");
    }
}

fn run(Arguments { rounds, quick }: Arguments) -> Result<()> {
    let mut shapes: Vec<(String, Shape)> = Vec::new();
    for rows in [64, 128] {
        for columns in (2..12).step_by(if quick { 3 } else { 1 }).map(|n| 1 << n) {
            shapes.push((format!("{rows} x {columns} columns"), Shape::columns(rows, columns)));
        }
    }
    let matrix = shapes.len();
    for kib in if quick { &[128][..] } else { &[128, 256, 512] } {
        for blocks in [4, 8, 16, 32, 64] {
            shapes.push((format!("{kib} KiB, {blocks} blocks"), Shape::of(kib << 10, blocks)));
        }
    }
    let plain: Vec<Shape> = shapes.iter().map(|(_, s)| *s).collect();
    let mut rows: Vec<(String, Shape, [Cost; 4])> =
        shapes.into_iter().map(|(name, s)| (name, s, [Cost::default(); 4])).collect();
    for (i, way) in Way::ALL.into_iter().enumerate() {
        for (row, cost) in rows.iter_mut().zip(measure(way, &plain, rounds)?) {
            row.2[i] = cost;
        }
    }
    print("columns of a matrix of 4096 ints a row", &rows[..matrix]);
    print("messages by their number of blocks", &rows[matrix..]);
    print_diagonals(&measure_diagonals(if quick { &[16][..] } else { &[4, 8, 16, 32, 64] }, rounds)?);
    let measured: Vec<(Shape, [f64; 4])> = rows.iter().map(|(_, s, c)| (*s, c.map(|c| c.us))).collect();
    let c = cut_offs(&measured, CutOffs::UNMEASURED);
    println!("cut-offs that follow: {c:?}");
    println!("FARSIDE_CUT_OFFS={},{},{},{},{}", c.gather_block, c.multi_w_block, c.sgrs_block, c.sgrs_bytes, c.segment);
    Ok(())
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("schemes: {error}");
            ExitCode::FAILURE
        }
    }
}
