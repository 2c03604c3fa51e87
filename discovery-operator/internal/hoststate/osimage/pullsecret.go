// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// registry is what a Docker configuration has for one registry.
type registry struct {
	Auth, Username, Password string
}

// PullSecretName names the Secret that opens the registry of an image, empty where there is none.
func PullSecretName(image *metal3v1.Image) string {
	if image == nil || image.OCIAuthSecretName == nil || !strings.HasPrefix(image.URL, "oci://") {
		return ""
	}
	return *image.OCIAuthSecretName
}

// PullSecret reads the credentials of an image from the data of a Secret with a Docker configuration, in the form that Ironic takes: base64 of "user:password". Of several for its registry, those
// whose path has most in common with that of the image count, as where Kubernetes pulls images. The error quotes nothing of the Secret.
func PullSecret(data map[string][]byte, imageURL string) (string, error) {
	var config struct {
		Auths map[string]registry `json:"auths"`
	}
	var err error
	if text, ok := data[corev1.DockerConfigJsonKey]; ok {
		err = json.Unmarshal(text, &config)
	} else if text, ok := data[corev1.DockerConfigKey]; ok {
		err = json.Unmarshal(text, &config.Auths)
	} else {
		return "", fmt.Errorf("it has neither the key %s nor %s", corev1.DockerConfigJsonKey, corev1.DockerConfigKey)
	}
	if err != nil {
		return "", fmt.Errorf("it is not a Docker configuration")
	}
	u, err := url.Parse(imageURL)
	if err != nil {
		return "", fmt.Errorf("spec.image.url is not a URL")
	}
	repository, _, _ := strings.Cut(u.Path, "@")
	repository, _, _ = strings.Cut(repository, ":")
	var best *registry
	length := -1
	for _, name := range slices.Sorted(maps.Keys(config.Auths)) {
		r := config.Auths[name]
		if r.Auth == "" && r.Username == "" {
			continue // what a credential helper or a token of another kind opens
		}
		if _, after, found := strings.Cut(name, "://"); found {
			name = after
		}
		host, path, _ := strings.Cut(name, "/")
		path = scope(path)
		if strings.EqualFold(host, u.Host) && strings.HasPrefix(repository+"/", path) && len(path) > length {
			best, length = &r, len(path)
		}
	}
	switch {
	case best == nil:
		return "", fmt.Errorf("it has no credentials for the registry %s, or for this image there", u.Host)
	case best.Auth != "":
		return best.Auth, nil
	}
	return base64.StdEncoding.EncodeToString([]byte(best.Username + ":" + best.Password)), nil
}

// scope is the beginning of the paths of images that credentials are for: all, or those below the path that follows the registry. Versions of the interface of registries
// say nothing about images.
func scope(path string) string {
	path = strings.Trim(path, "/")
	if path == "" || path == "v1" || path == "v2" {
		return "/"
	}
	return "/" + path + "/"
}
