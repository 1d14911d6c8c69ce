// SPDX-License-Identifier: Apache-2.0
// What was refused, added up by name, address, rule or process.
import { $, fill, h, row, seldom, table, time } from "./dom.js";
import { clock, count, literal, process, remote } from "./text.js";

const SHOWN = 200, KEYS_MAX = 5000;
const TITLES = { name: "Name", address: "Address", rule: "Rule", process: "Process" };
const keys = {
	name: (e) => literal(e.name),
	address: (e) => (e.remote_ip ? remote(e.remote_ip, e.remote_port, e.protocol) : ""),
	rule: (e) => literal(e.rule) || "no rule: the default",
	process: (e) => process(e),
};
let seen = new Set(), sums = {}, total = 0, more = false, note = "";

const by = () => document.querySelector("input[name=by]:checked").value;

// Equal refusals may come twice, from the list and from the stream.
const identity = (e) => [e.ts, e.name, e.remote_ip, e.remote_port, e.protocol, e.query_type, e.pid].join("|");

function sum(kind, e) {
	const key = keys[kind](e);
	let s = sums[kind].get(key);

	if (!key)
		return;
	if (!s) {
		if (sums[kind].size >= KEYS_MAX) {
			more = true;
			return;
		}
		sums[kind].set(key, s = { key, packets: 0, last: "", beside: "" });
	}
	s.packets += e.packets ?? 1;
	if (e.ts >= s.last) {
		s.last = e.ts;
		s.beside = (kind === "name" ? [keys.process(e), literal(e.rule)] : [literal(e.name), keys.process(e)]).filter(Boolean).join(" · ");
	}
}

function draw() {
	const kind = by(), columns = [[TITLES[kind], "mono what"], ["Refused", "n"], ["Last", "t"], [kind === "name" ? "Process, rule" : "Name, process", "why"]];
	const list = [...sums[kind].values()].sort((a, b) => b.packets - a.packets || (a.last < b.last ? 1 : -1));

	$("denies-n").textContent = note || (total ? count(total) : "");
	fill("denies-list", list.length
		? table(columns, list.slice(0, SHOWN).map((s) => row(columns,
			[h("span", { class: "name" }, s.key), count(s.packets), time(s.last, clock(s.last)), s.beside])))
		: h("p", { class: "quiet" }, total ? `None of them shows a ${kind}.` : "Nothing was refused."),
		list.length > SHOWN || more ? h("p", { class: "quiet" }, "There are more: weir denies counts all that is stored.") : "");
}
const drawSoon = seldom(draw, 500);

export function add(e) {
	const id = identity(e);

	if (e.action !== "deny" || seen.has(id))
		return;
	if (seen.size > 4 * KEYS_MAX)
		seen = new Set();
	seen.add(id);
	total += e.packets ?? 1;
	Object.keys(keys).forEach((kind) => sum(kind, e));
	drawSoon();
}

// What the store has counted, where there is one.
export function setStored(c) {
	note = c && c.from === "store" ? `${count(c.packets)} in 24 hours` : "";
	drawSoon();
}

export function reset() {
	seen = new Set();
	sums = Object.fromEntries(Object.keys(keys).map((k) => [k, new Map()]));
	total = 0;
	more = false;
	note = "";
	draw();
}

export function start() {
	document.querySelectorAll("input[name=by]").forEach((e) => e.addEventListener("change", draw));
	reset();
}
