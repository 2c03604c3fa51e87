// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestADefinitionIsChangedOnlyWhereItIsOurs(t *testing.T) {
	service := func(namespace, name string) *apiextensionsv1.WebhookClientConfig {
		return &apiextensionsv1.WebhookClientConfig{
			CABundle: []byte("ours"), Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name, Path: new("/convert")},
		}
	}
	wanted := ClientConfig{CABundle: []byte("ours"), Service: Service{Namespace: "system", Name: "ours", Path: "/convert"}}
	local := wanted
	local.URL = "https://127.0.0.1:9443/convert"
	for name, test := range map[string]struct {
		strategy apiextensionsv1.ConversionStrategyType
		config   *apiextensionsv1.WebhookClientConfig
		wanted   ClientConfig
		changed  bool
	}{
		"one version only":               {strategy: apiextensionsv1.NoneConverter, wanted: wanted},
		"the webhook of a provider":      {strategy: apiextensionsv1.WebhookConverter, config: service("capm3-system", "capm3-webhook-service"), wanted: wanted},
		"the same beside an API server":  {strategy: apiextensionsv1.WebhookConverter, config: service("capm3-system", "capm3-webhook-service"), wanted: local},
		"ours, complete":                 {strategy: apiextensionsv1.WebhookConverter, config: service("system", "ours"), wanted: wanted},
		"ours, in another namespace":     {strategy: apiextensionsv1.WebhookConverter, config: service("elsewhere", "ours"), wanted: wanted, changed: true},
		"ours, that is reached by a URL": {strategy: apiextensionsv1.WebhookConverter, config: service("system", "ours"), wanted: local, changed: true},
		"a URL that is ours": {
			strategy: apiextensionsv1.WebhookConverter, config: &apiextensionsv1.WebhookClientConfig{CABundle: []byte("ours"), URL: &local.URL}, wanted: local,
		},
		"a URL and another authority": {
			strategy: apiextensionsv1.WebhookConverter, config: &apiextensionsv1.WebhookClientConfig{CABundle: []byte("former"), URL: &local.URL}, wanted: local, changed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: test.strategy}
			if test.config != nil {
				definition.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{ClientConfig: test.config}
			}
			assert.Equal(t, test.changed, len(ConversionWebhook{}.Patch(definition, test.wanted)) > 0)
		})
	}
	assert.Empty(t, ConversionWebhook{}.Patch(&apiextensionsv1.CustomResourceDefinition{}, wanted))
}
