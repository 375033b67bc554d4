//! What holds for any content of the ConfigMap.

use crate::config::{Config, ConfigErrors};
use crate::reserve::ReserveSetting;
use crate::tally::tally;
use proptest::prelude::{Just, Strategy, any, prop};
use proptest::sample::select;
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assume, prop_oneof, proptest};
use std::collections::BTreeMap;
use std::time::Duration;

/// Values that are nearly right, and values that are not.
fn value() -> impl Strategy<Value = String> {
    let usual = [
        "colocateAlways",
        "isolateAlways",
        "cluster",
        "namespace",
        "all",
        "enrolled",
        "50m",
        "100Mi",
        "scheduled",
        "created",
        "10m",
        "1h30m",
        "never",
        "cpu=4,memory=8Gi",
        "nvidia.com/gpu=1",
        "auto",
        "team=build",
        "team",
        "",
    ];
    let odd = [
        "0",
        "-1",
        "1e400",
        "1e-400",
        "9223372036854775808",
        "99999999999999999999999999999999999999999999Ei",
        "1.",
        ".1Ki",
        "9223372036854775807s",
        "9223372036854775807h",
        "-9223372036854775808s",
        "1e9h",
        "PT1H",
        "cpu=1,cpu=1",
        "cpu==1",
        ",",
        "=",
        "a/b/c=1",
        "team=a,team=b",
        "tekton.dev/pipelineRun",
        "NaN",
        "inf",
        "\u{0}",
        "\u{feff}10m",
        "\u{661}\u{660}m",
        "\u{1f98a}",
    ];
    let known =
        || prop_oneof![2 => select(usual.to_vec()), 1 => select(odd.to_vec())].prop_map(str::to_owned);
    let torn = (known(), known(), any::<prop::sample::Index>()).prop_map(|(one, other, at)| {
        one.chars()
            .take(at.index(one.len() + 1))
            .chain(other.chars())
            .collect()
    });
    prop_oneof![4 => known(), 2 => torn, 1 => "[-+0-9.eEinumkKMGTPs=,]{0,12}", 1 => ".{0,40}", 1 => Just("9".repeat(100_000))]
}

fn data() -> impl Strategy<Value = BTreeMap<String, String>> {
    let known = select(Config::KEYS.to_vec()).prop_map(str::to_owned);
    let key = prop_oneof![12 => known, 1 => "_.{0,8}", 1 => ".{0,40}"];
    prop::collection::btree_map(key, value(), 0..5)
}

/// The syntax that an API server accepts, written independently of the tested code.
fn is_quantity(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let exponent = unit
        .strip_prefix(['e', 'E'])
        .map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
    let units = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    digits(&number.replacen('.', "", 1)) && (units.contains(&unit) || exponent.is_some_and(digits))
}

fn reserves(config: &Config) -> impl Iterator<Item = &String> {
    let default = match &config.default_reserve {
        ReserveSetting::Amounts(reserve) => Some(reserve),
        ReserveSetting::Automatic => None,
    };
    default
        .into_iter()
        .chain([&config.auto_reserve_maximum])
        .flat_map(BTreeMap::values)
}

proptest! {
    #![proptest_config(Cases { cases: Cases::default().cases.max(3000), ..Cases::default() })]

    #[test]
    fn any_data_is_accepted_with_valid_values_or_refused_with_at_most_one_error_per_key(
        data in data(), met in tally(&[("accepted", 200), ("refused", 500)]),
    ) {
        match Config::parse(&data) {
            Ok(config) => {
                met.count("accepted");
                prop_assert!(is_quantity(&config.placeholder_cpu), "{}", config.placeholder_cpu);
                prop_assert!(is_quantity(&config.placeholder_memory), "{}", config.placeholder_memory);
                prop_assert!(reserves(&config).all(|amount| is_quantity(amount)), "{config:?}");
                prop_assert!(!config.hold_deadline.is_zero() && config.move_after != Some(Duration::ZERO));
            }
            Err(ConfigErrors(errors)) => {
                met.count("refused");
                prop_assert!(!errors.is_empty() && errors.len() <= data.len());
                for error in errors {
                    let told = error.to_string();
                    prop_assert!(data.keys().any(|key| told.starts_with(key.as_str())), "{told}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_key_changes_nothing_and_is_reported(data in data(), unknown in "[a-z]{1,8}\\PC{0,8}") {
        prop_assume!(!Config::KEYS.contains(&unknown.as_str()));
        let mut more = data.clone();
        more.insert(unknown.clone(), String::new());
        prop_assert!(Config::parse(&more) == Config::parse(&data));
        let reported = Config::unknown_keys(&more).0;
        prop_assert!(reported.iter().any(|error| error.to_string().starts_with(&unknown)));
    }
}
