// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Volumes and where the containers see them.
const (
	dataVolume = "data"
	dataPath   = "/data"
	pkiVolume  = "pki"
	pkiPath    = "/pki"
	runVolume  = "run"
	runPath    = "/run/muster"
	account    = 65532
)

// selector selects the one pod of a cluster. Another pod of the StatefulSet, as where another client scales it, has an etcd of its own, with other data.
func selector(ref provision.ClusterRef) map[string]string {
	return map[string]string{Label: string(ref.UID), appsv1.StatefulSetPodNameLabel: podName(ref)}
}

// service is the Service in front of a cluster. The exposure that it records may be empty.
func service(ref provision.ClusterRef, expose Exposure, recorded string) *corev1ac.ServiceApplyConfiguration {
	annotations := map[string]string{NameAnnotation: ref.Name}
	if recorded != "" {
		annotations[exposureAnnotation] = recorded
	}
	return corev1ac.Service(objectName(ref), ref.Namespace).WithLabels(labelsOf(ref)).WithAnnotations(annotations).WithSpec(corev1ac.ServiceSpec().
		WithType(expose.serviceType()).
		WithSelector(selector(ref)).
		WithPorts(corev1ac.ServicePort().WithName(portName).WithPort(port).WithTargetPort(intstr.FromInt32(port)).WithProtocol(corev1.ProtocolTCP)))
}

// isolation lets clients reach the API server and nothing else, and lets the programs reach nothing: they talk to each other inside the pod. An administrator of the hosted cluster can
// make its API server dial, through webhooks and proxies, and must not get into the network of this cluster by that.
func isolation(ref provision.ClusterRef) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{Label: string(ref.UID)}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}},
		}},
	}
}

func statefulSet(ref provision.ClusterRef, options *Options, volume storage, with features) *appsv1ac.StatefulSetApplyConfiguration {
	return appsv1ac.StatefulSet(objectName(ref), ref.Namespace).WithLabels(labelsOf(ref)).
		WithAnnotations(map[string]string{NameAnnotation: ref.Name, imagesAnnotation: options.Images.String()}).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(1).
			WithServiceName(objectName(ref)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{Label: string(ref.UID)})).
			// Delete deletes the claim itself: a StatefulSet that another client deletes is made again, with the data that it had.
			WithPersistentVolumeClaimRetentionPolicy(appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
				WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithVolumeClaimTemplates(volumeClaim(ref, volume)).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labelsOf(ref)).WithAnnotations(map[string]string{NameAnnotation: ref.Name}).WithSpec(podSpec(ref, options, volume, with))))
}

func volumeClaim(ref provision.ClusterRef, volume storage) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	spec := corev1ac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: volume.size}))
	if volume.class != "" {
		spec.WithStorageClassName(volume.class)
	}
	claim := corev1ac.PersistentVolumeClaim(dataVolume, "").WithLabels(labelsOf(ref)).
		WithAnnotations(map[string]string{NameAnnotation: ref.Name}).WithSpec(spec)
	claim.Namespace = nil
	return claim
}

func podSpec(ref provision.ClusterRef, options *Options, volume storage, with features) *corev1ac.PodSpecApplyConfiguration {
	spec := corev1ac.PodSpec().
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(20).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).WithRunAsUser(account).WithRunAsGroup(account).WithFSGroup(account).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithVolumes(
			pkiFiles(ref, with),
			corev1ac.Volume().WithName(runVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithSizeLimit(resource.MustParse("16Mi"))),
		).
		// A sidecar ends after the others: an API server whose etcd is gone does not end by itself.
		WithInitContainers(container(etcd, options.Images.Etcd, etcdArgs(volume), sizes{"25m", "96Mi", "1", "1Gi"}).
			WithRestartPolicy(corev1.ContainerRestartPolicyAlways).
			WithEnv(etcdState(ref)).
			WithVolumeMounts(corev1ac.VolumeMount().WithName(dataVolume).WithMountPath(dataPath))).
		WithContainers(
			container(apiServer, options.Images.APIServer, apiServerArgs(with), sizes{"50m", "256Mi", "2", "2Gi"}).
				WithEnv(corev1ac.EnvVar().WithName("POD_IP").WithValueFrom(corev1ac.EnvVarSource().
					WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("status.podIP")))).
				WithPorts(corev1ac.ContainerPort().WithName("api").WithContainerPort(port).WithProtocol(corev1.ProtocolTCP)).
				WithStartupProbe(probe("/livez", 1, 300)).
				WithReadinessProbe(probe("/readyz", 1, 3)).
				WithLivenessProbe(probe("/livez", 10, 6)),
			container(controllerManager, options.Images.ControllerManager, controllerManagerArgs(), sizes{"10m", "64Mi", "1", "512Mi"}),
		)
	if with.pullSecret != "" {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(with.pullSecret))
	}
	return spec
}

// identityFiles are those of the identity that the programs read; the rest is for the operator.
func identityFiles() []string {
	files := []string{
		"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-client.crt", "front-proxy-client.key", "controller-manager.crt", "controller-manager.key", managerKey,
		"sa.key", "sa.pub", tokensKey, encryptionKey,
	}
	for _, level := range auditLevels {
		files = append(files, auditKey(level))
	}
	return files
}

