// Applies the objects of a file as Flux's kustomize-controller does, and prints each change.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var owner = ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}

func main() {
	if err := apply(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func apply(file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	reader, err := os.Open(file)
	if err != nil {
		return err
	}
	objects, err := utils.ReadObjects(reader)
	if err != nil {
		return err
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return err
	}
	manager := ssa.NewResourceManager(cluster, nil, owner)
	changes, err := manager.ApplyAll(context.Background(), objects, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	for _, change := range changes.Entries {
		fmt.Println(change.Action, change.Subject)
	}
	return nil
}
