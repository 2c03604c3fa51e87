// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

// createCluster creates a cluster's namespace, what belongs into it, and last the ClusterDeployment: when that is in view, everything is there. Each of them may exist
// already, because the operation may have been interrupted.
func (r *Reconciler) createCluster(ctx context.Context, p *pass, a poolplan.CreateCluster) error {
	if err := p.sources.load(ctx, r.Live); err != nil {
		return err
	}
	if a.Replay {
		// Since this pass looked, others may have created the cluster, and deleted it again.
		if err := r.confirm(ctx, p.pool); err != nil {
			return err
		}
	}
	begun, err := r.createNamespace(ctx, p.pool, a)
	if err == nil {
		err = r.createContents(ctx, p, a, begun)
	}
	if refused(err) {
		// A refused creation will be refused again: the pool withdraws it and slows down.
		r.memory.change(func() { p.memory.refused[a.Namespace] = reasonOf(err) })
		log.FromContext(ctx).Info("was refused the creation of a cluster", "ClusterDeployment", a.Namespace, "reason", reasonOf(err))
		return apierrors.NewConflict(hivev1.GroupVersion.WithResource("clusterpools").GroupResource(), p.pool.Name, errOldPool)
	}
	if err != nil {
		return fmt.Errorf("creating cluster %s: %w", a.Namespace, err)
	}
	log.FromContext(ctx).Info("created cluster", "ClusterDeployment", a.Namespace, "clusterName", a.ClusterName, "why", a.Why)
	if !a.Replay {
		related := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Namespace}}
		r.event(p.pool, related, a.Why, "CreateCluster", "Created cluster "+a.Namespace)
	}
	return nil
}

// createContents creates what belongs into a cluster's namespace. A cluster some of whose objects an interrupted operation made is of the version that the pool had when that began.
func (r *Reconciler) createContents(ctx context.Context, p *pass, a poolplan.CreateCluster, begun string) error {
	objects, err := p.contents(a)
	if err != nil {
		return err
	}
	found := false
	for _, object := range objects {
		if cd, last := object.(*hivev1.ClusterDeployment); last && found {
			cd.Annotations[hivev1.AnnotationClusterPoolSpecHash] = begun
		}
		r.yieldWriter(ctx, p)
		err := r.Client.Create(ctx, object, client.FieldOwner(FieldOwner))
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		found = found || err != nil
	}
	return nil
}

// podSecurityLabel on a namespace says which pods are admitted there.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// createNamespace creates the namespace of a new cluster. If there is one already it has to be this pool's. It returns the version of the pool that the namespace was created for.
func (r *Reconciler) createNamespace(ctx context.Context, pool *hivev1.ClusterPool, a poolplan.CreateCluster) (begun string, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: a.Namespace, Labels: membership.Labels(client.ObjectKeyFromObject(pool)), Annotations: map[string]string{hivev1.AnnotationClusterPoolSpecHash: a.Version},
	}}
	if pool.Spec.Platform.Hosted != nil && pool.Spec.ClusterInstallTemplate == nil {
		ns.Labels[podSecurityLabel] = "restricted" // the operator's own pods fit it; those of other installers may not
	}
	err = r.Client.Create(ctx, ns, client.FieldOwner(FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return a.Version, err
	}
	existing := &metav1.PartialObjectMetadata{}
	existing.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Live.Get(ctx, client.ObjectKey{Name: a.Namespace}, existing); err != nil {
		return "", err
	}
	if existing.Labels[hivev1.LabelNamespaceClusterPoolName] != pool.Name || existing.Labels[hivev1.LabelNamespaceClusterPoolNamespace] != pool.Namespace {
		return "", errNotOurs
	}
	return cmp.Or(existing.Annotations[hivev1.AnnotationClusterPoolSpecHash], a.Version), nil
}

// refused says whether an answer of the API server will be the same next time.
func refused(err error) bool {
	return errors.Is(err, errNotOurs) || errors.Is(err, errNoObject) || errors.Is(err, errNoInstaller) || meta.IsNoMatchError(err) || outcome.IsRefused(err)
}

// reasonOf is the API server's sentence.
func reasonOf(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// contents are the objects of a new cluster, in the order in which they are created.
func (p *pass) contents(a poolplan.CreateCluster) ([]client.Object, error) {
	var objects []client.Object
	cd := newClusterDeployment(p.pool, a)
	secrets, err := p.secrets(a, cd)
	if err != nil {
		return nil, err
	}
	objects = append(objects, secrets...)
	if template := p.pool.Spec.ClusterInstallTemplate; template != nil {
		install, err := newInstall(p.pool, template, a.Namespace)
		if err != nil {
			return nil, err
		}
		objects = append(objects, install)
		gvk := install.GroupVersionKind()
		cd.Spec.ClusterInstallRef = &hivev1.ClusterInstallLocalReference{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: a.Namespace}
		if onlyImageSet(cd.Spec.Provisioning) {
			cd.Spec.Provisioning = nil
		}
	}
	// Before the ClusterDeployment, as all else: a replica that sees it sees how many machines it waits for.
	objects = append(objects, newMachinePools(p.pool, a.Namespace)...)
	return append(objects, cd), nil
}

// onlyImageSet says whether provisioning names an image set and nothing else. An install object names it by itself, and Hive's admission refuses a ClusterDeployment with both.
func onlyImageSet(how *hivev1.Provisioning) bool {
	return how.InstallConfigSecretRef == nil && how.CustomizationRef == nil && len(how.InstallerEnv) == 0
}

// newMachinePools makes the MachinePools of a new cluster. Their owner is the ClusterDeployment, as soon as they are served.
func newMachinePools(pool *hivev1.ClusterPool, cluster string) []client.Object {
	var objects []client.Object
	templates := poolplan.MachinePools(pool.Spec)
	for i := range templates {
		t := &templates[i]
		made := &hivev1.MachinePool{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: cluster, Name: cluster + "-" + t.Name,
				Labels: map[string]string{hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name},
			},
			Spec: hivev1.MachinePoolSpec{
				ClusterDeploymentRef: hivev1.LocalObjectReference{Name: cluster}, Name: t.Name, Replicas: &t.Replicas, MaxReplicas: t.MaxReplicas, Labels: t.Labels, Taints: t.Taints,
				Platform: *t.Platform.DeepCopy(),
			},
		}
		if machines := made.Spec.Platform.AgentBareMetal; machines != nil && machines.AgentNamespace == "" {
			machines.AgentNamespace = pool.Namespace
		}
		objects = append(objects, made)
	}
	return objects
}

