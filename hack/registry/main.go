// Command registry is the distribution project's registry with the one storage driver and the one way to know users that
// tests configure. Its own main function has those of three clouds too, which are most of what would have to be compiled.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
