// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// Node is a Machine whose installed system may be a node.
type Node interface {
	// KubeletCertificate is what there is of the kubelet's client certificate, empty for a system without a kubelet.
	KubeletCertificate() agentproto.KubeletCertificate
	// GiveKubeconfig gives a kubelet without a certificate what it asks for one with.
	GiveKubeconfig(kubeconfig string) error
}

// kubeletCertificate is what a poll says of the kubelet.
func (a *Agent) kubeletCertificate() agentproto.KubeletCertificate {
	if node, may := a.Machine.(Node); a.resident && may {
		return node.KubeletCertificate()
	}
	return ""
}

// join gives a kubelet that lost its certificate what it asks for another one with. Errors quote no token.
func (a *Agent) join(step api.Step) error {
	var wanted agentproto.JoinArgs
	if arguments(step, &wanted) != nil || wanted.Kubeconfig == "" {
		return errors.New("the step has no kubeconfig")
	}
	node, may := a.Machine.(Node)
	if !a.resident || !may {
		return errors.New("this system is no node")
	}
	return node.GiveKubeconfig(wanted.Kubeconfig)
}