// secrets are the copies of the pool's Secrets for a new cluster, which is made to refer to them. Pull secret and install-config go into one Secret, which saves a write per cluster,
// unless they are too large together. Those of the platform keep their names: its settings are copied as they are.
func (p *pass) secrets(a poolplan.CreateCluster, cd *hivev1.ClusterDeployment) ([]client.Object, error) {
	var pull, config *corev1.Secret
	if p.sources.pull != nil {
		pull = newSecret(a.Namespace, membership.PullSecretName(a.Namespace), corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, p.sources.pull)
		cd.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: pull.Name}
	}
	if p.sources.template != nil {
		rendered, err := renderInstallConfig(p.sources.template, a.ClusterName, p.pool.Spec.BaseDomain)
		if err != nil {
			return nil, err
		}
		name := a.Namespace + "-install-config"
		if pull != nil && len(p.sources.pull)+len(rendered) <= corev1.MaxSecretSize {
			name = pull.Name
			pull.Data[hivev1.SecretKeyInstallConfig] = rendered
		} else {
			config = newSecret(a.Namespace, name, corev1.SecretTypeOpaque, hivev1.SecretKeyInstallConfig, rendered)
		}
		cd.Spec.Provisioning.InstallConfigSecretRef = &hivev1.LocalObjectReference{Name: name}
	}
	var objects []client.Object
	for _, secret := range []*corev1.Secret{pull, config} {
		if secret != nil {
			objects = append(objects, secret)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.sources.platform)) {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}, Type: corev1.SecretTypeOpaque, Data: p.sources.platform[name]})
	}
	return objects, nil
}

func newSecret(namespace, name string, kind corev1.SecretType, key string, value []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: map[string][]byte{key: value}}
}

// newClusterDeployment makes the ClusterDeployment of a new cluster from the pool's spec.
func newClusterDeployment(pool *hivev1.ClusterPool, a poolplan.CreateCluster) *hivev1.ClusterDeployment {
	labels := map[string]string{}
	maps.Copy(labels, pool.Spec.Labels)
	labels[hivev1.LabelClusterPoolNamespace], labels[hivev1.LabelClusterPoolName] = pool.Namespace, pool.Name
	labels[hivev1.LabelClusterPlatform] = pool.Spec.Platform.Name()
	annotations := map[string]string{}
	maps.Copy(annotations, pool.Spec.Annotations)
	annotations[hivev1.AnnotationClusterPoolSpecHash] = a.Version
	return &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Namespace, Labels: labels, Annotations: annotations},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName:          a.ClusterName,
			BaseDomain:           pool.Spec.BaseDomain,
			Platform:             *pool.Spec.Platform.DeepCopy(),
			PowerState:           a.Power,
			HibernateAfter:       pool.Spec.HibernateAfter,
			InstallAttemptsLimit: pool.Spec.InstallAttemptsLimit,
			ClusterPoolRef:       &hivev1.ClusterPoolReference{Namespace: pool.Namespace, PoolName: pool.Name},
			Provisioning: &hivev1.Provisioning{
				ImageSetRef:      &hivev1.ClusterImageSetReference{Name: pool.Spec.ImageSetRef.Name},
				InstallerEnv:     pool.Spec.InstallerEnv,
				CustomizationRef: pool.Spec.CustomizationRef,
			},
		},
	}
}

// errNoInstaller says that a template is of a kind that the operator creates for other purposes only. The schema refuses it, but not where it was stored before.
var errNoInstaller = errors.New("spec.clusterInstallTemplate is of a kind of Kubernetes or of hive.openshift.io, which installs no cluster")

// newInstall makes the install object of a new cluster from the pool's template. It has the cluster's name.
func newInstall(pool *hivev1.ClusterPool, template *hivev1.ClusterInstallTemplate, name string) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(template.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	if !hivev1.MayInstall(gv.Group) {
		return nil, errNoInstaller
	}
	install := &unstructured.Unstructured{Object: map[string]any{}}
	if template.Spec != nil && len(template.Spec.Raw) > 0 {
		spec := map[string]any{}
		if err := decodeJSON(template.Spec.Raw, &spec); err != nil {
			return nil, errNoObject
		}
		install.Object["spec"] = spec
	}
	install.SetGroupVersionKind(gv.WithKind(template.Kind))
	install.SetNamespace(name)
	install.SetName(name)
	install.SetLabels(template.Labels)
	install.SetAnnotations(template.Annotations)
	if err := unstructured.SetNestedField(install.Object, name, "spec", "clusterDeploymentRef", "name"); err != nil {
		return nil, errNoObject
	}
	if _, found, _ := unstructured.NestedString(install.Object, "spec", "imageSetRef", "name"); !found {
		if err := unstructured.SetNestedField(install.Object, pool.Spec.ImageSetRef.Name, "spec", "imageSetRef", "name"); err != nil {
			return nil, errNoObject
		}
	}
	return install, nil
}
