// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// pool completes the manifest of a ClusterPool with what every pool needs.
func pool(spec string) string {
	return `
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata: {generateName: pool-}
spec:
  baseDomain: example.com
  imageSetRef: {name: v1}
` + spec
}

// cluster completes the manifest of a ClusterDeployment with what every cluster needs.
func cluster(spec string) string {
	return `
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata: {generateName: cluster-}
spec:
  baseDomain: example.com
  clusterName: blue
` + spec
}

func claim(spec string) string {
	return `
apiVersion: hive.openshift.io/v1
kind: ClusterClaim
metadata: {generateName: claim-}
spec:
` + spec
}

const hostedPool = `
  platform: {hosted: {}}
  size: 1
`

// acceptedManifests are manifests that the API server takes as they are.
var acceptedManifests = map[string]string{
	"the smallest hosted pool":                          pool(hostedPool),
	"a pool of clusters with machines":                  nodesPool("{name: worker, replicas: 1, platform: {agentBareMetal: {agentSelector: {}, bindAt: Claim}}}"),
	"a machine pool":                                    machinePool("  replicas: 2\n  labels: {tier: web}\n"),
	"a machine pool of another platform":                hiveMachinePool,
	"a pool that keeps nothing":                         pool("  platform: {hosted: {}}\n  size: 0\n  runningCount: 0\n  maxSize: 0\n  maxConcurrent: 0\n"),
	"more running clusters than size":                   pool(hostedPool + "  runningCount: 5\n"),
	"a maximum below the size":                          pool(hostedPool + "  maxSize: 0\n"),
	"an inventory":                                      pool(hostedPool + "  inventory: {clusterDeployments: [{name: blue}, {name: red-2}, {name: '3'}]}\n"),
	"an inventory without names":                        pool(hostedPool + "  inventory: {}\n"),
	"a resume timeout of zero":                          pool(hostedPool + "  hibernationConfig: {resumeTimeout: 0s}\n"),
	"machines that no selector of the platform chooses": pool("  platform: {agentBareMetal: {}}\n  size: 1\n"),
	"an install template":                               pool("  platform: {agentBareMetal: {agentSelector: {matchLabels: {rack: a}}}}\n  size: 1\n  clusterInstallTemplate: {apiVersion: extensions.hive.openshift.io/v1beta1, kind: AgentClusterInstall, spec: {provisionRequirements: {controlPlaneAgents: 1}, any: [thing]}}\n"),
	"a pool whose name has a dot":                       strings.Replace(pool(hostedPool), "generateName: pool-", "name: v4.20", 1),
	"a cluster without a claim":                         cluster("  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b}\n"),
	"a cluster with an empty power state":               cluster("  platform: {none: {}}\n  powerState: ''\n"),
	"a cluster with a field of tomorrow":                cluster("  platform: {hosted: {}}\n  tomorrow: {a: 1}\n"),
	"a claim":                                           claim("  clusterPoolName: p\n  lifetime: 8h\n  queueTimeout: 1h30m\n  subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: system:authenticated}]\n"),
	"a claim with an empty namespace":                   claim("  clusterPoolName: p\n  namespace: ''\n"),
	"an image set":                                      "apiVersion: hive.openshift.io/v1\nkind: ClusterImageSet\nmetadata: {generateName: v1-}\nspec: {releaseImage: registry.example.com/release:4.20}\n",
	"a pool on AWS as users have it":                    awsPool,
	"a pool on vSphere as users have it":                vspherePool,
	"a cluster on AWS as users have it":                 awsCluster,
	"a cluster on bare metal as users have":             agentCluster,
}

