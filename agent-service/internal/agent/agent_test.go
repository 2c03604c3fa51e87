// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/apis/porttest"
)

const patience = 3 * time.Minute

func TestMachinesWithEqualOrDummySerialsAreDifferent(t *testing.T) {
	id := func(system, board string, macs ...string) uuid.UUID {
		found, err := identify(system, board, macs)
		require.NoError(t, err)
		return found
	}
	good := id("4c4c4544-0042-3510-8052-b4c04f4e3132", "CN7016", "52:54:00:00:00:02", "52:54:00:00:00:01")
	assert.Equal(t, good, id(" 4C4C4544-0042-3510-8052-B4C04F4E3132", "cn7016", "52:54:00:00:00:01", "52:54:00:00:00:02"), "order and spelling do not count")
	assert.NotEqual(t, good, id("4c4c4544-0042-3510-8052-b4c04f4e3132", "CN7016", "52:54:00:00:00:03"), "two boards with one serial")
	assert.NotEqual(t, id("", "To Be Filled By O.E.M.", "52:54:00:00:00:01"), id("", "To Be Filled By O.E.M.", "52:54:00:00:00:02"))
	assert.Equal(t, id("", "", "52:54:00:00:00:01"), id("03000200-0400-0500-0006-000700080009", "Default string", "52:54:00:00:00:01"), "dummies do not count")
	_, err := identify("0", "None", nil)
	require.ErrorContains(t, err, "give it a host id")
}

func TestThisMachineHasAnInventory(t *testing.T) {
	machine := &Real{Sys: "/sys", HostID: uuid.New()}
	inventory, err := machine.Inventory(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, inventory.Hostname)
	assert.Equal(t, "quiet muster.token=… panic=30", machine.boot("quiet muster.token=a.b_c-d panic=30").CommandLine, "users see the inventory")
	assert.Positive(t, inventory.CPU.Count)
	assert.Positive(t, inventory.Memory.PhysicalBytes)
	identity, err := machine.Identity(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, identity.Fingerprint)
}

func TestAPortOfABondHasItsOwnAddress(t *testing.T) {
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	at := slices.IndexFunc(interfaces, func(i net.Interface) bool { return len(i.HardwareAddr) == 6 && i.Flags&net.FlagLoopback == 0 })
	if at < 0 {
		t.Skip("there is no network card here: none can be a port of a bond")
	}
	card := interfaces[at]
	sys := t.TempDir()
	for name, content := range map[string]string{"device/vendor": "0x1af4\n", "bonding_slave/perm_hwaddr": "52:54:00:00:00:0b\n"} {
		path := filepath.Join(sys, "class/net", card.Name, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	machine := &Real{Sys: sys}
	inventory, err := machine.Inventory(t.Context())
	require.NoError(t, err)
	own := slices.IndexFunc(inventory.Interfaces, func(i hardware.Interface) bool { return i.Name == card.Name })
	require.GreaterOrEqual(t, own, 0)
	assert.Equal(t, "52:54:00:00:00:0b", inventory.Interfaces[own].MACAddress)
	assert.Equal(t, []string{"52:54:00:00:00:0b"}, machine.burntIn(), "the machine is the same one before its cards are bonded")
}

func TestADiskIsInUseByItsOwnParts(t *testing.T) {
	sys := t.TempDir()
	for _, partition := range []string{"sda/sda1", "sdaa/sdaa1", "nvme0n1/nvme0n1p1", "nvme0n10/nvme0n10p1", "sdb/sdb2"} {
		path := filepath.Join(sys, "block", partition, "partition")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte("1\n"), 0o600))
	}
	for _, below := range []string{"dm-1/slaves/dm-0", "dm-0/slaves/sdb2", "md0/slaves/sdc"} {
		require.NoError(t, os.MkdirAll(filepath.Join(sys, "class/block", below), 0o750))
	}
	machine := &Real{Sys: sys}
	for device, disk := range map[string]string{
		"/dev/sda": "sda", "/dev/sda1": "sda", "/dev/sdaa1": "sdaa", "/dev/nvme0n1p1": "nvme0n1", "/dev/nvme0n10p1": "nvme0n10", "/dev/sdb2": "sdb", "/dev/dm-0": "sdb", "/dev/dm-1": "sdb",
		"/dev/md0": "sdc", "tmpfs": "", "/dev": "",
	} {
		var used []string
		for _, one := range []string{"sda", "sdaa", "sdb", "sdc", "nvme0n1", "nvme0n10"} {
			if machine.mounted(one, "proc /proc proc rw 0 0\n"+device+" /mnt ext4 rw 0 0\n") {
				used = append(used, one)
			}
		}
		assert.Equal(t, disk, strings.Join(used, " "), device)
	}
}

