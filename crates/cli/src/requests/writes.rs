//! Writes. Each names the state that it relies on, and can be a dry run.

use super::{RequestError, RequestResult, ResourceClient, Server, answer};
use crate::args::DryRun;
use json_patch::PatchOperation;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Field manager of what users write with this tool.
const FIELD_MANAGER: &str = "kubectl-pod-affinity";

/// Sends writes, or dry runs.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Server,
    pub(crate) dry_run: DryRun,
}

impl Writer<'_> {
    /// Sends a patch. A patch without operations is not sent.
    pub(crate) async fn patch<K>(
        self,
        place: &ResourceClient<K>,
        name: &str,
        patch: Vec<PatchOperation>,
    ) -> RequestResult<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        if self.dry_run == DryRun::Client || patch.is_empty() {
            return Ok(());
        }
        let params = PatchParams {
            dry_run: self.is_tried(),
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(json_patch::Patch(patch));
        let attributes = place.attributes("patch", Some(name));
        let call = place.api.patch(name, &params, &patch);
        answer(place.limit, attributes, call).await.map(drop)
    }

    /// Deletes the object of this UID, if it still exists.
    pub(crate) async fn delete<K>(
        self,
        place: &ResourceClient<K>,
        name: &str,
        uid: Option<String>,
    ) -> RequestResult<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        if self.dry_run == DryRun::Client {
            return Ok(());
        }
        let params = DeleteParams {
            dry_run: self.is_tried(),
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let attributes = place.attributes("delete", Some(name));
        let call = async {
            match place.api.delete(name, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop),
            }
        };
        match answer(place.limit, attributes, call).await {
            Err(RequestError::Changed(_)) => Ok(()),
            other => other,
        }
    }

    /// Whether the writes take effect.
    pub(crate) fn writes(self) -> bool {
        self.dry_run == DryRun::None
    }

    fn is_tried(self) -> bool {
        self.dry_run == DryRun::Server
    }

    /// What was done, with what kubectl adds when nothing was.
    pub(crate) fn told(self, what: &str) -> String {
        match self.dry_run {
            DryRun::None => format!("{what}\n"),
            DryRun::Client => format!("{what} (dry run)\n"),
            DryRun::Server => format!("{what} (server dry run)\n"),
        }
    }
}
