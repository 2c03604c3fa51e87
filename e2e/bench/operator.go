// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/e2e/environment"
)

// scraper is the account that reads metrics.
const scraper = "bench"

// metricsToken makes an account that may read the operator's metrics.
func metricsToken(ctx context.Context, admin *rest.Config, operator string) (string, error) {
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: scraper}}
	if _, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("making an account that reads metrics: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: scraper},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operator + "-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: scraper}},
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("letting an account read metrics: %w", err)
	}
	return environment.Token(ctx, admin, metav1.NamespaceDefault, scraper)
}

// Requests returns how many requests the operator has made, counted at the transport of its client.
func (r *Run) Requests(ctx context.Context) (Requests, error) {
	text, err := r.scrape(ctx)
	if err != nil {
		return nil, err
	}
	return ReadRequests(text, r.benchmark.Operator.Name)
}

// ReadRequests finds an operator's requests to the API server in its metrics.
func ReadRequests(text []byte, operator string) (Requests, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	name := strings.ReplaceAll(operator, "-", "_") + "_client_requests_total"
	family := families[name]
	if family == nil {
		return nil, fmt.Errorf("the operator has no metric %s", name)
	}
	out := Requests{}
	for _, m := range family.GetMetric() {
		var request Request
		for _, label := range m.GetLabel() {
			switch label.GetName() {
			case "verb":
				request.Verb = label.GetValue()
			case "resource":
				request.Resource = label.GetValue()
			case "code":
				request.Code = label.GetValue()
			}
		}
		out[request] += int(m.GetCounter().GetValue())
	}
	return out, nil
}

// Settled waits until the operator has made no write for quiet, and returns its requests.
func (r *Run) Settled(ctx context.Context, quiet, limit time.Duration) (Requests, error) {
	requests, err := r.Requests(ctx)
	if err != nil {
		return nil, err
	}
	last := time.Now()
	err = r.Await(ctx, limit, func() string {
		next, failure := r.Requests(ctx)
		if failure != nil {
			return failure.Error()
		}
		if !maps.Equal(next.Writes(), requests.Writes()) {
			last = time.Now()
		}
		requests = next
		if time.Since(last) < quiet {
			return "the operator writes"
		}
		return ""
	})
	return requests, err
}

// scrape reads the metrics as Prometheus would, with a token. The certificate is the operator's own and self-signed.
func (r *Run) scrape(ctx context.Context) ([]byte, error) {
	address, err := r.Local.MetricsAddress(r.benchmark.Operator.Name)
	if err != nil {
		return nil, fmt.Errorf("looking for the metrics: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	response, err := metricsClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics: %s %w", response.Status, err)
	}
	return text, nil
}

var metricsClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // loopback, and the token opens nothing but metrics
}}

// Usage is what the operator's process has used since it was started.
type Usage struct {
	// CPU is its time on processors.
	CPU time.Duration
	// PeakRSS is the most memory that it had, in MiB.
	PeakRSS float64
}

// ticksPerSecond is the unit of times in /proc, the same on all architectures that Linux has.
const ticksPerSecond = 100

// Usage reads what the operator has used.
func (r *Run) Usage() (Usage, error) {
	var u Usage
	dir := "/proc/" + strconv.Itoa(r.Local.Pid(r.benchmark.Operator.Name))
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return u, fmt.Errorf("reading what the operator has used: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return u, fmt.Errorf("reading what the operator has used: %s/stat has %d fields", dir, len(fields))
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return u, fmt.Errorf("reading what the operator has used: %w", err)
		}
		u.CPU += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return u, fmt.Errorf("reading what the operator has used: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			u.PeakRSS = float64(kib) / 1024
		}
	}
	return u, nil
}

// FigureUsage records what the operator's process has used since its start.
func (r *Run) FigureUsage() error {
	u, err := r.Usage()
	if err != nil {
		return err
	}
	r.Figure("cpu_s", u.CPU.Seconds(), "s", NoTarget)
	r.Figure("rss_mb", u.PeakRSS, "MiB", NoTarget)
	return nil
}

// NoteRequests lists the operator's requests below the table.
func (r *Run) NoteRequests(done Requests) {
	r.Note("operator's writes: %s", Describe(done.Writes()))
	r.Note("operator's reads: %s", Describe(done.Reads()))
	r.Note("apart: %s", Describe(done.Apart()))
}
