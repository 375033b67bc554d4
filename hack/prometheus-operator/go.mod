// Nothing is built from this: the testbed takes the custom resource definitions that lie in the module.
module pod-affinity.tekton.dev/hack/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
