//go:build tools

// Package tools pins what this module builds: promtool, which tests the alert rules, and Prometheus, for which tests evaluate the
// dashboard. Both are built with the tag remove_all_sd, and go.sum has what that build needs: `go mod tidy` would add the clients of
// all service discoveries.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
