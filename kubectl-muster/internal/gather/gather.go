// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// groups are the API groups of Muster's kinds; of a group with resources, only those are Muster's.
var groups = map[string][]string{
	"hive.openshift.io": nil, "extensions.hive.openshift.io": nil, "agent-install.openshift.io": nil, "metal3.io": nil, "ipam.metal3.io": nil,
	"infrastructure.cluster.x-k8s.io": {"metal3datas", "metal3dataclaims", "metal3datatemplates"},
	"ipam.cluster.x-k8s.io":           {"ipaddressclaims", "ipaddresses"},
}

// partOf marks what the operators run as.
const partOf = "app.kubernetes.io/part-of=muster"

const page = 500

// Limits of what is read of the log of one container: its last lines, in at most so many bytes. A kubelet that does not answer in time is left out.
const (
	logLines   = 50_000
	logBytes   = 16 << 20
	logTimeout = time.Minute
)

// Options say what is collected.
type Options struct {
	// Namespace bounds the objects; empty is all.
	Namespace string
	// Now dates the entries of the archive.
	Now time.Time
	// Progress hears of each step.
	Progress func(string)
}

// archive writes files, and remembers what could not be read.
type archive struct {
	*tar.Writer
	options Options
	missing []string
}

// Write collects objects of Muster's kinds, their events, and the operators' pods and logs into a gzipped tar archive. A part that cannot be
// read is named in missing.txt, with the reason: archives are wanted most where something does not answer. An error means that there is no archive.
// It reads no Secret and no ConfigMap.
func Write(ctx context.Context, config *rest.Config, out io.Writer, options Options) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	a := &archive{Writer: tar.NewWriter(zip), options: options}
	err = a.collect(ctx, clients, objects)
	return errors.Join(err, a.Close(), zip.Close())
}

func (a *archive) collect(ctx context.Context, clients kubernetes.Interface, objects dynamic.Interface) error {
	version, err := clients.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	if err := a.file("version.txt", []byte(version.String()+"\n")); err != nil {
		return err
	}
	namespaces, err := a.kinds(ctx, clients, objects)
	if err != nil {
		return err
	}
	if err := a.operators(ctx, clients, objects, namespaces); err != nil {
		return err
	}
	if err := a.events(ctx, objects, namespaces); err != nil {
		return err
	}
	slices.Sort(a.missing)
	return a.file("missing.txt", []byte(strings.Join(append(a.missing, ""), "\n")))
}

// kinds writes the objects of all kinds that are served, and returns the namespaces that have one.
func (a *archive) kinds(ctx context.Context, clients kubernetes.Interface, objects dynamic.Interface) (map[string]bool, error) {
	lists, err := clients.Discovery().ServerPreferredResources()
	if err != nil {
		if err := a.miss(ctx, "kinds", err); err != nil {
			return nil, err
		}
	}
	namespaces := make(map[string]bool)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		only, ours := groups[group.Group]
		if err != nil || !ours {
			continue
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains([]string(resource.Verbs), "list") || only != nil && !slices.Contains(only, resource.Name) {
				continue
			}
			if err := a.objects(ctx, objects, group.WithResource(resource.Name), resource.Namespaced, metav1.ListOptions{}, a.options.Namespace, namespaces); err != nil {
				return nil, err
			}
		}
	}
	return namespaces, nil
}

// objects writes all objects of a resource, a file each.
func (a *archive) objects(ctx context.Context, objects dynamic.Interface, resource schema.GroupVersionResource, namespaced bool,
	options metav1.ListOptions, namespace string, namespaces map[string]bool,
) error {
	a.progress("objects of " + resource.GroupResource().String())
	var reader dynamic.ResourceInterface = objects.Resource(resource)
	if namespaced && namespace != "" {
		reader = objects.Resource(resource).Namespace(namespace)
	}
	options.Limit = page
	for {
		list, err := reader.List(ctx, options)
		if err != nil {
			return a.miss(ctx, resource.GroupResource().String(), err)
		}
		for i := range list.Items {
			if err := a.object(resource, &list.Items[i]); err != nil {
				return err
			}
			if in := list.Items[i].GetNamespace(); in != "" {
				namespaces[in] = true
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (a *archive) object(resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	Object(object.Object)
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		return err
	}
	return a.file(path.Join("objects", resource.GroupResource().String(), object.GetNamespace(), object.GetName()+".yaml"), content)
}

// operators writes the operators' Deployments and pods, and what their containers logged.
func (a *archive) operators(ctx context.Context, clients kubernetes.Interface, objects dynamic.Interface, namespaces map[string]bool) error {
	labelled := metav1.ListOptions{LabelSelector: partOf}
	for _, resource := range []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "pods"}} {
		if err := a.objects(ctx, objects, resource, true, labelled, "", namespaces); err != nil {
			return err
		}
	}
	pods, err := clients.CoreV1().Pods(metav1.NamespaceAll).List(ctx, labelled)
	if err != nil {
		return a.miss(ctx, "logs", err)
	}
	for i := range pods.Items {
		if err := a.logs(ctx, clients, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) logs(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod) error {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		for _, previous := range []bool{false, true} {
			if previous && status.RestartCount == 0 {
				continue
			}
			name := status.Name + ".log"
			if previous {
				name = status.Name + ".previous.log"
			}
			a.progress("log of " + pod.Namespace + "/" + pod.Name)
			log, err := read(ctx, clients, pod, status.Name, previous)
			if err != nil {
				if err := a.miss(ctx, "log of "+pod.Namespace+"/"+pod.Name, err); err != nil {
					return err
				}
				continue
			}
			if err := a.file(path.Join("logs", pod.Namespace, pod.Name, name), []byte(Text(string(log)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the end of the log of a container that runs, or of the one before it.
func read(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod, container string, previous bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	return clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true, TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes)),
	}).DoRaw(ctx)
}

// events writes the events of all namespaces that something was found in.
func (a *archive) events(ctx context.Context, objects dynamic.Interface, namespaces map[string]bool) error {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	for namespace := range namespaces {
		a.progress("events of " + namespace)
		list, err := objects.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			if err := a.miss(ctx, "events of "+namespace, err); err != nil {
				return err
			}
			continue
		}
		for i := range list.Items {
			Object(list.Items[i].Object)
		}
		content, err := yaml.Marshal(list.UnstructuredContent())
		if err != nil {
			return err
		}
		if err := a.file(path.Join("events", namespace+".yaml"), content); err != nil {
			return err
		}
	}
	return nil
}

// miss notes what could not be read, and why. The end of the context ends the collection.
func (a *archive) miss(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	line := fmt.Sprintf("%s: %s", what, Text(err.Error()))
	a.missing = append(a.missing, line)
	a.progress("left out: " + line)
	return nil
}

func (a *archive) progress(step string) {
	if a.options.Progress != nil {
		a.options.Progress(step)
	}
}

func (a *archive) file(name string, content []byte) error {
	header := &tar.Header{Name: path.Join("muster", name), Mode: 0o600, Size: int64(len(content)), ModTime: a.options.Now, Format: tar.FormatPAX}
	if err := a.WriteHeader(header); err != nil {
		return err
	}
	_, err := a.Write(content)
	return err
}
