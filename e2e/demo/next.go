// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"path/filepath"
)

// audience is what the API server of the demo accepts tokens for.
const audience = "https://kubernetes.default.svc.cluster.local"

// nextSteps returns the last lines of the demo: a heading and the five next steps of a newcomer. All else is in docs/demo.md.
// dir is the directory of the demo, admin the kubeconfig of its control plane, claimed that of the claimed cluster, console the address of the console.
func nextSteps(kept bool, dir, admin, claimed, console string) []string {
	if !kept {
		return []string{
			"", "Everything is taken down now. Next:", "",
			"  KEEP=1 make demo             keep it running, and look around with kubectl (docs/demo.md)",
			"  less deploy/samples/*.yaml   read the manifests that were applied",
			"  less README.md               install the operators in a cluster of your own",
			"  ls docs/spec docs/migration  look up a kind, or what changes for manifests that you have",
			"  less CONTRIBUTING.md         change the code: make test, make verify",
			"",
		}
	}
	return []string{
		"", "Everything runs until you press Ctrl-C. Next, in another terminal, in this directory:", "",
		"  export KUBECONFIG=" + admin,
		"  hack/kubectl get clusterpools,clusterclaims,clusterdeployments -A",
		fmt.Sprintf("  hack/kubectl --kubeconfig %s get configmaps   # inside the claimed cluster", claimed),
		fmt.Sprintf("  hack/kubectl create token default -n muster-agent-service --audience=agent-service --audience=%s   # sign in with it at %s", audience, console),
		"  less docs/demo.md " + filepath.Join(dir, "pool-operator.log") + "   # more to look at, and what the operator did",
		"",
	}
}
