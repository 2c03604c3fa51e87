// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apidocs serves the description of REST v2: as a page for people, and as OpenAPI.
package apidocs

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/web"
)

// New serves the description of the interface as one page without anything from elsewhere, which it renders when it is first asked for.
func New(description *openapi3.T) (http.Handler, error) {
	page, err := template.New("docs.html").ParseFS(web.Files, "docs.html")
	if err != nil {
		return nil, fmt.Errorf("reading the page of the documentation: %w", err)
	}
	// Most replicas are never asked for it.
	render := sync.OnceValues(func() ([]byte, error) {
		var out bytes.Buffer
		err := page.Execute(&out, documented(description))
		return out.Bytes(), err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		content, err := render()
		if err != nil {
			http.Error(w, "rendering the documentation: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_, _ = w.Write(content)
	}), nil
}

// OpenAPI answers with the description itself.
func OpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(api.Spec())
}

type docsPage struct {
	Title       string
	Description []string
	Base        string
	Groups      []docsGroup
	Schemas     []docsSchema
}

type docsGroup struct {
	Name, Description string
	Operations        []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary, Body, Answer string
	Callers                                 string
	Parameters                              []docsField
}

type docsSchema struct {
	Name   string
	Fields []docsField
	Values []string
}

type docsField struct {
	Name, Type, Description string
	Required                bool
}

func documented(d *openapi3.T) docsPage {
	page := docsPage{Title: d.Info.Title, Description: strings.Split(strings.ReplaceAll(strings.ReplaceAll(d.Info.Description, "**", ""), "`", ""), "\n"), Base: api.Base}
	for _, tag := range d.Tags {
		group := docsGroup{Name: tag.Name, Description: tag.Description}
		for path, item := range d.Paths.Map() {
			for method, o := range item.Operations() {
				if slices.Contains(o.Tags, tag.Name) {
					group.Operations = append(group.Operations, documentedOperation(path, method, item, o))
				}
			}
		}
		slices.SortFunc(group.Operations, func(a, b docsOperation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
		page.Groups = append(page.Groups, group)
	}
	for name, schema := range d.Components.Schemas {
		page.Schemas = append(page.Schemas, documentedSchema(name, schema.Value))
	}
	slices.SortFunc(page.Schemas, func(a, b docsSchema) int { return strings.Compare(a.Name, b.Name) })
	return page
}

func documentedOperation(path, method string, item *openapi3.PathItem, o *openapi3.Operation) docsOperation {
	found := docsOperation{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, Callers: "people"}
	if o.Security != nil && slices.ContainsFunc(*o.Security, func(r openapi3.SecurityRequirement) bool { return r["agentAuth"] != nil || r["urlAuth"] != nil }) {
		found.Callers = "people, machines"
	}
	for _, p := range append(slices.Clone(item.Parameters), o.Parameters...) {
		found.Parameters = append(found.Parameters, docsField{Name: p.Value.Name, Type: typeName(p.Value.Schema) + " in " + p.Value.In, Description: p.Value.Description, Required: p.Value.Required})
	}
	if o.RequestBody != nil {
		for _, media := range o.RequestBody.Value.Content {
			found.Body = typeName(media.Schema)
		}
	}
	for status, response := range o.Responses.Map() {
		if !strings.HasPrefix(status, "2") {
			continue
		}
		found.Answer = status
		for _, media := range response.Value.Content {
			found.Answer = status + " " + typeName(media.Schema)
		}
	}
	return found
}

func documentedSchema(name string, schema *openapi3.Schema) docsSchema {
	found := docsSchema{Name: name}
	for _, part := range append(openapi3.SchemaRefs{{Value: schema}}, schema.AllOf...) {
		for field, property := range part.Value.Properties {
			found.Fields = append(found.Fields, docsField{
				Name: field, Type: typeName(property), Description: property.Value.Description, Required: slices.Contains(part.Value.Required, field),
			})
		}
	}
	slices.SortFunc(found.Fields, func(a, b docsField) int { return strings.Compare(a.Name, b.Name) })
	for _, v := range schema.Enum {
		found.Values = append(found.Values, fmt.Sprint(v))
	}
	return found
}

func typeName(schema *openapi3.SchemaRef) string {
	switch {
	case schema == nil || schema.Value == nil:
		return ""
	case schema.Ref != "":
		return schema.Ref[strings.LastIndex(schema.Ref, "/")+1:]
	case schema.Value.Items != nil:
		return "list of " + typeName(schema.Value.Items)
	case len(schema.Value.Enum) > 0:
		values := make([]string, 0, len(schema.Value.Enum))
		for _, v := range schema.Value.Enum {
			values = append(values, fmt.Sprint(v))
		}
		return strings.Join(values, " | ")
	case schema.Value.Format != "":
		return schema.Value.Format
	case schema.Value.Type != nil && len(*schema.Value.Type) > 0:
		return (*schema.Value.Type)[0]
	}
	return ""
}
