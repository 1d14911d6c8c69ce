// SPDX-License-Identifier: Apache-2.0
// How much is enforced: of a sidecar, of a daemon, of one of its sandboxes.
import { $, fill, h, time } from "./dom.js";
import { clock, count, literal, plain, some } from "./text.js";

export const FULL = "guarded in full";
const MODES = { deny_all: "denies everything", allow_all: "allows everything", enforcing: "enforcing" };

export const policyMode = (m) => MODES[m] ?? literal(m);

function facts(s, isDaemon) {
	const learned = s.learned ?? {};
	const all = [
		["Enforced", literal(s.mode)],
		isDaemon ? null : ["Policy", policyMode(s.policyMode)],
		["Since", time(s.since ?? "", clock(s.since))],
		["Rules", count(s.rules)],
		["Learned", `${some(learned.names ?? 0, "name")}, ${some(learned.addresses ?? 0, "address", "addresses")}`],
		["Lookups", `${count(s.counters?.queries)}, ${count(s.counters?.queries_denied)} denied`],
		["Changes of policy", count(s.policyUpdates) + (s.policyFailures ? `, ${count(s.policyFailures)} failed` : "")],
		["Engine restarts", count(s.engineRestarts)],
		s.storeLostRows ? ["Events lost", count(s.storeLostRows)] : null,
		["Version", plain(s.version)],
	];

	return all.filter(Boolean).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)));
}

export function stateWord(s) {
	if (s.closed)
		return "closed";
	if (s.mode === "disabled")
		return "not guarded";
	return s.fullIsolation ? FULL : "guarded in part";
}

export function draw(s, isDaemon) {
	const word = stateWord(s);

	$("state").hidden = false;
	$("state").className = `pill ${word === FULL ? "good" : "bad"}`;
	$("state").textContent = word;
	fill("degradations", s.closed ? h("li", { class: "note bad" }, h("strong", {}, "closed"),
		`: ${plain(s.closed)}. Nothing is let out until somebody sets a policy.`) : "", (s.degradations ?? []).map((d) =>
		h("li", { class: "note warn" }, h("strong", {}, plain(d.what)), `: ${plain(d.reason)} `,
			d.since ? h("span", { class: "quiet" }, "(since ", time(d.since, clock(d.since)), ")") : "")));
	fill("facts", facts(s, isDaemon));
}
