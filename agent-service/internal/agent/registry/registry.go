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

// Has is nil where an image can be had: a disk image at its address, a container image at its registry with the pull secret.
func (c Client) Has(ctx context.Context, image string) error {
	if strings.Contains(image, "://") {
		return c.head(ctx, image, "")
	}
	registry, rest, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(registry, ".:") {
		return errors.New("the image does not name its registry")
	}
	repository, reference := rest, "latest"
	if name, digest, found := strings.Cut(rest, "@"); found {
		repository, reference = name, digest
	} else if at := strings.LastIndex(rest, ":"); at > 0 {
		repository, reference = rest[:at], rest[at+1:]
	}
	return c.head(ctx, "https://"+registry+"/v2/"+repository+"/manifests/"+reference, c.credentials(registry))
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
	return config.Auths[registry].Auth
}

var challenge = regexp.MustCompile(`(realm|service|scope)="([^"]*)"`)

// head asks for an address; a registry may first want a token, which is got with the credentials.
func (c Client) head(ctx context.Context, address, credentials string) error {
	authorization := ""
	if credentials != "" {
		authorization = "Basic " + credentials
	}
	response, err := c.request(ctx, http.MethodHead, address, authorization)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	asked := response.Header.Get("WWW-Authenticate")
	if response.StatusCode == http.StatusUnauthorized && strings.HasPrefix(asked, "Bearer ") {
		token, err := c.token(ctx, asked, authorization)
		if err != nil {
			return err
		}
		if response, err = c.request(ctx, http.MethodHead, address, "Bearer "+token); err != nil {
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
	response, err := c.request(ctx, http.MethodGet, realm.String(), authorization)
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

func (c Client) request(ctx context.Context, method, address, authorization string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, diskimage.WithoutURL(err)
	}
	return response, nil
}
