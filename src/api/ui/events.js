// SPDX-License-Identifier: Apache-2.0
// What happens, the newest first; and, page by page from the store, what happened in the time that the time line shows.
import { get } from "./api.js";
import { $, fill, h, row, say, seldom, show, table, time } from "./dom.js";
import { clock, count, literal, plain, process, remote } from "./text.js";
import { ask as why } from "./why.js";

const KEPT = 2000, SHOWN = 200;
const PLAIN = [["Time", "t"], ["Action", "a"], ["What", "mono what"], ["Reason", "why"], ["Process", "mono"], ["Packets", "n"], ["Why", "b"]];
const MANY = [PLAIN[0], ["Sandbox", "mono s"], ...PLAIN.slice(1)];
let seen = new Set(), kept = [], fresh = 0, paused = null, many = false, base = "", signal = null;
let page = null; // of the store: { events, next, before: [where the pages before it began], span }
let spanOf = () => ({ since: 0, until: Date.now() }), isFixed = () => false;

const reason = (e) => [e.limit ? `limit ${literal(e.limit)}` : "", literal(e.rule), plain(e.reason)].filter(Boolean).join(" · ");
const what = (e) => literal(e.name) || remote(e.remote_ip, e.remote_port, e.protocol);

function cells(e) {
	const to = remote(e.remote_ip, e.remote_port, e.protocol);
	const all = [time(e.ts, clock(e.ts)), h("span", { class: `tag ${literal(e.action)}` }, literal(e.action)),
		[h("span", { class: "name" }, literal(e.name)), e.name && to ? " " : "", h("span", { class: "quiet" }, to)],
		reason(e), process(e), count(e.packets),
		e.action === "deny" && what(e) ? h("button", { type: "button", class: "small", "aria-label": `Why was ${what(e)} refused?`,
			on: { click: () => why(e, many ? `sandboxes/${encodeURIComponent(e.sandbox ?? "")}/` : base) } }, "Why?") : ""];

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

function rows(list) {
	const columns = many ? MANY : PLAIN, focused = document.activeElement?.closest?.("#events-list button")?.getAttribute("aria-label");

	fill("events-list", table(columns, list.map((e) => row(columns, cells(e)))));
	if (focused)
		[...document.querySelectorAll("#events-list button")].find((b) => b.getAttribute("aria-label") === focused)?.focus();
}

function drawLive() {
	const from = paused ?? kept, found = from.filter(wanted()), held = paused ? fresh : 0;

	$("events-n").textContent = found.length === from.length ? count(from.length) : `${count(found.length)} of ${count(from.length)}`;
	$("events-pause").textContent = held ? `Go on (${count(held)} new)` : paused ? "Go on" : "Pause";
	$("events-pause").setAttribute("aria-pressed", String(Boolean(paused)));
	$("events-note").textContent = found.length > SHOWN ? `The newest ${SHOWN} are shown; Older has the others.` : "";
	if (found.length)
		rows(found.slice(0, SHOWN));
	else
		fill("events-list", h("p", { class: "quiet" }, from.length ? "Nothing that was kept is like that." : "Nothing has happened yet."));
}

function drawPage() {
	const list = page.events;

	$("events-n").textContent = "";
	$("events-note").textContent = `From the store: ${list.length ? `${clock(list.at(-1).ts)} to ${clock(list[0].ts)}` : "nothing here is like that"}${
		page.next && !list.length ? " yet; Older looks on" : ""}.`;
	if (list.length)
		rows(list);
	else
		fill("events-list");
}

function draw() {
	show("events-pause", !page);
	show("events-newer", Boolean(page));
	$("events-newer").textContent = page?.before.length > 1 ? "Newer" : isFixed() ? "Newest" : "Live";
	$("events-older").disabled = Boolean(page && !page.next);
	(page ? drawPage : drawLive)();
}
const drawSoon = seldom(() => { if (!page) draw(); }, 250);

// ---- pages of the store ----

// The page that begins at @at, "" for the newest one; @before: where those in front of it began.
async function turn(span, at, before) {
	const query = new URLSearchParams({ since: new Date(span.since).toISOString(), until: new Date(span.until).toISOString(), limit: SHOWN });
	const mine = page = { events: page?.events ?? [], next: null, before, span };

	if ($("events-action").value)
		query.set("action", $("events-action").value);
	if ($("events-q").value.trim())
		query.set("find", $("events-q").value.trim());
	if (at)
		query.set("before", at);
	try {
		const got = await get(`${base}events/stored?${query}`, signal);
		if (page !== mine)
			return; // somebody went on meanwhile
		page = { ...mine, events: got.events, next: got.next };
		draw();
		$("events-list").scrollTop = 0;
	} catch (e) {
		if (page !== mine || e.name === "AbortError")
			return;
		page = null;
		draw();
		$("events-note").textContent = e.status === 404 ? "Older events are not stored (--state-dir)." : plain(e.message);
	}
}

function older() {
	if (page)
		turn(page.span, page.next, [...page.before, page.next]);
	else
		turn({ since: Math.min(spanOf().since, Date.now() - 31 * 86400000), until: Date.now() + 1000 }, "", [""]);
}

function newer() {
	if (page.before.length > 1)
		turn(page.span, page.before.at(-2), page.before.slice(0, -1));
	else if (isFixed())
		turn(page.span, "", [""]);
	else
		live();
}

function live() {
	page = null;
	draw();
}

// The time line shows another time: so do the events.
export function follow() {
	if (isFixed())
		turn(spanOf(), "", [""]);
	else
		live();
}

// Those with @text in them.
export function find(text) {
	$("events-q").value = text;
	changed();
	$("events-h").scrollIntoView({ block: "nearest" });
	$("events-q").focus();
}

function changed() {
	if (page)
		turnSoon();
	else
		draw();
}
const turnSoon = seldom(() => page && turn(page.span, "", [""]), 300);

// ---- as it happens ----

let unsaid = 0;
function tell(e) {
	if (e.action !== "deny" && e.action !== "panic")
		return;
	unsaid++;
	sayDenied(unsaid > 1 ? `${unsaid} new refusals, the last: ${what(e)}` : `${e.action}: ${what(e)}`);
}
let saying = "";
const sayLater = seldom(() => { say(saying); unsaid = 0; }, 3000);
function sayDenied(text) {
	saying = text;
	sayLater();
}

// What comes from the stream may be in the store as well.
const identity = (e) => [e.ts, e.action, e.sandbox, e.name, e.remote_ip, e.remote_port, e.protocol, e.query_type, e.pid, e.reason].join("|");

function isNew(e) {
	if (seen.has(identity(e)))
		return false;
	if (seen.size > 4 * KEPT)
		seen = new Set();
	seen.add(identity(e));
	return true;
}

// Those of the store, the newest first, from before all that came by the stream.
export function addOlder(list) {
	kept = [...kept, ...list.filter(isNew)].slice(0, KEPT);
	drawSoon();
}

// @quietly: it is from before.
export function add(e, quietly) {
	if (!isNew(e))
		return;
	kept.unshift(e);
	kept.length = Math.min(kept.length, KEPT);
	fresh++;
	drawSoon();
	if (!quietly)
		tell(e);
}

export const all = () => kept;

export function reset(path, ofMany, until) {
	kept = [];
	seen = new Set();
	paused = null;
	page = null;
	base = path;
	many = ofMany;
	signal = until;
	$("events-q").value = $("events-action").value = "";
	draw();
}

// span(): the time that the time line shows, fixed(): it isn't just up to now.
export function start(span, fixed) {
	spanOf = span;
	isFixed = fixed;
	$("events-action").addEventListener("change", changed);
	$("events-q").addEventListener("input", changed);
	$("events-older").addEventListener("click", older);
	$("events-newer").addEventListener("click", newer);
	$("events-pause").addEventListener("click", () => {
		paused = paused ? null : [...kept];
		fresh = 0;
		draw();
	});
}
