// The testbed reads CustomResourceDefinitions from the required module, and builds nothing.
module pod-affinity.tekton.dev/hack/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
