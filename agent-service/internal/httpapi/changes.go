// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/eventstream"
	"github.com/muster-io/muster/agent-service/internal/feed"
)

// changePause is the least time between two messages of a stream of changes: changes in between are one message.
const changePause = 500 * time.Millisecond

// StreamChanges implements api.StrictServerInterface.
func (s *events) StreamChanges(ctx context.Context, _ api.StreamChangesRequestObject) (api.StreamChangesResponseObject, error) {
	st := &changeStream{events: s, ctx: ctx, news: s.Service.Subscribe()}
	var err error
	if st.hosts, err = st.count(); err != nil {
		st.news.Close()
		return nil, err
	}
	return st, nil
}

// changeStream tells a client when to read again, until it disconnects, its token ends, or the service stops.
type changeStream struct {
	events *events
	news   *feed.Subscription
	// hosts is how many hosts the caller could see last: one that was deleted, or bound to a cluster of another user, is only missed.
	hosts int
	ctx   context.Context // of the request that the stream answers
}

func (st *changeStream) count() (int, error) {
	list, err := st.events.Service.ListHosts(st.ctx, principal(st.ctx), domain.HostFilter{Page: domain.Page{Limit: 1}})
	return list.Total, err
}

// VisitStreamChangesResponse implements api.StreamChangesResponseObject.
func (st *changeStream) VisitStreamChangesResponse(w http.ResponseWriter) error {
	defer st.news.Close()
	ctx, cancel := st.events.streaming(st.ctx)
	defer cancel()
	eventstream.Begin(w)
	message := "retry: 1000\n" + eventstream.Event("changed")
	for {
		if _, err := fmt.Fprint(w, message); err != nil || http.NewResponseController(w).Flush() != nil || pause(ctx, changePause) != nil {
			return nil
		}
		changed, err := st.wait(ctx)
		if err != nil || callerOf(ctx).again() != nil {
			return nil // the client comes back, and is answered why if its token ended
		}
		message = ": nothing new\n\n"
		if changed {
			message = eventstream.Event("changed")
		}
	}
}

// wait returns true when something changed that the caller may see, and false after keepAlive.
func (st *changeStream) wait(ctx context.Context) (bool, error) {
	wait, done := context.WithTimeout(ctx, keepAlive)
	defer done()
	for {
		changes, err := st.news.Next(wait)
		if err != nil {
			return false, ctx.Err()
		}
		if sees, err := st.sees(changes); sees || err != nil {
			return sees, err
		}
	}
}

func (st *changeStream) sees(changes []domain.Change) (bool, error) {
	by := principal(st.ctx)
	if by.Admin {
		return true, nil
	}
	hosts, err := st.count()
	if err != nil || hosts != st.hosts {
		st.hosts = hosts
		return err == nil, err
	}
	for _, change := range changes {
		if sees, err := st.events.Service.Sees(st.ctx, by, change); sees || err != nil {
			return sees, err
		}
	}
	return false, nil
}

// streaming is the context of a stream: it ends with the request, when the client has to show its token again, and when the service stops.
func (s *events) streaming(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, streamEnd)
	go func() {
		select {
		case <-s.Service.Stopping():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
