// Nothing is built from this: the testbed takes the custom resource definitions that lie in the module.
module pod-affinity.tekton.dev/hack/cert-manager

go 1.26.0

require github.com/cert-manager/cert-manager v1.20.0
