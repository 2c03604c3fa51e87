// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry asks whether images can be had.
package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/diskimage"
)

// Client asks for images, and gets none.
type Client struct {
	HTTP *http.Client
	// PullSecret are the credentials of registries, as a docker config.json; empty for none.
	PullSecret string
}

// forms are those of images that are pulled. A registry has no image for those who do not name its form.
var forms = []string{
	"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}

// Docker Hub is called docker.io by images, has its registry elsewhere, and its credentials under a third name, as docker login writes it.
const (
	dockerHub         = "docker.io"
	dockerHubRegistry = "registry-1.docker.io"
	dockerHubAuth     = "https://index.docker.io/v1/"
)

// Has is nil where an image can be had: a disk image at its address, a container image at its registry with the pull secret.
func (c Client) Has(ctx context.Context, image string) error {
	if strings.Contains(image, "://") {
		return c.head(ctx, image, http.Header{})
	}
	registry, rest, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(registry, ".:") {
		return errors.New("the image does not name its registry")
	}
	repository, digest, _ := strings.Cut(rest, "@")
	tag := "latest"
	if at := strings.LastIndex(repository, ":"); at > 0 {
		repository, tag = repository[:at], repository[at+1:]
	}
	header := http.Header{"Accept": forms}
	if credentials := c.credentials(registry); credentials != "" {
		header.Set("Authorization", "Basic "+credentials)
	}
	if registry == dockerHub {
		registry = dockerHubRegistry
		if !strings.Contains(repository, "/") {
			repository = "library/" + repository
		}
	}
	return c.head(ctx, "https://"+registry+"/v2/"+repository+"/manifests/"+cmp.Or(digest, tag), header)
}

// credentials are of a registry: the base64 of user:password.
func (c Client) credentials(registry string) string {
	var config struct {
		Auths map[string]struct {
			Auth string `json:"auth"`
		} `json:"auths"`
	}
	if json.Unmarshal([]byte(c.PullSecret), &config) != nil {
		return ""
	}
	if registry == dockerHub {
		return cmp.Or(config.Auths[registry].Auth, config.Auths[dockerHubAuth].Auth)
	}
	return config.Auths[registry].Auth
}

var challenge = regexp.MustCompile(`(realm|service|scope)="([^"]*)"`)

// head asks for an address; a registry may first want a token, which is got with the credentials.
func (c Client) head(ctx context.Context, address string, header http.Header) error {
	response, err := c.request(ctx, http.MethodHead, address, header)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	asked := response.Header.Get("WWW-Authenticate")
	if response.StatusCode == http.StatusUnauthorized && strings.HasPrefix(asked, "Bearer ") {
		token, err := c.token(ctx, asked, header.Get("Authorization"))
		if err != nil {
			return err
		}
		header.Set("Authorization", "Bearer "+token)
		if response, err = c.request(ctx, http.MethodHead, address, header); err != nil {
			return err
		}
		_ = response.Body.Close()
	}
	if response.StatusCode >= http.StatusBadRequest {
		return errors.New(response.Status)
	}
	return nil
}

func (c Client) token(ctx context.Context, asked, authorization string) (string, error) {
	values := map[string]string{}
	for _, match := range challenge.FindAllStringSubmatch(asked, -1) {
		values[match[1]] = match[2]
	}
	realm, err := url.Parse(values["realm"])
	if err != nil || realm.Scheme != "https" {
		return "", errors.New("the registry asks for a token at no usable address")
	}
	realm.RawQuery = url.Values{"service": {values["service"]}, "scope": {values["scope"]}}.Encode()
	header := http.Header{}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	response, err := c.request(ctx, http.MethodGet, realm.String(), header)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var body struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&body); err != nil {
		return "", errors.New("the registry gave no token")
	}
	return cmp.Or(body.Token, body.AccessToken), nil
}

func (c Client) request(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	request.Header = header
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, diskimage.WithoutURL(err)
	}
	return response, nil
}
