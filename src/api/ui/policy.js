// SPDX-License-Identifier: Apache-2.0
// The policy in force, rule by rule.
import { get } from "./api.js";
import { $, fill, h, row, table } from "./dom.js";
import { count, literal, plain } from "./text.js";

const SHOWN = 300, COLUMNS = [["#", "i"], ["Action", "a"], ["Target", "mono what"], ["Ports", "mono"], ["More", "why"]];
const DEFAULTS = { allow: "is allowed", ask: "asks" };
let rules = [], found = ""; // found: by which state of the API

// What else a rule says: "private: true · comment: …"
const more = (r) => Object.entries(r).filter(([k]) => !["action", "target", "ports"].includes(k)).map(([k, v]) =>
	`${plain(k)}: ${plain(typeof v === "string" ? v : JSON.stringify(v))}`).join(" · ");

function draw() {
	const text = $("policy-q").value.trim().toLowerCase();
	const list = rules.map((r, i) => [i + 1, r]).filter(([, r]) => !text || JSON.stringify(r).toLowerCase().includes(text));

	$("policy-n").textContent = rules.length ? count(rules.length) : "";
	fill("policy-list", list.length
		? table(COLUMNS, list.slice(0, SHOWN).map(([i, r]) => row(COLUMNS, [String(i),
			h("span", { class: `tag ${literal(r.action ?? "deny")}` }, literal(r.action ?? "deny")),
			h("span", { class: "name" }, literal(r.target)), (r.ports ?? []).map(literal).join(", "), more(r)])))
		: h("p", { class: "quiet" }, rules.length ? "No rule is like that." : "It has no rules."),
		list.length > SHOWN ? h("p", { class: "quiet" }, `The first ${SHOWN} of ${count(list.length)} are shown.`) : "");
}

// @version: it is asked for again when this is another one.
export async function load(base, version, signal) {
	if (found === version)
		return;
	const answer = await get(`${base}policy`, signal);

	found = version;
	const { egress = [], defaultAction = "deny", ...rest } = answer.policy;
	rules = egress ?? [];
	$("policy-top").textContent = [`What no rule names ${DEFAULTS[defaultAction] ?? "is denied"}`,
		...Object.entries(rest).map(([k, v]) => `${plain(k)}: ${plain(typeof v === "string" ? v : JSON.stringify(v))}`)].join(" · ");
	draw();
}

export function reset() {
	rules = [];
	found = "";
	$("policy-top").textContent = "";
	draw();
}

export function start() {
	$("policy-q").addEventListener("input", draw);
}
