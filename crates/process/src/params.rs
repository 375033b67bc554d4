//! The parameters of all writes. The API server records our field manager with each written field.

use kube::api::{PatchParams, PostParams};
use placement::keys::FIELD_MANAGER;

/// Parameters of a create or a replace.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a patch.
pub(crate) fn patch() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
}