// pkiFiles are the keys and certificates as the programs see them. The serving certificate comes from a Secret that changes, and with it the file.
func pkiFiles(ref provision.ClusterRef, with features) *corev1ac.VolumeApplyConfiguration {
	const mode = 0o440
	if with.legacy {
		return corev1ac.Volume().WithName(pkiVolume).WithSecret(corev1ac.SecretVolumeSource().WithSecretName(objectName(ref)).WithDefaultMode(mode))
	}
	from := func(secret string, files ...string) *corev1ac.VolumeProjectionApplyConfiguration {
		source := corev1ac.SecretProjection().WithName(secret)
		for _, file := range files {
			source.WithItems(corev1ac.KeyToPath().WithKey(file).WithPath(file))
		}
		return corev1ac.VolumeProjection().WithSecret(source)
	}
	return corev1ac.Volume().WithName(pkiVolume).WithProjected(corev1ac.ProjectedVolumeSource().WithDefaultMode(mode).
		WithSources(from(objectName(ref), identityFiles()...), from(ref.ServingName(), "apiserver.crt", "apiserver.key")))
}

// sizes are what a program asks for and the most that it gets.
type sizes struct{ cpu, memory, cpuLimit, memoryLimit string }

// container is one program, run from where etcd's sockets are: they are named relative to it.
func container(name, image string, args []string, size sizes) *corev1ac.ContainerApplyConfiguration {
	return corev1ac.Container().WithName(name).WithImage(image).WithCommand(name).WithArgs(args...).WithWorkingDir(runPath).
		WithImagePullPolicy(corev1.PullIfNotPresent).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithResources(corev1ac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(size.cpu), corev1.ResourceMemory: resource.MustParse(size.memory)}).
			WithLimits(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(size.cpuLimit), corev1.ResourceMemory: resource.MustParse(size.memoryLimit)})).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))).
		WithVolumeMounts(
			corev1ac.VolumeMount().WithName(pkiVolume).WithMountPath(pkiPath).WithReadOnly(true),
			corev1ac.VolumeMount().WithName(runVolume).WithMountPath(runPath),
		)
}

func probe(path string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithPeriodSeconds(period).WithFailureThreshold(failures).WithTimeoutSeconds(3).
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromInt32(port)).WithScheme(corev1.URISchemeHTTPS))
}

// etcdState is what keeps etcd from beginning with nothing: once the cluster has been ready, the Secret says that there are data, and etcd refuses a volume without any. Without the
// Secret, or its key, etcd begins with what there is.
func etcdState(ref provision.ClusterRef) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(stateVariable).WithValueFrom(corev1ac.EnvVarSource().
		WithSecretKeyRef(corev1ac.SecretKeySelector().WithName(ref.ServingName()).WithKey(stateKey).WithOptional(true)))
}

func etcdArgs(volume storage) []string {
	// A single member never dials its peer address; no process listens on port 1 of loopback.
	const noPeer = "http://127.0.0.1:1"
	return append([]string{
		"--name=default",
		"--data-dir=" + dataPath + "/etcd",
		"--listen-client-urls=unix://etcd.sock",
		"--advertise-client-urls=unix://etcd.sock",
		"--listen-peer-urls=unix://peer.sock",
		"--initial-advertise-peer-urls=" + noPeer,
		"--initial-cluster=default=" + noPeer,
		"--log-level=warn",
	}, storageArgs(volume)...)
}

func apiServerArgs(with features) []string {
	args := []string{
		"--etcd-servers=unix://etcd.sock",
		fmt.Sprintf("--secure-port=%d", port),
		"--advertise-address=$(POD_IP)",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + pkiPath + "/ca.crt",
		"--tls-cert-file=" + pkiPath + "/apiserver.crt",
		"--tls-private-key-file=" + pkiPath + "/apiserver.key",
		"--token-auth-file=" + pkiPath + "/" + tokensKey,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiPath + "/sa.pub",
		"--service-account-signing-key-file=" + pkiPath + "/sa.key",
		"--requestheader-client-ca-file=" + pkiPath + "/front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pkiPath + "/front-proxy-client.crt",
		"--proxy-client-key-file=" + pkiPath + "/front-proxy-client.key",
		"--profiling=false",
	}
	if with.encrypted {
		args = append(args, "--encryption-provider-config="+pkiPath+"/"+encryptionKey)
	}
	if with.audit != "" {
		args = append(args, "--audit-policy-file="+pkiPath+"/"+with.audit, "--audit-log-path=-")
	}
	return args
}

func controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + pkiPath + "/" + managerKey,
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + pkiPath + "/sa.key",
		"--root-ca-file=" + pkiPath + "/ca.crt",
		"--cluster-signing-cert-file=" + pkiPath + "/ca.crt",
		"--cluster-signing-key-file=" + pkiPath + "/ca.key",
		"--service-cluster-ip-range=" + serviceRange,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		// The server queues fairly by itself; waiting in the client only delays the first service accounts by seconds.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	}
}
