// SPDX-License-Identifier: Apache-2.0
// How much happened when, and what most of it was about: the tile of a day's denials, the time line, the top talkers.
import { get } from "./api.js";
import { draw as drawChart, point, spark } from "./chart.js";
import { $, fill, h, row, say, seldom, show, table, time, topLine } from "./dom.js";
import { bytes, clock, count, literal, plain, short } from "./text.js";

const MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const RANGES = { hour: [HOUR, 60], day: [DAY, 96], week: [7 * DAY, 168] };
const BUCKETS = 120, NARROWEST = 5 * MINUTE, WIDEST = 31 * DAY;
const TOP = 8, EVERY_MS = 20000, SOON_MS = 4000; // how often it is asked for, and when something has happened
const COLUMNS = [["From", "t"], ["Denied", "n"], ["Limited", "n"], ["Allowed", "n"], ["Sent", "n"]];
let base = "", many = false, data = null, fixed = null; // fixed: { since, until } that somebody chose
let asked = {}, touched = false, pick = () => {}, moved = () => {}, fallback = () => [];

const kind = () => document.querySelector("input[name=range]:checked").value;
const isStored = (e) => e.status !== 404;

// The range that is shown, up to now unless it was chosen.
export function span() {
	if (fixed)
		return fixed;
	const until = Date.now();
	return { since: until - RANGES[kind()][0], until };
}

export const isFixed = () => Boolean(fixed);

const query = (s, more) => new URLSearchParams({ since: new Date(s.since).toISOString(), until: new Date(s.until).toISOString(), ...more });

// ---- without a store: what the page has seen itself ----

function sumUp(s, buckets) {
	const step = Math.max(MINUTE, Math.ceil((s.until - s.since) / buckets / MINUTE) * MINUTE);
	const since = Math.floor(s.since / step) * step, n = Math.floor((s.until - 1) / step) - since / step + 1;
	const sums = Object.fromEntries(["allow", "deny", "limit", "fail", "bytes"].map((k) => [k, new Array(n).fill(0)]));

	for (const e of fallback()) {
		const i = Math.floor((Date.parse(e.ts) - since) / step);
		if (!(i >= 0 && i < n))
			continue;
		if (sums[e.action])
			sums[e.action][i] += e.packets ?? 1;
		if (e.action === "allow")
			sums.bytes[i] += e.bytes ?? 0;
	}
	return { since, step, ...sums };
}

function topOf(s, of, by) {
	const keys = { address: (e) => e.remote_ip, name: (e) => e.name, destination: (e) => e.name ?? e.remote_ip, sandbox: (e) => e.sandbox };
	const sums = new Map();

	for (const e of fallback()) {
		const key = keys[by](e), t = Date.parse(e.ts);
		if (!key || e.action !== of || t < s.since || t >= s.until)
			continue;
		const sum = sums.get(key) ?? { key, packets: 0, bytes: 0 };
		sum.packets += e.packets ?? 1;
		sum.bytes += e.bytes ?? 0;
		sums.set(key, sum);
	}
	const most = of === "allow" ? (a, b) => b.bytes - a.bytes : (a, b) => b.packets - a.packets;
	return { top: [...sums.values()].sort(most).slice(0, TOP), complete: true };
}

async function activity(s, buckets, signal) {
	try {
		const a = await get(`${base}activity?${query(s, { buckets })}`, signal);
		return { ...a, since: Date.parse(a.since), step: a.step * 1000 };
	} catch (e) {
		if (isStored(e))
			throw e;
		return sumUp(s, buckets);
	}
}

async function top(s, of, by, signal) {
	try {
		return await get(`${base}top?${query(s, { of, by, limit: TOP })}`, signal);
	} catch (e) {
		if (isStored(e))
			throw e;
		return topOf(s, of, by);
	}
}

// ---- the tile ----

const sum = (list) => list.reduce((a, b) => a + b, 0);

