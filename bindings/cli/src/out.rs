//! The standard output.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anstyle::Style;
use serde::Serialize;

use crate::exit::{FILE, Failure, INTERNAL};

/// Writes a text. If the reader has closed the pipe, this process ends, without a failure.
pub(crate) fn text(text: &str) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(FILE, format!("writing the output: {error}"))),
        Ok(()) => Ok(0),
    }
}

/// Writes a value as one line.
pub(crate) fn json(value: &impl Serialize) -> Result<u8, Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::new(INTERNAL, format!("making JSON: {error}")))?;
    text(&(line + "\n"))
}

/// Writes columns: the first and the last aligned left, the others right.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> Result<u8, Failure> {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let cells = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                let gap = " ".repeat(width - cell.chars().count());
                if column == 0 || column + 1 == N {
                    format!("{cell}{gap}")
                } else {
                    format!("{gap}{cell}")
                }
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut all = styled(&line(head), Style::new().bold()) + "\n";
    for row in rows {
        all += &line(row.each_ref().map(String::as_str));
        all.push('\n');
    }
    text(&all)
}

/// Adds color if standard output is a terminal.
pub(crate) fn styled(text: &str, style: Style) -> String {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if unwanted || !io::stdout().is_terminal() {
        return text.to_owned();
    }
    format!("{style}{text}{style:#}")
}
