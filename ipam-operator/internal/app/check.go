// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-io/muster/ipam-operator/internal/check"
)

// Check is the command "ipam-operator check": it prints every contradiction and every notice that it finds and returns the exit code: 0
// for no contradiction, 1 for some, 2 when it could not look.
func Check(ctx context.Context, arguments []string, out, problems io.Writer) int {
	var kubeconfig, namespace string
	flags := flag.NewFlagSet("ipam-operator check", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.StringVar(&kubeconfig, "kubeconfig", "", "path of the kubeconfig; empty for $KUBECONFIG, the service account of the pod, or ~/.kube/config")
	flags.StringVar(&namespace, "namespace", "", "look at this namespace only; empty for all")
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	findings, notices, err := findings(ctx, kubeconfig, namespace)
	if err != nil {
		_, _ = fmt.Fprintln(problems, err)
		return 2
	}
	if err := printFindings(out, findings, notices); err != nil {
		return 2
	}
	return min(len(findings), 1)
}

func printFindings(out io.Writer, findings, notices []check.Finding) error {
	var text strings.Builder
	for _, finding := range slices.Concat(notices, findings) {
		text.WriteString(finding.String() + "\n")
	}
	if len(findings) == 0 {
		text.WriteString("no contradictions\n")
	} else {
		text.WriteString(strconv.Itoa(len(findings)) + " contradictions\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func findings(ctx context.Context, kubeconfig, namespace string) (findings, notices []check.Finding, err error) {
	reader, err := commandClient(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	return check.Inspect(ctx, reader, namespace)
}
