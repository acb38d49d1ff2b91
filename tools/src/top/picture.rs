//! A buffer of cells as an SVG picture, for the documentation.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Width and height of a cell in pixels, and the height of a font that fits.
const CELL: (u32, u32) = (9, 18);
const FONT: u32 = 15;
/// Pixels around the cells.
const MARGIN: u32 = 8;
const BACKGROUND: &str = "#1b1e24";
const FOREGROUND: &str = "#d8dce3";

/// Draws `buffer`: one text for each run of cells of one style, at its place and as wide as its cells.
pub(super) fn svg(buffer: &Buffer) -> String {
    let (columns, lines) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * CELL.0, lines * CELL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{MARGIN} -{MARGIN} {} {}\" font-family=\"monospace\" font-size=\"{FONT}\">\n\
         <rect x=\"-{MARGIN}\" y=\"-{MARGIN}\" width=\"100%\" height=\"100%\" fill=\"{BACKGROUND}\"/>\n",
        width + 2 * MARGIN,
        height + 2 * MARGIN
    );
    for (line, cells) in buffer.content.chunks(usize::from(buffer.area.width)).enumerate() {
        let mut column = 0;
        for run in cells.chunk_by(|a, b| a.style() == b.style()) {
            put(&mut svg, run, column, line as u32);
            column += run.len() as u32;
        }
    }
    svg + "</svg>\n"
}

fn put(svg: &mut String, run: &[Cell], column: u32, line: u32) {
    let text: String = run.iter().map(Cell::symbol).collect();
    let (x, y, width) = (column * CELL.0, line * CELL.1, run.len() as u32 * CELL.0);
    let is_reversed = run[0].modifier.contains(Modifier::REVERSED);
    let fill = if is_reversed { BACKGROUND } else { color(run[0].fg) };
    if is_reversed {
        let behind = color(run[0].fg);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{behind}\"/>", CELL.1);
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if run[0].modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let line = if run[0].modifier.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\" fill=\"{fill}\"{weight}{line} xml:space=\"preserve\">{text}</text>",
        y + FONT - 1
    );
}

fn color(color: Color) -> &'static str {
    match color {
        Color::Green => "#7ec87e",
        Color::Yellow => "#e0c060",
        Color::Red => "#e07070",
        Color::DarkGray => "#8a919e",
        _ => FOREGROUND,
    }
}
