//go:build tools

// Package tools pins the part of the testbed that this module builds.
package tools

import (
	_ "github.com/google/go-containerregistry/cmd/crane"
)