function trend(now, before) {
	if (now === before)
		return "as the day before";
	if (before === 0)
		return "none the day before";
	const part = Math.round((now - before) / before * 100);
	return `${part > 0 ? "▲" : "▼"} ${part > 999 ? `${Math.round(now / before)} times` : `${Math.abs(part)} %`} ${part > 0 ? "more" : "less"} than the day before`;
}

const look = (key, text) => h("button", { type: "button", class: "key name mono", "aria-label": `${text}: show its events`,
	on: { click: () => pick(key) } }, text);

function tops(id, t, empty) {
	const most = Math.max(...t.top.map((r) => r.packets), 0);

	fill(id, t.top.length ? t.top.map((r) => topLine(look(r.key, literal(r.key)), count(r.packets), r.packets, most))
		: h("li", { class: "quiet" }, empty), t.complete ? "" : h("li", { class: "quiet" }, "Of the newest alone: there is too much to add up."));
}

async function loadTile(signal) {
	const until = Date.now(), hours = (HOUR - 1 + until) - (HOUR - 1 + until) % HOUR; // sums are by the hour
	const a = await activity({ since: until - 2 * DAY, until }, 96, signal);
	const half = Math.floor(a.deny.length / 2), day = a.deny.slice(-half), s = { since: hours - DAY, until: hours };
	const [addresses, names] = await Promise.all([top(s, "deny", "address", signal), top(s, "deny", "name", signal)]);

	if (signal.aborted)
		return;
	$("tile-n").textContent = count(sum(day));
	$("tile").classList.toggle("red", sum(day) > 0);
	$("tile-trend").textContent = sum(day) || sum(a.deny) ? trend(sum(day), sum(a.deny.slice(0, -half))) : "nothing was refused";
	fill("tile-spark", spark(day));
	tops("tile-addresses", addresses, "Nothing that was sent to an address.");
	tops("tile-names", names, "No name.");
}

// ---- talkers ----

async function loadTalkers(signal) {
	const by = many ? document.querySelector("input[name=talk]:checked").value : "destination";
	const t = await top(span(), "allow", by, signal), most = Math.max(...t.top.map((r) => r.bytes), 0);

	if (signal.aborted)
		return;
	$("talkers-n").textContent = t.top.length ? `by bytes sent${t.complete ? "" : ", of the newest events"}` : "";
	const shown = (r) => (by === "sandbox" ? h("a", { class: "name mono", href: `#s=${encodeURIComponent(r.key)}` }, plain(r.key)) : look(r.key, literal(r.key)));
	fill("talkers-list", t.top.length ? t.top.map((r) => topLine(shown(r), bytes(r.bytes), r.bytes, most))
		: h("li", { class: "quiet" }, "Nothing was sent. What is allowed is told once a minute, at the end of it."));
}

// ---- the time line ----

const between = (from, to) => `${clock(new Date(from).toISOString())} to ${clock(new Date(to).toISOString())}`;
const words = (i) => `${between(data.since + i * data.step, data.since + (i + 1) * data.step)}: ${count(data.deny[i])} denied, ` +
	`${count(data.limit[i])} limited, ${count(data.allow[i])} allowed, ${bytes(data.bytes[i])} sent`;

function drawTable() {
	const some = data.deny.map((_, i) => i).filter((i) => data.deny[i] || data.limit[i] || data.allow[i]).reverse();

	if (!$("chart-more").open)
		return;
	fill("chart-table", some.length ? table(COLUMNS, some.map((i) => row(COLUMNS, [clock(new Date(data.since + i * data.step).toISOString()),
		count(data.deny[i]), count(data.limit[i]), count(data.allow[i]), bytes(data.bytes[i])]))) : h("p", { class: "quiet" }, "Nothing."));
}

function drawLine() {
	if (!data)
		return;
	const total = `${count(sum(data.deny))} denied, ${count(sum(data.limit))} limited, ${count(sum(data.allow))} allowed, ${bytes(sum(data.bytes))} sent`;

	drawChart(data);
	$("timeline-n").textContent = fixed ? between(fixed.since, fixed.until) : "";
	$("chart-text").textContent = `${between(data.since, data.since + data.step * data.deny.length)}: ${total}.`;
	pointed(null);
	drawTable();
}

