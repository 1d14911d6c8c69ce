// SPDX-License-Identifier: Apache-2.0
// Tasks: what was denied and a rule could allow, with what accepting it changes, before it is accepted.
import { get, post } from "./api.js";
import { $, fill, h, row, say, show, table, time } from "./dom.js";
import { clock, count, left, literal, plain, remote, some } from "./text.js";

const LENGTHS = [["10m", "10 min", "for 10 minutes"], ["1h", "1 h", "for an hour"], ["", "Always", "always"]];
const STEP = 12, DECIDED = [["Time", "t"], ["What", "mono what"], ["Decided", ""], ["By", ""]];
let base = "", ofVersion = "", ofMany = false, readOnly = false, changed = () => {}, items = new Map(), shown = STEP, tasks = [];
let stale = true; // some task was decided, here or elsewhere

const isAddress = (text) => text.includes(":") || /^[0-9.]+$/.test(text);

function what(t) {
	if (!t.destination)
		return "more destinations than are kept apart";
	return isAddress(t.destination) ? remote(t.destination, t.port, t.protocol) : literal(t.destination);
}

function summary(t) {
	const first = clock(t.first), last = clock(t.last);
	const parts = [ofMany ? `of ${literal(t.sandbox)}` : "", t.port && t.destination && !isAddress(t.destination) ? `port ${t.port}/${literal(t.protocol)}` : "", t.looks_like ? `looks like ${literal(t.looks_like)} (allowed)` : "", some(t.packets ?? 0, "refusal"),
		first === last ? `at ${last}` : `first ${first}, last ${last}`];
	return parts.filter(Boolean).join(" · ");
}

// ---- what asks, and for how long it waits ----

const QUERY_MS = 4000, TIMEOUT_S = 60; // of a lookup; of a connection, where the policy says nothing
let asks = new Map(), timeouts = new Map(); // sandbox and destination: until when; sandbox: milliseconds

const keyOf = (sandbox, destination) => `${sandbox ?? ""} ${destination ?? ""}`;
const ends = (t) => asks.get(keyOf(t.sandbox, t.destination)) ?? 0;

async function timeoutOf(sandbox) {
	if (!timeouts.has(sandbox)) {
		const path = ofMany ? `sandboxes/${encodeURIComponent(sandbox)}/` : base;
		const mine = timeouts, limits = await get(`${path}policy`).then((p) => p.policy.limits ?? {}, () => null);
		if (!limits)
			return TIMEOUT_S * 1000;
		mine.set(sandbox, (limits.ask_timeout ?? TIMEOUT_S) * 1000);
		return mine.get(sandbox);
	}
	return timeouts.get(sandbox);
}

// An event of something that waits until somebody grants it.
export async function asked(e) {
	const now = Date.now(), what_ = e.name ?? e.remote_ip;

	if (e.layer === "address")
		return; // it was refused
	const until = now + (e.layer === "dns" ? QUERY_MS : await timeoutOf(e.sandbox ?? ""));
	for (const [key, end] of asks)
		if (end < now)
			asks.delete(key);
	asks.set(keyOf(e.sandbox, what_), until);
	say(`${literal(what_)} asks: it waits for ${left((until - now) / 1000)}.`);
	drawAsks();
}

function drawAsks() {
	for (const item of items.values()) {
		const wait = ends(item.task) - Date.now();
		item.wait.textContent = wait > 0 ? `asks: ${left(wait / 1000)} left` : "";
		item.element.classList.toggle("asks", wait > 0);
	}
}

function diffList(diff) {
	if (!diff)
		return h("p", { class: "quiet" }, ofMany ? "No rule can allow this, or its sandbox is gone: it can only be denied."
			: "No rule can allow this: it can only be denied.");
	if (!diff.length)
		return h("p", { class: "quiet" }, "The policy has this rule already: accepting changes nothing.");
	return h("ul", { class: "plain diff mono", "aria-label": "What accepting changes" }, diff.map((line) =>
		h("li", { class: line.startsWith("-") ? "minus" : "plus" }, literal(line))));
}

// The next one's button, or the heading: where the keyboard is when this one has gone.
function focusBeside(item) {
	const next = item.element.nextElementSibling ?? item.element.previousElementSibling;

	(next ? next.querySelector("button") : $("review-h")).focus();
}

// @length: how long an accepted rule lasts, "" for good.
async function decide(item, verb, length = "") {
	const who = $("who").value.trim() || "page";
	const buttons = item.panel.querySelectorAll("button");

	buttons.forEach((b) => { b.disabled = true; });
	item.fault.textContent = "";
	try {
		const done = await post(`${base}review/${item.task.id}/${verb}?who=${encodeURIComponent(who)}`,
			verb === "accept" ? JSON.stringify({ rule: item.rule, ...(length ? { for: length } : {}) }) : undefined);
		focusBeside(item);
		stale = true;
		remove(item.task.id);
		$("review-n").textContent = count(items.size);
		say(`${what(item.task)} is ${done.state}.`);
		changed();
	} catch (e) {
		buttons.forEach((b) => { b.disabled = false; });
		item.fault.textContent = e.status === 403 ? "Not allowed: this API changes nothing for who has no token." : e.message;
	}
}

