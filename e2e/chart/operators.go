// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func sources() []source {
	return []source{poolOperator(), ipamOperator(), discoveryOperator(), agentService()}
}

// optional are the options of every operator: what shows it, also to a Prometheus that gives no file of its own, the dashboard of all operators, and what OpenShift needs.
func optional(operator string) []option {
	return []option{
		{"components/openshift/" + operator, ".Values.openshift.enabled"},
		{"components/monitoring/" + operator, ".Values.monitoring.enabled"},
		{"components/metrics-token/" + operator, "and .Values.monitoring.enabled .Values.monitoring.token"},
		{"components/monitoring/overview", ".Values.monitoring.overview"},
	}
}

func poolOperator() source {
	return source{
		operator: "pool-operator", summary: "Pools of clusters that are kept warm", crds: []string{"clusters", "pool-operator"},
		options: append(optional("pool-operator"), option{"components/hosted-gateway", `eq .Values.hosted.expose "Gateway"`}),
		values: []value{
			{path: "hosted.image", about: "image of hosted control planes; empty is that of the chart's version", kind: "string", standard: ""},
			{path: "hosted.expose", about: "how hosted clusters are reached from outside", kind: "string", standard: "ClusterIP", words: []string{"ClusterIP", "NodePort", "LoadBalancer", "Gateway"}},
			{path: "hosted.address", about: "URL of a hosted cluster's API, such as https://{clusterName}.{baseDomain}:443; needed with Gateway", kind: "string", standard: ""},
			{path: "hosted.nodeAddress", about: "name or address of the nodes; needed with NodePort", kind: "string", standard: ""},
			{path: "hosted.gateway", about: "namespace/name of the Gateway; needed with Gateway", kind: "string", standard: ""},
			{path: "hosted.storageClass", about: "StorageClass of hosted clusters' volumes; empty is the default one", kind: "string", standard: ""},
		},
		arguments: `{{- if ne .Values.hosted.expose "ClusterIP" }}
- --hosted-expose={{ .Values.hosted.expose }}
{{- end }}
{{- with .Values.hosted.address }}
- {{ printf "--hosted-address=%s" . | quote }}
{{- end }}
{{- with .Values.hosted.nodeAddress }}
- {{ printf "--hosted-node-address=%s" . | quote }}
{{- end }}
{{- with .Values.hosted.gateway }}
- {{ printf "--hosted-gateway=%s" . | quote }}
{{- end }}
{{- with .Values.hosted.storageClass }}
- {{ printf "--hosted-storage-class=%s" . | quote }}
{{- end }}
`,
		edit: editControlPlaneImage,
	}
}

// editControlPlaneImage lets a value replace the image that the overlay states.
func editControlPlaneImage(object *unstructured.Unstructured) {
	if object.GetKind() != "Deployment" {
		return
	}
	pod, err := podOf(object)
	if err != nil {
		return
	}
	container, err := containerOf(pod)
	if err != nil {
		return
	}
	variables, _ := container["env"].([]any)
	for _, variable := range variables {
		if v, is := variable.(map[string]any); is && v["name"] == "CONTROL_PLANE_IMAGE" {
			v["value"] = expression(fmt.Sprintf("default %q .Values.hosted.image | quote", v["value"]))
		}
	}
}

func ipamOperator() source {
	return source{
		operator: "ipam-operator", summary: "Addresses for machines", crds: []string{"ipam-operator"}, options: optional("ipam-operator"),
		values: []value{
			{path: "watchFilter", about: "value of the label cluster.x-k8s.io/watch-filter of what is served; empty is everything", kind: "string", standard: ""},
		},
		arguments: `{{- with .Values.watchFilter }}
- {{ printf "--watch-filter=%s" . | quote }}
{{- end }}
`,
	}
}

func discoveryOperator() source {
	return source{
		operator: "discovery-operator", summary: "Machines that Ironic finds become BareMetalHosts", crds: []string{"hosts", "discovery-operator"},
		options: optional("discovery-operator"),
	}
}

func agentService() source {
	return source{
		operator: "agent-service", summary: "Machines boot one image, register, and are bound to clusters later", crds: []string{"clusters", "machine-pool", "agent-service"},
		options: optional("agent-service"),
		values: []value{
			{path: "baseURL", about: "how machines reach the service; it stands in every image", kind: "string", from: data("agent-service", "BASE_URL")},
			{path: "oidc.issuer", about: "issuer of people's tokens, or kubernetes for those that the cluster knows", kind: "string", from: data("agent-service", "OIDC_ISSUER")},
			{path: "oidc.audience", about: "audience of people's tokens", kind: "string", from: data("agent-service", "OIDC_AUDIENCE")},
			{path: "systems", about: "images that are installed: a list of {version, cpuArchitecture, url, sha256}", kind: "array", standard: []any{}},
			{path: "database.secretName", about: "Secret whose key url is the PostgreSQL database", kind: "string", standard: "agent-service-database"},
			{path: "tokenKey.secretName", about: "Secret whose key token.key signs tokens: openssl genpkey -algorithm ed25519", kind: "string", standard: "agent-service-token-key"},
			{path: "images.url", about: "how machines reach discovery images", kind: "string", from: data("agent-service-images", "IMAGE_URL")},
			{path: "images.replicas", about: "pods that serve discovery images", kind: "integer", from: at("agent-service-images", "spec", "replicas")},
			{path: "images.resources", about: "requests and limits of each of them", kind: "object", from: resourcesOf("agent-service-images")},
			{path: "tls.enabled", about: "whether service and images serve TLS themselves", kind: "boolean", standard: false},
			{path: "tls.secretName", about: "Secret of the service with tls.crt, tls.key and ca.crt, also for the name agent-service", kind: "string", standard: "agent-service-tls"},
			{path: "tls.imagesSecretName", about: "Secret of the pods of images with tls.crt and tls.key", kind: "string", standard: "agent-service-images-tls"},
			{path: "console.enabled", about: "whether people have screens in a browser, at /console", kind: "boolean", standard: false},
			{path: "console.url", about: "how browsers reach the service, without /console and a slash at the end; empty is baseURL", kind: "string", standard: ""},
			{path: "console.clientID", about: "client at oidc.issuer, which is a URL then, where people sign in; empty where they paste tokens", kind: "string", standard: ""},
			{path: "console.secretName", about: "Secret whose key client-secret is that of the client; empty for a public client", kind: "string", standard: ""},
		},
		arguments: tlsArguments + consoleArguments,
		edit:      editAgentService,
	}
}

