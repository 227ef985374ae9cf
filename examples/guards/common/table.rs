//! Tables for people.

use std::fmt::Display;

/// Rows under headings; the first column is set left, and the others right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(ToString::to_string).collect();
        Self {
            rows: vec![headings],
        }
    }

    /// Adds a row, of as many cells as there are headings.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows
            .push(cells.iter().map(ToString::to_string).collect());
    }

    /// The whole as lines.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let rule: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let mut lines: Vec<_> = self.rows.iter().map(|row| line(row, &widths)).collect();
        lines.insert(1, line(&rule, &widths));
        lines
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).enumerate();
    let cells: Vec<_> = padded
        .map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        })
        .collect();
    format!("  {}", cells.join("  ")).trim_end().to_owned()
}
