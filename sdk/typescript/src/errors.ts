// SPDX-License-Identifier: Apache-2.0

/** The API answered with an error, or not at all (`status` 0). `text` is what it said. */
export class ApiError extends Error {
	constructor(readonly status: number, readonly text: string, readonly operation: string) {
		super(`${operation}: ${status === 0 ? "" : `${status}: `}${text.trim()}`);
		this.name = "ApiError";
	}
}

/** The sandbox could not be guarded, or the policy is bad input; nothing ran in it. `code` is Weir's exit status. */
export class SetupError extends Error {
	readonly status = "failed_safety_setup";
	constructor(message: string, readonly code: number) {
		super(message);
		this.name = "SetupError";
	}
}
