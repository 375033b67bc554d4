//! The webhook's certificates are renewed under load without a lost call, and any damage of their Secret is repaired.
//!
//! These tests do not set clocks: unit tests of `runtime`, with a clock of their own, cover jumps of the clock.

use crate::nothing_lost::installed;
use crate::support::SOON;
use crate::support::kubectl::workspace;
use crate::support::load::{Counted, Load, alone};
use crate::support::pool::PooledTestbed;
use crate::support::testbeds::{kill_webhooks, start_controllers, stop_controllers};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use placement::keys;
use runtime::certs::x509::{Certificate, Issued, issue_ca, issue_leaf};
use runtime::certs::{CA_LIFE, LEAF_LIFE, Renewal, StoredCertificates, decide, service_names};
use runtime::install;
use std::time::Instant;
use testbed::product::Installed;
use testbed::{Part, apply, probe};

/// A damage of the Secret, and the message of a webhook that starts with it.
struct Damage {
    name: &'static str,
    does: fn(&StoredCertificates) -> Option<StoredCertificates>,
    reported: &'static str,
}

const DAMAGES: [Damage; 4] = [
    Damage {
        name: "expired",
        does: |sound| Some(with_leaf(sound, &ca_of(sound), LEAF_LIFE)),
        reported: "has expired",
    },
    Damage {
        name: "missing",
        does: |_| None,
        reported: "does not exist",
    },
    Damage {
        name: "corrupted",
        does: |_| {
            Some(StoredCertificates {
                ca: "-----BEGIN".into(),
                ca_key: "KEY".into(),
                bundle: String::new(),
                leaf: "-----BEGIN CERTIFICATE-----\nAAAA".into(),
                leaf_key: "KEY".into(),
            })
        },
        reported: "cannot be read",
    },
    Damage {
        name: "foreign leaf",
        does: |sound| Some(with_leaf(sound, &new_ca(), SignedDuration::ZERO)),
        reported: "was not signed by any stored CA",
    },
];

fn new_ca() -> Issued {
    issue_ca(Timestamp::now()).unwrap()
}

fn ca_of(stored: &StoredCertificates) -> Issued {
    Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key.clone(),
    }
}

/// Stored certificates with a leaf of this age.
fn with_leaf(stored: &StoredCertificates, ca: &Issued, age: SignedDuration) -> StoredCertificates {
    let Issued { certificate, key } = issue_leaf(ca, &names(), Timestamp::now() - age).unwrap();
    StoredCertificates {
        leaf: certificate,
        leaf_key: key,
        ..stored.clone()
    }
}

/// Stored certificates with a CA in the last third of its lifetime, which has not signed anything yet: the CA of the leaf
/// stays trusted.
fn with_aged_ca(stored: &StoredCertificates) -> StoredCertificates {
    let aged = issue_ca(Timestamp::now() - CA_LIFE * 3 / 4).unwrap();
    StoredCertificates {
        ca: aged.certificate,
        ca_key: aged.key,
        ..stored.clone()
    }
}

fn names() -> Vec<String> {
    service_names(keys::NAMESPACE)
}

/// An installation, and access to its Secret.
struct Certificates {
    bed: PooledTestbed,
    installed: Installed,
    secrets: Api<Secret>,
}

impl Certificates {
    async fn installed() -> Self {
        let (bed, installed) = installed().await;
        let secrets = Api::namespaced(bed.client().await.unwrap(), keys::NAMESPACE);
        Self {
            bed,
            installed,
            secrets,
        }
    }

    async fn stored(&self) -> StoredCertificates {
        StoredCertificates::from_secret(&self.secrets.get(install::CERTIFICATE_SECRET).await.unwrap())
    }

    /// Stores the certificates, or deletes the Secret.
    async fn store(&self, stored: Option<StoredCertificates>) {
        let name = install::CERTIFICATE_SECRET;
        let Some(stored) = stored else {
            self.secrets.delete(name, &DeleteParams::default()).await.unwrap();
            return;
        };
        let mut secret = self.secrets.get(name).await.unwrap();
        secret.data = Some(stored.into_data());
        let params = PostParams::default();
        self.secrets.replace(name, &params, &secret).await.unwrap();
    }

    /// Applies the damage. No process of pod-affinity may create the Secret: the leader logs the command that recreates it,
    /// and the test executes it.
    async fn damage(&self, damage: &Damage) -> StoredCertificates {
        let damaged = (damage.does)(&self.stored().await);
        self.store(damaged.clone()).await;
        damaged.unwrap_or_default()
    }

    async fn recreate_missing_secret(&self, lines_before: usize) {
        let name = install::CERTIFICATE_SECRET;
        if self.secrets.get_opt(name).await.unwrap().is_some() {
            return;
        }
        let what = "a controller to log how the Secret is recreated";
        self.bed
            .until(what, SOON, async || {
                if self.log_lines() > lines_before {
                    Ok(())
                } else {
                    Err("not yet")
                }
            })
            .await
            .unwrap();
        let manifest = workspace().join("config/400-secret.yaml");
        let client = self.bed.client().await.unwrap();
        apply::apply_all(&client, &apply::documents(&manifest).unwrap())
            .await
            .unwrap();
    }

