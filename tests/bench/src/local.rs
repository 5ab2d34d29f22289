//! The local cluster under load: twenty thousand Pods that are created, listed and watched, and copies of the cluster that has
//! them. `local/` measures the cluster as a value in this process, and `mortise cluster` over HTTP.

mod load;
mod served;
mod value;

use anyhow::Result;

use self::load::{PODS, Round};
use crate::measure::{median, quantile};
use crate::programs::Host;
use crate::table::{Table, time};

/// Measures the value, then each host's server.
pub(crate) async fn run(hosts: &[Host], rounds: usize) -> Result<()> {
    let measured = (0..rounds).map(|_| value::round()).collect::<Result<Vec<_>>>()?;
    let (samples, bytes): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
    print!("{}", table(format!("A local cluster of {PODS} Pods in this process (medians of {rounds})"), &samples));
    // Of the rounds the one that took most: the allocator has kept memory of those before the others.
    println!("Anonymous memory for each Pod, with the log of changes: {:.1} KiB", quantile(bytes, 1.0) / 1024.0);
    for host in hosts {
        let mut samples = Vec::new();
        let mut usage = Vec::new();
        for _ in 0..rounds {
            let (round, used) = served::round(host).await?;
            samples.push(round);
            usage.push(used);
        }
        print!(
            "{}",
            table(format!("`mortise cluster` of host {} over HTTP (medians of {rounds})", host.name), &samples)
        );
        print!("{}", served::memory(&usage));
    }
    Ok(())
}

fn table(title: String, rounds: &[Round]) -> Table {
    let mut table = Table::new(title, &["operation", "whole", "slowest", "each", "a second", "bytes"]);
    for (index, (name, first)) in rounds.first().into_iter().flatten().enumerate() {
        let all =
            || rounds.iter().filter_map(|round| round.get(index)).map(|(_, sample)| sample.elapsed.as_nanos() as f64);
        let (whole, slowest) = (median(all().collect()), quantile(all().collect(), 1.0));
        let each = whole / first.count as f64;
        let cells = [
            (*name).to_owned(),
            time(whole),
            time(slowest),
            time(each),
            format!("{:.0}", 1e9 / each),
            first.bytes.to_string(),
        ];
        table.row(cells);
    }
    table
}
