//! What a host says of itself: the text of `/metrics` goes in, sums over series come out. Builds of different ages are
//! asked, so a family that one of them lacks is no error but no figure either.

/// The text of `/metrics`.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    /// Calls of guests.
    pub(crate) fn calls(&self) -> f64 {
        self.sum("mortise_guest_calls_total", "")
    }

    /// Reconciles without a call. The family comes with the first of them.
    pub(crate) fn skipped(&self) -> f64 {
        let skipped = self.sum("mortise_guest_calls_skipped_total", "").max(0.0);
        if self.calls().is_nan() { f64::NAN } else { skipped }
    }

    /// Components that were compiled, which those that were found compiled are not.
    pub(crate) fn compilations(&self) -> f64 {
        let either = self.sum("mortise_plugin_compile_seconds_count", "");
        either - self.sum("mortise_plugin_compile_seconds_count", "cached=\"true\"").max(0.0)
    }

    /// The sum over the series of this name that have this label; NaN when there is none.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let series = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let values = series.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
        let values = values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        values.reduce(|sum, value| sum + value).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE mortise_guest_calls counter\n\
        mortise_guest_calls_total{controller=\"a/A\",result=\"done\"} 3\n\
        mortise_guest_calls_total{controller=\"b/B\",result=\"failed\"} 4\n\
        mortise_plugin_compile_seconds_count{cached=\"true\"} 7\n";

    #[test]
    fn series_of_one_name_and_label_are_summed() {
        let metrics = Metrics(TEXT.to_owned());
        assert_eq!((metrics.calls(), metrics.skipped(), metrics.compilations()), (7.0, 0.0, 0.0));
        let compiled = "mortise_plugin_compile_seconds_count{cached=\"false\"} 2\n";
        assert_eq!(Metrics([TEXT, compiled].concat()).compilations(), 2.0);
        assert_eq!(Metrics(compiled.to_owned()).compilations(), 2.0);
    }

    #[test]
    fn what_a_host_does_not_count_is_no_figure() {
        let metrics = Metrics("other_total 3\n".to_owned());
        assert!([metrics.calls(), metrics.skipped(), metrics.compilations()].iter().all(|figure| figure.is_nan()));
    }
}
