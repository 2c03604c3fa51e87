// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package olderkinds applies objects of kinds whose definition another system brought, such as a BareMetalHost of a baremetal operator. Its version of
// the kind may be from before a field, and an API server refuses a server-side apply as a whole for one field that it does not know.
package olderkinds

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Client returns a client that repeats a server-side apply of an object of these kinds without the fields that the API server does not know, which
// costs a second request, at first some more. The other fields are written, and the log names once what is left out.
func Client(c client.Client, kinds ...string) client.Client {
	return &tolerant{Client: c, applier: &applier{kinds: kinds, lacking: map[string][]string{}}}
}

type tolerant struct {
	client.Client
	applier *applier
}

// Apply implements client.Writer.
func (t *tolerant) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return t.applier.apply(ctx, object, func(o runtime.ApplyConfiguration) error { return t.Client.Apply(ctx, o, options...) })
}

// Status implements client.StatusClient.
func (t *tolerant) Status() client.SubResourceWriter { return t.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (t *tolerant) SubResource(name string) client.SubResourceClient {
	return &subResource{SubResourceClient: t.Client.SubResource(name), applier: t.applier}
}

type subResource struct {
	client.SubResourceClient
	applier *applier
}

// Apply implements client.SubResourceWriter.
func (s *subResource) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	return s.applier.apply(ctx, object, func(o runtime.ApplyConfiguration) error { return s.SubResourceClient.Apply(ctx, o, options...) })
}

// rounds bounds the requests for one apply: the API server does not name all fields at once that it does not know.
const rounds = 10

type applier struct {
	kinds []string

	mu sync.Mutex
	// lacking are the fields that were left out, by kind.
	lacking map[string][]string
}

func (a *applier) apply(ctx context.Context, object runtime.ApplyConfiguration, write func(runtime.ApplyConfiguration) error) error {
	err := write(object)
	fields := unknown(err)
	for range rounds {
		if len(fields) == 0 {
			break
		}
		_, kind, failed := without(object, nil)
		if failed != nil || !slices.Contains(a.kinds, kind) {
			break
		}
		known, _, failed := without(object, a.learn(ctx, kind, fields))
		if failed != nil {
			break
		}
		if err = write(known); err == nil {
			if _, is := object.(runtime.Unstructured); !is {
				reflect.ValueOf(object).Elem().Set(reflect.ValueOf(known).Elem()) // as an apply leaves it
			}
			return nil
		}
		if fields = unknown(err); len(fields) == 0 {
			return fmt.Errorf("applying what the definition of %s has: %w", kind, err)
		}
	}
	return err
}

// learn adds fields to those that the definition of a kind lacks, and returns these.
func (a *applier) learn(ctx context.Context, kind string, fields []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, field := range fields {
		if !slices.Contains(a.lacking[kind], field) {
			logf.FromContext(ctx).Info("the definition of a kind lacks a field, which is left out: it is older than this operator", "kind", kind, "field", field)
			a.lacking[kind] = append(a.lacking[kind], field)
		}
	}
	return slices.Clone(a.lacking[kind])
}

// without returns a copy of an object without fields, of the same type, and its kind.
func without(object runtime.ApplyConfiguration, fields []string) (known runtime.ApplyConfiguration, kind string, err error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, "", err
	}
	content := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &content.Object); err != nil {
		return nil, "", err
	}
	for _, field := range fields {
		remove(content.Object, strings.Split(field, "."))
	}
	if _, is := object.(runtime.Unstructured); is {
		return client.ApplyConfigurationFromUnstructured(content), content.GetKind(), nil
	}
	if data, err = json.Marshal(content.Object); err != nil {
		return nil, "", err
	}
	known = reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.ApplyConfiguration)
	return known, content.GetKind(), json.Unmarshal(data, known)
}

var (
	// refused is a line of the answer to an apply. The first one follows the name of the object.
	refused = regexp.MustCompile(`(?m)(?:^ *|\): )\.(.+): field not declared in schema$`)
	// element is which element of a list or map it is. A field that one element cannot have, none can.
	element = regexp.MustCompile(`\[[^\]]*\]`)
)

// unknown returns the fields that an apply was refused for, each once and without the elements of lists that they are in.
func unknown(err error) []string {
	if err == nil {
		return nil
	}
	var out []string
	for _, match := range refused.FindAllStringSubmatch(err.Error(), -1) {
		if field := element.ReplaceAllString(match[1], ""); !slices.Contains(out, field) {
			out = append(out, field)
		}
	}
	return out
}

// remove takes a field out of an object, and out of all elements of the lists that it is in.
func remove(from any, path []string) {
	switch from := from.(type) {
	case []any:
		for _, one := range from {
			remove(one, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(from, path[0])
			return
		}
		remove(from[path[0]], path[1:])
	}
}
