//! Text tables: cells in, aligned lines out. The first column is aligned left, all others right.

use std::fmt;
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, head: &[&str]) -> Self {
        Self { title: title.into(), rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let wide = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths = (0..columns).map(wide).collect::<Vec<_>>();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line.push_str(&if column == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") });
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                writeln!(f, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)))?;
            }
        }
        Ok(())
    }
}

/// A time in a readable unit.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// "met", "MISSED", or nothing without a target.
pub(crate) fn rating(value: f64, target: Option<f64>) -> String {
    match target {
        Some(target) if value <= target => "met",
        // Also for NaN, which was not measured.
        Some(_) => "MISSED",
        None => "",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("Costs", &["what", "time"]);
        table.row(["µ".to_owned(), time(1234.0)]);
        assert_eq!(table.to_string(), "\nCosts\nwhat     time\n-------------\nµ     1.23 µs\n");
    }

    #[test]
    fn a_missing_value_does_not_meet_its_target() {
        assert_eq!(rating(f64::NAN, Some(1.0)), "MISSED");
        assert_eq!(rating(1.0, Some(1.0)), "met");
        assert_eq!(rating(1.0, None), "");
    }
}
