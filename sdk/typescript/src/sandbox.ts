// SPDX-License-Identifier: Apache-2.0
// A guarded container that `weir container run` keeps, as long as this process holds its pipe open.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { Client, type GuardedClient, type StreamEvent } from "./client.js";
import { ApiError, SetupError } from "./errors.js";
import { Server, textOf } from "./http.js";
import type { EgressRule, NetworkPolicy } from "./policy.js";
import type * as schema from "./schema.js";

export interface SandboxOptions {
	/** It has to be there already: what is missing is not pulled. */
	image: string;
	/** Without one everything is denied. */
	networkPolicy?: NetworkPolicy;
	profiles?: readonly string[];
	/** The sandbox's and the container's name. */
	id?: string;
	engine?: "docker" | "podman";
	guard?: "sidecar" | "daemon";
	weirImage?: string;
	/** What keeps the container; `sleep infinity` by default. */
	command?: readonly string[];
	env?: Readonly<Record<string, string>>;
	volumes?: readonly string[];
	workdir?: string;
	user?: string;
	network?: string;
	/** The program `weir`; WEIR_PROGRAM or the one in PATH by default. */
	weir?: string;
}

export interface CommandResult {
	exitCode: number;
	stdout: string;
	stderr: string;
}

/** The line that --info-fd gives (weir-container(1)). */
interface Info {
	id: string;
	engine: string;
	engineSocket: string;
	container: string;
	guard: string;
	api: string;
	path: string;
	token?: string;
}

export class Sandbox {
	private constructor(private readonly child: ChildProcess, private readonly info: Info,
		private readonly api: GuardedClient, private readonly ended: Promise<number>) {}

	/** Start it. SetupError: it can't be guarded, or something is wrong in what was asked; nothing runs then. */
	static async create(options: SandboxOptions): Promise<Sandbox> {
		const folder = await mkdtemp(join(tmpdir(), "weir-"));
		try {
			const policy = join(folder, "policy.json");
			await writeFile(policy, JSON.stringify(options.networkPolicy ?? {}), { mode: 0o600 });
			const child = spawn(options.weir ?? process.env["WEIR_PROGRAM"] ?? "weir", argumentsOf(options, policy),
				{ stdio: ["ignore", "ignore", "pipe", "pipe"] });
			const [info, api, ended, reason] = await guarded(child);
			const sandbox = new Sandbox(child, info, api, ended);
			const runs = await sandbox.hasStarted().catch(async (error) => {
				await sandbox.close();
				throw error;
			});
			if (runs) return sandbox;
			throw new SetupError(reason() || "the container was not started", await sandbox.close());
		} finally {
			await rm(folder, { recursive: true, force: true });
		}
	}

	get id(): string {
		return this.info.id;
	}

	/** The container's long id. */
	get container(): string {
		return this.info.container;
	}

	/** The line of --info-fd comes before the start. false: it has ended, or two minutes went by. */
	private async hasStarted(): Promise<boolean> {
		let over = false;
		this.ended.then(() => (over = true), () => (over = true));
		for (const end = Date.now() + START_MS; !over && Date.now() < end; await pause()) {
			const state = await this.askEngine<{ State: { Running: boolean; Status: string } }>("GET", `/containers/${this.info.container}/json`)
				.catch((error) => {
					if (error instanceof ApiError && error.status === 404) return undefined;
					throw error;
				});
			if (state?.State.Running || state?.State.Status === "exited") return true;
		}
		return false;
	}

