//! Where the API server's processor time goes, by its own profile.

use anyhow::{Context, Result, bail};
use futures::AsyncReadExt;
use kube::Client;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// Stacks that were seen at work, each with its milliseconds.
pub(crate) struct Profile(Vec<(f64, String)>);

/// A purpose, and functions or packages whose presence in a stack tells of it.
pub(crate) type Rule = (&'static str, &'static [&'static str]);

/// A profile as the API server sends it, after so long.
pub(crate) async fn of_api_server(client: &Client, lasting: Duration) -> Result<Vec<u8>> {
    let path = format!("/debug/pprof/profile?seconds={}", lasting.as_secs());
    let request = http::Request::get(path).body(Vec::new())?;
    let mut answer = client
        .request_stream(request)
        .await
        .context("asking the API server for its profile")?;
    let mut packed = Vec::new();
    answer
        .read_to_end(&mut packed)
        .await
        .context("reading the API server's profile")?;
    Ok(packed)
}

impl Profile {
    pub(crate) fn unpacked(packed: &[u8]) -> Result<Self> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(packed)?;
        let told = Command::new("go")
            .args(["tool", "pprof", "-traces", "-unit=ms"])
            .arg(file.path())
            .output()
            .context("starting go")?;
        if !told.status.success() {
            bail!("go tool pprof: {}", String::from_utf8_lossy(&told.stderr));
        }
        Self::read(&String::from_utf8_lossy(&told.stdout))
    }

    /// From the text of `go tool pprof -traces -unit=ms`: blocks between lines of dashes, the value before the first function.
    fn read(text: &str) -> Result<Self> {
        let blocks = text.split("-----------+").skip(1);
        let samples: Vec<_> = blocks.filter_map(sample).collect();
        if samples.is_empty() {
            bail!("the API server's profile has no samples");
        }
        Ok(Self(samples))
    }

    /// Milliseconds by purpose, without stacks that no rule knows.
    pub(crate) fn by(&self, rules: &[Rule]) -> BTreeMap<&'static str, f64> {
        let mut times = BTreeMap::new();
        for (milliseconds, stack) in &self.0 {
            if let Some(purpose) = purpose(stack, rules) {
                *times.entry(purpose).or_default() += milliseconds;
            }
        }
        times
    }

    /// The stacks of one purpose.
    pub(crate) fn of(&self, rules: &[Rule], wanted: &str) -> Self {
        let stacks = self.0.iter();
        let stacks = stacks.filter(|(_, stack)| purpose(stack, rules) == Some(wanted));
        Self(stacks.cloned().collect())
    }

    pub(crate) fn milliseconds(&self) -> f64 {
        self.0.iter().map(|(milliseconds, _)| milliseconds).sum()
    }
}

/// That of the first rule that a stack satisfies.
fn purpose(stack: &str, rules: &[Rule]) -> Option<&'static str> {
    let is_so = |(_, signs): &&Rule| signs.iter().any(|sign| stack.contains(sign));
    rules.iter().find(is_so).map(|(purpose, _)| *purpose)
}

fn sample(block: &str) -> Option<(f64, String)> {
    let (_dashes, stack) = block.split_once('\n')?;
    let value = stack.split_whitespace().next()?.strip_suffix("ms")?;
    Some((value.parse().ok()?, stack.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACES: &str = "File: kube-apiserver\nType: cpu\n\
        -----------+-------------------------------------------------------\n     \
        20ms   runtime.futex\n             handlers.createHandler.func1\n             net/http.serve\n\
        -----------+-------------------------------------------------------\n     \
        10ms   runtime.memmove\n             net/http.serve\n\
        -----------+-------------------------------------------------------\n     \
        5ms   runtime.gcBgMarkWorker\n\
        -----------+-------------------------------------------------------\n";

    #[test]
    fn each_stack_counts_for_the_first_rule_that_it_satisfies() {
        let rules: [Rule; 2] = [("create", &["createHandler"]), ("http", &["net/http"])];
        let times = Profile::read(TRACES).unwrap().by(&rules);
        assert_eq!(times, BTreeMap::from([("create", 20.0), ("http", 10.0)]));
        let of_http = Profile::read(TRACES).unwrap().of(&rules, "http");
        assert!((of_http.milliseconds() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_profile_without_samples_breaks_the_measurement() {
        assert!(Profile::read("File: kube-apiserver\n").is_err());
    }
}
