// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/apiaddress"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/supervise"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/netnstest"
	"github.com/muster-io/muster/apis/nodeobjects"
	"github.com/muster-io/muster/apis/programtest"
)

// asMachine names, in the environment of this program, the file of what it runs as the first process of a machine.
const asMachine = "MUSTER_TEST_MACHINE"

// patience is for machines that are slow because others run tests, too.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if path := os.Getenv(asMachine); path != "" {
		if err := runMachine(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	netnstest.Main(m)
}

// booted is what a machine finds on its disk.
type booted struct {
	Plane    *join.ControlPlane
	Dir      string
	Programs string
}

// runMachine is the first process of a machine as far as its control plane goes: it has processes and a network of its own.
func runMachine(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b booted
	if err := json.Unmarshal(content, &b); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	say := func(format string, values ...any) {
		fmt.Printf(time.Now().Format("15:04:05.000 ")+format+"\n", values...)
	}
	m := Machine{
		ControlPlane: b.Plane, Dir: filepath.Join(b.Dir, "control-plane"), Programs: b.Programs, Interfaces: apiaddress.Interfaces{}, Say: say,
		Process: func(directory, path string, arguments ...string) func(context.Context) error {
			return func(ctx context.Context) error { return runProgram(ctx, b.Dir, directory, path, arguments) }
		},
	}
	network := supervise.Program{Name: "network", Once: true, Run: func(context.Context) error { return configure(b.Plane.Group.Own().Address) }}
	return supervise.Supervisor{Programs: append([]supervise.Program{network}, m.Supervised("network")...), Say: say}.Run(ctx)
}

func runProgram(ctx context.Context, logs, directory, path string, arguments []string) error {
	log, err := os.OpenFile(filepath.Join(logs, filepath.Base(path)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it is a log
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir, command.Stdout, command.Stderr = directory, log, log
	command.Cancel, command.WaitDelay = func() error { return command.Process.Signal(os.Interrupt) }, 20*time.Second
	return command.Run()
}

// configure gives the card of the machine its address when it is plugged in.
func configure(address netip.Addr) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	if len(links) < 2 {
		return errors.New("no card is plugged in")
	}
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback == 0 {
			if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

// rack has three machines on a switch, which the test is on, too.
type rack struct {
	programs string
	planes   []*join.ControlPlane
	secrets  Secrets
	dirs     []string
	machines []*programtest.Program
	pids     []int
}

func newRack(t *testing.T) *rack {
	t.Helper()
	netnstest.Need(t)
	found, err := exec.CommandContext(t.Context(), "../../../hack/controlplane/build", "--dir").Output()
	require.NoError(t, err)
	r := &rack{programs: strings.TrimSpace(string(found)), machines: make([]*programtest.Program, len(members)), pids: make([]int, len(members))}
	for _, name := range Programs() {
		needtest.File(t, filepath.Join(r.programs, name), "there is no "+name+": hack/controlplane/build "+name+" builds it")
	}
	netnstest.IP(t, "link add switch type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del switch") })
	netnstest.IP(t, "address add 192.0.2.1/24 dev switch")
	netnstest.IP(t, "link set switch up")
	objects, err := nodeobjects.Render(nodeobjects.Settings{ClusterDNS: netip.MustParseAddr("10.96.0.10"), DNSImage: nodeobjects.DefaultDNSImage})
	require.NoError(t, err)
	r.planes, r.secrets = newGroupWith(t, time.Now(), string(objects))
	for range members {
		r.dirs = append(r.dirs, t.TempDir())
	}
	return r
}

// powerOn starts a machine.
func (r *rack) powerOn(t *testing.T, i int) {
	t.Helper()
	content, err := json.Marshal(booted{r.planes[i], r.dirs[i], r.programs})
	require.NoError(t, err)
	disk := filepath.Join(r.dirs[i], "disk.json")
	require.NoError(t, os.WriteFile(disk, content, 0o600))
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), asMachine+"="+disk)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	r.machines[i] = programtest.Start(t, command)
	r.pids[i] = command.Process.Pid
	port, card := "port-"+members[i].Name, "card-"+members[i].Name
	netnstest.IP(t, "link add "+port+" type veth peer name "+card)
	netnstest.IP(t, fmt.Sprintf("link set %s netns %d", card, command.Process.Pid))
	netnstest.IP(t, "link set "+port+" master switch up")
}

// powerOff ends all processes of a machine at once, as a cut of its power does, and removes its network.
func (r *rack) powerOff(t *testing.T, i int) {
	t.Helper()
	r.machines[i].Kill()
	require.Eventually(t, func() bool { // the kernel removes the network of the machine some time later
		link, err := netlink.LinkByName("port-" + members[i].Name)
		if err == nil {
			_ = netlink.LinkDel(link)
		}
		return err != nil
	}, patience, 10*time.Millisecond)
}

