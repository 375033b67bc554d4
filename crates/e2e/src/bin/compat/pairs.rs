//! The pairs of Kubernetes and Tekton versions that are tested.

use clap::ValueEnum;
use std::collections::BTreeSet;
use testbed::{Kubernetes, Tekton, Versions};

/// Both oldest versions, each Kubernetes with the newest Tekton, and each Tekton with the newest Kubernetes; sorted by age,
/// the oldest first.
pub(crate) fn all() -> Vec<Versions> {
    let (all_kubernetes, all_tekton) = (Kubernetes::value_variants(), Tekton::value_variants());
    let newest_tekton = all_tekton.iter().max();
    let newest_kubernetes = all_kubernetes.iter().max();
    let oldest = pair(all_kubernetes.iter().min(), all_tekton.iter().min());
    let each_kubernetes = all_kubernetes
        .iter()
        .filter_map(|kubernetes| pair(Some(kubernetes), newest_tekton));
    let each_tekton = all_tekton
        .iter()
        .filter_map(|tekton| pair(newest_kubernetes, Some(tekton)));
    let pairs: BTreeSet<_> = oldest
        .into_iter()
        .chain(each_kubernetes)
        .chain(each_tekton)
        .collect();
    pairs.into_iter().collect()
}

fn pair(kubernetes: Option<&Kubernetes>, tekton: Option<&Tekton>) -> Option<Versions> {
    Some(Versions {
        kubernetes: *kubernetes?,
        tekton: *tekton?,
    })
}

/// Parses `1.34/1.15`.
pub(crate) fn parsed(text: &str) -> Result<Versions, String> {
    let (kubernetes, tekton) = text.split_once('/').ok_or("write it as 1.34/1.15")?;
    Ok(Versions {
        kubernetes: Kubernetes::from_str(kubernetes, false)?,
        tekton: Tekton::from_str(tekton, false)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::supported::{KUBERNETES, OLDEST_WITH_POLICIES, TEKTON};

    #[test]
    fn each_version_is_tried_with_the_newest_of_the_other_and_the_oldest_with_each_other_once_each() {
        let pairs: Vec<_> = all()
            .iter()
            .map(|pair| format!("{}/{}", pair.kubernetes, pair.tekton))
            .collect();
        let expected = [
            "1.33/1.9",
            "1.33/1.15",
            "1.34/1.15",
            "1.35/1.15",
            "1.36/1.15",
            "1.37/1.9",
            "1.37/1.12",
            "1.37/1.15",
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_versions_that_are_supported_are_those_that_are_tried() {
        let pairs = all();
        let kubernetes = || pairs.iter().map(|pair| pair.kubernetes.minor());
        let tekton = || pairs.iter().map(|pair| pair.tekton.minor());
        assert_eq!(kubernetes().min(), Some(KUBERNETES.oldest));
        assert_eq!(kubernetes().max(), Some(KUBERNETES.newest));
        assert_eq!(tekton().min(), Some(TEKTON.oldest));
        assert_eq!(tekton().max(), Some(TEKTON.newest));
    }

    #[test]
    fn policies_are_tried_where_they_are_supported() {
        for pair in all() {
            let minor = pair.kubernetes.minor();
            assert_eq!(
                pair.kubernetes.evaluates_policies(),
                minor >= OLDEST_WITH_POLICIES
            );
        }
    }

    #[test]
    fn a_pair_is_asked_for_by_its_versions() {
        let expected = Versions {
            kubernetes: Kubernetes::V1_34,
            tekton: Tekton::V1_9,
        };
        assert_eq!(parsed("1.34/1.9"), Ok(expected));
        for wrong in ["1.34", "1.2/1.9", "1.34/0.1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
