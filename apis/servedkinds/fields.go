// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package servedkinds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// written holds, by set and kind, the types whose fields an operator writes and cannot do without: a server-side apply with a field that the
// definition lacks is refused as a whole, and a merge patch loses the field. They are those of kinds of which the definition is always Muster's:
// what pool-operator decided stands in the status of a pool before it is done, and discovery-operator applies the kinds that it brings, and hosts that it manages.
//
// Other kinds are not looked at, because definitions of other systems are good for them, too: ipam-operator and agent-service work with those of
// the systems that they replace, and Clusters, Hosts and NetworkData belong to whichever system brought them first.
var written = map[Set]map[string]any{
	DiscoveryOperator: {
		"BareMetalHostDiscovery": struct {
			Status metal3v1.BareMetalHostDiscoveryStatus `json:"status"`
		}{},
		"DiscoveredMachine": struct {
			Spec metal3v1.DiscoveredMachineSpec `json:"spec"`
		}{},
	},
	ManagedHosts: {
		"BareMetalHost": struct {
			Status metal3v1.BareMetalHostStatus `json:"status"`
		}{},
		"HardwareData": struct {
			Spec metal3v1.HardwareDataSpec `json:"spec"`
		}{},
	},
	PoolOperator: {
		"ClusterClaim": struct {
			Status hivev1.ClusterClaimStatus `json:"status"`
		}{},
		"ClusterPool": struct {
			Status hivev1.ClusterPoolStatus `json:"status"`
		}{},
	},
}

// fieldLooker compares the schemas that the API server publishes with the types of [written].
type fieldLooker struct {
	api rest.Interface
	log logr.Logger
	// documents are those that were read, by their address, which changes with them.
	documents map[string]*published
	// silent is set when schemas cannot be read. Fields are not looked for then.
	silent bool
}

// index names the documents of OpenAPI v3 by their group and version.
type index struct {
	Paths map[string]struct {
		Address string `json:"serverRelativeURL"`
	} `json:"paths"`
}

// published is what counts of a document of OpenAPI v3.
type published struct {
	Components struct {
		Schemas map[string]*fieldSchema `json:"schemas"`
	} `json:"components"`
}

// fieldSchema is what counts of a schema.
type fieldSchema struct {
	Properties map[string]*fieldSchema `json:"properties"`
	Items      *fieldSchema            `json:"items"`
	// AdditionalProperties is a schema, or true or false.
	AdditionalProperties json.RawMessage           `json:"additionalProperties"`
	Preserve             bool                      `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds                []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// missing returns the kinds of the sets whose schema lacks fields that are written. A schema that cannot be read lacks nothing: the operator
// goes on as without this check.
func (l *fieldLooker) missing(ctx context.Context, sets []Set) lackList {
	if l.silent {
		return nil
	}
	out, err := l.compare(ctx, sets)
	if err != nil && ctx.Err() == nil {
		l.log.Info("the fields of kinds are not compared with those that are written", "why", err.Error())
		l.silent = true
	}
	return out
}

func (l *fieldLooker) compare(ctx context.Context, sets []Set) (lackList, error) {
	var out lackList
	var addresses *index
	for _, set := range sets {
		for _, kind := range kinds[set] {
			value, checked := written[set][kind.Kind]
			if !checked {
				continue
			}
			if addresses == nil {
				addresses = &index{}
				if err := l.read(ctx, addresses, "/openapi/v3", nil); err != nil {
					return nil, err
				}
			}
			document, err := l.document(ctx, addresses, "apis/"+kind.GroupVersion().String())
			if err != nil {
				return nil, err
			}
			if fields := undeclared(reflect.TypeOf(value), document.of(kind), ""); len(fields) > 0 {
				out = append(out, lack{kind, set, fields})
			}
		}
	}
	return out, nil
}

// document returns the schemas of a group and version, none where they are not published yet.
func (l *fieldLooker) document(ctx context.Context, addresses *index, name string) (*published, error) {
	address := addresses.Paths[name].Address
	if address == "" {
		return &published{}, nil
	}
	if known, ok := l.documents[address]; ok {
		return known, nil
	}
	where, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of %s: %w", name, err)
	}
	document := &published{}
	if err := l.read(ctx, document, "/openapi/v3/"+name, where.Query()); err != nil {
		return nil, err
	}
	if l.documents == nil {
		l.documents = map[string]*published{}
	}
	l.documents[address] = document
	return document, nil
}

func (l *fieldLooker) read(ctx context.Context, into any, path string, query url.Values) error {
	request := l.api.Get().AbsPath(path).SetHeader("Accept", "application/json")
	for key := range query {
		request.Param(key, query.Get(key))
	}
	data, err := request.DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// of returns the schema of a kind, nil where it is not published.
func (d *published) of(kind schema.GroupVersionKind) *fieldSchema {
	for _, one := range d.Components.Schemas {
		if slices.Contains(one.Kinds, kind) {
			return one
		}
	}
	return nil
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// undeclared returns the fields of a type that a schema does not have, the outermost ones. A schema that says nothing has all.
func undeclared(t reflect.Type, s *fieldSchema, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s == nil || s.Preserve || t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return undeclared(t.Elem(), s.Items, path+"[]")
	case reflect.Map:
		var values *fieldSchema
		if json.Unmarshal(s.AdditionalProperties, &values) != nil {
			return nil // true, false, or nothing
		}
		return undeclared(t.Elem(), values, path+"{}")
	case reflect.Struct:
		if len(s.Properties) == 0 {
			return nil
		}
		return undeclaredOf(t, s, path)
	default:
		return nil
	}
}

func undeclaredOf(t reflect.Type, s *fieldSchema, path string) []string {
	var out []string
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch property, there := s.Properties[name]; {
		case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
			out = append(out, undeclared(field.Type, s, path)...)
		case name == "" || name == "-":
		case !there:
			out = append(out, path+"."+name)
		default:
			out = append(out, undeclared(field.Type, property, path+"."+name)...)
		}
	}
	return out
}
