// SPDX-License-Identifier: Apache-2.0
// Made by schema.py from docs/openapi.yaml. Times are RFC 3339, UTC; null is what is not known.

/** What is guarded is named by exactly one of netns, cgroup and uid. */
export interface Attach {
	/** A network namespace: an absolute path, or the number of a process in it. */
	netns?: string;
	/** A control group of version 2: its directory, or its path from the root of the hierarchy. */
	cgroup?: string;
	/** A user of the host other than root. */
	uid?: number | string;
	/** Of a cgroup: what is above it is closed to cgroups below it that the daemon doesn't know. */
	guardParent?: boolean;
	/** Of a cgroup or uid: it may be guarded under this id already, and gets this policy (200). */
	again?: boolean;
	/** Without it everything is denied. */
	policy?: Policy;
}

export interface Sandbox {
	id: string;
	number: number;
	kind: "netns" | "cgroup" | "uid";
	netns?: string;
	cgroup?: string;
	uid?: number;
	/** Which of the daemon's engines has it. */
	engine: number;
	/** Of a cgroup or uid: the inode of the network namespace where it is guarded. */
	network?: number;
	guardParent?: true;
	mode: "dns+nftables" | "dns+nftables+tls";
	policyMode: PolicyMode;
	rules: Count;
	/** Names, flows and packets that were refused. */
	denies: Count;
}

export interface Sandboxes {
	sandboxes: readonly Sandbox[];
	/** The daemon was just started: there may be more. */
	takingOver?: true;
}

export interface Refused {
	error: "refused" | "failed_safety_setup" | "not ready";
	reason: string;
}

export interface Done {
	status: "ok";
}

export interface DeniesCount {
	/** Rows; equal refusals of a second are one. */
	events: Count;
	/** Packets and lookups. */
	packets: Count;
	from: "store" | "memory";
	/**
	 * Over 50,000 rows were there to look at: `events` is of the newest of them, and `packets` is summed by whole
	 * minutes.
	 */
	cut: boolean;
}

export interface Activity {
	/** Of the first bucket. */
	since: Time;
	/** Seconds that a bucket is long. */
	step: number;
	/** Packets and connections. */
	allow: readonly Count[];
	/** Packets and lookups. */
	deny: readonly Count[];
	limit: readonly Count[];
	fail: readonly Count[];
	/** What the sandbox has sent. */
	bytes: readonly Count[];
}

export interface TopRow {
	/** Empty: the default action, or a process that Weir could not identify. */
	key: string;
	packets: Count;
	bytes: Count;
	events: Count;
	last: Time;
}

export interface Top {
	top: readonly TopRow[];
	/** False: there was so much that the newest of it alone was added up. */
	complete: boolean;
}

export interface StoredEvents {
	events: readonly Event[];
	/** For `before`; null: there are no more. */
	next: string | null;
}

export interface Explanation {
	query: string;
	kind: "name" | "address";
	action: Action;
	protocols: readonly ("tcp" | "udp")[];
	/** The deciding rule; null for the default action. */
	rule: Record<string, unknown> | null;
	ports: string;
	note: string | null;
	/** The value of --allow that would open it. */
	allow: string | null;
	/** The same in lines, for people. */
	text: string;
}

export interface PolicyFault {
	level: "error" | "warning" | "hint";
	text: string;
}

export interface PolicyCheck {
	valid: boolean;
	mode: PolicyMode | null;
	faults: readonly PolicyFault[];
}

export interface ReviewTasks {
	tasks: readonly ReviewTask[];
}

export interface ReviewTask {
	id: number;
	state: "open" | "accepted" | "dismissed";
	sandbox: string | null;
	/** Name or address; null when a sandbox was denied more than there are tasks for. */
	destination: string | null;
	/** A name that the policy allows and that the destination could be taken for. */
	looks_like: string | null;
	port: number | null;
	protocol: string | null;
	packets: Count;
	events: Count;
	first: Time;
	last: Time;
	who: string | null;
	decided: string | null;
	/** What accepting adds. */
	rule: Record<string, unknown> | null;
	/**
	 * What accepting takes away (-) and adds (+), keys of the policy and rules, where a rule that moves is both; of a
	 * decision, what it did.
	 */
	diff?: readonly string[] | null;
}

export type Action = "allow" | "deny" | "ask";

