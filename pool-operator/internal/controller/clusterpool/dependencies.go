// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// sources are the Secrets that new clusters get copies of. They are read once in a pass, and only if a cluster is created in it.
type sources struct {
	pool     *hivev1.ClusterPool
	once     sync.Once
	pull     []byte
	template []byte
	// platform is the content of the Secrets that the platform names, by name.
	platform map[string]map[string][]byte
	err      error
}

// errNoKey says that a Secret lacks what new clusters need of it.
var errNoKey = errors.New("has no key")

// load reads the Secrets. In a pool that is being deleted one that is missing, or lacks its key, is no obstacle: its cluster is created only to be deleted.
func (s *sources) load(ctx context.Context, live client.Reader) error {
	s.once.Do(func() {
		s.pull, s.err = readKey(ctx, live, s.pool, s.pool.Spec.PullSecretRef, hivev1.SecretKeyDockerConfigJSON)
		if s.err == nil {
			s.template, s.err = readKey(ctx, live, s.pool, s.pool.Spec.InstallConfigSecretTemplateRef, hivev1.SecretKeyInstallConfig)
		}
		if s.err == nil {
			s.err = s.loadPlatform(ctx, live)
		}
		if (apierrors.IsNotFound(s.err) || errors.Is(s.err, errNoKey)) && !s.pool.DeletionTimestamp.IsZero() {
			s.err = nil
		}
	})
	return s.err
}

// loadPlatform reads the Secrets that the platform names.
func (s *sources) loadPlatform(ctx context.Context, live client.Reader) error {
	content := map[string]map[string][]byte{}
	for _, name := range s.pool.Spec.Platform.SecretNames() {
		secret := &corev1.Secret{}
		if err := live.Get(ctx, client.ObjectKey{Namespace: s.pool.Namespace, Name: name}, secret); err != nil {
			return fmt.Errorf("reading secret %s/%s: %w", s.pool.Namespace, name, err)
		}
		content[name] = secret.Data
	}
	s.platform = content
	return nil
}

func readKey(ctx context.Context, live client.Reader, pool *hivev1.ClusterPool, ref *hivev1.LocalObjectReference, key string) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: ref.Name}, secret); err != nil {
		return nil, fmt.Errorf("reading secret %s/%s: %w", pool.Namespace, ref.Name, err)
	}
	if len(secret.Data[key]) == 0 {
		return nil, fmt.Errorf("secret %s/%s %w %s", pool.Namespace, ref.Name, errNoKey, key)
	}
	return secret.Data[key], nil
}

// missingDependencies says what new clusters of the pool need and is not there.
func (r *Reconciler) missingDependencies(ctx context.Context, p *pass) ([]string, error) {
	var missing []string
	versions := sha256.New()
	imageSet := &hivev1.ClusterImageSet{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: p.pool.Spec.ImageSetRef.Name}, imageSet)
	switch {
	case apierrors.IsNotFound(err):
		missing = append(missing, fmt.Sprintf("cluster image set: clusterimagesets.hive.openshift.io %q not found", p.pool.Spec.ImageSetRef.Name))
	case err != nil:
		return nil, fmt.Errorf("reading cluster image set %s: %w", p.pool.Spec.ImageSetRef.Name, err)
	default:
		r.seeContent(p, "imageset "+imageSet.Name, map[string][]byte{"releaseImage": []byte(imageSet.Spec.ReleaseImage)})
		addVersion(versions, "imageset", imageSet.UID, imageSet.Spec.ReleaseImage)
	}
	for _, need := range secretsNeeded(p.pool) {
		sentence, secret, err := r.missingSecret(ctx, p, need)
		if err != nil {
			return nil, err
		}
		addVersion(versions, need.label, secret.UID, secret.ResourceVersion)
		if sentence != "" {
			missing = append(missing, need.label+": "+sentence)
		}
	}
	p.snapshot.Sources = hex.EncodeToString(versions.Sum(nil)[:8])
	return missing, nil
}

