// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/intern"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Rows keep an object whole in doc; columns are what is searched for and what must be unique.

type infraEnvRow struct {
	bun.BaseModel `bun:"table:infra_envs,alias:o"`

	ID            string    `bun:"id,pk"`
	Name          string    `bun:"name"`
	User          string    `bun:"user_name"`
	Organization  string    `bun:"org_id"`
	KubeNamespace string    `bun:"kube_namespace"`
	KubeName      string    `bun:"kube_name"`
	ClusterID     string    `bun:"cluster_id,nullzero"`
	Deleting      bool      `bun:"deleting"`
	CreatedAt     time.Time `bun:"created_at"`
	Revision      int64     `bun:"revision"`
	Doc           string    `bun:"doc"`
}

type clusterRow struct {
	bun.BaseModel `bun:"table:clusters,alias:o"`

	ID            string    `bun:"id,pk"`
	Name          string    `bun:"name"`
	User          string    `bun:"user_name"`
	Organization  string    `bun:"org_id"`
	KubeNamespace string    `bun:"kube_namespace"`
	KubeName      string    `bun:"kube_name"`
	Status        string    `bun:"status"`
	CreatedAt     time.Time `bun:"created_at"`
	Revision      int64     `bun:"revision"`
	Doc           string    `bun:"doc"`
}

type hostRow struct {
	bun.BaseModel `bun:"table:hosts,alias:o"`

	InfraEnvID   string `bun:"infra_env_id,pk"`
	HostID       string `bun:"host_id,pk"`
	ClusterID    string `bun:"cluster_id,nullzero"`
	User         string `bun:"user_name"`
	Organization string `bun:"org_id"`
	State        string `bun:"state"`
	Role         string `bun:"role"`
	// Search and Name are what the host is found by, see found.
	Search    string    `bun:"search"`
	Name      string    `bun:"name"`
	CreatedAt time.Time `bun:"created_at"`
	Revision  int64     `bun:"revision"`
	Doc       string    `bun:"doc"`
}

// sought is what a host is found by, in lower case.
func sought(h *domain.Host) (search, name string) {
	of := slices.Concat([]string{h.HostID, h.FreeHostname, h.Summary.Hostname, h.Summary.SerialNumber}, h.Summary.MACAddresses, h.Summary.Addresses)
	return strings.ToLower(strings.Join(of, " ")), strings.ToLower(h.RequestedHostname)
}

type inventoryRow struct {
	bun.BaseModel `bun:"table:inventories"`

	InfraEnvID string `bun:"infra_env_id,pk"`
	HostID     string `bun:"host_id,pk"`
	Body       string `bun:"body"`
}

type eventRow struct {
	bun.BaseModel `bun:"table:events,alias:o"`

	ID          int64     `bun:"id,pk,autoincrement"`
	Position    int64     `bun:"position"`
	Fold        string    `bun:"fold"`
	Name        string    `bun:"name"`
	InfraEnvID  string    `bun:"infra_env_id"`
	HostID      string    `bun:"host_id"`
	ClusterID   string    `bun:"cluster_id"`
	Severity    string    `bun:"severity"`
	Category    string    `bun:"category"`
	Message     string    `bun:"message"`
	At          time.Time `bun:"at"`
	LastAt      time.Time `bun:"last_at"`
	Count       int64     `bun:"count"`
	ForInfraEnv bool      `bun:"for_infra_env"`
	ForCluster  bool      `bun:"for_cluster"`
	RequestID   string    `bun:"request_id"`
	Props       string    `bun:"props"`
	Reported    bool      `bun:"reported"`
}

func encode(object any) (string, error) {
	doc, err := json.Marshal(object)
	if err != nil {
		return "", fmt.Errorf("encoding %T: %w", object, err)
	}
	return string(doc), nil
}

func (r infraEnvRow) decode() (*domain.InfraEnv, error) {
	e := &domain.InfraEnv{}
	if err := json.Unmarshal([]byte(r.Doc), e); err != nil {
		return nil, fmt.Errorf("decoding InfraEnv %s: %w", r.ID, err)
	}
	e.Revision = r.Revision
	return e, nil
}

func (r clusterRow) decode() (*domain.Cluster, error) {
	c := &domain.Cluster{}
	if err := json.Unmarshal([]byte(r.Doc), c); err != nil {
		return nil, fmt.Errorf("decoding cluster %s: %w", r.ID, err)
	}
	c.Revision = r.Revision
	return c, nil
}

func (r hostRow) decode() (*domain.Host, error) {
	h := &domain.Host{}
	if err := json.Unmarshal([]byte(r.Doc), h); err != nil {
		return nil, fmt.Errorf("decoding host %s/%s: %w", r.InfraEnvID, r.HostID, err)
	}
	h.Revision = r.Revision
	share(h)
	return h, nil
}

// hostTexts are those that hosts have in common: all hosts are in memory.
var hostTexts intern.Texts

// share makes a host that was read refer to what others have as well.
func share(h *domain.Host) {
	h.State = lifecycle.State(hostTexts.Once(string(h.State)))
	hostTexts.Share(&h.Role, &h.InfraEnvID, &h.User, &h.Organization, &h.ClusterID, &h.StateInfo, &h.AgentVersion, &h.Summary.CPUArchitecture, &h.Summary.Manufacturer, &h.Summary.ProductName)
	for i := range h.Validations {
		v := &h.Validations[i]
		v.Status = validate.Status(hostTexts.Once(string(v.Status)))
		hostTexts.Share(&v.ID, &v.Category, &v.Message)
	}
	for i := range h.NTPSources {
		hostTexts.Share(&h.NTPSources[i].Name, &h.NTPSources[i].State)
	}
}

func (r eventRow) event() domain.Event {
	return domain.Event{
		ID: r.ID, Position: r.Position, Name: r.Name, InfraEnvID: r.InfraEnvID, HostID: r.HostID, ClusterID: r.ClusterID, Severity: r.Severity,
		Category: r.Category, Message: r.Message, At: r.At, LastAt: r.LastAt, Count: r.Count, ForInfraEnv: r.ForInfraEnv, ForCluster: r.ForCluster,
		RequestID: r.RequestID, Props: json.RawMessage(r.Props), Reported: r.Reported,
	}
}
