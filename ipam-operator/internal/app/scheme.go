// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	infrav1beta2 "github.com/muster-io/muster/apis/infrastructure/v1beta2"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// NewScheme returns the kinds that the operator reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme, infrav1beta2.AddToScheme, metal3v1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}
