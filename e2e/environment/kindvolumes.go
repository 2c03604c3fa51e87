// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// volumes is how many hosted clusters a kind environment can hold in its life, and one for agent-service.
const volumes = 41

// AddVolumes lays out volumes that an account without rights can write to. The provisioner of host paths, which small node images have, makes directories
// of root and knows no fsGroup; a volume that is there already goes before one that has to be made. Each is on one node, and its pods with it.
func (k *Kind) AddVolumes(ctx context.Context) error {
	config, err := Config(k)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	class, err := defaultStorageClass(ctx, clients)
	if err != nil || class == "" {
		return err
	}
	nodes, err := k.workers(ctx)
	if err != nil {
		return err
	}
	script := fmt.Sprintf("mkdir -p /var/muster && cd /var/muster && seq %d | xargs mkdir && chmod 0777 *", volumes)
	for _, node := range nodes {
		if _, err := run(ctx, "docker", "exec", node, "sh", "-c", script); err != nil {
			return err
		}
	}
	for n := 1; n <= volumes; n++ {
		if _, err := clients.CoreV1().PersistentVolumes().Create(ctx, volume(n, class, nodes[n%len(nodes)]), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a volume: %w", err)
		}
	}
	return nil
}

func volume(n int, class, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("muster-%d", n)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: fmt.Sprintf("/var/muster/%d", n)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
}

// workers are the nodes that pods of users run on.
func (k *Kind) workers(ctx context.Context) ([]string, error) {
	out, err := run(ctx, k.program, "get", "nodes", "--name", k.name)
	if err != nil {
		return nil, err
	}
	nodes := strings.Fields(out)
	plane := k.name + "-control-plane"
	if len(nodes) > 1 {
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return node == plane })
	}
	if len(nodes) == 0 {
		return nil, errors.New("the cluster " + k.name + " has no nodes")
	}
	slices.Sort(nodes)
	return nodes, nil
}

// defaultStorageClass returns the name of the default class if it is one of host paths, and "" if volumes can be left to it.
func defaultStorageClass(ctx context.Context, clients kubernetes.Interface) (string, error) {
	classes, err := clients.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing storage classes: %w", err)
	}
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" && hostPath(class) {
			return class.Name, nil
		}
	}
	return "", nil
}

func hostPath(class storagev1.StorageClass) bool {
	return class.Provisioner == "kubernetes.io/host-path"
}
