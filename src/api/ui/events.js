// SPDX-License-Identifier: Apache-2.0
// What happens, the newest first.
import { $, fill, h, row, say, seldom, table, time } from "./dom.js";
import { clock, count, literal, plain, process, remote } from "./text.js";

const KEPT = 2000, SHOWN = 200;
const PLAIN = [["Time", "t"], ["Action", "a"], ["What", "mono what"], ["Why", "why"], ["Process", "mono"], ["Packets", "n"]];
const MANY = [PLAIN[0], ["Sandbox", "mono"], ...PLAIN.slice(1)];
let kept = [], fresh = 0, paused = null, many = false;

const why = (e) => [e.limit ? `limit ${literal(e.limit)}` : "", literal(e.rule), plain(e.reason)].filter(Boolean).join(" · ");

function cells(e) {
	const to = remote(e.remote_ip, e.remote_port, e.protocol);
	const all = [time(e.ts, clock(e.ts)), h("span", { class: `tag ${e.action === "deny" ? "deny" : ""}` }, literal(e.action)),
		[h("span", { class: "name" }, literal(e.name)), e.name && to ? " " : "", h("span", { class: "quiet" }, to)],
		why(e), process(e), count(e.packets)];

	if (many)
		all.splice(1, 0, plain(e.sandbox));
	return all;
}

function wanted() {
	const action = $("events-action").value, text = $("events-q").value.trim().toLowerCase();

	return (e) => (!action || e.action === action) && (!text ||
		[e.name, e.remote_ip, e.rule, e.reason, e.command, e.sandbox, remote(e.remote_ip, e.remote_port)].some(
			(s) => String(s ?? "").toLowerCase().includes(text)));
}

function draw() {
	const columns = many ? MANY : PLAIN, from = paused ?? kept, found = from.filter(wanted());
	const held = paused ? fresh : 0;

	$("events-n").textContent = found.length === from.length ? count(from.length) : `${count(found.length)} of ${count(from.length)}`;
	$("events-pause").textContent = held ? `Go on (${count(held)} new)` : paused ? "Go on" : "Pause";
	$("events-pause").setAttribute("aria-pressed", String(Boolean(paused)));
	fill("events-list", found.length
		? table(columns, found.slice(0, SHOWN).map((e) => row(columns, cells(e))))
		: h("p", { class: "quiet" }, from.length ? "Nothing that was kept is like that." : "Nothing has happened yet."),
		found.length > SHOWN ? h("p", { class: "quiet" }, `The newest ${SHOWN} are shown.`) : "");
}
const drawSoon = seldom(draw, 250);

let unsaid = 0;
function tell(e) {
	if (e.action !== "deny" && e.action !== "panic")
		return;
	unsaid++;
	const what = literal(e.name) || remote(e.remote_ip, e.remote_port, e.protocol);
	sayDenied(unsaid > 1 ? `${unsaid} new refusals, the last: ${what}` : `${e.action}: ${what}`);
}
let saying = "";
const sayLater = seldom(() => { say(saying); unsaid = 0; }, 3000);
function sayDenied(text) {
	saying = text;
	sayLater();
}

// @quietly: it is from before.
export function add(e, quietly) {
	kept.unshift(e);
	kept.length = Math.min(kept.length, KEPT);
	fresh++;
	drawSoon();
	if (!quietly)
		tell(e);
}

export function reset(ofMany) {
	kept = [];
	paused = null;
	many = ofMany;
	draw();
}

export function start() {
	$("events-action").addEventListener("change", draw);
	$("events-q").addEventListener("input", draw);
	$("events-pause").addEventListener("click", () => {
		paused = paused ? null : [...kept];
		fresh = 0;
		draw();
	});
}
