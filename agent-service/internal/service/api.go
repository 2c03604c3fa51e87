// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service does what users and machines ask for, in transactions on a Store: API lists it. REST and the controllers of custom resources call nothing else.
package service

import (
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// MaxHold is how long an agent's poll is held open at most: routers cut idle connections at about 30 s.
const MaxHold = 25 * time.Second

// API is what REST and the controllers call. Refusals are *Error. All methods are safe for concurrent use, and none blocks longer than a
// transaction, but for NextInstructions.
type API interface {
	InfraEnvs
	Hosts
	Agents
	Clusters
	Files
	Events
}

// InfraEnvs are the methods about InfraEnvs.
type InfraEnvs interface {
	CreateInfraEnv(ctx context.Context, by domain.Principal, request domain.NewInfraEnv) (*domain.InfraEnv, error)
	GetInfraEnv(ctx context.Context, by domain.Principal, id string) (*domain.InfraEnv, error)
	ListInfraEnvs(ctx context.Context, by domain.Principal, filter domain.InfraEnvFilter) (domain.List[domain.InfraEnv], error)
	// UpdateInfraEnv lets change edit the settings in a transaction; whatever it empties is cleared. An error of change is
	// returned as it is. Nothing is written where nothing changed, and ImageUpdatedAt moves only when the image's content does.
	UpdateInfraEnv(ctx context.Context, by domain.Principal, id string, change func(*domain.InfraEnvSettings) error) (*domain.InfraEnv, error)
	// DeleteInfraEnv refuses while hosts are bound or installing (Conflict HostsBound), unless forced; free hosts go with it.
	DeleteInfraEnv(ctx context.Context, by domain.Principal, id string, force bool) error
	// RotateTokens makes tokens of the image (scoped to the InfraEnv) of older generations open nothing, at once. Running hosts
	// keep working: their tokens are narrowed to the host and carry HostGeneration, or they are Admitted; with hosts that ends too.
	RotateTokens(ctx context.Context, by domain.Principal, id string, hosts bool) (*domain.InfraEnv, error)
	// RevokeHostTokens makes all tokens of the InfraEnv's hosts open nothing, at once: those of agents, which register again with the token of their image, those of installed
	// systems, and what agents were Admitted with.
	RevokeHostTokens(ctx context.Context, by domain.Principal, id string) error
	// TokenGenerations are the current generations of an InfraEnv, from memory; NotFound for unknown ones, Unavailable where they may come back. A token is refused
	// whose generation is another.
	TokenGenerations(ctx context.Context, id string) (domain.Generations, error)
}

// Hosts are the methods of users about hosts. The owner of the InfraEnv keeps its hosts: binds, moves and deletes them. The creator of the cluster that a host is in uses it: sees it,
// says how it is used, installs and resets it. Both free it. Neither sees what the other says of it; Conflict HostOfAnother and HostUsedByAnother to the other one.
type Hosts interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// ListHosts leaves inventories out; Inventory has them.
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
	// Inventory is the JSON that the agent reported (bounded, flagged where it was cut), empty before its first report.
	Inventory(ctx context.Context, by domain.Principal, key domain.HostKey) ([]byte, error)
	// Inventories are those of hosts that were listed; hosts without one are left out.
	Inventories(ctx context.Context, by domain.Principal, hosts []domain.Host) (map[domain.HostKey][]byte, error)
	// MayActAs is nil for people who may do what the agent of a host does, and see what it sees: the owner of a free host, the user of a bound one; else NotFound.
	MayActAs(ctx context.Context, by domain.Principal, key domain.HostKey) error
	// Seen is when the agent polled last, from memory.
	Seen(key domain.HostKey) domain.Seen
	// UpdateHost lets change edit the settings in a transaction; whatever it empties is cleared. Conflict while installing.
	UpdateHost(ctx context.Context, by domain.Principal, key domain.HostKey, change func(*domain.HostSettings) error) (*domain.Host, error)
	// BindHost gives a free host to a cluster; bound to that cluster already, it is returned unchanged only if idempotent is
	// asked for (custom resources), else Conflict HostBoundAlready.
	BindHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string, idempotent bool) (*domain.Host, error)
	// CheckBind is the dry run of BindHost and MoveHost; nothing is written.
	CheckBind(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (domain.DryRun, error)
	// UnbindHost frees a host. Conflict while it or its cluster installs, while it is free, and where its InfraEnv has a cluster.
	UnbindHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// MoveHost takes a bound host to another cluster, in one transaction, after the destination was checked. Conflict while either is installed, and where
	// the destination is installed already.
	MoveHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (*domain.Host, error)
	// InstallHost starts the installation of a host that joins an installed cluster.
	InstallHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// ResetHost lets a host be used again in its cluster, after it booted the discovery image.
	ResetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// ReclaimHost brings an installed host back into the pool by itself, where its system can.
	ReclaimHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// ResetValidation makes the agent try again what it had found out: Invalid for validations that follow from what is known.
	ResetValidation(ctx context.Context, by domain.Principal, key domain.HostKey, id string) (*domain.Host, error)
	// HostMinimums are what hosts need, by role.
	HostMinimums() validate.Minimums
	// RestoreHost brings back an installed host that the service lost with its data: one that is not known, or that came back without its past. It is not
	// installed again. Conflict ClusterNotInstalled unless the cluster is installed.
	RestoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error)
	// RevokeTokens makes the tokens of a host open nothing, at once, as RevokeHostTokens does. Its state stays.
	RevokeTokens(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	// DeleteHost forgets a host. Conflict while it installs. NotFound for an unknown one.
	DeleteHost(ctx context.Context, by domain.Principal, key domain.HostKey) error
}

