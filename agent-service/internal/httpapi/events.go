// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/eventstream"
	"github.com/muster-io/muster/agent-service/internal/feed"
)

// keepAlive is how often a stream without news says that it is alive, and streamEnd when a client has to show its token again.
const (
	keepAlive = 15 * time.Second
	streamEnd = time.Hour
)

// events are the operations on events, and the stream of changes.
type events struct{ *server }

// ListEvents implements api.StrictServerInterface.
func (s *events) ListEvents(ctx context.Context, r api.ListEventsRequestObject) (api.ListEventsResponseObject, error) {
	p := r.Params
	filter, err := s.eventFilter(ctx, p.ClusterID, p.InfraEnvID, p.HostID, given(p.HostIds)...)
	if err != nil {
		return nil, err
	}
	for _, severity := range given(p.Severities) {
		filter.Severities = append(filter.Severities, string(severity))
	}
	for _, category := range given(p.Categories) {
		filter.Categories = append(filter.Categories, string(category))
	}
	machine := callerOf(ctx).machine
	filter.Message, filter.ClusterLevel = given(p.Message), given(p.ClusterLevel) && (machine == nil || machine.HostID == "")
	filter.DeletedHosts = given(p.DeletedHosts) && (machine == nil || machine.HostID == "")
	filter.Descending = given(p.Order) == api.Descending
	filter.Page = domain.Page{Limit: given(p.Limit), Offset: given(p.Offset)}
	if filter.Limit == 0 {
		filter.Limit = 5000
	}
	list, err := s.Service.ListEvents(ctx, principal(ctx), filter)
	if err != nil {
		return nil, err
	}
	headers, err := s.countEvents(ctx, filter, list.Total)
	body := make([]api.Event, 0, len(list.Items))
	for i := range list.Items {
		body = append(body, shownEvent(&list.Items[i]))
	}
	return api.ListEvents200JSONResponse{Body: body, Headers: headers}, err
}

func (s *events) countEvents(ctx context.Context, filter domain.EventFilter, total int) (api.ListEvents200ResponseHeaders, error) {
	headers := api.ListEvents200ResponseHeaders{EventCount: total}
	for severity, into := range map[string]*int{
		domain.Info: &headers.SeverityCountInfo, domain.Warning: &headers.SeverityCountWarning,
		domain.Failure: &headers.SeverityCountError, domain.Critical: &headers.SeverityCountCritical,
	} {
		if len(filter.Severities) > 0 && !slices.Contains(filter.Severities, severity) {
			continue
		}
		one := filter
		one.Severities, one.Page = []string{severity}, domain.Page{Limit: 1}
		list, err := s.Service.ListEvents(ctx, principal(ctx), one)
		if err != nil {
			return headers, err
		}
		*into = list.Total
	}
	return headers, nil
}

// eventFilter chooses what the caller may see. A machine sees its own infra-env's events, and of those only its own once its token is narrowed.
func (s *events) eventFilter(ctx context.Context, cluster, infraEnv, host *uuid.UUID, hosts ...uuid.UUID) (domain.EventFilter, error) {
	filter := domain.EventFilter{ClusterID: optional(cluster), InfraEnvID: optional(infraEnv)}
	if host != nil {
		hosts = append(hosts, *host)
	}
	for _, id := range hosts {
		filter.HostIDs = append(filter.HostIDs, id.String())
	}
	machine := callerOf(ctx).machine
	if machine == nil {
		return filter, nil
	}
	if filter.ClusterID != "" || machine.InfraEnvID != filter.InfraEnvID {
		return filter, errNotFound
	}
	if machine.HostID != "" {
		if slices.ContainsFunc(filter.HostIDs, func(id string) bool { return id != machine.HostID }) {
			return filter, errNotFound
		}
		filter.HostIDs = []string{machine.HostID}
	}
	return filter, nil
}

