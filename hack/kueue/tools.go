//go:build tools

// Package tools pins the part of the testbed that this module builds.
package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
