// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package production_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/pki"
)

const (
	// databaseImage holds PostgreSQL and a shell of this machine.
	databaseImage = "muster.local/postgres:test"
	databaseHost  = "postgres.database.svc"
	// password is one that the test made up.
	password = "made-up"
)

// startDatabase runs PostgreSQL as a pod. It takes connections over TLS alone, from the namespace of agent-service alone.
func (c *cluster) startDatabase() {
	c.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	require.NoError(c, err)
	needtest.Part(c, len(found) > 0, "there is no PostgreSQL here that an image can be made of: install the package postgresql of Debian")
	bin := filepath.Dir(found[len(found)-1])
	c.importDatabase(bin)
	authority, certificate, key := c.certify()
	dir := c.TempDir()
	for name, content := range map[string][]byte{"ca.crt": authority, "tls.crt": certificate, "tls.key": key, "password": []byte(password)} {
		require.NoError(c, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	c.kubectl("create", "namespace", "database")
	c.kubectl("-n", "database", "create", "secret", "generic", "database", "--from-file="+dir)
	c.kubectl("-n", "database", "create", "configmap", "authority", "--from-file="+filepath.Join(dir, "ca.crt"))
	c.apply("database", []byte(strings.ReplaceAll(databaseObjects, "BIN", bin)))
	c.kubectl("-n", "database", "rollout", "status", "deployment/postgres", "--timeout="+patience.String())
}

// databaseObjects are those of the database; BIN is the directory of its programs.
const databaseObjects = `
apiVersion: v1
kind: Service
metadata: {name: postgres, namespace: database}
spec:
  selector: {app: postgres}
  ports: [{port: 5432}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: postgres, namespace: database}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress:
  - from:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: muster-agent-service}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: postgres, namespace: database}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: postgres}}
  template:
    metadata: {labels: {app: postgres}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: postgres
        image: muster.local/postgres:test
        imagePullPolicy: Never
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        command: [/bin/bash, -ec]
        args:
        - |
          export PATH=BIN:/bin:/usr/bin
          [ -e /data/db/PG_VERSION ] || initdb -D /data/db -U muster --auth=scram-sha-256 --pwfile=/etc/database/password -N --no-locale -E UTF8
          echo 'hostssl all all all scram-sha-256' >/data/db/pg_hba.conf
          exec postgres -D /data/db -k /data -h '*' -c max_connections=200 -c ssl=on -c ssl_cert_file=/etc/database/tls.crt -c ssl_key_file=/etc/database/tls.key
        readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: database, mountPath: /etc/database, readOnly: true}
        - {name: tmp, mountPath: /tmp}
      volumes:
      - {name: data, emptyDir: {}}
      - {name: tmp, emptyDir: {}}
      - {name: database, secret: {secretName: database, defaultMode: 0440}}
`

// importDatabase makes an image of the PostgreSQL of this machine: programs, the libraries that they are linked with, and data.
func (c *cluster) importDatabase(bin string) {
	c.Helper()
	programs := []string{"/bin/bash", "/bin/sh", "/bin/cat", "/usr/bin/timeout"}
	for _, name := range []string{"initdb", "postgres"} {
		programs = append(programs, filepath.Join(bin, name))
	}
	files := slices.Clone(programs)
	for _, program := range programs {
		out, err := exec.CommandContext(c.Context(), "ldd", program).Output()
		require.NoError(c, err)
		for word := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(word, "/") {
				files = append(files, word)
			}
		}
	}
	version := filepath.Base(filepath.Dir(bin))
	files = append(files, filepath.Join(filepath.Dir(bin), "lib"), filepath.Join("/usr/share/postgresql", version), "/usr/share/zoneinfo")
	own := c.TempDir()
	require.NoError(c, os.MkdirAll(filepath.Join(own, "etc"), 0o755))
	require.NoError(c, os.WriteFile(filepath.Join(own, "etc", "passwd"), []byte("postgres:x:65532:65532::/:/bin/sh\n"), 0o644))
	archive := filepath.Join(c.TempDir(), "postgres.tar")
	args := []string{"--dereference", "--exclude=*llvm*", "--exclude=bitcode", "-cf", archive, "-C", own, "etc/passwd", "-C", "/"}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		args = append(args, strings.TrimPrefix(file, "/"))
	}
	said, err := exec.CommandContext(c.Context(), "tar", args...).CombinedOutput()
	require.NoError(c, err, "%s", said)
	require.NoError(c, c.kind.Import(c.Context(), archive, databaseImage, "USER 65532:65532"))
}

// certify makes an authority, and a certificate of the database by it.
func (c *cluster) certify() (authority, certificate, key []byte) {
	c.Helper()
	valid := pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(24 * time.Hour)}
	root, err := pki.NewAuthority("database", valid)
	require.NoError(c, err)
	own, err := root.Issue(pki.Server(databaseHost), valid)
	require.NoError(c, err)
	authority, _, err = root.Encode()
	require.NoError(c, err)
	certificate, key, err = own.Encode()
	require.NoError(c, err)
	return authority, certificate, key
}

// makeSecrets makes what agent-service needs, as docs/deploy-agent-service.md says. What is there already stays.
func (c *cluster) makeSecrets() {
	c.Helper()
	const namespace = "muster-agent-service"
	if c.kubectl("get", "secret", "--namespace", namespace, "--ignore-not-found", "agent-service-token-key") != "" {
		return
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(c, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(c, err)
	dir := c.TempDir()
	file := filepath.Join(dir, "token.key")
	require.NoError(c, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	authority := c.kubectl("-n", "database", "get", "configmap", "authority", "-o", `jsonpath={.data.ca\.crt}`)
	trusted := filepath.Join(dir, "database.pem")
	require.NoError(c, os.WriteFile(trusted, []byte(authority), 0o600))
	c.kubectl("create", "namespace", namespace)
	c.kubectl("-n", namespace, "create", "secret", "generic", "agent-service-token-key", "--from-file="+file)
	c.kubectl("-n", namespace, "create", "secret", "generic", "agent-service-database",
		"--from-literal=url=postgres://muster:"+password+"@"+databaseHost+"/postgres?sslmode=verify-full")
	c.kubectl("-n", namespace, "create", "configmap", "agent-service-authorities", "--from-file="+trusted)
}
