// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/muster-io/muster/agent-service/api"
)

// Programs are the agent's, for machines whose live image has none.
type Programs interface {
	// Open is the program for machines of an architecture. It refuses an architecture without program with NotFound.
	Open(architecture string) (*Program, error)
}

// Program is the agent for machines of one architecture.
type Program struct {
	*os.File
	// SHA256 is its checksum in hexadecimal digits.
	SHA256  string
	ModTime time.Time
}

type requestKey struct{}

// inParts lets the one operation see the request itself whose answer can be fetched in parts.
func inParts(next api.StrictHandlerFunc, operation string) api.StrictHandlerFunc {
	if operation != "DownloadAgent" {
		return next
	}
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		return next(context.WithValue(ctx, requestKey{}, r), w, r, request)
	}
}

// DownloadAgent implements api.StrictServerInterface.
func (s *machines) DownloadAgent(ctx context.Context, r api.DownloadAgentRequestObject) (api.DownloadAgentResponseObject, error) {
	if s.Programs == nil {
		return nil, &refusal{http.StatusNotFound, "this service has no agents"}
	}
	program, err := s.Programs.Open(string(r.Params.Arch))
	if err != nil {
		return nil, err
	}
	request, _ := ctx.Value(requestKey{}).(*http.Request)
	return partly{program, request}, nil
}

// partly answers with a program, or with the part of it that the request asks for.
type partly struct {
	*Program
	request *http.Request
}

// VisitDownloadAgentResponse implements api.DownloadAgentResponseObject.
func (p partly) VisitDownloadAgentResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="agent"`)
	w.Header().Set("ETag", `"`+p.SHA256+`"`)
	http.ServeContent(w, p.request, "", p.ModTime, p.File)
	return p.Close()
}