const awsPool = `
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata:
  name: openshift-ci-aws
  labels: {product: ocp, version: "4.20"}
spec:
  annotations: {tags: "a,b"}
  baseDomain: ci.example.com
  claimLifetime: {default: 12h, maximum: 72h0m0s}
  customizationRef: {name: fips}
  hibernateAfter: 30m
  hibernationConfig: {resumeTimeout: 20m0s}
  imageSetRef: {name: ocp-4.20.1-for-ci}
  installAttemptsLimit: 1
  installConfigSecretTemplateRef: {name: install-config-aws}
  installerEnv:
  - {name: OPENSHIFT_INSTALL_X, value: "1"}
  - {name: TOKEN, valueFrom: {secretKeyRef: {name: token, key: token}}}
  labels: {tp.openshift.io/owner: ci}
  maxConcurrent: 4
  maxSize: 20
  platform:
    aws:
      credentialsSecretRef: {name: hive-aws-credentials}
      privateLink: {enabled: false}
      region: us-east-1
      userTags: {expirationDate: "2026-01-01"}
  pullSecretRef: {name: pull-secret}
  runningCount: 1
  size: 3
  skipMachinePools: true
`

const vspherePool = `
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata: {name: vsphere}
spec:
  baseDomain: ci.example.com
  imageSetRef: {name: ocp}
  platform:
    vsphere:
      certificatesSecretRef: {name: certs}
      credentialsSecretRef: {name: creds}
      infrastructure:
        vcenters: [{server: vc.example.com, user: u, password: p, datacenters: [dc1]}]
        failureDomains: [{name: a, region: r, zone: z, server: vc.example.com, topology: {computeCluster: /dc1/host/c, datacenter: dc1, datastore: /dc1/datastore/d, networks: [n]}}]
  size: 2
`

const awsCluster = `
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata:
  name: blue
  labels: {hive.openshift.io/cluster-platform: aws}
spec:
  baseDomain: ci.example.com
  certificateBundles: [{name: bundle, generate: true, certificateSecretRef: {name: cert}}]
  clusterMetadata:
    adminKubeconfigSecretRef: {name: kubeconfig}
    adminPasswordSecretRef: {name: password}
    clusterID: 0b2ee1f0-1b2e-4b5b-9d7a-1a2b3c4d5e6f
    infraID: blue-x7k2p
    platform: {aws: {hostedZoneRole: role}}
  clusterName: blue
  controlPlaneConfig:
    apiServerIPOverride: 10.0.0.1
    servingCertificates: {default: bundle}
  ingress: [{name: default, domain: apps.example.com, servingCertificate: bundle}]
  installed: true
  manageDNS: true
  platform: {aws: {region: us-east-1, credentialsSecretRef: {name: creds}}}
  powerState: Running
  preserveOnDelete: false
  provisioning:
    imageSetRef: {name: ocp}
    installConfigSecretRef: {name: ic}
    sshKnownHosts: [a, b]
    sshPrivateKeySecretRef: {name: ssh}
  pullSecretRef: {name: ps}
`

const agentCluster = `
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata: {name: metal}
spec:
  baseDomain: lab.example.com
  clusterInstallRef: {group: extensions.hive.openshift.io, kind: AgentClusterInstall, name: metal, version: v1beta1}
  clusterName: metal
  controlPlaneConfig: {servingCertificates: {}}
  platform:
    agentBareMetal:
      agentSelector: {matchLabels: {location: lab}, matchExpressions: [{key: a, operator: In, values: [b]}]}
  pullSecretRef: {name: ps}
`

func TestManifestsThatAreAccepted(t *testing.T) {
	a := newAPI(t)
	for sentence, manifest := range acceptedManifests {
		t.Run(sentence, func(t *testing.T) {
			_, err := a.create(t, manifest)
			assert.NoError(t, err)
		})
	}
}

