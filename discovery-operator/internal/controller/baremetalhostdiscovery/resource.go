// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

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
		IgnoreSerial: d.Spec.DuplicateChecks.SerialNumber == metal3v1.DuplicateIgnore, IgnoreBMC: d.Spec.DuplicateChecks.BMCAddress == metal3v1.DuplicateIgnore,
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
	r.Dry = d.Spec.Mode == metal3v1.ModeDryRun
	r.Approves = m.selector(&r, "spec.approvalRule", d.Spec.ApprovalRule)
	r.Named = m.name(&r, d.Spec.ResourceNameTemplate.Expression)
	if t := d.Spec.HostTemplate.BMC; t != nil {
		r.BMC = &inventory.BMCRule{Address: m.text(&r, "spec.hostTemplate.bmc.address", t.Address), Secret: t.CredentialsName}
		for i, c := range t.Credentials {
			r.BMC.Secrets = append(r.BMC.Secrets, inventory.SecretRule{
				Selects: m.selector(&r, fmt.Sprintf("spec.hostTemplate.bmc.credentials[%d].selector", i), c.Selector), MACPrefix: c.MACPrefix, Secret: c.CredentialsName,
			})
		}
	}
	r.Labels, r.Annotations = map[string]*inventory.Text{}, map[string]*inventory.Text{}
	m.texts(&r, "labels", d.Spec.HostTemplate.Labels, r.Labels)
	m.texts(&r, "annotations", d.Spec.HostTemplate.Annotations, r.Annotations)
	return r
}

// selector compiles an expression, nil where there is none. A wrong one makes the resource unusable.
func (m *memory) selector(r *inventory.Resource, field, source string) *inventory.Expression {
	if source == "" {
		return nil
	}
	c := m.compile("selector "+source, func() (c compiled) {
		c.expression, c.err = inventory.CompileSelector(source)
		return c
	})
	if c.err != nil {
		r.Broken = fmt.Sprintf("%s: %v", field, c.err)
	}
	return c.expression
}

// text compiles a value with expressions, nil where there is none. A wrong one makes the resource unusable.
func (m *memory) text(r *inventory.Resource, field string, source metal3v1.TemplateValue) *inventory.Text {
	if source == "" {
		return nil
	}
	c := m.compile("text "+string(source), func() (c compiled) {
		c.text, c.err = inventory.CompileText(string(source))
		return c
	})
	if c.err != nil {
		r.Broken = fmt.Sprintf("%s: %v", field, c.err)
	}
	return c.text
}

// name compiles the expression of names, nil where there is none. A wrong one makes the resource unusable.
func (m *memory) name(r *inventory.Resource, source metal3v1.TemplateValue) *inventory.Text {
	if source == "" {
		return nil
	}
	c := m.compile("name "+string(source), func() (c compiled) {
		c.text, c.err = inventory.CompileName(string(source))
		return c
	})
	if c.err != nil {
		r.Broken = fmt.Sprintf("spec.resourceNameTemplate.expression: %v", c.err)
	}
	return c.text
}

func (m *memory) texts(r *inventory.Resource, field string, from map[string]metal3v1.TemplateValue, to map[string]*inventory.Text) {
	for key, value := range from {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			r.Broken = fmt.Sprintf("spec.hostTemplate.%s: %q is no legal key: %s", field, key, wrong[0])
			continue
		}
		if text := m.text(r, fmt.Sprintf("spec.hostTemplate.%s[%s]", field, key), value); text != nil {
			to[key] = text
		} else if value == "" {
			to[key] = &inventory.Text{}
		}
	}
}

// maxCompiled bounds the memory of expressions that are not used any more.
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
