// SPDX-License-Identifier: Apache-2.0
import { ApiError } from "./errors.js";
import { Server, linesOf, textOf, type Request } from "./http.js";
import type { EgressRule, NetworkPolicy } from "./policy.js";
import type * as schema from "./schema.js";

export const DAEMON_SOCKET = "/run/weir/weir.sock";
const TOKEN_HEADER = "OPENSANDBOX-EGRESS-AUTH";
const TIMEOUT_MS = 60_000;

export interface ClientOptions {
	/** The API's, where it has one. */
	token?: string;
	/** PEM: whom to trust instead of the system's authorities. */
	ca?: string | Uint8Array;
	/** Milliseconds of silence until an ApiError; 60,000 by default. */
	timeoutMs?: number;
}

/** An event of a stream. `id` is what `lastEventId` takes. */
export interface StreamEvent {
	id: string;
	action: string;
	data: schema.Event;
}

type Query = Record<string, string | number | undefined>;

/** Where it is asked for: at the top of a sidecar, or below /sandboxes/ID of a daemon or a run. */
interface Place {
	readonly server: Server;
	readonly prefix: string;
	readonly token: string | undefined;
	readonly timeoutMs: number;
}

/** What a sidecar, each sandbox of a daemon, and a run answer. Every method may throw an ApiError. */
export class GuardedClient {
	/** @internal */
	constructor(protected readonly place: Place) {}

	/** "ok". ApiError 503: not yet, or not any more; the rules stand. */
	health(): Promise<string> {
		return this.text("GET", "/healthz");
	}

	/** health() as a question. false: also where there is no answer. */
	async isHealthy(): Promise<boolean> {
		return (await this.health().catch(() => "")) === "ok";
	}

	/** The policy in force, and its modes. */
	getPolicy(): Promise<schema.PolicyStatus> {
		return this.json("GET", "/policy");
	}

	/** Put another policy in force; null denies all. When it resolves the kernel has it; when it rejects the old one stands. */
	setPolicy(policy: NetworkPolicy | null): Promise<schema.Change> {
		return this.json("POST", "/policy", policy ?? {});
	}

	/** As setPolicy(). */
	replacePolicy(policy: NetworkPolicy | null): Promise<schema.Change> {
		return this.json("PUT", "/policy", policy ?? {});
	}

	/** Put rules in front of those that are there; they replace the rules for the same targets. */
	patchPolicy(rules: readonly EgressRule[]): Promise<schema.Change> {
		return this.json("PATCH", "/policy", rules);
	}

	/** Take away the rules for these targets. */
	deleteRules(targets: readonly string[]): Promise<schema.Change> {
		return this.json("DELETE", "/policy", targets);
	}

	/** What is wrong with a policy, before it is put in force; nothing changes. */
	checkPolicy(policy: NetworkPolicy | null): Promise<schema.PolicyCheck> {
		return this.json("POST", "/policy/check", policy ?? {});
	}

	/** What the policy in force says of a name or an address ("api.example.com:443"), and by which rule. */
	explainPolicy(target: string): Promise<schema.Explanation> {
		return this.json("GET", "/policy/explain", undefined, { target });
	}

	/** What is enforced, since when, and what isn't. */
	status(): Promise<schema.Status> {
		return this.json("GET", "/status");
	}

	/** Counters and gauges in Prometheus' text format. */
	metrics(): Promise<string> {
		return this.text("GET", "/metrics");
	}

	/** What was refused, the newest first. since: RFC 3339, or how long ago ("10m"). name: that one, or `*.NAME`. */
	denies(asked: { since?: string; name?: string; limit?: number } = {}): Promise<schema.Denies> {
		return this.json("GET", "/denies", undefined, asked);
	}

	/** How much was refused since then, or ever. */
	countDenies(asked: { since?: string } = {}): Promise<schema.DeniesCount> {
		return this.json("GET", "/denies/count", undefined, asked);
	}

	/** How much was allowed, denied and limited, and when; of the last day unless since and until say otherwise. */
	activity(asked: { since?: string; until?: string; buckets?: number } = {}): Promise<schema.Activity> {
		return this.json("GET", "/activity", undefined, asked);
	}

	/** What most of what was denied (of: "allow": of what was allowed, by bytes) was about. */
	top(asked: { of?: string; by?: string; since?: string; until?: string; limit?: number } = {}): Promise<schema.Top> {
		return this.json("GET", "/top", undefined, asked);
	}

	/** A page of the store's events, the newest first; before: what `next` of the page before says. */
	storedEvents(asked: { since?: string; until?: string; action?: string; find?: string; limit?: number; before?: string } = {}):
		Promise<schema.StoredEvents> {
		return this.json("GET", "/events/stored", undefined, asked);
	}

	/**
	 * What happens, as it happens, until the other end closes, the loop is left, or `signal` aborts. The connection
	 * stands when it resolves: what happens from then on is in the stream. lastEventId: go on behind that one.
	 */
	async events(asked: { lastEventId?: string; signal?: AbortSignal } = {}): Promise<AsyncIterableIterator<StreamEvent>> {
		const headers: Record<string, string> = { Accept: "text/event-stream" };
		if (asked.lastEventId) headers["Last-Event-ID"] = asked.lastEventId;
		const answer = await this.ask("GET", "/events", undefined, {}, headers, asked.signal);
		return eventsOf(linesOf(answer), () => answer.body.destroy());
	}

