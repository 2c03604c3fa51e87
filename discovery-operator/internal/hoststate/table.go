// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import "maps"

// answers of one state, by event.
type answers = map[Event]Step

// entry makes answers of a state whose activity is known.
type entry func(s State, activity Effect) answers

// to leaves the state. The next state's activity runs when the host is seen in it.
func to(next State, why string, on ...Event) entry {
	return func(State, Effect) answers {
		out := answers{}
		for _, e := range on {
			out[e] = Step{To: next, Why: why}
		}
		return out
	}
}

// goOn stays and does what the state does.
func goOn(on ...Event) entry {
	return func(s State, activity Effect) answers {
		out := answers{}
		for _, e := range on {
			out[e] = Step{To: s, Do: activity, Why: "the state's activity goes on"}
		}
		return out
	}
}

// stay stays and does nothing.
func stay(why string, on ...Event) entry {
	return func(s State, _ Effect) answers {
		out := answers{}
		for _, e := range on {
			out[e] = Step{To: s, Why: why}
		}
		return out
	}
}

// staying stays and does something else than usual.
func staying(do Effect, why string, on ...Event) entry {
	return func(s State, _ Effect) answers {
		out := answers{}
		for _, e := range on {
			out[e] = Step{To: s, Do: do, Why: why}
		}
		return out
	}
}

func state(activity Effect, entries ...entry) func(State) answers {
	return func(s State) answers {
		out := answers{}
		for _, e := range entries {
			maps.Copy(out, e(s, activity))
		}
		return out
	}
}

const (
	noMatter  = "it makes no difference in this state"
	remembers = "the failure is reported, and the activity retried later"
)

// table is the life of a host.
var table = func() map[State]answers {
	out := map[State]answers{}
	for s, make := range life {
		out[s] = make(s)
	}
	return out
}()

