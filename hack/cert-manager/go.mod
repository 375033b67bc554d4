// The testbed reads CustomResourceDefinitions from the required module, and builds nothing.
module pod-affinity.tekton.dev/hack/cert-manager

go 1.26.0

require github.com/cert-manager/cert-manager v1.20.0
