// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// errConfig says that a Secret with the configuration of the deployed system cannot be used.
var errConfig = errors.New("the configuration of the system cannot be used")

// deploy has the image of a host deployed. The state Provisioning is written before, with the image; from that and from the node a process that
// knows nothing else sees what is next.
func (r *Reconciler) deploy(ctx context.Context, w *work) (outcome, error) {
	if w.node == "" {
		return outcome{event: hoststate.NodeLost, after: answerRetry}, nil
	}
	d, err := hoststate.DeploymentOf(w.host)
	if err != nil {
		return r.failed(w, metal3v1.ProvisioningError, metal3v1.ReasonImageUnusable, sentence(err.Error())), nil
	}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	return r.carry(ctx, w, n, d, hoststate.Deploy, hoststate.DeploymentTask(n, d, w.past()))
}

// keepDeployed has the machine adopted where its node was made anew, and maintains the power.
func (r *Reconciler) keepDeployed(ctx context.Context, w *work) (outcome, error) {
	if !w.facts.PowerControl {
		return outcome{event: hoststate.Nothing, settled: true}, nil
	}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	d, err := hoststate.DeploymentOf(w.host)
	if err != nil { // the image was deployed as it is written; only an adoption needs it anew
		d = hoststate.RemovalOf(w.host)
	}
	task := hoststate.AdoptionTask(n, d, w.past())
	switch {
	case task.Do == hoststate.Accept:
		return r.power(ctx, w, n)
	case task.Do != hoststate.Await && err != nil:
		return r.failed(w, metal3v1.ProvisioningError, metal3v1.ReasonImageUnusable, sentence(err.Error())), nil
	}
	return r.carry(ctx, w, n, d, hoststate.KeepDeployed, task)
}

// undeploy ends what was deployed, and has the machine cleaned. A deletion does not wait for ever for what fails.
func (r *Reconciler) undeploy(ctx context.Context, w *work) (outcome, error) {
	if w.node == "" {
		return finished(), nil
	}
	if w.facts.Deleting && w.host.Annotations[metal3v1.KeepNodeAnnotation] == "true" {
		w.keepAway = true
		return finished(), nil
	}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	d := hoststate.RemovalOf(w.host)
	task := hoststate.RemovalTask(n, d, w.past())
	if task.Do == hoststate.Refuse && w.facts.Deleting && w.m.failures+1 >= tries {
		return outcome{event: hoststate.GaveUp, after: time.Millisecond}, nil
	}
	return r.carry(ctx, w, n, d, hoststate.Undeploy, task)
}

func finished() outcome {
	return outcome{event: hoststate.Done, settled: true, after: time.Millisecond}
}

// past is what the next step of a deployment rests on.
func (w *work) past() hoststate.Past {
	return hoststate.Past{Asked: w.m.asked, Told: w.host.Status.ErrorType == metal3v1.ProvisioningError}
}

// carry carries a step of a deployment out, or of its end.
func (r *Reconciler) carry(ctx context.Context, w *work, n hoststate.Node, d hoststate.Deployment, e hoststate.Effect, task hoststate.Task) (outcome, error) {
	switch task.Do { //nolint:exhaustive // the others ask Ironic for something
	case hoststate.Await:
		after := min(answerRetry<<min(w.m.looks, 5), longRetry)
		w.m.looks++
		out := waiting(task.Reason, task.Why, after)
		out.user = task.User
		return out, nil
	case hoststate.Refuse:
		return r.failed(w, metal3v1.ProvisioningError, task.Reason, hoststate.WithoutURLSecrets(task.Why)), nil
	case hoststate.Accept:
		return finished(), nil
	}
	w.m.looks = 0
	err := r.request(ctx, w, n, d, task)
	switch {
	case errors.Is(err, errConfig):
		return r.failed(w, metal3v1.ProvisioningError, metal3v1.ReasonConfigUnusable, sentence(err.Error())), nil
	case errors.Is(err, inventory.ErrRefused):
		refused := hoststate.Refused(e, err.Error())
		return r.failed(w, metal3v1.ProvisioningError, refused.Reason, hoststate.WithoutURLSecrets(refused.Why)), nil
	case err != nil:
		return outcome{}, err
	}
	return waiting(camel(string(w.state)), "Ironic was asked for the next step.", answerRetry), nil
}

// request is the one call of a step.
func (r *Reconciler) request(ctx context.Context, w *work, n hoststate.Node, d hoststate.Deployment, task hoststate.Task) error {
	switch task.Do {
	case hoststate.Enrol:
		return w.p.Write(ctx, n, w.nodeName(), hoststate.ManualAccess())
	case hoststate.Prepare:
		return w.p.Prepare(ctx, n, d)
	case hoststate.SetCleaning:
		return w.p.SetCleaning(ctx, w.node, d.Clean)
	case hoststate.Vacate:
		return w.p.Vacate(ctx, w.node)
	case hoststate.EndMaintenance:
		return w.p.EndMaintenance(ctx, w.node)
	case hoststate.Ask:
		return r.provision(ctx, w, task.Ask)
	default:
		return fmt.Errorf("step %q of a deployment is not known", task.Do)
	}
}

