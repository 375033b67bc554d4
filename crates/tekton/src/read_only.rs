//! Makes a view a resource of Tekton.

/// Not derived: kube's derive demands `spec` on decoding and `Serialize` on the type, and a view must have neither.
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
