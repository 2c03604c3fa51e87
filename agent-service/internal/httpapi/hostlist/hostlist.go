// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostlist answers with many hosts and their inventories, without all of these in memory.
package hostlist

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

// atOnce is how many inventories of an answer are in memory at a time: one has up to 512 KiB, and a list as many as there are hosts.
const atOnce = 10

// List are hosts as an answer has them. It reads inventories while it is written.
type List struct {
	Hosts []domain.Host
	// Total counts the hosts of all pages.
	Total int
	// Inventories reads those of some of the hosts; nil for an answer without.
	Inventories func(hosts []domain.Host) (map[domain.HostKey][]byte, error)
	// Shown is a host as the caller sees it, without its inventory.
	Shown func(host *domain.Host) api.Host
}

// All yields the hosts as the caller sees them. It ends with an error.
func (l *List) All() iter.Seq2[api.Host, error] {
	return func(yield func(api.Host, error) bool) {
		for some := range slices.Chunk(l.Hosts, atOnce) {
			var reported map[domain.HostKey][]byte
			if l.Inventories != nil {
				var err error
				if reported, err = l.Inventories(some); err != nil {
					yield(api.Host{}, err)
					return
				}
			}
			for i := range some {
				h := l.Shown(&some[i])
				h.Inventory = string(reported[some[i].HostKey])
				if !yield(h, nil) {
					return
				}
			}
		}
	}
}

// write writes the hosts as a JSON array after a text. An error before the first host leaves the answer to the caller; one after that leaves an array without an end, which no
// client takes for a whole one.
func (l *List) write(w io.Writer, after string) error {
	encoder, begin := json.NewEncoder(w), after+"["
	for h, err := range l.All() {
		if err == nil {
			_, err = io.WriteString(w, begin)
		}
		if err == nil {
			err = encoder.Encode(h)
		}
		if err != nil {
			return fmt.Errorf("writing hosts: %w", err)
		}
		begin = ","
	}
	if len(l.Hosts) > 0 {
		begin = ""
	}
	_, err := io.WriteString(w, begin+"]")
	return err
}

func (l *List) visit(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Total-Count", fmt.Sprint(l.Total))
	return l.write(w, "")
}

// VisitListHostsResponse implements api.ListHostsResponseObject.
func (l *List) VisitListHostsResponse(w http.ResponseWriter) error { return l.visit(w) }

// VisitListAllHostsResponse implements api.ListAllHostsResponseObject.
func (l *List) VisitListAllHostsResponse(w http.ResponseWriter) error { return l.visit(w) }

// VisitListClusterHostsResponse implements api.ListClusterHostsResponseObject.
func (l *List) VisitListClusterHostsResponse(w http.ResponseWriter) error { return l.visit(w) }

// Cluster is a cluster with its hosts.
type Cluster struct {
	api.Cluster
	*List
}

// visit answers with a status. An error before the first host leaves the answer to the caller.
func (c *Cluster) visit(w http.ResponseWriter, status int) error {
	raw, err := json.Marshal(c.Cluster)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return fmt.Errorf("writing a cluster: %w", err)
	}
	var begin strings.Builder
	begin.WriteString("{")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "hosts" {
			fmt.Fprintf(&begin, "%q:%s,", name, fields[name])
		}
	}
	w.Header().Set("Content-Type", "application/json")
	body := &lateStatus{w, status}
	if err := c.write(body, begin.String()+`"hosts":`); err != nil {
		return err
	}
	_, err = io.WriteString(body, "}\n")
	return err
}

// lateStatus writes the status before the first byte.
type lateStatus struct {
	http.ResponseWriter
	status int
}

// Write implements io.Writer.
func (s *lateStatus) Write(p []byte) (int, error) {
	if s.status != 0 {
		s.WriteHeader(s.status)
		s.status = 0
	}
	return s.ResponseWriter.Write(p)
}

// VisitGetClusterResponse implements api.GetClusterResponseObject.
func (c *Cluster) VisitGetClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusOK)
}

// VisitRegisterClusterResponse implements api.RegisterClusterResponseObject.
func (c *Cluster) VisitRegisterClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusCreated)
}

// VisitImportClusterResponse implements api.ImportClusterResponseObject.
func (c *Cluster) VisitImportClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusCreated)
}

// VisitUpdateClusterResponse implements api.UpdateClusterResponseObject.
func (c *Cluster) VisitUpdateClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusCreated)
}

// VisitAllowAddHostsResponse implements api.AllowAddHostsResponseObject.
func (c *Cluster) VisitAllowAddHostsResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}

// VisitAllowAddWorkersResponse implements api.AllowAddWorkersResponseObject.
func (c *Cluster) VisitAllowAddWorkersResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}

// VisitInstallClusterResponse implements api.InstallClusterResponseObject.
func (c *Cluster) VisitInstallClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}

// VisitCancelInstallationResponse implements api.CancelInstallationResponseObject.
func (c *Cluster) VisitCancelInstallationResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}

// VisitResetClusterResponse implements api.ResetClusterResponseObject.
func (c *Cluster) VisitResetClusterResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}

// VisitCompleteInstallationResponse implements api.CompleteInstallationResponseObject.
func (c *Cluster) VisitCompleteInstallationResponse(w http.ResponseWriter) error {
	return c.visit(w, http.StatusAccepted)
}
