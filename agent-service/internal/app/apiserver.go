// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// apiInterval is how often the API server is asked whether it answers.
	apiInterval = 10 * time.Second
	// apiTimeout bounds one such request.
	apiTimeout = 10 * time.Second
	// apiFailures is how many requests in a row fail before it counts as away: one lost connection is no outage.
	apiFailures = 2
)

// apiWatch logs that the API server is away, and that it is back. Controllers themselves do not always notice: while they fill their caches, wait for the Lease, or run without leader
// election, they try again without a time limit.
type apiWatch struct {
	interval time.Duration
	answers  func(context.Context) error
	log      *zap.Logger
}

// newAPIWatch returns the watch of the API server that config names.
func newAPIWatch(config *rest.Config, interval time.Duration, log *zap.Logger) (*apiWatch, error) {
	api, err := kubediscovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the API server: %w", err)
	}
	return &apiWatch{interval: cmp.Or(interval, apiInterval), log: log, answers: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		err := api.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if apierrors.IsForbidden(err) {
			return nil // it answered
		}
		return err
	}}, nil
}

// run ends with ctx only.
func (w *apiWatch) run(ctx context.Context) {
	failures := 0
	for pause(ctx, w.interval) {
		switch err := w.answers(ctx); {
		case ctx.Err() != nil:
			return
		case err == nil:
			if failures >= apiFailures {
				w.log.Info("the API server answers again")
			}
			failures = 0
		default:
			if failures++; failures == apiFailures {
				w.log.Warn("custom resources are not served at the moment: the API server does not answer", zap.Error(err))
			}
		}
	}
}
