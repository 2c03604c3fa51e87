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

// PullSecret reads the credentials of the registry of an image from the data of a Secret with a Docker configuration, in the form that Ironic takes: base64 of "user:password". The error
// quotes nothing of the Secret.
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
	for _, name := range slices.Sorted(maps.Keys(config.Auths)) {
		r := config.Auths[name]
		if _, after, found := strings.Cut(name, "://"); found {
			name = after
		}
		switch host, _, _ := strings.Cut(name, "/"); {
		case !strings.EqualFold(host, u.Host):
			continue
		case r.Auth != "":
			return r.Auth, nil
		}
		return base64.StdEncoding.EncodeToString([]byte(r.Username + ":" + r.Password)), nil
	}
	return "", fmt.Errorf("it has no credentials for the registry %s", u.Host)
}