// at is an administrator's client of the API at an address.
func (r *rack) at(t *testing.T, address string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(r.secrets.Admin))
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	// Each request has a connection of its own, as the address moves.
	config.Host, config.Timeout, config.QPS = "https://"+address+":6443", 10*time.Second, -1
	config.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, to)
	}
	config.WrapTransport = func(inner http.RoundTripper) http.RoundTripper {
		if transport, ok := inner.(*http.Transport); ok {
			transport.DisableKeepAlives = true
		}
		return inner
	}
	made, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return made
}

// answersAt is the machine that serves the API at an address, -1 for none.
func (r *rack) answersAt(ctx context.Context, address string) int {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(r.planes[0].CA))
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * time.Second}, Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	connection, err := dialer.DialContext(ctx, "tcp", address+":6443")
	if err != nil {
		return -1
	}
	defer func() { _ = connection.Close() }()
	secure, ok := connection.(*tls.Conn)
	if !ok {
		return -1
	}
	serving := secure.ConnectionState().PeerCertificates[0]
	return slices.IndexFunc(members, func(m join.Member) bool { return serving.VerifyHostname(m.Address.String()) == nil })
}

// holder is the machine that has the address of the API, by the Lease and on the network.
func (r *rack) holder(t *testing.T) int {
	t.Helper()
	var holder int
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		there, err := r.at(t, apiAt).CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaseName, metav1.GetOptions{})
		require.NoError(c, err)
		holder = r.answersAt(t.Context(), apiAt)
		require.NotEqual(c, -1, holder)
		require.Equal(c, members[holder].Name, holderOf(there))
	}, patience, 200*time.Millisecond, "no machine has the address of the API")
	return holder
}

// serves waits until the machine has an API server that reads and writes.
func (r *rack) serves(t *testing.T, address, note string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := r.at(t, address).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: note}}, metav1.CreateOptions{})
		require.NoError(c, err)
	}, patience, 200*time.Millisecond, "%s stores nothing", address)
}

func (r *rack) reads(t *testing.T, address string, notes ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, note := range notes {
			_, err := r.at(t, address).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), note, metav1.GetOptions{})
			require.NoError(c, err)
		}
	}, patience, 200*time.Millisecond, "%s does not have %v", address, notes)
}

// complete waits until all machines serve the API.
func (r *rack) complete(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		slicesOf, err := r.at(t, apiAt).DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(t.Context(), "kubernetes", metav1.GetOptions{})
		require.NoError(c, err)
		var all []string
		for _, e := range slicesOf.Endpoints {
			all = append(all, e.Addresses...)
		}
		assert.ElementsMatch(c, []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}, all)
	}, patience, 200*time.Millisecond, "not all machines serve the API")
}

// says waits until a machine says something on its console.
func (r *rack) says(t *testing.T, i int, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(r.machines[i].String(), text) }, patience, 100*time.Millisecond, "machine %s does not say %q", members[i].Name, text)
}

// signal sends a signal to a program of a machine.
func (r *rack) signal(t *testing.T, i int, program string, signal syscall.Signal) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	sent := false
	for _, path := range found {
		line, _ := os.ReadFile(path)
		if !strings.HasPrefix(string(line), filepath.Join(r.programs, program)+"\x00") || !strings.Contains(string(line), r.dirs[i]) {
			continue
		}
		var pid int
		_, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, signal))
		sent = true
	}
	require.True(t, sent, "machine %s does not run %s", members[i].Name, program)
}

// Three machines, each with its processes and its network, form one cluster. It goes on without one of them, whose power is cut, and takes it back.
func TestThreeMachinesRunOneControlPlane(t *testing.T) {
	r := newRack(t)
	for i := range members {
		r.powerOn(t, i)
	}
	r.serves(t, apiAt, "begun")
	r.complete(t)
	for _, m := range members {
		r.reads(t, m.Address.String(), "begun")
	}
	r.assertWorks(t)
	r.assertClosed(t)

	// An API server that does not answer costs its machine the address.
	first := r.holder(t)
	r.signal(t, first, apiServer, syscall.SIGSTOP)
	r.says(t, first, "this machine has no longer the address "+apiAt)
	r.serves(t, apiAt, "hung")
	second := r.holder(t)
	require.NotEqual(t, first, second)
	r.signal(t, first, apiServer, syscall.SIGCONT)
	r.reads(t, members[first].Address.String(), "hung")

	// The power of the machine that has the address is cut.
	token := r.token(t, members[second].Address.String())
	r.powerOff(t, second)
	r.serves(t, apiAt, "cut")
	third := r.holder(t)
	require.NotEqual(t, second, third)
	r.reads(t, apiAt, "begun", "hung", "cut")
	assert.Equal(t, "system:serviceaccount:default:default", r.userOf(t, token), "tokens that a machine signed count at the others")

	r.powerOn(t, second)
	r.serves(t, members[second].Address.String(), "back")
	r.reads(t, members[second].Address.String(), "begun", "hung", "cut")
	r.complete(t)
	r.assertMembers(t)

	// A machine without its data begins no second cluster, also where it has forgotten that it ever ran.
	r.powerOff(t, second)
	require.NoError(t, os.RemoveAll(filepath.Join(r.dirs[second], "control-plane")))
	r.powerOn(t, second)
	r.says(t, second, "etcd ended (the control plane of this machine, "+members[second].Name+", has lost its data")
	r.serves(t, apiAt, "lost")
	_, err := os.Stat(filepath.Join(r.dirs[second], "control-plane", "etcd", "member"))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, -1, r.answersAt(t.Context(), members[second].Address.String()))

	// A machine that is switched off lets another have the address at once.
	holder := r.holder(t)
	require.NoError(t, syscall.Kill(r.pids[holder], syscall.SIGTERM))
	r.says(t, holder, "api address has stopped")
	assert.NotContains(t, r.machines[holder].String(), "api address ended")
}