// Agents are the methods of machines. REST has checked that the token is one of the InfraEnv, and of the host where the token
// is narrowed to one.
type Agents interface {
	// RegisterHost makes or renews a host. Conflict IdentityInUse: another live machine has this id, or one that sent a fingerprint, which this one does not. Conflict
	// HostInstalled: it is installed and should boot from its disk.
	RegisterHost(ctx context.Context, infraEnvID string, request domain.NewHost) (*domain.Host, error)
	// Admitted is whether the agent of a registered host acts with its image's token of a generation, also after that was revoked or has expired: agents of
	// assisted-service cannot take another one while they run. It ends with HostGeneration, and when the host registers again.
	Admitted(ctx context.Context, key domain.HostKey, imageGeneration int64) (bool, error)
	// MustRegister is whether the agent of a host cannot go on without a new registration: the host is not known, or what its agent was Admitted with was revoked.
	MustRegister(ctx context.Context, key domain.HostKey) (bool, error)
	// HoldsStamps is whether what a token carries is of the host's present registration and binding, from memory; NotFound for unknown hosts.
	HoldsStamps(ctx context.Context, key domain.HostKey, carried domain.Stamps) (bool, error)
	// NextInstructions is a heartbeat. It is held for at most hold (≤ MaxHold, 0 for an answer at once) and answered at
	// once when there is something to do, also when that came before the poll.
	NextInstructions(ctx context.Context, key domain.HostKey, hold time.Duration) (Instructions, error)
	// NextInstructionsWith is NextInstructions for a token that carries stamps: where it ends, the poll is answered at once and tells nothing more (Ended).
	NextInstructionsWith(ctx context.Context, key domain.HostKey, carried domain.Stamps, hold time.Duration) (Instructions, error)
	// ReportStep takes the reply to a step. Replies to steps that are no longer asked for are taken and change nothing.
	ReportStep(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error
	// ReportProgress takes a stage, from the agent or from the installed system. Conflict StageNotExpected where the host does not install.
	ReportProgress(ctx context.Context, key domain.HostKey, report domain.ProgressReport) (*domain.Host, error)
	// FirstBoot is the first-boot data of a host that installs; Conflict otherwise. It holds a token for the installed system, which ends with the binding.
	FirstBoot(ctx context.Context, key domain.HostKey) (data []byte, contentType string, err error)
	// ReportEvent keeps an event that an agent triggers, bounded and for the cluster only while bound.
	ReportEvent(ctx context.Context, key domain.HostKey, event domain.Event) error
}

// Clusters are the methods about clusters.
type Clusters interface {
	CreateCluster(ctx context.Context, by domain.Principal, request domain.NewCluster) (*domain.Cluster, error)
	GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	ListClusters(ctx context.Context, by domain.Principal, filter domain.ClusterFilter) (domain.List[domain.Cluster], error)
	// UpdateCluster lets change edit the settings; Conflict while it installs, but for HoldInstallation and counts.
	UpdateCluster(ctx context.Context, by domain.Principal, id string, change func(*domain.ClusterSettings) error) (*domain.Cluster, error)
	// DeleteCluster frees the hosts. Conflict while it installs, unless forced.
	DeleteCluster(ctx context.Context, by domain.Principal, id string, force bool) error
	// InstallCluster starts the installation: Conflict ClusterNotReady says what is missing.
	InstallCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	CancelCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	ResetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	// CompleteCluster ends the installation, with the kubeconfig where there is one.
	CompleteCluster(ctx context.Context, by domain.Principal, id string, kubeconfig string) (*domain.Cluster, error)
	// AllowHosts makes an installed cluster take more hosts under the name that clients of assisted-service know: adding-hosts.
	AllowHosts(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	// RestoreCluster makes a cluster installed that was installed before the service lost its data. Nothing changes where it is.
	RestoreCluster(ctx context.Context, by domain.Principal, id string, from domain.Restored) (*domain.Cluster, error)
	// Kubeconfig is of an installed cluster; Conflict ClusterNotInstalled before.
	Kubeconfig(ctx context.Context, by domain.Principal, id string) ([]byte, error)
}

// Files are what is kept with a cluster beside its settings. What an installation is made from is changed before it only: Conflict ClusterInstalling.
type Files interface {
	// ListManifests are the files of manifests/ and openshift/. The host that brings up the control plane gets them with its first-boot data.
	ListManifests(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error)
	Manifest(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error)
	// CreateManifest writes over one that is there.
	CreateManifest(ctx context.Context, by domain.Principal, clusterID, name string, content []byte) error
	// UpdateManifest renames a manifest, and gives it a content unless that is nil.
	UpdateManifest(ctx context.Context, by domain.Principal, clusterID, name, newName string, content []byte) error
	DeleteManifest(ctx context.Context, by domain.Principal, clusterID, name string) error
	// InstallConfig is the cluster as installers describe it, in YAML, with the overrides and without the pull secret.
	InstallConfig(ctx context.Context, by domain.Principal, clusterID string) ([]byte, error)
	// OverrideInstallConfig keeps a JSON object that is laid over it; an empty one is none.
	OverrideInstallConfig(ctx context.Context, by domain.Principal, clusterID, overrides string) error
	// SettingsOfUI is a text that user interfaces keep with a cluster.
	SettingsOfUI(ctx context.Context, by domain.Principal, clusterID string) (string, error)
	SetSettingsOfUI(ctx context.Context, by domain.Principal, clusterID, settings string) error
	// KeepLogs keeps an archive of a host that is bound to the cluster, of itself or of the cluster's controller; NotFound from others.
	KeepLogs(ctx context.Context, clusterID string, from domain.HostKey, controller bool, archive []byte) error
	// LogsProgress is requested, collecting, completed or timeout.
	LogsProgress(ctx context.Context, key domain.HostKey, state string) error
	// ListLogs are logs/<host id> and logs/controller.
	ListLogs(ctx context.Context, by domain.Principal, clusterID string) ([]domain.FileInfo, error)
	Logs(ctx context.Context, by domain.Principal, clusterID, name string) ([]byte, error)
}

// Events are history and news.
type Events interface {
	ListEvents(ctx context.Context, by domain.Principal, filter domain.EventFilter) (domain.List[domain.Event], error)
	// Subscribe begins to collect changes, of all replicas. Repeats are folded, nothing is lost, nobody is slowed down.
	Subscribe() *Subscription
	// Ready is nil when the service can answer: its store is reachable and what it keeps in memory is loaded.
	Ready(ctx context.Context) error
}

// Instructions are the answer to an agent's poll.
type Instructions struct {
	Steps []agentproto.Step
	// NextSeconds is how long the agent may wait before it asks again.
	NextSeconds int
	// Exit asks the agent to end (it is started again and registers). Never for bind and unbind.
	Exit bool
	// Revision is of the host's row when these were made.
	Revision int64
	// Ended is true where the token of the poll ended while it was held: there is nothing but the step that stops an installation.
	Ended bool
	// Held is how long the poll was held open.
	Held time.Duration
}
