// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/muster-io/muster/agent-service/internal/service"
)

// bulletin is what replicas tell each other.
type bulletin struct {
	Origin  string           `json:"origin"`
	Changes []service.Change `json:"changes"`
}

// Listen implements service.Store. A broken connection is made again; what came in between is EverythingChanged.
func (s *Store) Listen(ctx context.Context, heard func([]service.Change)) error {
	if s.listen == nil {
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		_ = s.hear(ctx, heard) // the store's other connections say what is wrong with it
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (s *Store) hear(ctx context.Context, heard func([]service.Change)) error {
	connection, err := pgx.ConnectConfig(ctx, s.listen)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer connection.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to lose
	if _, err := connection.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	heard([]service.Change{{Kind: service.EverythingChanged}})
	for {
		notification, err := connection.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("waiting for changes: %w", err)
		}
		var news bulletin
		if err := json.Unmarshal([]byte(notification.Payload), &news); err != nil {
			news.Changes = []service.Change{{Kind: service.EverythingChanged}}
		}
		if news.Origin != s.origin {
			heard(news.Changes)
		}
	}
}
