// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"errors"
	"fmt"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// compiled is an expression or text, or why it is none.
type compiled struct {
	expression *inventory.Expression
	text       *inventory.Text
	err        error
}

var errSelector = errors.New("spec.selector")

// resource is a BareMetalHostDiscovery as the plan sees it. Expressions are compiled once per text.
func (m *memory) resource(d *metal3v1.BareMetalHostDiscovery) inventory.Resource {
	r := inventory.Resource{
		Ref: inventory.Ref{Namespace: d.Namespace, Name: d.Name}, Created: d.CreationTimestamp.Time, UID: string(d.UID),
		Paused: d.Spec.Paused, Going: d.DeletionTimestamp != nil, Template: d.Spec.ResourceNameTemplate,
		Manual: d.Spec.Approval == metal3v1.ApprovalManual, MaxHosts: d.Spec.RateLimit.MaxHosts,
	}
	if d.Spec.Selector != "" {
		c := m.compile("selector "+d.Spec.Selector, func() (c compiled) {
			c.expression, c.err = inventory.CompileSelector(d.Spec.Selector)
			return c
		})
		r.Selects = c.expression
		if c.err != nil {
			r.Broken = fmt.Errorf("%w: %w", errSelector, c.err).Error()
		}
	}
	r.Labels, r.Annotations = map[string]*inventory.Text{}, map[string]*inventory.Text{}
	m.texts(&r, "labels", d.Spec.HostTemplate.Labels, r.Labels)
	m.texts(&r, "annotations", d.Spec.HostTemplate.Annotations, r.Annotations)
	return r
}

func (m *memory) texts(r *inventory.Resource, field string, from map[string]metal3v1.TemplateValue, to map[string]*inventory.Text) {
	for key, value := range from {
		c := m.compile("text "+string(value), func() (c compiled) {
			c.text, c.err = inventory.CompileText(string(value))
			return c
		})
		if c.err != nil {
			r.Broken = fmt.Sprintf("spec.hostTemplate.%s[%s]: %v", field, key, c.err)
			continue
		}
		to[key] = c.text
	}
}

// maxCompiled bounds the memory of expressions that nobody uses any more.
const maxCompiled = 1000

func (m *memory) compile(key string, make func() compiled) compiled {
	if c, ok := m.compiled[key]; ok {
		return c
	}
	if len(m.compiled) > maxCompiled {
		clear(m.compiled)
	}
	c := make()
	m.compiled[key] = c
	return c
}