// A machine whose first process ended while it had the address begins without it, before anything else runs.
func TestAMachineBeginsWithoutTheAddressOfTheAPI(t *testing.T) {
	netnstest.Need(t)
	netnstest.IP(t, "link add card type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del card") })
	netnstest.IP(t, "address add 192.0.2.11/24 dev card")
	netnstest.IP(t, "address add "+apiAt+"/32 dev card")
	m := newMember(t)
	m.Interfaces = apiaddress.Interfaces{}
	require.NoError(t, m.prepare(t.Context()))
	addresses, err := m.Interfaces.Addresses()
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{members[0].Address}, addresses)
}

// assertWorks looks for what the cluster begins with, and for what its controllers do.
func (r *rack) assertWorks(t *testing.T) {
	t.Helper()
	api := r.at(t, apiAt)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		service, err := api.CoreV1().Services(metav1.NamespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, "10.96.0.10", service.Spec.ClusterIP)
		_, err = api.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(t.Context(), "default", metav1.GetOptions{})
		require.NoError(c, err)
		for _, name := range []string{controllerManager, scheduler} {
			_, err = api.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(c, err)
		}
	}, patience, 200*time.Millisecond)
	for i := range members {
		r.says(t, i, begun+" is done")
	}
}

// token is one of a service account.
func (r *rack) token(t *testing.T, address string) string {
	t.Helper()
	made, err := r.at(t, address).CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return made.Status.Token
}

func (r *rack) userOf(t *testing.T, token string) string {
	t.Helper()
	review, err := r.at(t, apiAt).AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.User.Username
}

// asked is what a member of etcd answers to a client with a certificate, nil for none.
func (r *rack) asked(t *testing.T, i int, certificate *tls.Certificate) ([]etcdMember, error) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(r.planes[i].Group.Etcd.CA)))
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return membersAt(t.Context(), &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, peerURL(members[i]))
}

// signed is a certificate for the address of the test.
func signed(t *testing.T, by pair) *tls.Certificate {
	t.Helper()
	a, err := readAuthority(by)
	require.NoError(t, err)
	made, err := a.issue(time.Now(), time.Hour, leaf{user: "attacker", group: "system:masters", addresses: []net.IP{net.IPv4(192, 0, 2, 1)}, usage: asPeer})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(made.certificate, made.key)
	require.NoError(t, err)
	return &certificate
}

// assertMembers asks all members, with a certificate of etcd's authority, which are there.
func (r *rack) assertMembers(t *testing.T) {
	t.Helper()
	for i := range members {
		all, err := r.asked(t, i, signed(t, pair{[]byte(r.planes[i].Group.Etcd.CA), []byte(r.planes[i].Group.Etcd.CAKey)}))
		require.NoError(t, err)
		var names []string
		for _, m := range all {
			names = append(names, m.Name)
		}
		assert.ElementsMatch(t, []string{"a", "b", "c"}, names)
	}
}

// assertClosed attacks etcd from the network of the machines.
func (r *rack) assertClosed(t *testing.T) {
	t.Helper()
	r.assertMembers(t)
	plane := r.planes[0]
	admin, err := clientcmd.RESTConfigFromKubeConfig([]byte(r.secrets.Admin))
	require.NoError(t, err)
	administrator, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	require.NoError(t, err)
	for i := range members {
		for name, certificate := range map[string]*tls.Certificate{
			"none": nil, "the administrator's": &administrator, "one of the cluster's authority": signed(t, pair{[]byte(plane.CA), []byte(plane.CAKey)}),
			"one of the front proxy's": signed(t, pair{[]byte(plane.Group.FrontProxy.CA), []byte(plane.Group.FrontProxy.CAKey)}),
		} {
			all, err := r.asked(t, i, certificate)
			require.Error(t, err, "etcd of %s answers a client with the certificate %s: %v", members[i].Name, name, all)
		}
		_, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", members[i].Address.String()+":2379")
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "clients of etcd have no port")
	}
}
