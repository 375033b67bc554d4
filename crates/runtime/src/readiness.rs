//! Readiness as a list of named conditions, each set by one part of the process. A process is ready when every condition is met;
//! an unmet condition has a reason, so that `kubectl describe pod` shows more than a number.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

type Conditions = BTreeMap<&'static str, Option<String>>;

/// All conditions of a process. Clones share the conditions.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Conditions>>);

/// One condition. One part of the process sets it.
#[derive(Clone, Debug)]
pub struct ReadinessCondition {
    name: &'static str,
    readiness: Readiness,
}

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Conditions::new())))
    }
}

impl Readiness {
    /// Adds a condition that is unmet at first, for this reason.
    pub fn condition(&self, name: &'static str, unmet: impl Into<String>) -> ReadinessCondition {
        let condition = ReadinessCondition {
            name,
            readiness: self.clone(),
        };
        condition.unmet(unmet);
        condition
    }

    /// Whether every condition is met.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().values().all(Option::is_none)
    }

    /// Resolves when every condition is met.
    pub async fn ready(&self) {
        let all_met = |conditions: &Conditions| conditions.values().all(Option::is_none);
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(all_met).await;
    }

    fn set(&self, name: &'static str, state: Option<String>) {
        self.0
            .send_if_modified(|conditions| conditions.insert(name, state.clone()) != Some(state));
    }
}

impl ReadinessCondition {
    /// Marks the condition as met.
    pub fn met(&self) {
        self.readiness.set(self.name, None);
    }

    /// Marks the condition as unmet, for this reason.
    pub fn unmet(&self, why: impl Into<String>) {
        self.readiness.set(self.name, Some(why.into()));
    }
}

/// One line for each condition: `[+]` if met, `[-]` and the reason if unmet.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, state) in self.0.borrow().iter() {
            match state {
                None => writeln!(f, "[+] {name}")?,
                Some(why) => writeln!(f, "[-] {name}: {why}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_no_condition_is_unmet() {
        let readiness = Readiness::default();
        let certificate = readiness.condition("certificate", "none yet");
        readiness.condition("configuration", "not read yet").met();
        assert!(!readiness.is_ready());
        certificate.met();
        assert!(readiness.is_ready());
        certificate.unmet("gone");
        assert!(!readiness.is_ready());
    }

    #[test]
    fn the_text_names_each_unmet_condition_and_its_reason() {
        let readiness = Readiness::default();
        readiness.condition("configuration", "").met();
        readiness.condition("certificate", "the Secret is empty");
        assert_eq!(
            readiness.to_string(),
            "[-] certificate: the Secret is empty\n[+] configuration\n"
        );
    }

    #[tokio::test]
    async fn readiness_can_be_awaited() {
        let readiness = Readiness::default();
        let certificate = readiness.condition("certificate", "none yet");
        let waiting = readiness.ready();
        certificate.met();
        waiting.await;
    }
}