var life = map[State]func(State) answers{
	None: state(Rest,
		to(Discovered, "a host without credentials is only known", NoCredentials, ApprovalMissing, ExternallyInstalled,
			HardwareKnown, HardwareWanted, NodeFound, Nothing),
		to(Registering, "the credentials have to be verified", CredentialsArrived),
		to(Deleting, "the machine was not switched on yet", DeletionRequested),
		stay(noMatter, Detached, InspectionRequested, DeploymentWanted, DeploymentRevoked, NotYet, NodeLost, Verified, NoInspectionData, Done, Failed, GaveUp),
	),
	Discovered: state(FindNode,
		to(Registering, "the credentials have to be verified", CredentialsArrived),
		to(MatchProfile, "the hardware is known, no inspection is needed", HardwareKnown),
		to(Importing, "the hardware is not known, and Ironic may have it", HardwareWanted, NodeFound),
		to(ExternallyProvisioned, "something else installed the machine", ExternallyInstalled),
		to(Deleting, "the machine was not switched on yet", DeletionRequested),
		goOn(Nothing),
		stay("a user has to approve the host first", ApprovalMissing),
		stay(noMatter, Detached, InspectionRequested, DeploymentWanted, DeploymentRevoked, NoCredentials, NotYet, NodeLost, Verified, NoInspectionData, Done),
		stay(remembers, Failed, GaveUp),
	),
	Registering: state(Register,
		to(ExternallyProvisioned, "something else installed the machine", ExternallyInstalled),
		to(MatchProfile, "the hardware is known, no inspection is needed", HardwareKnown),
		to(Importing, "the hardware is not known, and Ironic may have it", Verified),
		to(Discovered, "a host without credentials cannot be registered", NoCredentials),
		to(Deleting, "the machine was not switched on yet", DeletionRequested),
		goOn(Nothing, CredentialsArrived, HardwareWanted, NodeFound, NodeLost, Done),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, Detached, InspectionRequested, DeploymentWanted, DeploymentRevoked, NotYet, ApprovalMissing, NoInspectionData),
	),
	Importing: state(ImportHardware,
		to(MatchProfile, "Ironic had the hardware", HardwareKnown),
		to(Inspecting, "Ironic has no inspection data, and the machine can be inspected", NoInspectionData),
		to(ExternallyProvisioned, "something else installed the machine", ExternallyInstalled),
		to(Registering, "the credentials have to be verified", CredentialsArrived),
		to(Discovered, "Ironic does not know the machine any more", NodeLost),
		to(Deleting, "the machine was not switched on yet", DeletionRequested),
		goOn(Nothing, NoCredentials, HardwareWanted, NodeFound, Verified, Done),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, Detached, InspectionRequested, DeploymentWanted, DeploymentRevoked, NotYet, ApprovalMissing),
	),
	Inspecting: state(InspectMachine,
		staying(EndInspection, "an inspection that is not wanted any more ends", HardwareKnown, ExternallyInstalled),
		to(MatchProfile, "the machine was inspected, or its inspection is not wanted any more", Done),
		to(Registering, "the node has to be registered anew", CredentialsArrived, NodeLost),
		to(Discovered, "a host without credentials cannot be inspected", NoCredentials),
		to(PoweringOff, "the inspection has switched the machine on", DeletionRequested),
		goOn(Nothing, HardwareWanted, NodeFound, Verified, NoInspectionData, InspectionRequested),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, Detached, DeploymentWanted, DeploymentRevoked, NotYet, ApprovalMissing),
	),
	MatchProfile: passThrough,
	Preparing:    passThrough,
	Available: state(MaintainPower,
		staying(Detach, "a user has taken the host out of management", Detached),
		to(Registering, "the node has to be registered anew", CredentialsArrived, NodeLost),
		to(ExternallyProvisioned, "something else installed the machine", ExternallyInstalled),
		to(Inspecting, "a user asked for an inspection", InspectionRequested),
		to(Provisioning, "an image is to be deployed", DeploymentWanted),
		to(PoweringOff, "an unused machine is switched off", DeletionRequested),
		goOn(Nothing, HardwareKnown, HardwareWanted, NodeFound, Verified, NoInspectionData, Done),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, DeploymentRevoked, NoCredentials, NotYet, ApprovalMissing),
	),
	ExternallyProvisioned: state(MaintainPower,
		staying(Detach, "a user has taken the host out of management", Detached),
		to(Registering, "the node has to be registered anew", CredentialsArrived, NodeLost),
		to(MatchProfile, "the host is not externally provisioned any more", HardwareKnown),
		to(Importing, "the host is not externally provisioned any more", HardwareWanted),
		to(Deleting, "the system on the machine was installed by other means, so it stays on", DeletionRequested),
		goOn(Nothing, ExternallyInstalled, NodeFound, Verified, NoInspectionData, Done),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, InspectionRequested, DeploymentWanted, DeploymentRevoked, NoCredentials, NotYet, ApprovalMissing),
	),
	Provisioning: state(Deploy,
		to(Provisioned, "the deployment is done", Done),
		to(Deprovisioning, "the deployed image has to be removed", DeletionRequested, DeploymentRevoked),
		to(Registering, "the node has to be registered anew", NodeLost),
		goOn(Nothing, DeploymentWanted, NoCredentials, CredentialsArrived, ExternallyInstalled, HardwareKnown, HardwareWanted, NodeFound, Verified, NoInspectionData),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, Detached, InspectionRequested, NotYet, ApprovalMissing),
	),
	Provisioned: state(KeepDeployed,
		staying(Detach, "a user has taken the host out of management", Detached),
		staying(Register, "a machine in use keeps its state while its credentials are renewed", CredentialsArrived),
		to(Deprovisioning, "the deployed image has to be removed", DeletionRequested, DeploymentRevoked),
		stay("a machine in use stays as it is; its node is made anew and adopted", NodeLost),
		goOn(Nothing, DeploymentWanted, ExternallyInstalled, HardwareKnown, HardwareWanted, NodeFound, Verified, NoInspectionData, Done),
		stay(remembers, Failed, GaveUp),
		stay(noMatter, InspectionRequested, NoCredentials, NotYet, ApprovalMissing),
	),
	Deprovisioning: state(Undeploy,
		staying(Undeploy, "the deployed image has to be removed first", DeletionRequested),
		to(Available, "no image is deployed any more", Done),
		to(PoweringOff, "it failed too often to hold the deletion up", GaveUp),
		to(Registering, "the node has to be registered anew", NodeLost),
		goOn(Nothing, DeploymentWanted, DeploymentRevoked, NoCredentials, CredentialsArrived, ExternallyInstalled, HardwareKnown, HardwareWanted, NodeFound, Verified, NoInspectionData),
		stay(remembers, Failed),
		stay(noMatter, Detached, InspectionRequested, NotYet, ApprovalMissing),
	),
	PoweringOff: state(PowerOff,
		staying(PowerOff, "an unused machine is switched off", DeletionRequested),
		to(Deleting, "the machine is off, or cannot be switched off", Done, GaveUp, NodeLost, NoCredentials),
		restored,
		stay(remembers, Failed),
		stay(noMatter, Detached, NotYet),
	),
	Deleting: state(DeleteNode,
		staying(DeleteNode, "the node goes before the host", DeletionRequested),
		to(Gone, "the host has no node in Ironic any more", Done, NodeLost),
		restored,
		stay(remembers, Failed, GaveUp),
		stay(noMatter, Detached, NotYet),
	),
}

// restored brings a host back to life whose deletion is not requested, for example because it was restored from a backup.
func restored(s State, activity Effect) answers {
	const why = "the host is not being deleted"
	out := to(Registering, why, Nothing, CredentialsArrived, ExternallyInstalled, HardwareKnown, HardwareWanted, InspectionRequested, DeploymentWanted,
		DeploymentRevoked, NodeFound, Verified, NoInspectionData, ApprovalMissing)(s, activity)
	if s == Deleting {
		out[NoCredentials] = Step{To: Discovered, Why: why}
	}
	return out
}

// passThrough is a state in which nothing is to be done.
var passThrough = state(Rest,
	to(Available, "the host needs no preparation", Nothing, NoCredentials, HardwareKnown, HardwareWanted, InspectionRequested, DeploymentWanted,
		DeploymentRevoked, NodeFound, Verified, NoInspectionData, Done, ApprovalMissing),
	to(ExternallyProvisioned, "something else installed the machine", ExternallyInstalled),
	to(Registering, "the node has to be registered anew", CredentialsArrived, NodeLost),
	to(PoweringOff, "an unused machine is switched off", DeletionRequested),
	stay(remembers, Failed, GaveUp),
	stay(noMatter, Detached, NotYet),
)
