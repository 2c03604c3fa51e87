// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package production_test

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkPolicies tries ports of the operators from pods of other namespaces.
func (c *cluster) checkPolicies() {
	c.Helper()
	const stranger, scraper = "stranger", "scraper"
	for _, namespace := range []string{stranger, scraper} {
		c.kubectl("create", "namespace", namespace)
		defer c.kubectl("delete", "namespace", "--wait=false", namespace)
	}
	c.kubectl("label", "namespace", scraper, "muster.io/metrics=enabled")
	for _, operator := range operators {
		host := operator + "-metrics.muster-" + operator + ".svc"
		assert.True(c, c.reaches(scraper, host, "8443"), "a scraper does not reach %s", host)
	}
	if c.reaches(stranger, databaseHost, "5432") {
		c.Skip("the network of this node image enforces no network policies: a pod reaches a database whose policy refuses it")
	}
	for _, operator := range operators {
		host := operator + "-metrics.muster-" + operator + ".svc"
		assert.False(c, c.reaches(stranger, host, "8443"), "a pod of another namespace reaches %s", host)
	}
}

// reaches is whether a pod of a namespace connects to a port.
func (c *cluster) reaches(namespace, host, port string) bool {
	c.Helper()
	pods := c.clients.CoreV1().Pods(namespace)
	pod, err := pods.Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "probe", Image: databaseImage, ImagePullPolicy: corev1.PullNever,
			Command: []string{"/usr/bin/timeout", "10", "/bin/bash", "-c", "exec 3<>/dev/tcp/" + strings.Join([]string{host, port}, "/")},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		pod, err = pods.Get(c.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(collect, err)
		assert.Contains(collect, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, pod.Status.Phase)
	}, patience, interval, "the pod that tries %s does not end", host)
	return pod.Status.Phase == corev1.PodSucceeded
}
