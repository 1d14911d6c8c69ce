// SPDX-License-Identifier: Apache-2.0
import type { Policy, Rule } from "./schema.js";

/** A rule, with the names that weir-policy(5) and OpenSandbox have on the wire. */
export type EgressRule = Rule & { action: "allow" | "deny" | "ask" };

/** What a sandbox may reach. Nothing said is deny all. `require_full_isolation`: weaker enforcement is an error. */
export type NetworkPolicy = Omit<Policy, "egress" | "defaultAction"> & {
	egress?: readonly EgressRule[];
	defaultAction?: "allow" | "deny" | "ask";
	require_full_isolation?: boolean;
	extends?: readonly string[];
};