const tlsArguments = `{{- if .Values.tls.enabled }}
- --tls-certificate=/etc/agent-service/tls/tls.crt
- --tls-key=/etc/agent-service/tls/tls.key
{{- end }}
`

// consoleArguments are the flags of the console. The service refuses those of a client where the console is not enabled.
const consoleArguments = `{{- with .Values.console }}
{{- if .enabled }}
- --console
- {{ printf "--console-url=%s" .url | quote }}
{{- end }}
{{- with .clientID }}
- {{ printf "--console-client-id=%s" . | quote }}
{{- end }}
{{- if .secretName }}
- --console-client-secret-file=/etc/agent-service/console/client-secret
{{- end }}
{{- end }}
`

// imageHelpers are the templates of pods of images, and of what both mount for TLS.
const imageHelpers = `{{- define "imageArguments" -}}
` + tlsArguments + `{{- if .Values.tls.enabled }}
- --service-ca-file=/etc/agent-service/service/ca.crt
{{- end }}
{{- end }}
{{- define "mounts" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/agent-service/tls, readOnly: true}
{{- end }}
{{- if .Values.console.secretName }}
- {name: console, mountPath: /etc/agent-service/console, readOnly: true}
{{- end }}
{{- end }}
{{- define "mounted" -}}
{{- if .Values.tls.enabled }}
- {name: tls, secret: {secretName: {{ .Values.tls.secretName }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.console.secretName }}
- {name: console, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- define "imageMounts" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/agent-service/tls, readOnly: true}
- {name: service, mountPath: /etc/agent-service/service, readOnly: true}
{{- end }}
{{- end }}
{{- define "imageMounted" -}}
{{- if .Values.tls.enabled }}
- {name: tls, secret: {secretName: {{ .Values.tls.imagesSecretName }}, defaultMode: 0440}}
- {name: service, secret: {secretName: {{ .Values.tls.secretName }}, items: [{key: ca.crt, path: ca.crt}], defaultMode: 0440}}
{{- end }}
{{- end }}
`

func editAgentService(object *unstructured.Unstructured) {
	switch object.GetKind() + "/" + object.GetName() {
	case "ConfigMap/agent-service":
		set(object.Object, expression(".Values.baseURL | quote"), "data", "BASE_URL")
		set(object.Object, expression(".Values.oidc.issuer | quote"), "data", "OIDC_ISSUER")
		set(object.Object, expression(".Values.oidc.audience | quote"), "data", "OIDC_AUDIENCE")
	case "ConfigMap/agent-service-systems":
		set(object.Object, expression(".Values.systems | toJson | quote"), "data", "systems.json")
	case "ConfigMap/agent-service-images":
		set(object.Object, expression(".Values.images.url | quote"), "data", "IMAGE_URL")
		set(object.Object, expression(`ternary "https://agent-service" "http://agent-service" .Values.tls.enabled`), "data", "SERVICE_URL")
	case "Service/agent-service", "Service/agent-service-images":
		if ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports"); len(ports) > 0 {
			if first, is := ports[0].(map[string]any); is {
				first["port"] = expression("ternary 443 80 .Values.tls.enabled")
				set(object.Object, ports, "spec", "ports")
			}
		}
	}
}

// helpers are the named templates of a chart.
func helpers(s source) string {
	text := `{{- define "image" -}}
{{ .Values.image.registry }}/` + s.operator + `:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "arguments" -}}
{{- with .Values.logLevel }}
- --log-level={{ . }}
{{- end }}
` + s.arguments + `{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "apiServerPorts" -}}
{{- range .Values.networkPolicy.apiServerPorts }}
- {port: {{ int . }}, protocol: TCP}
{{- end }}
{{- end }}
`
	if s.operator == "agent-service" {
		text += imageHelpers
	}
	return text
}

func notes(s source) string {
	return s.operator + ` is installed in the namespace {{ .Release.Namespace }}.

  kubectl -n {{ .Release.Namespace }} rollout status deployment/` + s.operator + `

What it serves stands in https://github.com/muster-io/muster/tree/main/docs/spec. "helm uninstall" keeps the kinds and their objects.
`
}