function pointed(i) {
	$("chart-at").textContent = i === null || !data ? `${short(sum(data?.deny ?? []))} denied, ${short(sum(data?.allow ?? []))} allowed, ${
		bytes(sum(data?.bytes ?? []))} sent. Drag over the picture to look closer.` : words(i);
}

async function loadLine(signal) {
	const s = span(), got = await activity(s, fixed ? BUCKETS : RANGES[kind()][1], signal);

	if (!signal.aborted) {
		data = got;
		drawLine();
	}
}

// ---- moving ----

let current = null; // what is asked for the present view
function go(to) {
	const width = to ? Math.max(NARROWEST, Math.min(WIDEST, to.until - to.since)) : 0, middle = to ? (to.since + to.until) / 2 : 0;

	fixed = to ? { since: Math.floor((middle - width / 2) / MINUTE) * MINUTE, until: Math.ceil((middle + width / 2) / MINUTE) * MINUTE } : null;
	show("now", Boolean(fixed));
	asked = { ...asked, line: 0, talkers: 0 };
	if (current)
		load(base, current).catch(() => {});
	moved();
	say(fixed ? `Shown: ${between(fixed.since, fixed.until)}` : "Shown: up to now");
}

function shift(part, factor) {
	const s = span(), width = (s.until - s.since) * factor, middle = (s.since + s.until) / 2 + (s.until - s.since) * part;
	go({ since: middle - width / 2, until: middle + width / 2 });
}

// What is due is asked for. Rejects as get() does.
export async function load(path, signal) {
	const now = Date.now();
	const due = (what, ms) => now - (asked[what] ?? 0) >= (touched ? SOON_MS : ms) && (asked[what] = now);

	current = signal;
	base = path;
	const all = [due("line", fixed ? 5 * EVERY_MS : EVERY_MS) && loadLine(signal), due("talkers", EVERY_MS) && loadTalkers(signal),
		due("tile", EVERY_MS) && loadTile(signal)];
	touched &&= !all[2];
	await Promise.all(all);
}

// Something has happened.
export const touch = () => { touched = true; };

export function reset(path, ofMany) {
	base = path;
	many = ofMany;
	data = null;
	fixed = null;
	asked = {};
	current = null;
	show("now", false);
	show("talkers-by", ofMany);
	["tile-addresses", "tile-names", "tile-spark", "talkers-list", "chart-svg", "chart-table"].forEach((id) => fill(id));
	$("tile-n").textContent = "0";
	["tile-trend", "talkers-n", "timeline-n", "chart-at"].forEach((id) => { $(id).textContent = ""; });
	$("chart-text").textContent = "Not known yet.";
}

// onPick(text): events of that are wanted; onMoved(): the range is another one; seen(): the events that the page has.
export function start(onPick, onMoved, seen) {
	pick = onPick;
	moved = onMoved;
	fallback = seen;
	document.querySelectorAll("input[name=range]").forEach((e) => e.addEventListener("change", () => go(null)));
	document.querySelectorAll("input[name=talk]").forEach((e) => e.addEventListener("change", () => current && loadTalkers(current).catch(() => {})));
	$("earlier").addEventListener("click", () => shift(-.5, 1));
	$("later").addEventListener("click", () => shift(.5, 1));
	$("closer").addEventListener("click", () => shift(0, .5));
	$("wider").addEventListener("click", () => shift(0, 2));
	$("now").addEventListener("click", () => { go(null); $("earlier").focus(); });
	$("chart-more").addEventListener("toggle", () => data && drawTable());
	point(() => data?.deny.length ?? 0, pointed, (from, to) => go({ since: data.since + from * data.step, until: data.since + to * data.step }));
	new ResizeObserver(seldom(drawLine, 100)).observe($("chart"));
}
