// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"go.uber.org/zap"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// hasCluster is true where the person has a token that the Kubernetes API can be asked with.
func (v *visit) hasCluster() bool { return v.kubernetes != nil && v.session.Token != "" }

// cluster is the Kubernetes API as the person may use it. A session without a token is refused: no request is made without one.
func (v *visit) cluster() (client.Client, error) {
	switch {
	case v.kubernetes == nil:
		return nil, &refusal{http.StatusNotFound, t("kubernetes.none")}
	case v.session.Token == "":
		return nil, &refusal{http.StatusForbidden, t("kubernetes.token")}
	}
	return v.kubernetes.Client(v.session.Token)
}

// fromCluster turns an error of the Kubernetes API into a refusal, which says what to do. It is never 401: the session is good for REST.
func (v *visit) fromCluster(err error) error {
	if err == nil {
		return nil
	}
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) {
		v.Log.Warn("asking the Kubernetes API for a user of the console", zap.Error(err))
		return &refusal{http.StatusBadGateway, t("kubernetes.away")}
	}
	status := answered.Status()
	switch {
	case apierrors.IsUnauthorized(err):
		return &refusal{http.StatusForbidden, t("kubernetes.unauthorized")}
	case apierrors.IsForbidden(err):
		return &refusal{http.StatusForbidden, t("kubernetes.forbidden", status.Message)}
	case apierrors.IsNotFound(err):
		return &refusal{http.StatusNotFound, t("kubernetes.missing", status.Message)}
	default:
		return &refusal{int(cmp.Or(status.Code, http.StatusBadGateway)), cmp.Or(status.Message, t("kubernetes.away"))}
	}
}

// passKubeconfig hands the kubeconfig of a Secret to the browser as a file.
func (v *visit) passKubeconfig(c client.Client, key client.ObjectKey, name string) error {
	var secret corev1.Secret
	if err := v.fromCluster(c.Get(v.r.Context(), key, &secret)); err != nil {
		return err
	}
	content := secret.Data[hivev1.SecretKeyKubeconfig]
	if len(content) == 0 {
		return &refusal{http.StatusNotFound, t("claim.no_kubeconfig")}
	}
	v.w.Header().Set("Content-Type", "application/octet-stream")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	_, _ = v.w.Write(content) // a browser that is gone needs no answer
	return nil
}
