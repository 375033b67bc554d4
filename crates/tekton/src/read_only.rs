//! Implements `kube::Resource` for a view of a Tekton object.

/// A macro and not kube's derive, which requires a `spec` while decoding and `Serialize` on the type: a view must have neither.
#[macro_export]
macro_rules! read_only {
    ($view:ident, $plural:literal) => {
        impl ::kube::Resource for $view {
            type DynamicType = ();
            type Scope = ::k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                stringify!($view).into()
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                "tekton.dev".into()
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
