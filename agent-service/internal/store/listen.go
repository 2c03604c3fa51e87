// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// notification is a message between replicas.
type notification struct {
	Origin  string          `json:"origin"`
	Changes []domain.Change `json:"changes"`
}

const (
	// silence is how long no notification may come before the connection is tried, and answersWithin how long an answer may take: one whose other end is gone says nothing.
	silence       = 3 * time.Second
	answersWithin = 5 * time.Second
	// doubted is for how long after a commit without an answer notifications of this replica are news to it: the server may carry the commit out that late.
	doubted = 10 * time.Minute
)

// Listen implements transaction.Store. A broken connection is made again; what came in between is EverythingChanged.
func (s *Store) Listen(ctx context.Context, notify func([]domain.Change), disconnected func()) error {
	if s.listen == nil {
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		_ = s.subscribe(ctx, notify) // the store's other connections say what is wrong with it
		if ctx.Err() == nil {
			disconnected()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (s *Store) subscribe(ctx context.Context, notify func([]domain.Change)) error {
	connecting, cancel := s.patient(ctx)
	defer cancel()
	connection, err := pgx.ConnectConfig(connecting, s.renewed(s.listen))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersWithin)
		defer cancel()
		_ = connection.Close(last) // nothing is left to lose
	}()
	if _, err := connection.Exec(connecting, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s.notify.Store(&notify)
	notify([]domain.Change{{Kind: domain.EverythingChanged}})
	for {
		message, err := next(ctx, connection)
		if err != nil {
			return fmt.Errorf("waiting for changes: %w", err)
		}
		var received notification
		if err := json.Unmarshal([]byte(message.Payload), &received); err != nil {
			received.Changes = []domain.Change{{Kind: domain.EverythingChanged}}
		}
		if received.Origin != s.origin || time.Now().UnixNano() < s.doubtedUntil.Load() {
			notify(received.Changes)
		}
	}
}

// doubt takes the error of a commit. Where it does not say that nothing was committed, as when the connection broke or who asked has gone, nothing follows the commit here: its changes count as those of
// another replica, now, and when the database notifies of them, which it does if and when they are committed.
func (s *Store) doubt(err error, changes []domain.Change) {
	if _, refused := errors.AsType[*pgconn.PgError](err); refused && !away(err) {
		return
	}
	s.doubtedUntil.Store(time.Now().Add(doubted).UnixNano())
	if notify := s.notify.Load(); notify != nil && len(changes) > 0 {
		(*notify)(changes)
	}
}

// next waits for a notification as long as the connection lives.
func next(ctx context.Context, connection *pgx.Conn) (*pgconn.Notification, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, silence)
		notification, err := connection.WaitForNotification(waiting)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return notification, err
		}
		asking, cancel := context.WithTimeout(ctx, answersWithin)
		err = connection.Ping(asking)
		cancel()
		if err != nil {
			return nil, err
		}
	}
}
