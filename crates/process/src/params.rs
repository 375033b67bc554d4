//! The parameters of our writes: the API server records our field manager with each field that we write.

use kube::api::{PatchParams, PostParams};
use placement::keys::FIELD_MANAGER;

/// Of a create or a replace.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Of a patch.
pub(crate) fn patch() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
}