async function open(item) {
	const opened = item.button.getAttribute("aria-expanded") !== "true";

	item.button.setAttribute("aria-expanded", String(opened));
	item.panel.hidden = !opened;
	if (!opened)
		return;
	try {
		const t = await get(`${base}review/${item.task.id}`);
		item.rule = t.rule;
		item.diff.replaceChildren(diffList(t.diff));
		item.accepts.forEach((b) => { b.hidden = !t.diff || readOnly; });
		item.dismiss.hidden = readOnly;
		item.fault.textContent = readOnly ? "This API is read-only: it has no token, so nothing can be decided here." : "";
	} catch (e) {
		item.fault.textContent = e.message;
	}
}

function make(t) {
	const item = { task: t }, name = what(t), id = `task-${t.id}`;

	item.line = h("span", { class: "quiet" });
	item.wait = h("strong", { class: "wait" });
	item.diff = h("div");
	item.fault = h("p", { class: "bad", role: "alert" });
	item.accepts = LENGTHS.map(([length, text, words]) => h("button", { type: "button", class: length ? "" : "primary", hidden: true,
		"aria-label": `Allow ${name} ${words}`, on: { click: () => decide(item, "accept", length) } }, text));
	item.dismiss = h("button", { type: "button", hidden: true, "aria-label": `Deny ${name}`,
		on: { click: () => decide(item, "dismiss") } }, "Deny");
	item.panel = h("div", { class: "panel", id, hidden: true }, item.diff, item.fault, h("p", { class: "buttons" }, item.accepts, item.dismiss));
	item.button = h("button", { type: "button", "aria-expanded": "false", "aria-controls": id, "aria-label": `Review ${name}`,
		on: { click: () => open(item) } }, "Review");
	item.element = h("li", { "data-key": String(t.id) },
		h("div", { class: "task" }, h("div", {}, h("span", { class: "mono name" }, name), " ", item.wait, item.line), item.button), item.panel);
	return item;
}

function remove(id) {
	items.get(id)?.element.remove();
	items.delete(id);
}

// What is open on the screen stays as it is while others come and go. New ones come below, so that what somebody is about
// to click doesn't move; only what asks comes on top, and that as long as nobody is at one of them.
function drawOpen() {
	const list = [...tasks].sort((a, b) => (ends(b) > Date.now()) - (ends(a) > Date.now())).slice(0, shown), wanted = new Set(list.map((t) => t.id));

	[...items.keys()].filter((id) => !wanted.has(id)).forEach(remove);
	const isUsed = $("tasks").contains(document.activeElement) || $("tasks").querySelector("[aria-expanded=true]");
	for (const t of list) {
		if (!items.has(t.id)) {
			items.set(t.id, make(t));
			$("tasks")[ends(t) && !isUsed ? "prepend" : "append"](items.get(t.id).element);
		}
		items.get(t.id).task = t;
		items.get(t.id).line.textContent = summary(t);
	}
	show("tasks-more", tasks.length > shown);
	drawAsks();
}

function drawDecided(list) {
	show("decided", list.length > 0);
	$("decided-n").textContent = count(list.length);
	list.sort((a, b) => (a.decided < b.decided ? 1 : -1));
	fill("decided-list", table(DECIDED, list.slice(0, 200).map((t) => row(DECIDED,
		[time(t.decided, clock(t.decided)), h("span", { class: "name" }, ofMany ? `${what(t)} of ${literal(t.sandbox)}` : what(t)), literal(t.state), plain(t.who)]))));
}

async function loadDecided(signal) {
	const states = await Promise.all(["accepted", "dismissed"].map((s) => get(`${base}review?state=${s}`, signal)));

	stale = false;
	drawDecided(states.flatMap((s) => s.tasks));
}

// Return: how many are open.
export async function load(signal) {
	try {
		const before = tasks;
		tasks = (await get(`${base}review`, signal)).tasks;
		const open = new Set(tasks.map((t) => t.id));
		stale ||= before.some((t) => !open.has(t.id));
		drawOpen();
		if (stale)
			await loadDecided(signal);
		$("review-n").textContent = count(tasks.length);
		$("review-note").textContent = tasks.length ? "" : "Nothing waits for a decision.";
	} catch (e) {
		if (e.name === "AbortError" || e.status === 401)
			throw e;
		$("review-n").textContent = "";
		$("review-note").textContent = e.status === 404 ? "Nothing can wait here: events are not stored (--state-dir)." : plain(e.message);
		tasks = [];
		drawOpen();
		show("decided", false);
	}
	return tasks.length;
}

// What a policy says is asked again once it is another one.
export function setVersion(version) {
	if (version !== ofVersion)
		timeouts = new Map();
	ofVersion = version;
}

export function setReadOnly(yes) {
	readOnly = yes;
}

export function reset(path, many) {
	base = path;
	ofMany = many;
	stale = true;
	asks = new Map();
	timeouts = new Map();
	tasks = [];
	shown = STEP;
	[...items.keys()].forEach(remove);
	show("decided", false);
	fill("decided-list");
	$("review-n").textContent = $("review-note").textContent = "";
}

export function start(onChanged) {
	changed = onChanged;
	setInterval(() => { if (asks.size && !document.hidden) drawAsks(); }, 1000);
	$("tasks-more").addEventListener("click", () => { shown += STEP; drawOpen(); });
}
