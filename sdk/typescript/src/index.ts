// SPDX-License-Identifier: Apache-2.0
export { Client, DAEMON_SOCKET, GuardedClient, type ClientOptions, type StreamEvent } from "./client.js";
export { ApiError, SetupError } from "./errors.js";
export type { EgressRule, NetworkPolicy } from "./policy.js";
export { Sandbox, type CommandResult, type SandboxOptions } from "./sandbox.js";
export * as schema from "./schema.js";
