// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployment writes a Deployment with the values that every operator has. The Deployment of discovery images takes its own from .Values.images.
func (s source) deployment(object *unstructured.Unstructured) (string, error) {
	values, arguments, mounts := ".Values", "arguments", "mounts"
	if object.GetName() != s.operator {
		values, arguments, mounts = ".Values.images", "imageArguments", "imageMounts"
	}
	pod, err := podOf(object)
	if err != nil {
		return "", err
	}
	set(object.Object, expression(values+".replicas"), "spec", "replicas")
	set(object.Object, expression(`.Values | toJson | sha256sum | quote`), "spec", "template", "metadata", "annotations", "checksum/values")
	for _, name := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName"} {
		pod[name] = field(".Values." + name)
	}
	container, err := containerOf(pod)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key(object), err)
	}
	container["image"] = expression(`include "image" .`)
	container["imagePullPolicy"] = expression(".Values.image.pullPolicy")
	container["resources"] = block("toYaml " + values + ".resources")
	add(container, "args", block(`include "`+arguments+`" .`))
	if container["env"] == nil {
		container["env"] = field(".Values.extraEnv")
	} else {
		add(container, "env", items(".Values.extraEnv"))
	}
	if s.operator == "agent-service" {
		add(container, "volumeMounts", block(`include "`+mounts+`" .`))
		add(pod, "volumes", block(`include "`+strings.Replace(mounts, "ounts", "ounted", 1)+`" .`))
		secrets(pod)
	}
	if s.edit != nil {
		s.edit(object)
	}
	return escaped(object)
}

// secrets lets values name the Secrets of the database and of the key of tokens.
func secrets(pod map[string]any) {
	volumes, _ := pod["volumes"].([]any)
	for _, volume := range volumes {
		v, _ := volume.(map[string]any)
		if secret, is := v["secret"].(map[string]any); is {
			switch v["name"] {
			case "database":
				secret["secretName"] = expression(".Values.database.secretName")
			case "token":
				secret["secretName"] = expression(".Values.tokenKey.secretName")
			}
		}
	}
}

func podOf(object *unstructured.Unstructured) (map[string]any, error) {
	template, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
	pod, is := template.(map[string]any)
	if err != nil || !found || !is {
		return nil, fmt.Errorf("%s has no pod", key(object))
	}
	return pod, nil
}

func containerOf(pod map[string]any) (map[string]any, error) {
	containers, _ := pod["containers"].([]any)
	if len(containers) != 1 {
		return nil, fmt.Errorf("%d containers instead of one", len(containers))
	}
	container, is := containers[0].(map[string]any)
	if !is {
		return nil, fmt.Errorf("a container is no object")
	}
	return container, nil
}

func add(to map[string]any, list string, item any) {
	items, _ := to[list].([]any)
	to[list] = append(items, item)
}

// set sets a field whose parents are there, or are made.
func set(object map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		next, is := object[name].(map[string]any)
		if !is {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}
