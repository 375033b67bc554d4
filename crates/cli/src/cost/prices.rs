//! The price file: a line `INSTANCE-TYPE,PRICE-PER-HOUR` for each instance type.

use std::collections::BTreeMap;
use std::path::Path;

/// The optional first line.
const HEAD: &str = "instance-type,price-per-hour";

/// Prices per hour by instance type. The currency is that of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prices(BTreeMap<String, f64>);

impl Prices {
    /// Reads a price file. The error is a sentence with the file, the line, the cause and the remedy.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
        Self::parse(&text).map_err(|error| format!("{name}, {error}"))
    }

    /// Ignores empty lines and lines that begin with `#`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut prices = BTreeMap::new();
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') || (number == 0 && line == HEAD) {
                continue;
            }
            let (instance, price) = price(line)
                .map_err(|cause| format!("line {}: {cause}; write for example m5.large,0.096", number + 1))?;
            if prices.insert(instance.to_owned(), price).is_some() {
                return Err(format!(
                    "line {}: {instance} has a price already; remove one line",
                    number + 1
                ));
            }
        }
        Ok(Self(prices))
    }

    pub(crate) fn get(&self, instance: &str) -> Option<f64> {
        self.0.get(instance).copied()
    }
}

fn price(line: &str) -> Result<(&str, f64), String> {
    let (instance, price) = line
        .split_once(',')
        .ok_or_else(|| format!("{line:?} has no comma between instance type and price"))?;
    let (instance, price) = (instance.trim(), price.trim());
    if instance.is_empty() {
        return Err("the instance type is missing".to_owned());
    }
    let number = price.parse().ok();
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .map(|number| (instance, number))
        .ok_or_else(|| format!("{price:?} is not a price with a decimal point and without a currency"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_file_may_have_a_head_and_comments() {
        let prices =
            Prices::parse("instance-type,price-per-hour\n# us-east-1\n\nm5.large, 0.096\r\nfree,0\n")
                .unwrap();
        assert_eq!(prices.get("m5.large"), Some(0.096));
        assert_eq!(prices.get("free"), Some(0.0));
        assert_eq!(prices.get("m5.xlarge"), None);
    }

    #[test]
    fn a_bad_line_is_named_with_the_cause_and_an_example() {
        let wrong = [
            "m5.large;0.096",
            "m5.large,$0.096",
            "m5.large,-1",
            "m5.large,inf",
            "a,1\n,1",
            "a,1\na,2",
            "a,1\ninstance-type,price-per-hour",
        ];
        let errors = wrong.map(|text| Prices::parse(text).unwrap_err());
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Prices::read(Path::new("/nowhere/prices.csv")).unwrap_err();
        assert!(
            error.starts_with("/nowhere/prices.csv cannot be read: "),
            "{error}"
        );
    }
}
