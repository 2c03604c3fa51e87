// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package production_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/render"
)

// loadRelease puts the images of a release on all nodes: there is no registry.
func (c *cluster) loadRelease(dist string) {
	c.Helper()
	layouts, err := filepath.Glob(filepath.Join(dist, "images", "*"))
	require.NoError(c, err)
	require.Len(c, layouts, len(operators)+1, "images of the operators and of hosted control planes: run hack/release for all parts")
	for _, layout := range layouts {
		_, err := c.kind.LoadLayout(c.Context(), layout, registry+filepath.Base(layout))
		require.NoError(c, err)
	}
}

// install applies the manifests of a release, after the Secrets that they need.
func (c *cluster) install(dist string) {
	c.Helper()
	c.makeSecrets()
	for _, operator := range operators {
		text, err := os.ReadFile(filepath.Join(dist, "install", operator+".yaml"))
		require.NoError(c, err)
		c.apply(operator, write(c, settle(c, read(c, text))))
	}
	c.untilRolledOut()
}

// read returns the objects of documents.
func read(c *cluster, text []byte) []*unstructured.Unstructured {
	c.Helper()
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(c, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func write(c *cluster, objects []*unstructured.Unstructured) []byte {
	c.Helper()
	var out bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		require.NoError(c, err)
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}

// addresses are what users write for their own: they reach agent-service inside of the cluster.
var addresses = map[string]string{
	"BASE_URL": "http://agent-service.muster-agent-service.svc", "IMAGE_URL": "http://agent-service-images.muster-agent-service.svc",
}

// settle makes the settings that users make: addresses of agent-service, and machines, which come from a rack in memory where there is no Ironic.
func settle(c *cluster, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	c.Helper()
	var out []*unstructured.Unstructured
	for _, object := range objects {
		switch {
		case object.GroupVersionKind().Group == "monitoring.coreos.com":
			continue // the former release asks for kinds of the Prometheus Operator
		case object.GetKind() == "ConfigMap":
			data, _, err := unstructured.NestedStringMap(object.Object, "data")
			require.NoError(c, err)
			for key, address := range addresses {
				if data[key] != "" {
					data[key] = address
				}
			}
			require.NoError(c, unstructured.SetNestedStringMap(object.Object, data, "data"))
		case object.GetKind() == "Deployment" && object.GetName() == "discovery-operator":
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			require.NoError(c, err)
			container := containers[0].(map[string]any)
			container["args"] = append(container["args"].([]any), "--provisioner=demo")
			require.NoError(c, unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"))
		}
		out = append(out, object)
	}
	return out
}

// formerVersion is the tag of the images in the overlays of the former release.
const formerVersion = "v0.1.0"

// noSuchCommit is the status of hack/former in a clone without the history of the release.
const noSuchCommit = 3

// installFormer builds the former release, and installs its overlay for production. The test is skipped where the clone does not have it.
func (c *cluster) installFormer() {
	c.Helper()
	record, err := checkout.Path("e2e", "upgrade", "testdata", "v0.1", "commit")
	require.NoError(c, err)
	commit, err := os.ReadFile(record)
	require.NoError(c, err)
	script, err := checkout.Path("hack", "former")
	require.NoError(c, err)
	out, err := exec.CommandContext(c.Context(), script, append([]string{strings.TrimSpace(string(commit))}, operators...)...).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		if failed.ExitCode() == noSuchCommit {
			needtest.Part(c, false, fmt.Sprintf("the former release is not installed first: %s", failed.Stderr))
		}
		c.Fatalf("%s", failed.Stderr)
	}
	require.NoError(c, err)
	dir := strings.TrimSpace(string(out))
	for _, operator := range operators {
		c.importProgram(filepath.Join(dir, "bin", operator), registry+operator+":"+formerVersion)
	}
	root, err := checkout.Root()
	require.NoError(c, err)
	overlay, err := filepath.Rel(root, filepath.Join(dir, "deploy", "overlays", "production"))
	require.NoError(c, err)
	objects, err := render.Directory(overlay)
	require.NoError(c, err)
	c.makeSecrets()
	c.apply("former", write(c, settle(c, objects)))
	c.untilRolledOut()
}

// importProgram makes an image of a program, which has no live image inside.
func (c *cluster) importProgram(program, image string) {
	c.Helper()
	dir := c.TempDir()
	name := filepath.Base(program)
	live := filepath.Join(dir, "usr", "local", "share", "muster", "live")
	bin := filepath.Join(dir, "usr", "local", "bin")
	for _, made := range []string{live, bin} {
		require.NoError(c, os.MkdirAll(made, 0o755))
	}
	require.NoError(c, os.WriteFile(filepath.Join(live, "live.json"), []byte("[]"), 0o644))
	text, err := os.ReadFile(program)
	require.NoError(c, err)
	require.NoError(c, os.WriteFile(filepath.Join(bin, name), text, 0o755))
	archive := filepath.Join(c.TempDir(), name+".tar")
	said, err := exec.CommandContext(c.Context(), "tar", "-C", dir, "-cf", archive, "usr").CombinedOutput()
	require.NoError(c, err, "%s", said)
	require.NoError(c, c.kind.Import(c.Context(), archive, image, "USER 65532:65532", `ENTRYPOINT ["/usr/local/bin/`+name+`"]`))
}
