// Command control-plane is kube-apiserver, kube-controller-manager and kube-scheduler in one: linked once,
// it does what the name says that it is called by. Each part is what its own main function calls.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // for time zones of CronJobs

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for logs in JSON
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // for the metrics of client-go
	_ "k8s.io/component-base/metrics/prometheus/version"  // for the metric of the version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	newCommand, known := commands()[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is no component of Kubernetes: call it by a link that is named like one\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}

// Made only when asked for: each registers its flags and feature gates for the whole process.
func commands() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": manager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
}
