//! Image pre-pull: the node of a placeholder pulls the images of the run's tasks while the run is held, or while its first task works.
//!
//! The placeholder's pod has an image volume for each image. A kubelet pulls the images of all image volumes of a pod before it starts
//! the pod's containers, also if no container mounts the volumes (Kubernetes 1.36 and 1.37: `getImageVolumes` in the file
//! `kuberuntime_manager.go`). No container mounts them here: a failed pull then does not keep the container from its start, and the
//! container runtime needs no support of image volumes.
//!
//! An API server or a kubelet without image volumes ignores them.

use crate::config::{Config, is_on};
use crate::run::Run;
use k8s_openapi::api::core::v1::{ImageVolumeSource, Volume};

/// The oldest minor version of Kubernetes whose kubelets and API servers all have image volumes. Older versions have a feature gate.
pub const OLDEST: u32 = 36;
/// The most bytes of an image reference: a name of 255, a tag of 128 and a digest.
const LONGEST: usize = 512;
/// The most bytes of all references: the cache of placeholders keeps them.
const ALL: usize = 4 << 10;

/// The images that a node pulls, in the order of the pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images(Vec<String>);

/// Whether the node of a run pulls images ahead: by the annotation of the run, or by the configuration.
pub fn is_wanted(run: &Run, config: &Config) -> bool {
    is_on(run.pull_images.as_deref(), config.pull_images) && config.pull_images_maximum > 0
}

impl Images {
    /// The first images that can be pulled, without duplicates.
    pub fn new<'a>(images: impl IntoIterator<Item = &'a str>, most: usize) -> Self {
        let mut known: Vec<String> = Vec::new();
        let mut room = ALL;
        for image in images.into_iter().filter(|image| is_reference(image)) {
            if known.len() < most && image.len() <= room && !known.iter().any(|it| it == image) {
                room -= image.len();
                known.push(image.to_owned());
            }
        }
        Self(known)
    }

    /// Whether no image is pulled ahead.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The references, in the order of the pulls.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// An image volume for each image.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = Volume> {
        self.iter().enumerate().map(|(index, image)| Volume {
            name: format!("image-{index}"),
            image: Some(ImageVolumeSource {
                reference: Some(image.to_owned()),
                pull_policy: Some("IfNotPresent".to_owned()),
            }),
            ..Volume::default()
        })
    }
}

impl FromIterator<String> for Images {
    fn from_iter<I: IntoIterator<Item = String>>(references: I) -> Self {
        Self(references.into_iter().collect())
    }
}

/// Whether the text may be a reference to an image. The value of a parameter is unknown before the run starts.
fn is_reference(image: &str) -> bool {
    let is_known = !image.contains("$(") && image.bytes().all(|byte| byte.is_ascii_graphic());
    is_known && (1..=LONGEST).contains(&image.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;
    use serde_json::json;

    #[test]
    fn the_first_images_count_without_duplicates_and_without_parameters() {
        let long = "a".repeat(LONGEST + 1);
        let known = [
            "golang:1.26",
            "$(params.image)",
            "registry.example.com/build:$(params.tag)",
            "golang:1.26",
            "",
            "two words",
            "cut…",
            &long,
            &long[1..],
            "node",
            "left-out",
        ];
        assert_eq!(Images::new(known, 3).0, ["golang:1.26", &long[1..], "node"]);
        assert!(Images::new(known, 0).is_empty());
    }

    #[test]
    fn all_references_together_have_few_bytes() {
        let long: Vec<_> = (0..20).map(|index| format!("{index:0>512}")).collect();
        let images = Images::new(long.iter().map(String::as_str), 100);
        assert_eq!(images.iter().count(), ALL / LONGEST);
    }

    #[test]
    fn each_image_is_a_volume_that_an_api_server_accepts() {
        let images = Images::new(["golang", "node"], 8);
        let volumes: Vec<_> = images.volumes().collect();
        let volume = |name: &str, image: &str| json!({"name": name, "image": {"reference": image, "pullPolicy": "IfNotPresent"}});
        assert_eq!(
            serde_json::to_value(&volumes).unwrap(),
            json!([volume("image-0", "golang"), volume("image-1", "node")])
        );
    }

    #[test]
    fn the_annotation_of_the_run_comes_before_the_configuration_and_the_maximum_before_both() {
        for (annotation, configured, maximum, expected) in [
            (None, false, 8, false),
            (None, true, 8, true),
            (Some("true"), false, 8, true),
            (Some("false"), true, 8, false),
            (Some("maybe"), true, 8, true),
            (Some("true"), true, 0, false),
        ] {
            let run = Run {
                pull_images: annotation.map(str::to_owned),
                ..run()
            };
            let config = Config {
                pull_images: configured,
                pull_images_maximum: maximum,
                ..Config::default()
            };
            assert_eq!(
                is_wanted(&run, &config),
                expected,
                "{annotation:?} {configured} {maximum}"
            );
        }
    }
}
