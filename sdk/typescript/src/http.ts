// SPDX-License-Identifier: Apache-2.0
// Requests over a unix socket, TCP or TLS, each with a connection of its own.
import * as http from "node:http";
import * as https from "node:https";
import { ApiError } from "./errors.js";

export interface Answer {
	readonly status: number;
	readonly body: http.IncomingMessage;
}

export interface Request {
	method: string;
	path: string;
	headers?: Record<string, string>;
	body?: string;
	/** Milliseconds of silence until an ApiError. */
	timeoutMs: number;
	signal?: AbortSignal;
}

export class Server {
	private readonly url: URL | undefined;
	private readonly socketPath: string;

	/** address: a path or unix:PATH, http://HOST:PORT or https://HOST:PORT. */
	constructor(readonly address: string, private readonly ca?: string | Uint8Array) {
		const named = /^https?:/.test(address);
		this.url = named ? new URL(address) : undefined;
		this.socketPath = address.replace(/^unix:(\/\/(?=\/))?/, "");
		if (!named && !this.socketPath.startsWith("/")) throw new TypeError(`'${address}' is no address of an API`);
	}

	/** The answer with a status below 400, its body unread. Else ApiError. */
	async ask(request: Request): Promise<Answer> {
		const operation = `${request.method} ${request.path}`;
		const answer = await this.send(request).catch((error: Error) => {
			const isAway = !this.url && /\b(ENOENT|ECONNREFUSED)\b/.test(error.message);
			throw new ApiError(0, `${this.address}: ${error.message}${isAway ? "; is `weir daemon` running?" : ""}`, operation);
		});
		if (answer.status < 400) return answer;
		throw new ApiError(answer.status, await textOf(answer, this.address, operation), operation);
	}

	private send(request: Request): Promise<Answer> {
		const tls = this.url?.protocol === "https:";
		const headers: Record<string, string> = { Connection: "close", ...request.headers };
		if (request.body !== undefined) {
			headers["Content-Type"] = "application/json";
			headers["Content-Length"] = String(new TextEncoder().encode(request.body).length);
		}
		const options: http.RequestOptions = { method: request.method, path: request.path, headers, agent: false };
		if (this.url) {
			options.host = this.url.hostname.replace(/^\[|\]$/g, "");
			options.port = this.url.port || (tls ? 443 : 18080);
		} else {
			options.socketPath = this.socketPath;
		}
		if (tls && this.ca !== undefined) options.ca = this.ca;
		if (request.signal) options.signal = request.signal;
		return new Promise((resolve, reject) => {
			const sent = (tls ? https : http).request(options);
			sent.on("error", reject);
			sent.setTimeout(request.timeoutMs, () => sent.destroy(new Error(`no answer for ${request.timeoutMs} ms`)));
			sent.on("response", (body) => resolve({ status: body.statusCode ?? 0, body }));
			sent.end(request.body);
		});
	}
}

export async function textOf(answer: Answer, address: string, operation: string): Promise<string> {
	const decoder = new TextDecoder();
	let text = "";
	try {
		for await (const chunk of answer.body) text += decoder.decode(chunk, { stream: true });
	} catch (error) {
		throw new ApiError(0, `${address}: ${(error as Error).message}`, operation);
	}
	return text + decoder.decode();
}

/** The lines of a body, without their ends. */
export async function* linesOf(answer: Answer): AsyncGenerator<string> {
	const decoder = new TextDecoder();
	let rest = "";
	for await (const chunk of answer.body) {
		const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
		rest = parts.pop()!;
		for (const line of parts) yield line.replace(/\r$/, "");
	}
}