// addVersion adds the version of an object. The data of a Secret never is part of it.
func addVersion(to hash.Hash, what string, uid types.UID, version string) {
	_, _ = fmt.Fprintf(to, "%q %q %q;", what, uid, version) // never fails
}

// need is a Secret in the pool's namespace that new clusters need, and the key it must have; "" where that is for the installer to say.
type need struct {
	label, name, key string
}

func secretsNeeded(pool *hivev1.ClusterPool) []need {
	var needs []need
	if ref := pool.Spec.PullSecretRef; ref != nil {
		needs = append(needs, need{"pull secret", ref.Name, hivev1.SecretKeyDockerConfigJSON})
	}
	if ref := pool.Spec.InstallConfigSecretTemplateRef; ref != nil {
		needs = append(needs, need{"install config template secret", ref.Name, hivev1.SecretKeyInstallConfig})
	}
	refs := pool.Spec.Platform.SecretRefs()
	for _, field := range slices.Sorted(maps.Keys(refs)) {
		needs = append(needs, need{strings.TrimSuffix(field, "SecretRef") + " secret", refs[field], ""})
	}
	return needs
}

// missingSecret says in which way a Secret is missing, and returns its metadata as far as it is there. Its content is read once per version of it.
func (r *Reconciler) missingSecret(ctx context.Context, p *pass, n need) (sentence string, found metav1.ObjectMeta, err error) {
	key := client.ObjectKey{Namespace: p.pool.Namespace, Name: n.name}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err = r.Metadata.Get(ctx, key, meta)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("secrets %q not found", n.name), found, nil
	case err != nil:
		return "", found, fmt.Errorf("reading metadata of secret %s: %w", key, err)
	case p.memory.secrets[n.label] == meta.ResourceVersion:
		return "", meta.ObjectMeta, nil
	}
	sentence, err = r.readSecret(ctx, p, n, key)
	return sentence, meta.ObjectMeta, err
}

// readSecret says what a Secret lacks, and remembers its content if it lacks nothing.
func (r *Reconciler) readSecret(ctx context.Context, p *pass, n need, key client.ObjectKey) (string, error) {
	secret := &corev1.Secret{}
	if err := r.Live.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("secrets %q not found", n.name), nil
		}
		return "", fmt.Errorf("reading secret %s: %w", key, err)
	}
	r.seeContent(p, n.label+" "+n.name, secret.Data)
	if n.key != "" && len(secret.Data[n.key]) == 0 {
		return fmt.Sprintf("secret %q has no key %s", n.name, n.key), nil
	}
	if n.key == hivev1.SecretKeyInstallConfig {
		if !isObject(secret.Data[n.key]) {
			return fmt.Sprintf("key %s of secret %q is no YAML object", n.key, n.name), nil
		}
	}
	r.memory.change(func() { p.memory.secrets[n.label] = secret.ResourceVersion })
	return "", nil
}

// seeContent remembers a digest of what new clusters are made from, so that a change of it is noticed: a Secret that is merely annotated has not changed.
func (r *Reconciler) seeContent(p *pass, what string, data map[string][]byte) {
	digest := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(digest, "%q=%q;", key, data[key]) // never fails
	}
	r.memory.change(func() { p.memory.sees(what, [sha256.Size]byte(digest.Sum(nil)), r.Clock.Now()) })
}

func isObject(template []byte) bool {
	_, err := renderInstallConfig(template, "name", "domain")
	return err == nil
}

// errNoObject says that a template is malformed. It does not quote the template, which may hold secrets.
var errNoObject = errors.New("the install-config template is no YAML object")

// renderInstallConfig puts name and base domain into an install-config template. All else is kept.
func renderInstallConfig(template []byte, name, baseDomain string) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(template, &config); err != nil || len(config) == 0 {
		return nil, errNoObject
	}
	metadata, ok := config["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	metadata["name"] = name
	config["metadata"] = metadata
	config["baseDomain"] = baseDomain
	out, err := yaml.Marshal(config)
	if err != nil {
		return nil, errNoObject
	}
	return out, nil
}