// provision asks for a change of the provision state, and remembers it. The two that cannot be taken back are asked for only while the API server
// has the host as it was read.
func (r *Reconciler) provision(ctx context.Context, w *work, target string) error {
	asked := map[string]hoststate.Asked{
		hoststate.AskManage: hoststate.AskedManage, hoststate.AskProvide: hoststate.AskedProvide, hoststate.AskDeploy: hoststate.AskedDeploy,
		hoststate.AskDelete: hoststate.AskedUndeploy, hoststate.AskAdopt: hoststate.AskedAdopt,
	}[target]
	var err error
	switch target {
	case hoststate.AskDeploy:
		err = r.startDeployment(ctx, w)
	case hoststate.AskDelete:
		if err = r.unchanged(ctx, w.host); err == nil {
			err = w.p.SetProvision(ctx, w.node, target)
		}
		if err == nil {
			r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventCleaningStarted, "Deprovision", "Asked Ironic to end the deployment on node %s", w.node)
		}
	default:
		err = w.p.SetProvision(ctx, w.node, target)
		if err == nil && target == hoststate.AskAdopt {
			r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventAdoptionStarted, "Provision",
				"Asked Ironic to adopt the machine as it is, on node %s", w.node)
		}
	}
	if err == nil {
		w.m.asked = asked
	}
	return err
}

// startDeployment asks for the deployment.
func (r *Reconciler) startDeployment(ctx context.Context, w *work) error {
	config, err := r.configDrive(ctx, w.host)
	if err != nil {
		return err
	}
	if err := r.unchanged(ctx, w.host); err != nil {
		return err
	}
	if err := w.p.Deploy(ctx, w.node, config); err != nil {
		return err
	}
	r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventDeploymentStarted, "Provision", "Asked Ironic to deploy %s on node %s",
		hoststate.ImageName(w.host), w.node)
	return nil
}

// unchanged fails with ErrBusy when the API server has another version of a host than was read: what rests on that is planned again.
func (r *Reconciler) unchanged(ctx context.Context, host *metal3v1.BareMetalHost) error {
	var present metal3v1.BareMetalHost
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(host), &present); client.IgnoreNotFound(err) != nil {
		return wrap(err, "reading host %s", client.ObjectKeyFromObject(host))
	}
	if present.UID != host.UID || present.ResourceVersion != host.ResourceVersion {
		return inventory.Failf(inventory.ProblemBusy, "host %s has changed", client.ObjectKeyFromObject(host))
	}
	return nil
}

// configDrive reads the Secrets that a host names for the system that is deployed.
func (r *Reconciler) configDrive(ctx context.Context, host *metal3v1.BareMetalHost) (hoststate.ConfigDrive, error) {
	var texts hoststate.ConfigTexts
	for _, part := range []struct {
		ref   *corev1.SecretReference
		field string
		into  *string
	}{
		{host.Spec.UserData, "userData", &texts.UserData},
		{host.Spec.NetworkData, "networkData", &texts.NetworkData},
		{host.Spec.MetaData, "metaData", &texts.MetaData},
	} {
		text, err := r.configText(ctx, host, part.ref, part.field)
		if err != nil {
			return hoststate.ConfigDrive{}, err
		}
		*part.into = text
	}
	config, err := hoststate.ConfigDriveOf(host, texts)
	if err != nil {
		return config, fmt.Errorf("%w: %w", errConfig, err)
	}
	return config, nil
}

// configText reads one Secret: the key that is named for the field, or "value".
func (r *Reconciler) configText(ctx context.Context, host *metal3v1.BareMetalHost, ref *corev1.SecretReference, field string) (string, error) {
	if ref == nil || ref.Name == "" {
		return "", nil
	}
	if ref.Namespace != "" && ref.Namespace != host.Namespace {
		return "", fmt.Errorf("%w: the Secret of spec.%s has to be in the namespace of the host", errConfig, field)
	}
	var secret corev1.Secret
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w: there is no Secret %s in this namespace, which spec.%s names", errConfig, ref.Name, field)
	} else if err != nil {
		return "", wrap(err, "reading the Secret of spec.%s of host %s", field, client.ObjectKeyFromObject(host))
	}
	for _, key := range []string{field, "value"} {
		if text, ok := secret.Data[key]; ok {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("%w: the Secret %s has neither the key %s nor value", errConfig, ref.Name, field)
}
