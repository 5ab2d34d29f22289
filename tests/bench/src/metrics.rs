//! Sums over series of the host's `/metrics`. A family without series is missing in the text, so a missing one is zero.

#[derive(Clone, Debug)]
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    pub(crate) fn calls(&self) -> f64 {
        self.sum("mortise_guest_calls_total", "")
    }

    pub(crate) fn skipped(&self) -> f64 {
        self.sum("mortise_guest_calls_skipped_total", "")
    }

    /// Components that were compiled, not found in the cache.
    pub(crate) fn compilations(&self) -> f64 {
        self.sum("mortise_plugin_compile_seconds_count", "cached=\"false\"")
    }

    /// The sum over the series with this name and label.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let series = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let values = series.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
        // Not `sum`, which returns -0 without values.
        values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, |sum, value| sum + value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_name_and_label_are_summed() {
        let text = "# TYPE mortise_guest_calls counter\n\
            mortise_guest_calls_total{controller=\"a/A\",result=\"done\"} 3\n\
            mortise_guest_calls_total{controller=\"b/B\",result=\"failed\"} 4\n\
            mortise_plugin_compile_seconds_count{cached=\"false\"} 2\n\
            mortise_plugin_compile_seconds_count{cached=\"true\"} 7\n";
        let metrics = Metrics(text.to_owned());
        assert_eq!((metrics.calls(), metrics.skipped(), metrics.compilations()), (7.0, 0.0, 2.0));
    }
}
