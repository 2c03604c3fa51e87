// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// answerTimeout bounds a request to the API server.
const answerTimeout = 30 * time.Second

// maxAnswer is more than the list of any API group is.
const maxAnswer = 8 << 20

// fieldOwner owns what the machine applies in its cluster.
const fieldOwner = "node-init"

// client asks the API server of this machine as its administrator.
type client struct {
	http   *http.Client
	server string
	// groups are the kinds of each group and version that was asked for.
	groups map[string][]apiResource
}

// apiResource is a kind that the API server serves.
type apiResource struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// client loads the credentials, which are renewed.
func (m Machine) client() (*client, error) {
	certificate, err := tls.LoadX509KeyPair(m.pki(admin+".crt"), m.pki(admin+".key"))
	if err != nil {
		return nil, fmt.Errorf("loading the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(m.CA))
	return &client{
		server: m.server(), groups: map[string][]apiResource{},
		http: &http.Client{Timeout: answerTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate},
		}}},
	}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch {
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", "application/apply-patch+yaml")
	case body != nil:
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var status struct{ Message string }
		_ = json.Unmarshal(content, &status) // it is empty for others
		return nil, &refusal{response.StatusCode, fmt.Sprintf("the API server answers %s to %s %s: %s", response.Status, method, path, status.Message)}
	}
	return content, nil
}

// refusal is an answer of the API server that is an error.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

// answers is true for an error that is an answer with one of these codes.
func answers(err error, codes ...int) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains(codes, r.code)
}

// object is a document as far as its address says.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// apply applies documents in their order, and ends with the first that cannot be. Applying again changes nothing.
func (m Machine) apply(ctx context.Context, what, documents string) error {
	c, err := m.client()
	if err != nil {
		return err
	}
	defer c.close()
	for document := range strings.SplitSeq("\n"+documents, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return fmt.Errorf("an object of %s is no YAML", what)
		}
		if o == (object{}) {
			continue
		}
		if err := c.apply(ctx, o, document); err != nil {
			return fmt.Errorf("applying %s %s of %s: %w", o.Kind, o.Metadata.Name, what, err)
		}
	}
	return nil
}

func (c *client) apply(ctx context.Context, o object, document string) error {
	root := "/apis/" + o.APIVersion
	if !strings.Contains(o.APIVersion, "/") {
		root = "/api/" + o.APIVersion
	}
	if c.groups[root] == nil {
		content, err := c.get(ctx, root)
		if err != nil {
			return err
		}
		var list struct {
			Resources []apiResource `json:"resources"`
		}
		if err := json.Unmarshal(content, &list); err != nil {
			return err
		}
		c.groups[root] = slices.DeleteFunc(list.Resources, func(r apiResource) bool { return strings.Contains(r.Name, "/") })
	}
	i := slices.IndexFunc(c.groups[root], func(r apiResource) bool { return r.Kind == o.Kind })
	if i < 0 {
		return fmt.Errorf("the API server has no %s in %s", o.Kind, o.APIVersion)
	}
	kind := c.groups[root][i]
	if kind.Namespaced {
		namespace := o.Metadata.Namespace
		if namespace == "" {
			namespace = "default"
		}
		root += "/namespaces/" + url.PathEscape(namespace)
	}
	_, err := c.do(ctx, http.MethodPatch, root+"/"+kind.Name+"/"+url.PathEscape(o.Metadata.Name)+"?force=true&fieldManager="+fieldOwner, []byte(document))
	return err
}

// applyManifests applies those of a user, by the names of their files.
func (m Machine) applyManifests(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(m.Manifests, "*", "*"))
	if err != nil || m.Manifests == "" {
		return err
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := m.apply(ctx, "manifest "+filepath.Base(path), string(content)); err != nil {
			return err
		}
	}
	return nil
}