    fn log_lines(&self) -> usize {
        let logs = [0, 1].map(|replica| self.bed.log_file(Part::Controller(replica)));
        let said = logs.map(|log| std::fs::read_to_string(log).unwrap());
        said.iter()
            .map(|log| log.matches("apply the manifests again").count())
            .sum()
    }

    /// Waits until the Secret is valid and differs from `before`, and both replicas serve it.
    async fn until_healed(&self, what: &str, before: &StoredCertificates) -> StoredCertificates {
        let (bed, name) = (&self.bed, install::CERTIFICATE_SECRET);
        bed.until(
            format!("the certificates to be healed ({what})"),
            SOON,
            async || {
                let found = self
                    .secrets
                    .get_opt(name)
                    .await
                    .map_err(|error| error.to_string())?;
                let stored = found
                    .as_ref()
                    .map(StoredCertificates::from_secret)
                    .ok_or("no Secret")?;
                let decision = decide(&stored, &names(), Timestamp::now());
                if decision != Renewal::NotNeeded || stored == *before {
                    return Err(format!("{decision:?}"));
                }
                self.both_serve(&stored).await?;
                Ok(stored)
            },
        )
        .await
        .unwrap()
    }

    async fn both_serve(&self, stored: &StoredCertificates) -> Result<(), String> {
        let expiry = Certificate::first(&stored.leaf).unwrap().not_after.as_second();
        let said = format!("pod_affinity_certificate_expiry_timestamp_seconds {expiry}");
        for admin in &self.installed.webhook_admin {
            let metrics = probe::get(*admin, "/metrics").await?;
            if !metrics.lines().any(|line| line == said) {
                return Err(format!("the webhook at {admin} serves another certificate"));
            }
        }
        Ok(())
    }

    /// Stores certificates that are due for renewal, and waits until new ones are served.
    async fn renewed(&self, what: &str, due: StoredCertificates) -> StoredCertificates {
        let start = Instant::now();
        self.store(Some(due.clone())).await;
        let renewed = self.until_healed(what, &due).await;
        println!("{what} due: renewed and served after {:.1?}", start.elapsed());
        assert_ne!(renewed.leaf, due.leaf);
        renewed
    }

    async fn damage_while_running(&self, damage: &Damage) {
        let (lines_before, start) = (self.log_lines(), Instant::now());
        let damaged = self.damage(damage).await;
        self.recreate_missing_secret(lines_before).await;
        self.until_healed(damage.name, &damaged).await;
        println!(
            "{} while running: healed after {:.1?}",
            damage.name,
            start.elapsed()
        );
    }

    /// Starts all processes with the damage, as after the end of all nodes at once.
    async fn start_with(&self, damage: &Damage) {
        stop_controllers(&self.bed);
        kill_webhooks(&self.bed);
        let lines_before = self.log_lines();
        let damaged = self.damage(damage).await;
        self.bed.start_again(Part::Webhook(0)).await.unwrap();
        self.until_event(damage).await;
        let start = Instant::now();
        self.bed.start_again(Part::Webhook(1)).await.unwrap();
        start_controllers(&self.bed).await;
        self.recreate_missing_secret(lines_before).await;
        self.until_healed(damage.name, &damaged).await;
        for replica in 0..2 {
            let is_serving = self.bed.webhook_serves(&self.installed, replica);
            is_serving.await.unwrap();
        }
        println!(
            "{} at the start: ready after {:.1?}",
            damage.name,
            start.elapsed()
        );
    }

    async fn until_event(&self, damage: &Damage) {
        let admin = self.installed.webhook_admin[0];
        let what = format!("the webhook to say that the certificate {}", damage.reported);
        self.bed
            .until(what, SOON, async || match probe::get(admin, "/readyz").await {
                Err(said) if said.contains(damage.reported) => Ok(()),
                Err(said) => Err(said),
                Ok(_) => panic!("the webhook is ready with a certificate that is {}", damage.name),
            })
            .await
            .unwrap();
    }
}

#[e2e_test(first, webhook)]
async fn certificates_are_renewed_and_damage_is_repaired_under_load_without_a_lost_call() {
    let _alone = alone().await;
    let certificates = Certificates::installed().await;
    let client = certificates.bed.client().await.unwrap();
    let before = Counted::now(&client).await;
    let load = Load::start(&certificates.bed).await;
    let sound = certificates.stored().await;
    let due = with_leaf(&sound, &ca_of(&sound), LEAF_LIFE * 3 / 4);
    let renewed = certificates.renewed("leaf", due).await;
    assert_eq!(renewed.ca, sound.ca);
    let renewed = certificates.renewed("ca", with_aged_ca(&renewed)).await;
    assert_ne!(renewed.ca, sound.ca);
    for damage in &DAMAGES {
        certificates.damage_while_running(damage).await;
    }
    let outcome = load.end().await;
    let counted = Counted::now(&client).await.since(before);
    println!(
        "{} of {} calls lost; the API server counted {counted:?}",
        outcome.lost.len(),
        outcome.calls
    );
    assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
    assert_eq!(
        (counted.rejections, counted.refused, counted.let_through),
        (0, 0, 0)
    );
    for damage in &DAMAGES {
        certificates.start_with(damage).await;
    }
}
