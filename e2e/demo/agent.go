// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/fleet"
	"github.com/muster-io/muster/e2e/render"
)

// Names in deploy/samples/agent.
const (
	agentSamples = "deploy/samples/agent"
	agentSpace   = "edge"
	siteImage    = "site"
	firstEdge    = "blue"
	secondEdge   = "green"
	siteMachines = 4
)

// siteFleet are the machines of the acts; they run as long as the demo.
type siteFleet struct{ agents []agentv1.Agent }

func agentActs() []act {
	path, err := checkout.Path("bin", "live", "live.iso")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil { // it is made of packages of Debian, which are not everywhere
		return []act{{"looking for the live image", func(context.Context, *stage) (string, error) {
			return "discovered machines are left out: there is no live image here (make live-image builds it)", nil
		}}}
	}
	site := &siteFleet{}
	return []act{
		{"booting machines from one discovery image, of which no cluster knows", site.boot},
		{"opening the console", openConsole},
		{"taking one of them for a cluster, and moving it to another", site.move},
		{"approving it, and installing its cluster", site.install},
	}
}

func (f *siteFleet) boot(ctx context.Context, s *stage) (string, error) {
	objects, err := render.Directory(agentSamples)
	if err != nil {
		return "", err
	}
	if err := render.Apply(ctx, s.admin, objects); err != nil {
		return "", err
	}
	env := &agentv1.InfraEnv{}
	err = s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKey{Namespace: agentSpace, Name: siteImage}, env)
		return err == nil && agentv1.IsConditionTrue(env.Status.Conditions, agentv1.ConditionImageCreated), err
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the image: %w", err)
	}
	dial, err := access.Dialer(s.admin)
	if err != nil {
		return "", err
	}
	image, err := fleet.Read(ctx, dial, env.Status.BootArtifacts.InitrdURL)
	if err != nil {
		return "", err
	}
	machines, err := fleet.Boot(ctx, image, dial, "demo", siteMachines)
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, machines.Stop)
	started := time.Now()
	if err := s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		err := f.look(ctx, s)
		return err == nil && len(f.agents) == siteMachines && !slices.ContainsFunc(f.agents, func(a agentv1.Agent) bool { return !is(&a, agentv1.ConditionValidated) }), err
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d machines are Agents, checked and free, %.1f s after they were switched on", siteMachines, time.Since(started).Seconds()), nil
}

// openConsole says where a browser sees the machines, once that answers.
func openConsole(ctx context.Context, s *stage) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.local.Console(), http.NoBody)
	if err != nil {
		return "", fmt.Errorf("asking for the console: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for the console: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the console at %s answers %s", request.URL, response.Status)
	}
	return "the console shows them at " + request.URL.String() + " (KEEP=1 make demo leaves it running)", nil
}

func (f *siteFleet) move(ctx context.Context, s *stage) (string, error) {
	var took []time.Duration
	for _, cluster := range []string{firstEdge, secondEdge} {
		started := time.Now()
		if err := f.change(ctx, s, func(agent *agentv1.Agent) {
			agent.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: agentSpace, Name: cluster}
		}); err != nil {
			return "", err
		}
		if err := s.until(ctx, patience, func(ctx context.Context) (bool, error) {
			install, err := f.cluster(ctx, s, cluster)
			return err == nil && install.Status.ControlPlaneAgentsReady == 1, errors.Join(err, f.look(ctx, s))
		}); err != nil {
			return "", err
		}
		took = append(took, time.Since(started))
	}
	return fmt.Sprintf("%s was fit for %s after %d ms, and for %s %d ms after it was moved", f.agents[0].Status.Inventory.Hostname, firstEdge, took[0].Milliseconds(), secondEdge, took[1].Milliseconds()), nil
}

func (f *siteFleet) install(ctx context.Context, s *stage) (string, error) {
	started := time.Now()
	if err := f.change(ctx, s, func(agent *agentv1.Agent) { agent.Spec.Approved = true }); err != nil {
		return "", err
	}
	if err := s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		install, err := f.cluster(ctx, s, secondEdge)
		if err == nil && hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallFailed) {
			err = fmt.Errorf("the installation has failed: %s", hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallFailed).Message)
		}
		return err == nil && hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted), errors.Join(err, f.look(ctx, s))
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("the system was downloaded, checked and started, and %s is installed, after %.1f s", secondEdge, time.Since(started).Seconds()), nil
}

// change changes the first Agent.
func (f *siteFleet) change(ctx context.Context, s *stage, change func(*agentv1.Agent)) error {
	agent := &f.agents[0]
	before := client.MergeFrom(agent.DeepCopy())
	change(agent)
	if err := s.client.Patch(ctx, agent, before); err != nil {
		return fmt.Errorf("changing agent %s: %w", agent.Name, err)
	}
	return nil
}

func (f *siteFleet) cluster(ctx context.Context, s *stage, name string) (*hiveextv1.AgentClusterInstall, error) {
	install := &hiveextv1.AgentClusterInstall{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: agentSpace, Name: name}, install); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", name, err)
	}
	return install, nil
}

// look reads the Agents, by host name, and draws them.
func (f *siteFleet) look(ctx context.Context, s *stage) error {
	list := &agentv1.AgentList{}
	if err := s.client.List(ctx, list, client.InNamespace(agentSpace)); err != nil {
		return fmt.Errorf("listing the agents: %w", err)
	}
	f.agents = slices.SortedFunc(slices.Values(list.Items), func(a, b agentv1.Agent) int { return cmp.Compare(a.Name, b.Name) })
	rows, notes := machineRows(f.agents)
	for _, line := range notes {
		s.screen.note(line)
	}
	s.screen.show(grid(s.screen.paint, []string{"MACHINE", "CPU", "MEMORY", "CLUSTER", "STAGE"}, rows))
	return nil
}

// machineRows returns the table of machines, and a line about each. A machine that has not reported its name is left out.
func machineRows(agents []agentv1.Agent) (rows [][]string, notes []string) {
	for i := range agents {
		agent := &agents[i]
		inventory := agent.Status.Inventory
		if inventory.Hostname == "" {
			continue
		}
		cluster, note, stage := "-", "free", string(agent.Status.Progress.CurrentStage)
		if ref := agent.Spec.ClusterDeploymentName; ref != nil {
			cluster, note = ref.Name, strings.TrimSpace("cluster "+ref.Name+" "+stage)
		}
		rows = append(rows, []string{inventory.Hostname, fmt.Sprintf("%d × %s", inventory.CPU.Count, inventory.CPU.Architecture), fmt.Sprintf("%d GiB", inventory.Memory.PhysicalBytes>>30), cluster, stage})
		notes = append(notes, fmt.Sprintf("machine %s: %s", inventory.Hostname, note))
	}
	return rows, notes
}

// is is true for an Agent with that condition and an inventory.
func is(agent *agentv1.Agent, condition string) bool {
	return agentv1.IsConditionTrue(agent.Status.Conditions, condition) && agent.Status.Inventory.Hostname != ""
}