// refusedManifests are manifests that the API server refuses, with the sentence that it says.
var refusedManifests = map[string]struct{ manifest, sentence string }{
	"negative size":                       {pool("  platform: {hosted: {}}\n  size: -1\n"), "size must not be negative; write 0 to keep no clusters"},
	"negative maximum":                    {pool(hostedPool + "  maxSize: -1\n"), "maxSize must not be negative; leave it out for no limit"},
	"negative running count":              {pool(hostedPool + "  runningCount: -3\n"), "runningCount must not be negative; write 0 to let all unclaimed clusters hibernate"},
	"negative concurrency":                {pool(hostedPool + "  maxConcurrent: -1\n"), "maxConcurrent must not be negative; leave it out for no limit, or write 0 to freeze the pool"},
	"no platform":                         {pool("  platform: {}\n  size: 1\n"), "set exactly one platform: hosted, agentBareMetal, aws"},
	"two platforms":                       {pool("  platform: {hosted: {}, aws: {region: a}}\n  size: 1\n"), "set exactly one platform: hosted, agentBareMetal, aws"},
	"an unknown platform":                 {pool("  platform: {hostd: {}}\n  size: 1\n"), `unknown field "spec.platform.hostd"`},
	"a setting that hosted does not have": {pool("  platform: {hosted: {version: 5}}\n  size: 1\n"), `unknown field "spec.platform.hosted.version"`},
	"a name twice":                        {pool(hostedPool + "  inventory: {clusterDeployments: [{name: blue}, {name: blue}]}\n"), `Duplicate value: {"name":"blue"}`},
	"a name that fits no namespace":       {pool(hostedPool + "  inventory: {clusterDeployments: [{name: a123456789012345678901234567890123456789012345678901234567}]}\n"), "may not be more than 57"},
	"a claim policy of one's own":         {pool(hostedPool + "  claimPolicy: NewestFirst\n"), `supported values: "OldestFirst", "RunningFirst"`},
	"a duration without a unit":           {pool(hostedPool + "  hibernateAfter: '30'\n"), "write a duration of hours, minutes and seconds, such as '48h' or '1h30m'"},
	"a duration in days":                  {claim("  clusterPoolName: p\n  lifetime: 2 days\n"), "write a duration of hours, minutes and seconds, such as '48h' or '1h30m'; days are not known"},
	"a claim of no pool":                  {claim("  clusterPoolName: \"\"\n"), "write the name of a ClusterPool in the namespace of the claim"},
	"a duration beyond measure":           {claim("  clusterPoolName: p\n  lifetime: 9999999h\n"), "the duration is too long to be represented; write at most 99999h"},
	"an install object without a group":   {pool(hostedPool + "  clusterInstallTemplate: {apiVersion: v1, kind: A}\n"), "write group and version of the install object, such as 'extensions.hive.openshift.io/v1beta1'"},
	"an install object of Kubernetes":     {pool(hostedPool + "  clusterInstallTemplate: {apiVersion: apps/v1, kind: StatefulSet}\n"), "write the group of an installer; kinds of Kubernetes and of hive.openshift.io install no cluster"},
	"an install object of a k8s.io group": {pool(hostedPool + "  clusterInstallTemplate: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy}\n"), "write the group of an installer"},
	"an install object of Hive itself":    {pool(hostedPool + "  clusterInstallTemplate: {apiVersion: hive.openshift.io/v1, kind: MachinePool}\n"), "write the group of an installer"},
	"a claim that presets its cluster":    {claim("  clusterPoolName: p\n  namespace: blue-abcde\n"), "leave spec.namespace out: it is where the operator writes which cluster the claim got"},
	"a claim without a pool":              {claim("  lifetime: 1h\n"), "spec.clusterPoolName: Required value"},
	"a cluster of two platforms":          {cluster("  platform: {none: {}, hosted: {}}\n"), "set exactly one platform"},
	"a cluster with a power of its own":   {cluster("  platform: {none: {}}\n  powerState: Off\n"), `supported values: "", "Running", "Hibernating"`},
	"a pool whose name fits no label":     {strings.Replace(pool(hostedPool), "generateName: pool-", "name: p"+strings.Repeat("o", 62)+"l", 1), "write a name of at most 63 characters"},
	"an empty base domain":                {strings.Replace(pool(hostedPool), "baseDomain: example.com", `baseDomain: ""`, 1), "write a domain of lower-case letters, digits, '-' and '.', such as 'clusters.example.com'"},
	"a base domain that is none":          {strings.Replace(pool(hostedPool), "example.com", "Example_com", 1), "write a domain of lower-case letters, digits, '-' and '.', such as 'clusters.example.com'"},
	"an image set without a name":         {strings.Replace(pool(hostedPool), "{name: v1}", `{name: ""}`, 1), "write the name of a ClusterImageSet"},
	"machines for clusters without nodes": {pool(hostedPool + "  machinePools: [{name: worker, replicas: 1, platform: {agentBareMetal: {agentSelector: {}}}}]\n"), "machinePools need clusters that take nodes: write 'platform: {hosted: {nodes: {}}}'"},
	"machines of another platform":        {nodesPool("{name: worker, replicas: 1, platform: {aws: {}}}"), "write platform.agentBareMetal; clusters of a pool get no other machines"},
	"machines twice":                      {nodesPool("{name: worker, replicas: 1, platform: {agentBareMetal: {agentSelector: {}}}}, {name: worker, replicas: 1, platform: {agentBareMetal: {agentSelector: {}}}}"), `Duplicate value: {"name":"worker"}`},
	"a machine pool of another name":      {strings.Replace(machinePool(""), "name: blue-worker", "name: worker", 1), "write metadata.name as <spec.clusterDeploymentRef.name>-<spec.name>"},
	"a negative number of machines":       {machinePool("  replicas: -1\n"), "replicas must not be negative; write 0 to release all machines"},
	"machines and an autoscaler":          {machinePool("  replicas: 1\n  autoscaling: {minReplicas: 1, maxReplicas: 2}\n"), "set replicas or autoscaling, not both"},
	"an unknown way to bind":              {strings.Replace(machinePool(""), "agentSelector: {}", "agentSelector: {}, bindAt: Never", 1), `supported values: "Creation", "Claim"`},
	"machines of no namespace":            {strings.Replace(machinePool(""), "agentSelector: {}", "agentSelector: {}, agentNamespace: A b", 1), "write the name of a namespace: lower-case letters, digits and '-'"},
	"machines spread over nothing":        {strings.Replace(machinePool(""), "agentSelector: {}", "agentSelector: {}, spreadBy: a b", 1), "write the key of a label, such as 'topology.example.com/rack'"},
	"a machine pool in capitals":          {strings.NewReplacer("blue-worker", "blue-Worker", "name: worker", "name: Worker").Replace(machinePool("")), "lower-case letters, digits and '-'"},
	"a pool without a size":               {pool("  platform: {hosted: {}}\n"), "spec.size: Required value"},
}

