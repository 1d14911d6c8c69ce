// SPDX-License-Identifier: Apache-2.0
// How much is enforced: of a sidecar, of a daemon, of one of its sandboxes; and which those are.
import { get } from "./api.js";
import { $, fill, h, row, table, time } from "./dom.js";
import { clock, count, literal, plain, some } from "./text.js";

const SHOWN = 200;
const ASKED = 40, ASK_MS = 30000; // whose own state is asked for, one after the other, and when again
const COLUMNS = [["Sandbox", "mono what"], ["Guards", "mono why"], ["Policy", ""], ["State", "why"], ["Denied", "n"], ["To review", "n"]];
const FULL = "guarded in full";
const MODES = { deny_all: "denies everything", allow_all: "allows everything", enforcing: "enforcing" };
let list = [], states = new Map(), round = 0;

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

function stateWord(s) {
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

// ---- the sandboxes of a daemon ----

const where = (s) => [s.kind, s[s.kind] ?? s.where ?? ""].filter(Boolean).map(plain).join(" ");

function stateOf(id) {
	const s = states.get(id);

	if (!s)
		return "";
	if (s.fault)
		return plain(s.fault);
	const word = stateWord(s), more = s.closed ? plain(s.closed) : s.degradations.map((d) => plain(d.what)).join(", ");

	return word === FULL ? word : h("span", { class: "bad" }, more ? `${word}: ${more}` : word);
}

const orders = {
	denies: (a, b) => (b.denies ?? 0) - (a.denies ?? 0),
	id: (a, b) => (a.id < b.id ? -1 : 1),
};

function found() {
	const text = $("sandboxes-q").value.trim().toLowerCase();

	const wanted = list.filter((s) => !text || `${s.id} ${where(s)}`.toLowerCase().includes(text));

	return $("sandboxes-by").value ? wanted.sort(orders[$("sandboxes-by").value]) : wanted;
}

function drawList() {
	const rows = found();

	$("sandboxes-n").textContent = rows.length === list.length ? count(list.length) : `${count(rows.length)} of ${count(list.length)}`;
	const focused = document.activeElement?.closest?.("#sandboxes-list a")?.getAttribute("href");
	fill("sandboxes-list", rows.length
		? table(COLUMNS, rows.slice(0, SHOWN).map((s) => row(COLUMNS, [
			h("a", { href: `#s=${encodeURIComponent(s.id)}` }, plain(s.id)), where(s),
			`${policyMode(s.policyMode)}, ${some(s.rules ?? 0, "rule")}`, stateOf(s.id),
			Number.isInteger(s.denies) ? count(s.denies) : "", states.get(s.id)?.tasks ?? ""])))
		: h("p", { class: "quiet" }, list.length ? "No sandbox is like that." : "Nothing is attached: weir attach adds a sandbox."),
		rows.length > SHOWN ? h("p", { class: "quiet" }, `The first ${SHOWN} are shown.`) : "");
	if (focused)
		[...document.querySelectorAll("#sandboxes-list a")].find((a) => a.getAttribute("href") === focused)?.focus();
}

async function ask(id, signal) {
	const path = `sandboxes/${encodeURIComponent(id)}/`;
	const s = await get(`${path}status`, signal).catch((e) => ({ fault: e.message }));

	if (!s.fault)
		s.tasks = await get(`${path}review`, signal).then((r) => count(r.tasks.length), () => "");
	s.asked = Date.now();
	if (!signal.aborted)
		states.set(id, s);
}

// Something happened to it: it is asked again soon.
export function touch(id) {
	if (states.has(id))
		states.get(id).asked = 0;
}

export async function loadList(signal) {
	const mine = ++round;

	list = (await get("sandboxes", signal)).sandboxes;
	drawList();
	const due = found().slice(0, ASKED).filter((s) => !(states.get(s.id)?.asked > Date.now() - ASK_MS));
	for (const s of due) {
		if (mine !== round || signal.aborted)
			return;
		await ask(s.id, signal);
	}
	drawList();
}

export function resetList() {
	list = [];
	states = new Map();
	round++;
	fill("sandboxes-list");
}

export function start() {
	$("sandboxes-q").addEventListener("input", drawList);
	$("sandboxes-by").addEventListener("change", drawList);
}