/** Weir's own keys are shown again as they were given; others are ignored. */
export interface Rule {
	action?: Action;
	/** `api.example.com`, `*.example.com` (below it), `**.example.com` (both), an address or a CIDR. */
	target: string;
	ports?: readonly (number | string)[];
	types?: readonly string[];
	private?: boolean;
	raw?: boolean;
	required?: boolean;
	unmetered?: boolean;
	comment?: string;
	budget?: {
		/** Bytes, or `20M`. */
		sent?: number | string;
		received?: number | string;
		/** The period, as in `1h`. */
		per?: string;
		action?: "cut" | "event";
	};
	/** When the rule ends. Then it is as if it weren't there, and is left out at the next change. */
	until?: string;
	/** Counted from now, as in `10m`; the policy has `until` in its place. */
	for?: string;
}

export interface Policy {
	egress?: readonly Rule[] | null;
	/** allow, deny or ask, in any case; absent, empty and null mean deny. */
	defaultAction?: string | null;
	verify?: "dns" | "tls";
	dns?: "live" | "pinned";
	repin?: string;
	limits?: Record<string, unknown>;
	/**
	 * More than count packets denied within window: an event, at most once a window; with stop the sandbox is closed
	 * besides, until a policy is set by PUT or POST.
	 */
	on_denies?: {
		count: number;
		/** a time from 1s to 1d, like 10m */
		window: string;
		action: "event" | "stop";
	};
	/**
	 * Weir has closed the sandbox, and why: nothing is let out, the rules of allow.always included. PATCH and DELETE
	 * are answered 409 then; PUT and POST put another policy in force.
	 */
	closed?: string;
	require_full_isolation?: boolean;
}

/** What the document amounts to. */
export type PolicyMode = "allow_all" | "deny_all" | "enforcing";

/** What was asked for. */
export type EnforcementMode = "dns" | "dns+nft" | "dns+nft+tls";

export interface PolicyStatus {
	status: "ok";
	mode: PolicyMode;
	enforcementMode: EnforcementMode;
	policy: Policy & {
		egress: readonly unknown[];
		defaultAction: Action;
	};
}

export interface Change {
	status: "ok";
	mode: PolicyMode;
	enforcementMode?: EnforcementMode;
	reason?: string;
}

export type Count = number;

export type Time = string;

export interface Status {
	/** What is enforced, which is what counts. */
	mode: "disabled" | "dns-only" | "dns+nftables" | "dns+nftables+tls";
	fullIsolation: boolean;
	/** When this mode was reached. */
	since: Time | null;
	enforcementMode: EnforcementMode;
	policyMode: PolicyMode;
	/** Why Weir has closed the sandbox (on_denies), until a policy is set. */
	closed?: string | null;
	/** There is no token, and the API isn't open: changes are 403. */
	readOnly: boolean;
	sandboxId: string;
	/** What is weaker than it could be. */
	degradations: readonly ({
		what: string;
		reason: string;
		since: Time | null;
	})[];
	generation: Count;
	engineRestarts: Count;
	/** Of a daemon; a sidecar and a sandbox have none of it. */
	engines?: number;
	rules: Count;
	learned: {
		names: Count;
		addresses: Count;
	};
	/** The rules that end, and have not. */
	grants: readonly {
		target: string;
		until: Time;
		secondsLeft: Count;
	}[];
	policyUpdates: Count;
	policyFailures: Count;
	webhookSent: Count;
	webhookDropped: Count;
	logDropped: Count;
	storeLostRows: Count;
	storeLostPackets: Count;
	/** Where events are copied into PostgreSQL, rows of the store that aren't there yet. */
	postgresWaitingRows?: Count;
	/** Rows that the store let go before they could be copied. */
	postgresMissedRows?: Count;
	/** Rows that PostgreSQL would not take. */
	postgresRefusedRows?: Count;
	counters: Record<string, Count>;
	version: string;
}

export interface Denies {
	denies: readonly Event[];
	/** There are more than were asked for. */
	more: boolean;
	/** Events that the ring had no room for. */
	forgotten: Count;
}

/** Every key is there; null where nothing is known. */
export interface Event {
	ts: Time;
	sandbox: string | null;
	action: "allow" | "deny" | "panic" | "change" | "limit" | "fail" | "ask" | "none";
	layer: "dns" | "address" | "name" | "launch" | "none";
	remote_ip: string | null;
	remote_port: number | null;
	protocol: string | null;
	name: string | null;
	/** The deciding rule; null for the default action. */
	rule: string | null;
	rule_file: string | null;
	rule_line: number | null;
	packets: Count;
	bytes: Count;
	reason: string | null;
	query_type: number | null;
	limit: string | null;
	uid: number | null;
	pid: number | null;
	command: string | null;
	/** The value of --allow that would have let a denial through, and nothing else. */
	allow: string | null;
	/** Of /events/stored alone: its number in the store. */
	id?: number;
	/** Of /denies alone: a rule for just this would let it through. */
	allowable?: boolean;
}