	/** Review tasks; state: open (the default), accepted, dismissed or all. ApiError 404: events are not stored there. */
	reviews(asked: { state?: string } = {}): Promise<schema.ReviewTasks> {
		return this.json("GET", "/review", undefined, asked);
	}

	/** One task, with the difference that accepting it would make. */
	review(id: number): Promise<schema.ReviewTask> {
		return this.json("GET", `/review/${Number(id)}`);
	}

	/**
	 * Add the task's rule to the policy in force; for: how long ("10m"). rule: the task's `rule` as it was shown. Where the
	 * task is about another one by now, ApiError 409, and nothing changes; without it the one of now is added.
	 */
	acceptReview(id: number, asked: { who?: string; for?: string; rule?: object | null } = {}): Promise<schema.ReviewTask> {
		const { who, for: length, rule } = asked;
		const body = { ...(length !== undefined && { for: length }), ...(rule && { rule }) };
		return this.json("POST", `/review/${Number(id)}/accept`, Object.keys(body).length ? body : undefined, { who });
	}

	/** Leave the policy as it is. */
	dismissReview(id: number, asked: { who?: string } = {}): Promise<schema.ReviewTask> {
		return this.json("POST", `/review/${Number(id)}/dismiss`, undefined, asked);
	}

	protected ask(method: string, path: string, body?: unknown, query: Query = {}, headers: Record<string, string> = {},
		signal?: AbortSignal) {
		const words = Object.entries(query).filter(([, value]) => value !== undefined)
			.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
		const request: Request = {
			method,
			path: this.place.prefix + path + (words.length > 0 ? `?${words.join("&")}` : ""),
			headers: { ...(this.place.token ? { [TOKEN_HEADER]: this.place.token } : {}), ...headers },
			timeoutMs: this.place.timeoutMs,
		};
		if (body !== undefined) request.body = JSON.stringify(body);
		if (signal) request.signal = signal;
		return this.place.server.ask(request);
	}

	protected async text(method: string, path: string, body?: unknown, query?: Query): Promise<string> {
		return textOf(await this.ask(method, path, body, query), this.place.server.address, `${method} ${path}`);
	}

	protected async json<T>(method: string, path: string, body?: unknown, query?: Query): Promise<T> {
		const text = await this.text(method, path, body, query);
		try {
			return JSON.parse(text) as T;
		} catch {
			throw new ApiError(0, `not JSON: ${text.slice(0, 200)}`, `${method} ${path}`);
		}
	}
}

/** A sidecar, a daemon, or a run under way. */
export class Client extends GuardedClient {
	/** address: a path or unix:PATH, http://HOST:PORT or https://HOST:PORT; without it WEIR_SOCKET, or the daemon's socket. */
	constructor(address: string = process.env["WEIR_SOCKET"] || DAEMON_SOCKET, options: ClientOptions = {}) {
		super({
			server: new Server(address, options.ca),
			prefix: "",
			token: options.token,
			timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
		});
	}

	/** That sandbox, whether it is there or not. */
	sandbox(id: string): GuardedClient {
		return new GuardedClient({ ...this.place, prefix: `/sandboxes/${encodeURIComponent(id)}` });
	}

	/** What the daemon guards. */
	async sandboxes(): Promise<readonly schema.Sandbox[]> {
		return (await this.json<schema.Sandboxes>("GET", "/sandboxes")).sandboxes;
	}

	/** What is guarded under that id. ApiError 404: nothing. */
	getSandbox(id: string): Promise<schema.Sandbox> {
		return this.json("GET", `/sandboxes/${encodeURIComponent(id)}`);
	}

	/**
	 * Guard exactly one of a network namespace (a path, or the number of a process), a control group and a user. Without
	 * a policy everything is denied. When it resolves the filter stands, was read back and tested; when it rejects,
	 * the caller must not start the sandbox.
	 */
	attach(id: string, what: Omit<schema.Attach, "policy"> & { policy?: NetworkPolicy }): Promise<schema.Sandbox> {
		return this.json("PUT", `/sandboxes/${encodeURIComponent(id)}`, what);
	}

	/** Guard it no more: it is open then. */
	detach(id: string): Promise<schema.Done> {
		return this.json("DELETE", `/sandboxes/${encodeURIComponent(id)}`);
	}
}

async function* eventsOf(lines: AsyncGenerator<string>, close: () => void): AsyncGenerator<StreamEvent, undefined> {
	let fields: Record<string, string> = {};
	try {
		for await (const line of lines) {
			if (line === "") {
				if (fields["data"] !== undefined)
					yield { id: fields["id"] ?? "", action: fields["event"] ?? "", data: JSON.parse(fields["data"]) as schema.Event };
				fields = {};
				continue;
			}
			const colon = line.indexOf(":");
			if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
		}
	} finally {
		close();
	}
	return undefined;
}