// nodesPool is a pool of clusters with machines.
func nodesPool(machines string) string {
	return pool("  platform: {hosted: {nodes: {}}}\n  size: 1\n  machinePools: [" + machines + "]\n")
}

// hiveMachinePool is a MachinePool that another controller serves.
const hiveMachinePool = `
apiVersion: hive.openshift.io/v1
kind: MachinePool
metadata: {name: workers}
spec:
  clusterDeploymentRef: {name: blue}
  name: Worker.1
  replicas: 3
  platform: {aws: {type: m5.xlarge, rootVolume: {size: 100, type: gp3}}}
  machineLabels: {a: b}
  taints: [{key: dedicated, value: gpu, effect: NoSchedule}]
  tomorrow: {a: 1}
`

// machinePool is a MachinePool of machines that registered with agent-service.
func machinePool(spec string) string {
	return "apiVersion: hive.openshift.io/v1\nkind: MachinePool\nmetadata: {name: blue-worker}\nspec:\n  clusterDeploymentRef: {name: blue}\n  name: worker\n" +
		"  platform: {agentBareMetal: {agentSelector: {}}}\n" + spec
}

func TestManifestsThatAreRefused(t *testing.T) {
	a := newAPI(t)
	for name, test := range refusedManifests {
		t.Run(name, func(t *testing.T) {
			_, err := a.create(t, test.manifest)
			assertRefused(t, err, test.sentence)
		})
	}
}
