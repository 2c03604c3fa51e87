// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/ipam-operator/internal/incluster"
)

// Command is the command that arguments begin with, which returns the exit code; false means that they are the flags of the operator.
func Command(arguments []string) (func(ctx context.Context, arguments []string, out, problems io.Writer) int, bool) {
	if len(arguments) == 0 {
		return nil, false
	}
	switch arguments[0] {
	case "check":
		return Check, true
	case "import":
		return Import, true
	case "probe":
		return Probe, true
	default:
		return nil, false
	}
}

// Import is the command "ipam-operator import in-cluster": it imports the pools of the in-cluster provider, tells what it did, and returns the exit code: 0 for
// success, 1 when a pool could not be imported, 2 when it could not begin.
func Import(ctx context.Context, arguments []string, out, problems io.Writer) int {
	var kubeconfig string
	run := &incluster.Import{Out: out}
	flags := flag.NewFlagSet("ipam-operator import in-cluster", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.StringVar(&kubeconfig, "kubeconfig", "", "path of the kubeconfig; empty for $KUBECONFIG, the service account of the pod, or ~/.kube/config")
	flags.StringVar(&run.Namespace, "namespace", "", "import InClusterIPPools of this namespace only; empty for all")
	flags.StringVar(&run.GlobalInto, "global-into", "", "namespace of the IPPools that GlobalInClusterIPPools become; empty leaves them out")
	flags.BoolVar(&run.LeaveOpen, "leave-open", false,
		"do not write to the imported pools; only for an in-cluster provider that is switched off for good, as it would hand out the same addresses")
	flags.BoolVar(&run.DryRun, "dry-run", false, "print what would be done, without writes")
	if len(arguments) == 0 || arguments[0] != "in-cluster" {
		_, _ = fmt.Fprintln(problems, "write what to import: ipam-operator import in-cluster")
		return 2
	}
	switch err := flags.Parse(arguments[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(problems, "unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	var err error
	if run.Client, err = commandClient(kubeconfig); err != nil {
		_, _ = fmt.Fprintln(problems, err)
		return 2
	}
	if err := run.Run(ctx); err != nil {
		_, _ = fmt.Fprintln(problems, err)
		return 1
	}
	return 0
}

// commandClient is the client of a command.
func commandClient(kubeconfig string) (client.Client, error) {
	config, err := operator.ClientConfig(reporter, kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	return c, nil
}
