// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"bytes"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClientConfig says how the API server reaches a webhook, and by which authority it knows it. URL or Service is set.
type ClientConfig struct {
	CABundle []byte
	URL      string
	Service  Service
}

// Service is the Service of a webhook, and the path.
type Service struct{ Namespace, Name, Path string }

// Target is the object that tells the API server of a webhook.
type Target interface {
	// Kind of the object.
	Kind() schema.GroupVersionKind
	// Name of the object.
	Name() string
	// New returns an empty object of the kind.
	New() client.Object
	// Path is where the webhook is served.
	Path() string
	// Patch returns the JSON patch that makes an object lead to the webhook; empty where it does so already, or has another webhook.
	Patch(object client.Object, wanted ClientConfig) []map[string]any
}

// ValidatingWebhook is a ValidatingWebhookConfiguration, all of whose webhooks are the operator's.
type ValidatingWebhook struct{ ConfigurationName, WebhookPath string }

// Kind implements Target.
func (ValidatingWebhook) Kind() schema.GroupVersionKind {
	return admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
}

// Name implements Target.
func (t ValidatingWebhook) Name() string { return t.ConfigurationName }

// New implements Target.
func (ValidatingWebhook) New() client.Object {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{}
}

// Path implements Target.
func (t ValidatingWebhook) Path() string { return t.WebhookPath }

// Patch implements Target.
func (ValidatingWebhook) Patch(object client.Object, wanted ClientConfig) (patch []map[string]any) {
	config := object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	to := admissionregistrationv1.WebhookClientConfig{CABundle: wanted.CABundle}
	if wanted.URL != "" {
		to.URL = &wanted.URL
	} else {
		to.Service = &admissionregistrationv1.ServiceReference{
			Namespace: wanted.Service.Namespace, Name: wanted.Service.Name, Path: &wanted.Service.Path, Port: new(int32(443)),
		}
	}
	for i := range config.Webhooks {
		now, at := config.Webhooks[i].ClientConfig, fmt.Sprintf("/webhooks/%d", i)
		known := ClientConfig{CABundle: now.CABundle}
		if now.URL != nil {
			known.URL = *now.URL
		}
		if now.Service != nil {
			known.Service = serviceOf(now.Service.Namespace, now.Service.Name, now.Service.Path)
		}
		if !same(known, wanted) {
			patch = append(patch,
				map[string]any{"op": "test", "path": at + "/name", "value": config.Webhooks[i].Name},
				map[string]any{"op": "replace", "path": at + "/clientConfig", "value": to})
		}
	}
	return patch
}

// ConversionWebhook is a CustomResourceDefinition whose versions the operator converts. Another strategy, and the webhook of another Service, are left alone:
// the definition is another provider's then.
type ConversionWebhook struct {
	// DefinitionName is the name of the CustomResourceDefinition.
	DefinitionName string
	// WebhookPath is where the conversion is served.
	WebhookPath string
}

// Kind implements Target.
func (ConversionWebhook) Kind() schema.GroupVersionKind {
	return apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
}

// Name implements Target.
func (t ConversionWebhook) Name() string { return t.DefinitionName }

// New implements Target.
func (ConversionWebhook) New() client.Object { return &apiextensionsv1.CustomResourceDefinition{} }

// Path implements Target.
func (t ConversionWebhook) Path() string { return t.WebhookPath }

// Patch implements Target.
func (ConversionWebhook) Patch(object client.Object, wanted ClientConfig) []map[string]any {
	conversion := object.(*apiextensionsv1.CustomResourceDefinition).Spec.Conversion
	if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return nil
	}
	now := conversion.Webhook.ClientConfig
	known := ClientConfig{CABundle: now.CABundle}
	if now.URL != nil {
		known.URL = *now.URL
	}
	if now.Service != nil {
		known.Service = serviceOf(now.Service.Namespace, now.Service.Name, now.Service.Path)
	}
	if same(known, wanted) || known.Service.Name != "" && known.Service.Name != wanted.Service.Name {
		return nil
	}
	to := apiextensionsv1.WebhookClientConfig{CABundle: wanted.CABundle}
	if wanted.URL != "" {
		to.URL = &wanted.URL
	} else {
		to.Service = &apiextensionsv1.ServiceReference{
			Namespace: wanted.Service.Namespace, Name: wanted.Service.Name, Path: &wanted.Service.Path, Port: new(int32(443)),
		}
	}
	return []map[string]any{
		{"op": "test", "path": "/spec/conversion/strategy", "value": conversion.Strategy},
		{"op": "replace", "path": "/spec/conversion/webhook/clientConfig", "value": to},
	}
}

func serviceOf(namespace, name string, path *string) Service {
	service := Service{Namespace: namespace, Name: name}
	if path != nil {
		service.Path = *path
	}
	return service
}

// same compares what is there with what is wanted, which names the Service also where a URL leads to the webhook.
func same(known, wanted ClientConfig) bool {
	if wanted.URL != "" {
		wanted.Service = Service{}
	}
	return bytes.Equal(known.CABundle, wanted.CABundle) && known.URL == wanted.URL && known.Service == wanted.Service
}