// site is a service that can lose its data or go away, at one address.
type site struct {
	t        *testing.T
	address  string
	key      ed25519.PrivateKey
	images   []agentproto.OSImage
	service  *service.Service
	infraEnv string
	token    string
	// through is on the way of machines to the service, nil for nothing.
	through func(http.RoundTripper) http.RoundTripper
	stop    func()
}

var admin = domain.Principal{User: "root", Admin: true}

// start begins with the database of the given name; the infra-env keeps its id.
func (s *site) start(name string) {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), filepath.Join(s.t.TempDir(), name))
	require.NoError(s.t, err)
	log := zaptest.NewLogger(s.t)
	s.service = service.New(db, service.Options{Log: log, OSImages: s.images, BaseURL: "http://" + s.address})
	authority, err := token.New(token.Options{Key: s.key, Generations: s.service})
	require.NoError(s.t, err)
	handler, err := httpapi.New(httpapi.Options{Service: s.service, Authority: authority, People: token.Anonymous{}, Log: log})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.service.Run(ctx) }()
	env, err := s.service.CreateInfraEnv(s.t.Context(), admin, domain.NewInfraEnv{ID: s.infraEnv, Name: "e", InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`}})
	require.NoError(s.t, err)
	s.token, err = authority.ForImage(env.ID, env.Generations)
	require.NoError(s.t, err)
	listener, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", s.address)
	require.NoError(s.t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	s.stop = func() {
		cancel()
		require.NoError(s.t, server.Close())
		require.NoError(s.t, <-done)
		require.NoError(s.t, db.Close())
	}
}

func newSite(t *testing.T, images ...agentproto.OSImage) *site {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s := &site{t: t, address: "127.0.0.1:" + porttest.Free(t), key: key, infraEnv: uuid.NewString(), images: images}
	s.start("first.db")
	t.Cleanup(func() { s.stop() })
	return s
}

// machine runs a generated machine until the test ends; the channel tells how its agent ended.
func (s *site) machine(number int) (*Generated, <-chan error) {
	machine, ended, _ := s.run(number)
	return machine, ended
}

// run is the same for machines whose agent the test ends.
func (s *site) run(number int, change ...func(*Options)) (machine *Generated, ended <-chan error, end func()) {
	client := &http.Client{Transport: &http.Transport{}}
	if s.through != nil {
		client.Transport = s.through(client.Transport)
	}
	connection, err := NewConnection("http://"+s.address, uuid.MustParse(s.infraEnv), s.token, client)
	require.NoError(s.t, err)
	machine = &Generated{Seed: "t", Number: number, Client: client, Connection: connection}
	ctx, cancel := context.WithCancel(context.Background())
	done, result := make(chan error, 1), make(chan error, 1)
	options := Options{Connection: connection, Machine: machine, Version: "test", Log: zaptest.NewLogger(s.t)}
	for _, one := range change {
		one(&options)
	}
	go func() {
		err := New(options).Run(ctx)
		result <- err
		done <- err
	}()
	s.t.Cleanup(func() {
		cancel()
		require.ErrorIs(s.t, cmp.Or(<-done, context.Canceled), context.Canceled)
	})
	return machine, result, cancel
}

func (s *site) reaches(machine *Generated, state lifecycle.State) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		host, err := s.service.GetHost(s.t.Context(), admin, domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()})
		return err == nil && host.State == state
	}, patience, 20*time.Millisecond, "the host becomes %s", state)
}

// install binds the machine and installs the cluster as soon as it is ready.
func (s *site) install(machine *Generated, clusterID string) {
	s.t.Helper()
	_, err := s.service.BindHost(s.t.Context(), admin, domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}, clusterID, false)
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		_, err := s.service.InstallCluster(s.t.Context(), admin, clusterID)
		return err == nil
	}, patience, 20*time.Millisecond, "the cluster becomes ready")
}

func TestAnAgentComesBackAfterTheServiceLostItsData(t *testing.T) {
	s := newSite(t)
	machine, _ := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	key := domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}
	require.NoError(t, s.service.DeleteHost(t.Context(), admin, key))
	s.reaches(machine, lifecycle.KnownUnbound)

	s.stop()
	s.start("second.db")
	s.reaches(machine, lifecycle.KnownUnbound)
}

func TestHostsInstallAndReport(t *testing.T) {
	good := imagetest.Serve(t, "os.img.zst", imagetest.Pack(t, "zst", imagetest.Noise(1<<20)))
	good.Version = "4.20"
	s := newSite(t, good)
	cluster, err := s.service.CreateCluster(t.Context(), admin, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: "4.20", ControlPlaneCount: 1, PullSecret: `{"auths":{}}`, BaseDNSDomain: "example.com", MachineNetworks: []string{"10.0.0.0/8"},
	}})
	require.NoError(t, err)
	machine, ended := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	s.install(machine, cluster.ID)
	s.reaches(machine, lifecycle.Installed)
	require.NoError(t, <-ended)
}

// held is an image whose first download stops in the middle until it is released. Begun and ended count them.
type held struct {
	agentproto.OSImage
	begun, ended atomic.Int32
	proceed      chan struct{}
}

func holding(t *testing.T) *held {
	t.Helper()
	content := imagetest.Noise(1 << 20)
	h := &held{proceed: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer h.ended.Add(1)
		half := len(content) / 2
		_, _ = w.Write(content[:half])
		_ = http.NewResponseController(w).Flush()
		if h.begun.Add(1) == 1 {
			select {
			case <-h.proceed:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = w.Write(content[half:])
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	h.OSImage = agentproto.OSImage{Version: "4.20", URL: server.URL + "/os.img", SHA256: hex.EncodeToString(sum[:])}
	return h
}

// writing brings a machine to the middle of its image.
func (s *site) writing(image *held, machine *Generated) *domain.Cluster {
	s.t.Helper()
	cluster, err := s.service.CreateCluster(s.t.Context(), admin, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: "4.20", ControlPlaneCount: 1, PullSecret: `{"auths":{}}`, BaseDNSDomain: "example.com", MachineNetworks: []string{"10.0.0.0/8"},
	}})
	require.NoError(s.t, err)
	s.reaches(machine, lifecycle.KnownUnbound)
	s.install(machine, cluster.ID)
	require.Eventually(s.t, func() bool { return image.begun.Load() == 1 }, patience, 20*time.Millisecond, "the image is downloaded")
	return cluster
}

// losing loses the first reply to a step, and keeps how long the next one took to come.
type losing struct {
	next  http.RoundTripper
	once  sync.Once
	lost  string
	since time.Time
	again chan time.Duration
}

// RoundTrip implements http.RoundTripper.
func (l *losing) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/instructions") {
		return l.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	var reply api.StepReply
	if err = errors.Join(err, json.Unmarshal(body, &reply)); err != nil {
		return nil, err
	}
	lost := false
	l.once.Do(func() { lost, l.lost, l.since = true, reply.StepID, time.Now() })
	if lost {
		return nil, errors.New("the connection was reset")
	}
	if l.lost == reply.StepID {
		select {
		case l.again <- time.Since(l.since):
		default:
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return l.next.RoundTrip(r)
}

// Its replica may be killed while the agent replies: the reply goes to the other one, before that asks again.
func TestAReplyThatIsLostOnItsWayIsSentAgain(t *testing.T) {
	s := newSite(t)
	lossy := &losing{again: make(chan time.Duration, 1)}
	s.through = func(next http.RoundTripper) http.RoundTripper {
		lossy.next = next
		return lossy
	}
	machine, _ := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	assert.Less(t, <-lossy.again, 30*time.Second, "a step is asked for again after a minute")
}

func TestAnAgentThatDiesWhileItWritesWritesAgain(t *testing.T) {
	image := holding(t)
	s := newSite(t, image.OSImage)
	first, ended, end := s.run(1)
	s.writing(image, first)
	end()
	require.ErrorIs(t, <-ended, context.Canceled)
	second, ended, _ := s.run(1)
	s.reaches(second, lifecycle.Installed)
	require.NoError(t, <-ended)
	assert.Equal(t, int32(2), image.begun.Load())
}

func TestAnAgentWhoseTokenEndsWritesOn(t *testing.T) {
	image := holding(t)
	s := newSite(t, image.OSImage)
	machine, ended, _ := s.run(1)
	s.writing(image, machine)
	key := domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}
	before, err := s.service.GetHost(t.Context(), admin, key)
	require.NoError(t, err)
	machine.Connection.use("a.bad.one")
	require.Eventually(t, func() bool {
		after, err := s.service.GetHost(t.Context(), admin, key)
		return err == nil && after.RegisteredAt.After(before.RegisteredAt)
	}, patience, 20*time.Millisecond, "the agent registers again")
	close(image.proceed)
	s.reaches(machine, lifecycle.Installed)
	require.NoError(t, <-ended)
	assert.Equal(t, int32(1), image.begun.Load(), "the running step goes on")
}

// following sees what a machine asks first after it was answered that its token has ended.
type following struct {
	next http.RoundTripper
	then chan nextRequest

	mu               sync.Mutex
	told, registered time.Time
}

// nextRequest is a request, how long it came after the answer, and how long that came after the registration before.
type nextRequest struct {
	method, token string
	after, lasted time.Duration
}

// RoundTrip implements http.RoundTripper.
func (f *following) RoundTrip(r *http.Request) (*http.Response, error) {
	instructions := strings.HasSuffix(r.URL.Path, "/instructions")
	f.mu.Lock()
	if reports := instructions && r.Method == http.MethodPost; !f.told.IsZero() && !reports { // those are of what it did before
		f.then <- nextRequest{r.Method, r.Header.Get("X-Secret-Key"), time.Since(f.told), f.told.Sub(f.registered)}
		f.told = time.Time{}
	}
	f.mu.Unlock()
	answer, err := f.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case instructions && bytes.Contains(body, []byte(`"token_ended":true`)):
		f.told = time.Now()
	case answer.StatusCode == http.StatusCreated:
		f.registered = time.Now()
	}
	return answer, err
}

func TestAnAgentWhoseTokenEndsDuringAPollRegistersNext(t *testing.T) {
	s := newSite(t)
	f := &following{then: make(chan nextRequest, 100)}
	s.through = func(next http.RoundTripper) http.RoundTripper {
		f.next = next
		return f
	}
	machine, _ := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	key := domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}
	// It may be between two polls: then it finds out with the next one.
	ends := func(soon bool) (next nextRequest) {
		require.Eventually(t, func() bool {
			_, err := s.service.RevokeTokens(t.Context(), admin, key)
			require.NoError(t, err)
			select {
			case next = <-f.then:
				return next.lasted < 500*time.Millisecond || !soon
			case <-time.After(200 * time.Millisecond):
				return false
			}
		}, patience, time.Millisecond)
		assert.Equal(t, http.MethodPost, next.method)
		assert.Equal(t, s.token, next.token, "that of the image")
		return next
	}
	ends(false)
	ends(true) // as by a move that follows a registration
	assert.GreaterOrEqual(t, ends(true).after, time.Second, "two machines that register as one do not do so without a pause")
	s.reaches(machine, lifecycle.KnownUnbound)
}

// endings are the ways in which users end an installation, by the state that the host is in then.
var endings = map[lifecycle.State]func(s *site, cluster string) error{
	lifecycle.Cancelled: func(s *site, cluster string) error {
		_, err := s.service.CancelCluster(s.t.Context(), admin, cluster)
		return err
	},
	lifecycle.ResettingPendingUserAction: func(s *site, cluster string) error {
		_, err := s.service.ResetCluster(s.t.Context(), admin, cluster)
		return err
	},
	lifecycle.KnownUnbound: func(s *site, cluster string) error {
		return s.service.DeleteCluster(s.t.Context(), admin, cluster, true)
	},
}

// TestAnAgentThatIsAwayWhenItsInstallationEndsStopsWriting although its token ended with the binding: what it registers as is not being installed, and stays what it is.
func TestAnAgentThatIsAwayWhenItsInstallationEndsStopsWriting(t *testing.T) {
	for want, end := range endings {
		t.Run(string(want), func(t *testing.T) {
			image := holding(t)
			s := newSite(t, image.OSImage)
			var away atomic.Bool
			gone, back := make(chan struct{}), make(chan struct{})
			machine, _, _ := s.run(1, func(o *Options) {
				o.Interval = 50 * time.Millisecond
				o.OnInstructions = func(uuid.UUID, []api.Step, time.Duration) {
					if away.CompareAndSwap(true, false) {
						close(gone)
						<-back
					}
				}
			})
			cluster := s.writing(image, machine)
			away.Store(true)
			<-gone
			require.NoError(t, end(s, cluster.ID))
			key := domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}
			before, err := s.service.GetHost(t.Context(), admin, key)
			require.NoError(t, err)
			close(back)
			require.Eventually(t, func() bool { return image.ended.Load() == 1 }, patience, 20*time.Millisecond, "the download ends")
			polls := s.service.Polls.Load()
			require.Eventually(t, func() bool { return s.service.Polls.Load() > polls+2 }, patience, 20*time.Millisecond, "the agent is back")
			after, err := s.service.GetHost(t.Context(), admin, key)
			require.NoError(t, err)
			assert.Equal(t, want, after.State)
			assert.Equal(t, want != lifecycle.Cancelled, after.RegisteredAt.After(before.RegisteredAt), "its token ended with what it was for")
		})
	}
}

// TestAMachineThatTheServiceForgotStopsWriting: it comes back as a discovered one, and must not restart into the image that it wrote.
func TestAMachineThatTheServiceForgotStopsWriting(t *testing.T) {
	image := holding(t)
	s := newSite(t, image.OSImage)
	machine, _, _ := s.run(1)
	s.writing(image, machine)
	s.stop()
	s.start("second.db")
	s.reaches(machine, lifecycle.KnownUnbound)
	require.Eventually(t, func() bool { return image.ended.Load() == 1 }, patience, 20*time.Millisecond, "the download ends")
}

func TestAnInstallationThatIsEndedStopsWriting(t *testing.T) {
	for want, end := range endings {
		t.Run(string(want), func(t *testing.T) {
			image := holding(t)
			s := newSite(t, image.OSImage)
			machine, _, _ := s.run(1)
			cluster := s.writing(image, machine)
			require.NoError(t, end(s, cluster.ID))
			require.Eventually(t, func() bool { return image.ended.Load() == 1 }, patience, 20*time.Millisecond, "the download ends")
			s.reaches(machine, want)
		})
	}
}

// restarting is a machine whose restart begins, and goes on when it is released.
type restarting struct {
	*Generated
	begun, proceed chan struct{}
}

// Restart implements Machine.
func (r restarting) Restart(ctx context.Context) error {
	close(r.begun)
	select {
	case <-r.proceed:
		return r.Generated.Restart(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAMachineThatRestartsIsNotStopped(t *testing.T) {
	good := imagetest.Serve(t, "os.img", imagetest.Noise(1<<20))
	good.Version = "4.20"
	s := newSite(t, good)
	cluster, err := s.service.CreateCluster(t.Context(), admin, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: "4.20", ControlPlaneCount: 1, PullSecret: `{"auths":{}}`, BaseDNSDomain: "example.com", MachineNetworks: []string{"10.0.0.0/8"},
	}})
	require.NoError(t, err)
	r := restarting{begun: make(chan struct{}), proceed: make(chan struct{})}
	stopped := make(chan struct{}, 100)
	machine, ended, _ := s.run(1, func(o *Options) {
		r.Generated, _ = o.Machine.(*Generated)
		o.Machine = r
		o.OnInstructions = func(_ uuid.UUID, steps []api.Step, _ time.Duration) {
			if slices.ContainsFunc(steps, func(s api.Step) bool { return s.StepType == api.StepTypeStopInstallation }) {
				stopped <- struct{}{}
			}
		}
	})
	s.reaches(machine, lifecycle.KnownUnbound)
	s.install(machine, cluster.ID)
	<-r.begun
	_, err = s.service.ResetCluster(t.Context(), admin, cluster.ID)
	require.NoError(t, err)
	<-stopped
	close(r.proceed)
	require.NoError(t, <-ended, "the agent is gone with the system that it ran on")
	s.reaches(machine, lifecycle.ResettingPendingUserAction)
}

func TestABadImageIsReported(t *testing.T) {
	bad := imagetest.Serve(t, "os.img.gz", imagetest.Pack(t, "gz", imagetest.Noise(1<<20)))
	bad.Version, bad.SHA256 = "4.20", "00"
	s := newSite(t, bad)
	cluster, err := s.service.CreateCluster(t.Context(), admin, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: "4.20", ControlPlaneCount: 1, PullSecret: `{"auths":{}}`, BaseDNSDomain: "example.com", MachineNetworks: []string{"10.0.0.0/8"},
	}})
	require.NoError(t, err)
	machine, _ := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	s.install(machine, cluster.ID)
	s.reaches(machine, lifecycle.Failed)
	list, err := s.service.ListEvents(t.Context(), admin, domain.EventFilter{ClusterID: cluster.ID, Message: "checksum"})
	require.NoError(t, err)
	assert.Positive(t, list.Total, "the events of the host and of its cluster say why")
	require.Eventually(t, func() bool {
		logs, err := s.service.Logs(t.Context(), admin, cluster.ID, "logs/"+machine.HostID().String())
		return err == nil && bytes.HasPrefix(logs, []byte{0x1f, 0x8b})
	}, patience, 20*time.Millisecond, "the logs are sent")
}

func TestARunningAgentOutlivesARotation(t *testing.T) {
	s := newSite(t)
	machine, _ := s.machine(1)
	s.reaches(machine, lifecycle.KnownUnbound)
	_, err := s.service.RotateTokens(t.Context(), admin, s.infraEnv, false)
	require.NoError(t, err)
	late, err := NewConnection("http://"+s.address, uuid.MustParse(s.infraEnv), s.token, http.DefaultClient)
	require.NoError(t, err)
	_, err = late.Register(t.Context(), Identity{HostID: uuid.New(), Fingerprint: "x", BootID: "x"}, "test")
	assert.Equal(t, http.StatusUnauthorized, statusOf(err), "the old image opens nothing")

	cluster, err := s.service.CreateCluster(t.Context(), admin, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: "4.20", ControlPlaneCount: 1, PullSecret: `{"auths":{}}`, BaseDNSDomain: "example.com", MachineNetworks: []string{"10.0.0.0/8"},
	}})
	require.NoError(t, err)
	_, err = s.service.BindHost(t.Context(), admin, domain.HostKey{InfraEnvID: s.infraEnv, HostID: machine.HostID().String()}, cluster.ID, false)
	require.NoError(t, err)
	s.reaches(machine, lifecycle.Known)
}

func TestPollsFollowEachOtherAsTheyShould(t *testing.T) {
	a := New(Options{})
	work := &api.Steps{NextInstructionSeconds: 1, Instructions: []api.Step{{StepType: api.StepTypeInventory}}}
	idle := &api.Steps{NextInstructionSeconds: 1}
	assert.Zero(t, a.rest(idle, 20*time.Second), "a poll that was held is followed by the next")
	assert.Equal(t, time.Second, a.rest(idle, 0), "a service that does not hold is not flooded")
	assert.Less(t, a.rest(work, 0), 100*time.Millisecond)
	assert.Equal(t, time.Minute, a.rest(&api.Steps{NextInstructionSeconds: 60, Instructions: work.Instructions}, 0), "as assisted-service says")
	a.Interval = time.Minute
	assert.Equal(t, time.Minute, a.rest(idle, 0))
}

func TestAnInstalledSystemTrustsWhatItWasGiven(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, one := range map[string]struct {
		facts   map[string]string
		trusted bool
	}{"with its authority": {map[string]string{"ca": string(authority)}, true}, "without": {map[string]string{}, false}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "host.json")
			facts, err := json.Marshal(one.facts)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, facts, 0o600))
			s, err := parse([]string{"--host-file=" + file}, io.Discard, "")
			require.NoError(t, err)
			client, err := s.transport()
			require.NoError(t, err)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			response, err := client.Do(request)
			if !one.trusted {
				require.ErrorContains(t, err, "certificate")
				return
			}
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		})
	}
}