// TriggerEvent implements api.StrictServerInterface.
func (s *events) TriggerEvent(ctx context.Context, r api.TriggerEventRequestObject) (api.TriggerEventResponseObject, error) {
	b := r.Body
	if b.InfraEnvID == (uuid.UUID{}) || b.HostID == (uuid.UUID{}) {
		return nil, invalid("infra_env_id, host_id: name the host that the event is about")
	}
	k := key(b.InfraEnvID, b.HostID)
	if err := s.mayAct(ctx, k); err != nil {
		return nil, err
	}
	event := domain.Event{Name: b.Name, Severity: string(b.Severity), Category: string(b.Category), Message: b.Message, At: b.EventTime}
	if b.ClusterID != (uuid.UUID{}) {
		event.ClusterID = b.ClusterID.String()
	}
	if b.Props != "" {
		if !json.Valid([]byte(b.Props)) {
			return nil, invalid("props: it has to be JSON")
		}
		event.Props = json.RawMessage(b.Props)
	}
	return api.TriggerEvent201Response{}, s.Service.ReportEvent(ctx, k, event)
}

func shownEvent(e *domain.Event) api.Event {
	return api.Event{
		Name: e.Name, ClusterID: id(e.ClusterID), HostID: id(e.HostID), InfraEnvID: id(e.InfraEnvID), Severity: api.EventSeverity(e.Severity),
		Category: api.EventCategory(e.Category), Message: e.Message, EventTime: e.LastAt, RequestID: id(e.RequestID), Props: string(e.Props), Count: e.Count,
	}
}

// StreamEvents implements api.StrictServerInterface.
func (s *events) StreamEvents(ctx context.Context, r api.StreamEventsRequestObject) (api.StreamEventsResponseObject, error) {
	filter, err := s.eventFilter(ctx, r.Params.ClusterID, r.Params.InfraEnvID, r.Params.HostID)
	if err != nil {
		return nil, err
	}
	filter.AfterPosition = new(given(r.Params.Since))
	if r.Params.LastEventID != nil {
		filter.AfterPosition = r.Params.LastEventID
	}
	filter.Limit = 500
	st := &stream{events: s, filter: filter, news: s.Service.Subscribe()}
	if st.list, err = s.Service.ListEvents(ctx, principal(ctx), filter); err != nil {
		st.news.Close()
		return nil, err
	}
	st.ctx = ctx
	return st, nil
}

// stream writes events as they come, until the client goes away, its token ends, or it has to show that again.
type stream struct {
	events *events
	filter domain.EventFilter
	news   *feed.Subscription
	list   domain.List[domain.Event]
	ctx    context.Context // of the request that the stream answers
}

// VisitStreamEventsResponse implements api.StreamEventsResponseObject.
func (st *stream) VisitStreamEventsResponse(w http.ResponseWriter) error {
	defer st.news.Close()
	ctx, cancel := st.events.streaming(st.ctx)
	defer cancel()
	eventstream.Begin(w)
	for {
		if err := st.write(w); err != nil || ctx.Err() != nil {
			return nil // the client is gone
		}
		if len(st.list.Items) < st.filter.Limit {
			wait, done := context.WithTimeout(ctx, keepAlive)
			_, _ = st.news.Next(wait)
			done()
		}
		if callerOf(st.ctx).again() != nil {
			return nil // the client gets the reason with its next request
		}
		list, err := st.events.Service.ListEvents(ctx, principal(st.ctx), st.filter)
		if err != nil {
			return nil // the stream ends; the client comes back with the last id that it saw
		}
		st.list = list
	}
}

func (st *stream) write(w http.ResponseWriter) error {
	for i := range st.list.Items {
		event := &st.list.Items[i]
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", event.Position, text(shownEvent(event))); err != nil {
			return err
		}
		st.filter.AfterPosition = new(event.Position)
	}
	if len(st.list.Items) == 0 {
		if _, err := fmt.Fprint(w, ": nothing new\n\n"); err != nil {
			return err
		}
	}
	return http.NewResponseController(w).Flush()
}
