//! Compares hosts: values by row and host in, a table of medians out.

use std::fmt;

use crate::measure::{NOISE, median};
use crate::table::{Table, rating};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Count,
    Seconds,
    Milliseconds,
    Kib,
    Mib,
}

impl Unit {
    fn cell(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => "-".to_owned(),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.2}"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds => format!("{value:.3} ms"),
            Self::Kib => format!("{value:.1} KiB"),
            Self::Mib => format!("{value:.1} MiB"),
        }
    }
}
struct Row {
    name: String,
    unit: Unit,
    target: Option<f64>,
    /// The values of each host.
    values: Vec<Vec<f64>>,
}

/// The rows of one scenario, in the order of their first values.
pub(super) struct Figures {
    title: String,
    hosts: Vec<String>,
    rows: Vec<Row>,
}

impl Figures {
    pub(super) fn new(title: String, hosts: impl IntoIterator<Item = String>) -> Self {
        Self { title, hosts: hosts.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds the value of one round.
    pub(super) fn add(&mut self, host: usize, name: impl Into<String>, unit: Unit, value: f64) {
        self.add_for(host, name, unit, value, None);
    }

    /// The same with a target for the last host's median.
    pub(super) fn add_for(
        &mut self,
        host: usize,
        name: impl Into<String>,
        unit: Unit,
        value: f64,
        target: impl Into<Option<f64>>,
    ) {
        let name = name.into();
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let values = vec![Vec::new(); self.hosts.len()];
            self.rows.push(Row { name, unit, target: target.into(), values });
            self.rows.len() - 1
        });
        self.rows[at].values[host].push(value);
    }

    fn row(&self, row: &Row) -> Vec<String> {
        let medians = row.values.iter().map(|values| median(values.clone())).collect::<Vec<_>>();
        let (first, last) = (medians[0], medians[medians.len() - 1]);
        let mut cells = vec![row.name.clone()];
        cells.extend(medians.iter().map(|median| row.unit.cell(*median)));
        if medians.len() > 1 {
            let ratio = last / first;
            cells.push(if ratio.is_finite() { format!("{ratio:.2}x") } else { "-".to_owned() });
        }
        cells.push(row.target.map_or_else(String::new, |target| format!("<= {}", row.unit.cell(target))));
        let noisy = if row.unit != Unit::Count && spread(&row.values) > NOISE { " noisy" } else { "" };
        cells.push(format!("{}{noisy}", rating(last, row.target)));
        cells
    }
}

/// The spread of the rounds of the worst host, as a share of their median.
fn spread(values: &[Vec<f64>]) -> f64 {
    let of = |values: &Vec<f64>| {
        let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(l, m), value| (value.min(l), value.max(m)));
        (most - least) / median(values.clone())
    };
    values.iter().map(of).fold(0.0, f64::max)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (&self.hosts[0], &self.hosts[self.hosts.len() - 1]);
        let ratio = (self.hosts.len() > 1).then(|| format!("{last}/{first}"));
        let head = ["measure"].into_iter().chain(self.hosts.iter().map(String::as_str));
        let head = head.chain(ratio.as_deref()).chain(["target", ""]).collect::<Vec<_>>();
        let mut table = Table::new(self.title.clone(), &head);
        for row in &self.rows {
            table.row(self.row(row));
        }
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_a_ratio_and_the_rating_of_the_last_host() {
        let mut figures = Figures::new("T".to_owned(), ["A".to_owned(), "B".to_owned()]);
        for (a, b) in [(4.0, 2.0), (4.0, 2.0), (5.0, 2.0)] {
            figures.add_for(0, "CPU", Unit::Seconds, a, 3.0);
            figures.add_for(1, "CPU", Unit::Seconds, b, 3.0);
        }
        figures.add(0, "calls", Unit::Count, f64::NAN);
        figures.add(1, "calls", Unit::Count, 2.5);
        let text = figures.to_string();
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        assert_eq!(rows[2], "measure A B B/A target");
        assert_eq!(rows[4], "CPU 4.00 s 2.00 s 0.50x <= 3.00 s met noisy");
        assert_eq!(rows[5], "calls - 2.50 -");
    }
}