	private async askEngine<T>(method: string, path: string, body?: unknown): Promise<T> {
		const engine = new Server(this.info.engineSocket);
		const answer = await engine.ask({ method, path, timeoutMs: START_MS, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
		return JSON.parse(await textOf(answer, engine.address, `${method} ${path}`)) as T;
	}

	/** Run a command in it, to its end. What it was refused is in denies(). */
	async run(command: readonly string[], options: { env?: Readonly<Record<string, string>>; workdir?: string; user?: string } = {}):
		Promise<CommandResult> {
		const { Id } = await this.askEngine<{ Id: string }>("POST", `/containers/${this.info.container}/exec`, {
			AttachStdout: true, AttachStderr: true, Cmd: command,
			Env: Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`),
			...(options.workdir === undefined ? {} : { WorkingDir: options.workdir }),
			...(options.user === undefined ? {} : { User: options.user }),
		});
		const answer = await new Server(this.info.engineSocket).ask({
			method: "POST", path: `/exec/${Id}/start`, body: JSON.stringify({ Detach: false, Tty: false }), timeoutMs: 2 ** 31 - 1,
		});
		const output = await outputOf(answer.body);
		for (;; await pause()) { // a command may close its output long before it ends
			const state = await this.askEngine<{ Running: boolean; ExitCode: number | null }>("GET", `/exec/${Id}/json`);
			if (!state.Running && state.ExitCode !== null) return { exitCode: state.ExitCode, ...output };
		}
	}

	/** The policy in force. */
	async policy(): Promise<schema.PolicyStatus["policy"]> {
		return (await this.api.getPolicy()).policy;
	}

	/** Put rules in front of those that are there. When it resolves the kernel has them. */
	patchPolicy(rules: readonly EgressRule[]): Promise<schema.Change> {
		return this.api.patchPolicy(rules);
	}

	status(): Promise<schema.Status> {
		return this.api.status();
	}

	async denies(asked: { since?: string; name?: string; limit?: number } = {}): Promise<readonly schema.Event[]> {
		return (await this.api.denies(asked)).denies;
	}

	events(asked: { lastEventId?: string; signal?: AbortSignal } = {}): Promise<AsyncIterableIterator<StreamEvent>> {
		return this.api.events(asked);
	}

	/** End it, and remove what belongs to it. Resolves to the status of `weir container run`. May be called twice. */
	close(): Promise<number> {
		(this.child.stdio[3] as Readable).destroy();
		return this.ended;
	}
}

function argumentsOf(options: SandboxOptions, policy: string): string[] {
	const repeated = (name: string, values: readonly string[] = []) => values.flatMap((value) => [name, value]);
	const one = (name: string, value: string | undefined) => (value === undefined ? [] : [name, value]);
	return ["container", "run", "--image", options.image, "--policy", policy, "--info-fd", "3",
		...repeated("--profile", options.profiles),
		...one("--id", options.id), ...one("--engine", options.engine), ...one("--guard", options.guard),
		...one("--weir-image", options.weirImage), ...one("--workdir", options.workdir), ...one("--user", options.user),
		...one("--network", options.network),
		...repeated("--set-env", Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`)),
		...repeated("--volume", options.volumes),
		"--", ...(options.command ?? ["sleep", "infinity"])];
}

const START_MS = 120_000;
const pause = () => new Promise<void>((resolve) => setTimeout(resolve, 10));

/** What is guarded and about to start: what was said of it, its API, its end, and what went wrong until now. */
async function guarded(child: ChildProcess): Promise<[Info, GuardedClient, Promise<number>, () => string]> {
	let said = "";
	const ended = new Promise<number>((resolve, reject) => {
		child.on("error", reject);
		child.on("close", (code) => resolve(code ?? 125));
	});
	ended.catch(() => undefined);
	const decoder = new TextDecoder();
	child.stderr!.on("data", (chunk: Uint8Array) => {
		said = (said + decoder.decode(chunk, { stream: true })).slice(-16384);
	});
	const line = await firstLine(child.stdio[3] as Readable);
	if (line === undefined) {
		const code = await ended.catch((error: Error) => {
			said = error.message;
			return 125;
		});
		throw new SetupError(said.trim() || "weir container run has ended without a word", code);
	}
	const info = JSON.parse(line) as Info;
	const client = new Client(info.api, info.token === undefined ? {} : { token: info.token });
	return [info, info.path ? client.sandbox(info.id) : client, ended, () => said.trim()];
}

function firstLine(stream: Readable): Promise<string | undefined> {
	return new Promise((resolve) => {
		const decoder = new TextDecoder();
		let text = "";
		stream.on("data", (chunk: Uint8Array) => {
			text += decoder.decode(chunk, { stream: true });
			const end = text.indexOf("\n");
			if (end >= 0) resolve(text.slice(0, end));
		});
		stream.on("end", () => resolve(undefined));
		stream.on("error", () => resolve(undefined));
	});
}

/** Docker's frames: a byte for the stream, three of zero, four for the length, the bytes. */
async function outputOf(body: AsyncIterable<Uint8Array>): Promise<{ stdout: string; stderr: string }> {
	const texts = { 1: "", 2: "" };
	const decoders = { 1: new TextDecoder(), 2: new TextDecoder() };
	let rest = new Uint8Array(0);
	for await (const chunk of body) {
		const all = new Uint8Array(rest.length + chunk.length);
		all.set(rest);
		all.set(chunk, rest.length);
		let at = 0;
		while (all.length - at >= 8) {
			const size = new DataView(all.buffer).getUint32(at + 4);
			if (all.length - at - 8 < size) break;
			const stream = all[at] === 2 ? 2 : 1;
			texts[stream] += decoders[stream].decode(all.subarray(at + 8, at + 8 + size), { stream: true });
			at += 8 + size;
		}
		rest = all.slice(at);
	}
	return { stdout: texts[1] + decoders[1].decode(), stderr: texts[2] + decoders[2].decode() };
}
