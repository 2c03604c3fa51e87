// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

type indexerFunc func(client.Object, string, client.IndexerFunc)

func (f indexerFunc) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	f(o, field, values)
	return nil
}

// FakeIndexes hands the controller's indexes to a fake client.
func FakeIndexes(add func(client.Object, string, client.IndexerFunc)) {
	if err := index(context.Background(), indexerFunc(add)); err != nil {
		panic(err)
	}
}
