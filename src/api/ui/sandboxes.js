// SPDX-License-Identifier: Apache-2.0
// The sandboxes of a daemon as squares: who is red, at a glance.
import { get } from "./api.js";
import { $, fill, h } from "./dom.js";
import * as events from "./events.js";
import { FULL, policyMode, stateWord } from "./state.js";
import { clock, count, plain, short, some } from "./text.js";

const SHOWN = 400;
const ASKED = 40, ASK_MS = 30000; // whose own state is asked for, one after the other, and when again
const HOUR_MS = 3600000, RECENT_MS = 10000; // how often the denials of the last hour are asked for
let list = [], states = new Map(), recent = new Map(), recentAt = 0, recentOf = 0, isOld = false, round = 0, onGrants = () => {};

const where = (s) => [s.kind, s[s.kind] ?? s.where ?? ""].filter(Boolean).map(plain).join(" ");

// [class, words]: red is weak, closed or denied something within the hour; amber waits for somebody; nobody has asked yet what is unknown.
function judge(s) {
	const known = states.get(s.id), denied = recent.get(s.id) ?? 0;
	const word = known && !known.fault ? stateWord(known) : "";
	const weak = known?.closed ? plain(known.closed) : (known?.degradations ?? []).map((d) => plain(d.what)).join(", ");

	if (known?.fault)
		return ["weak", plain(known.fault)];
	if (word && word !== FULL)
		return ["weak", weak ? `${word}: ${weak}` : word];
	if (denied)
		return ["denied", `${short(denied)} denied / h`];
	if (known?.tasks)
		return ["waits", `${some(known.tasks, "request")} to decide`];
	return known ? ["fine", word] : ["unknown", "…"];
}

const RANK = { weak: 0, denied: 1, waits: 2, unknown: 3, fine: 4 };
const orders = {
	"": (a, b) => RANK[judge(a)[0]] - RANK[judge(b)[0]] || (recent.get(b.id) ?? 0) - (recent.get(a.id) ?? 0),
	denies: (a, b) => (recent.get(b.id) ?? 0) - (recent.get(a.id) ?? 0) || (b.denies ?? 0) - (a.denies ?? 0),
	id: (a, b) => (a.id < b.id ? -1 : 1),
};

function found() {
	const text = $("sandboxes-q").value.trim().toLowerCase();

	return list.filter((s) => !text || `${s.id} ${where(s)}`.toLowerCase().includes(text)).sort(orders[$("sandboxes-by").value]);
}

function square(s) {
	const [kind, words] = judge(s), tasks = states.get(s.id)?.tasks;

	return h("li", { class: `square ${kind}` }, h("a", { href: `#s=${encodeURIComponent(s.id)}`, class: "name mono" }, plain(s.id)),
		h("span", { class: "words" }, words), h("span", { class: "quiet" }, where(s)),
		h("span", { class: "quiet" }, `${policyMode(s.policyMode)}, ${some(s.rules ?? 0, "rule")}`),
		h("span", { class: "quiet" }, tasks ? `${count(tasks)} to decide` : ""));
}

function draw() {
	const all = found(), red = list.filter((s) => RANK[judge(s)[0]] < 2).length;
	const focused = document.activeElement?.closest?.("#sandboxes-list a")?.getAttribute("href");

	$("sandboxes-n").textContent = `${all.length === list.length ? count(list.length) : `${count(all.length)} of ${count(list.length)}`}${red ? `, ${count(red)} red` : ""}`;
	fill("sandboxes-list", all.slice(0, SHOWN).map(square));
	$("sandboxes-note").textContent = !list.length ? "Nothing is attached: weir attach adds a sandbox." : !all.length ? "No sandbox is like that."
		: [all.length > SHOWN ? `The first ${SHOWN} are shown.` : "", isOld ? `What was denied is ${recentOf ? `of ${clock(new Date(recentOf).toISOString())}` : "not known"}: the store did not answer.` : ""].filter(Boolean).join(" ");
	if (focused)
		[...document.querySelectorAll("#sandboxes-list a")].find((a) => a.getAttribute("href") === focused)?.focus();
}

async function ask(id, signal) {
	const path = `sandboxes/${encodeURIComponent(id)}/`;
	const s = await get(`${path}status`, signal).catch((e) => ({ fault: e.message }));

	if (!s.fault)
		s.tasks = await get(`${path}review`, signal).then((r) => r.tasks.length, () => 0);
	s.asked = Date.now();
	if (!signal.aborted)
		states.set(id, s);
}

// Something happened to it: it is asked again soon.
export function touch(id) {
	if (states.has(id))
		states.get(id).asked = 0;
	recentAt = 0;
}

// Without a store: of the events that the page has.
function seen(since) {
	const sums = new Map();

	for (const e of events.all())
		if (e.action === "deny" && Date.parse(e.ts) >= Date.parse(since))
			sums.set(e.sandbox, (sums.get(e.sandbox) ?? 0) + (e.packets ?? 1));
	return [...sums].map(([key, packets]) => ({ key, packets }));
}

async function loadRecent(signal) {
	if (Date.now() - recentAt < RECENT_MS)
		return;
	recentAt = Date.now();
	const since = new Date(Date.now() - HOUR_MS).toISOString();
	const got = await get(`top?of=deny&by=sandbox&since=${since}&limit=1000`, signal).catch((e) => (e.status === 404 ? { top: seen(since) } : null));
	isOld = !got;
	if (!got)
		return; // what was known stays
	recentOf = recentAt;
	recent = new Map(got.top.map((t) => [t.key, t.packets]));
}

export async function load(signal) {
	const mine = ++round;

	list = (await get("sandboxes", signal)).sandboxes;
	await loadRecent(signal);
	draw();
	const asked = (s) => states.get(s.id)?.asked ?? 0;
	const due = found().filter((s) => asked(s) <= Date.now() - ASK_MS).sort((a, b) => asked(a) - asked(b)).slice(0, ASKED);
	for (const s of due) {
		if (mine !== round || signal.aborted)
			return;
		await ask(s.id, signal);
	}
	draw();
	onGrants(list.map((s) => [s.id, states.get(s.id)?.grants, states.get(s.id)?.asked]));
}

export function reset() {
	list = [];
	states = new Map();
	recent = new Map();
	recentAt = recentOf = 0;
	isOld = false;
	round++;
	fill("sandboxes-list");
}

export function start(grants) {
	onGrants = grants;
	$("sandboxes-q").addEventListener("input", draw);
	$("sandboxes-by").addEventListener("change", draw);
}
