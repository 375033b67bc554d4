//! Reads counters in Prometheus' text format.

/// Label text and value of each sample of a metric.
pub(crate) fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.parse().ok()?))
    })
}

/// The value of a label.
pub(crate) fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = labels.split("\",");
    pairs
        .find_map(|pair| pair.split_once("=\"").filter(|(key, _)| *key == name))
        .map(|(_, value)| value.trim_end_matches('"'))
}

/// Sum of all samples that a condition on their labels lets in.
pub(crate) fn sum(text: &str, name: &str, wanted: impl Fn(&str) -> bool) -> f64 {
    samples(text, name)
        .filter(|(labels, _)| wanted(labels))
        .fold(0.0, |sum, (_, value)| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP x\nx_total{verb=\"GET\",code=\"200\"} 3\nx_total{verb=\"LIST\",code=\"200\"} 4\nx_total_more 9\nx 5\n";

    #[test]
    fn samples_of_one_metric_are_summed_by_label() {
        let of = |name, wanted: &dyn Fn(&str) -> bool| Some(sum(TEXT, name, wanted));
        assert_eq!(
            of("x_total", &|labels| label(labels, "verb") == Some("GET")),
            Some(3.0)
        );
        assert_eq!(
            of("x_total", &|labels| label(labels, "code") == Some("200")),
            Some(7.0)
        );
        assert_eq!(of("x", &|_| true), Some(5.0));
    }
}
