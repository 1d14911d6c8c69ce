// SPDX-License-Identifier: Apache-2.0
// What the SDK uses of Node, and no more, so that it is built without another package. No public type refers to it.

declare module "node:http" {
	import { Readable, Writable } from "node:stream";
	export interface IncomingMessage extends Readable {
		statusCode?: number;
	}
	export interface ClientRequest extends Writable {
		on(event: "response", listener: (answer: IncomingMessage) => void): this;
		on(event: "error", listener: (error: Error) => void): this;
		setTimeout(ms: number, listener: () => void): this;
		destroy(error?: Error): this;
		end(body?: string | Uint8Array): this;
	}
	export interface RequestOptions {
		socketPath?: string;
		host?: string;
		port?: number | string;
		path?: string;
		method?: string;
		headers?: Record<string, string>;
		ca?: string | Uint8Array;
		signal?: AbortSignal;
		agent?: false;
	}
	export function request(options: RequestOptions): ClientRequest;
}
declare module "node:https" {
	export { request } from "node:http";
}
declare module "node:stream" {
	export interface Readable extends AsyncIterable<Uint8Array> {
		setEncoding(name: string): this;
		destroy(error?: Error): this;
		on(event: string, listener: (value: any) => void): this;
		resume(): this;
	}
	export interface Writable {
		end(data?: string | Uint8Array): this;
		write(data: string | Uint8Array): boolean;
		on(event: string, listener: (value: any) => void): this;
		destroy(error?: Error): this;
	}
}
declare module "node:child_process" {
	import { Readable, Writable } from "node:stream";
	export interface ChildProcess {
		readonly pid?: number;
		readonly exitCode: number | null;
		readonly signalCode: string | null;
		readonly stdio: (Readable | Writable | null)[];
		readonly stderr: Readable | null;
		kill(signal?: string): boolean;
		on(event: "error", listener: (error: Error) => void): this;
		on(event: "close", listener: (code: number | null, signal: string | null) => void): this;
	}
	export function spawn(program: string, args: string[], options: { stdio: string[]; env?: Record<string, string | undefined> }): ChildProcess;
}
declare module "node:fs/promises" {
	export function mkdtemp(prefix: string): Promise<string>;
	export function writeFile(path: string, data: string, options: { mode: number }): Promise<void>;
	export function rm(path: string, options: { recursive: boolean; force: boolean }): Promise<void>;
}
declare module "node:os" {
	export function tmpdir(): string;
}
declare module "node:path" {
	export function join(...parts: string[]): string;
}
declare const process: { readonly env: Record<string, string | undefined> };
declare class AbortSignal {
	readonly aborted: boolean;
}
declare class TextDecoder {
	constructor(encoding?: string);
	decode(data?: Uint8Array, options?: { stream?: boolean }): string;
}
declare class TextEncoder {
	encode(text: string): Uint8Array;
}
declare class URL {
	constructor(text: string);
	readonly protocol: string;
	readonly hostname: string;
	readonly port: string;
}
declare function setTimeout(callback: () => void, ms: number): unknown;
declare function clearTimeout(timer: unknown): void;
