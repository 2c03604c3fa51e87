// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/checkout"
)

// tokenLifetime is longer than any test or demo.
const tokenLifetime = 24 * time.Hour

// StartOperator starts an operator, or starts it again after KillOperator, with the rights of its ServiceAccount, and returns when it is ready.
func (l *Local) StartOperator(ctx context.Context, o Operator) error {
	program := o.Program
	if program == "" {
		var err error
		if program, err = checkout.Binary(o.Name); err != nil {
			return err
		}
	}
	dir := filepath.Join(l.Dir, o.ID())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := l.writeKubeconfig(ctx, o.Namespace, o.ServiceAccount, kubeconfig); err != nil {
		return err
	}
	health, err := porttest.Find()
	if err != nil {
		return err
	}
	metrics, err := porttest.Find()
	if err != nil {
		return err
	}
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--health-probe-bind-address=127.0.0.1:" + health, "--metrics-bind-address=127.0.0.1:" + metrics,
	}, o.Args(dir)...)
	p, err := startProcess(o.ID(), l.Log(o.ID()), program, args...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.processes[o.ID()] = p
	l.mu.Unlock()
	if err := os.WriteFile(filepath.Join(dir, "metrics-address"), []byte("127.0.0.1:"+metrics), 0o600); err != nil {
		return fmt.Errorf("noting the address of the metrics: %w", err)
	}
	return p.untilReady(ctx, "http://127.0.0.1:"+health+"/readyz")
}

// KillOperator ends an operator as a crash would.
func (l *Local) KillOperator(name string) {
	l.mu.Lock()
	p := l.processes[name]
	l.mu.Unlock()
	p.kill()
}

// StopOperator ends an operator in an orderly way.
func (l *Local) StopOperator(name string) {
	l.mu.Lock()
	p := l.processes[name]
	l.mu.Unlock()
	p.stop(15 * time.Second)
}

// Pid returns the process of an operator.
func (l *Local) Pid(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processes[name].cmd.Process.Pid
}

// MetricsAddress returns host:port of an operator's metrics.
func (l *Local) MetricsAddress(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, name, "metrics-address"))
	return string(text), err
}

// Failed says why an operator ended by itself, if one has.
func (l *Local) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.processes {
		select {
		case <-p.ended:
			return p.failure()
		default:
		}
	}
	return nil
}

// Token returns a bearer token of a ServiceAccount.
func (l *Local) Token(ctx context.Context, namespace, account string) (string, error) {
	return Token(ctx, l.admin, namespace, account)
}

// Token asks the cluster for a bearer token of a ServiceAccount.
func Token(ctx context.Context, config *rest.Config, namespace, account string) (string, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime.Seconds()))}}
	answer, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of %s/%s: %w", namespace, account, err)
	}
	return answer.Status.Token, nil
}

func (l *Local) writeKubeconfig(ctx context.Context, namespace, account, path string) error {
	token, err := l.Token(ctx, namespace, account)
	if err != nil {
		return err
	}
	return WriteKubeconfig(l.admin, token, namespace, path)
}

// WriteKubeconfig writes a kubeconfig for the same cluster with a bearer token.
func WriteKubeconfig(config *rest.Config, token, namespace, path string) error {
	ca := config.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return fmt.Errorf("reading the cluster's authority: %w", err)
		}
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["muster"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: ca}
	file.AuthInfos["muster"] = &clientcmdapi.AuthInfo{Token: token}
	file.Contexts["muster"] = &clientcmdapi.Context{Cluster: "muster", AuthInfo: "muster", Namespace: namespace}
	file.CurrentContext = "muster"
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// untilReady waits for the readiness probe. It fails at once when the process ends.
func (p *process) untilReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-p.ended:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (%w); the end of its log:\n%s", p.name, ctx.Err(), tail(p.log, 20))
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
}
