// SPDX-License-Identifier: Apache-2.0
// What is shown when: the token, a daemon's sandboxes, one sandbox.
import * as activity from "./activity.js";
import { follow, get, Refused, setToken } from "./api.js";
import * as denies from "./denies.js";
import { $, seldom, show } from "./dom.js";
import * as editor from "./editor.js";
import * as events from "./events.js";
import * as grants from "./grants.js";
import * as policy from "./policy.js";
import * as review from "./review.js";
import * as sandboxes from "./sandboxes.js";
import * as state from "./state.js";
import { plain } from "./text.js";
import * as why from "./why.js";

const NOT_TAKEN = "The API does not take this token.";
const PAST_MS = 800, DAY_MS = 86400000; // the stream has told what it knows by then
const POLL_MS = 5000, STORE_MS = 1500; // what was denied is in the store a second later
let isDaemon = false, began = 0;
let now = new AbortController(); // what is asked for the present view
let view = { id: "", base: "", isOne: false };

function trouble(e) {
	$("trouble").textContent = e ? plain(e.message) : "";
	show("trouble", Boolean(e));
}

function leave() {
	now.abort();
	now = new AbortController();
	$("link").textContent = "";
}

// Nothing that was read with a token stays when there is none.
function forget() {
	leave();
	show("all", false);
	show("back", false);
	$("state").hidden = true;
	$("sandbox").textContent = "";
	document.title = "Weir";
	review.reset("");
	events.reset("", false, now.signal);
	activity.reset("", false);
	denies.reset();
	policy.reset();
	editor.reset("");
	sandboxes.reset();
	grants.set([]);
	why.close();
	["facts", "degradations"].forEach((id) => $(id).replaceChildren());
}

function askToken(fault) {
	forget();
	setToken("");
	$("token").value = "";
	$("login-fault").textContent = fault;
	show("login", true);
	$("token").focus();
}

// Return: false when it was an error that everything ends with.
function handled(e) {
	if (e.name === "AbortError")
		return true;
	if (e.status === 401)
		askToken(NOT_TAKEN);
	else
		trouble(e);
	return false;
}

function setTitle(open) {
	const name = view.id || $("sandbox").textContent;

	document.title = `${open ? `(${open}) ` : ""}${name ? `${name} · ` : ""}Weir`;
}

// ---- what is asked again and again ----

async function loadState(signal) {
	const s = await get(`${view.base}status`, signal);

	review.setReadOnly(Boolean(s.readOnly));
	review.setVersion(versionOf(s));
	if (view.isOne) {
		editor.setReadOnly(Boolean(s.readOnly));
		grants.set([["", s.grants, Date.now()]]);
	}
	$("sandbox").textContent = plain(view.id || s.sandboxId);
	state.draw(s, isDaemon && !view.isOne);
	return s;
}

const versionOf = (s) => [view.base, s.since, s.generation, s.policyUpdates, s.policyMode, s.rules, s.closed].join("|");

async function load() {
	const signal = now.signal;

	try {
		const s = await loadState(signal);
		if (view.isOne) {
			setTitle(await review.load(signal));
			await policy.load(view.base, versionOf(s), signal);
			denies.setStored(await get(`${view.base}denies/count?since=24h`, signal).catch(() => null));
		} else {
			setTitle(await review.load(signal));
			await sandboxes.load(signal);
		}
		await activity.load(view.base, signal);
		if (!signal.aborted)
			trouble(null);
	} catch (e) {
		if (!signal.aborted)
			handled(e);
	}
}
const loadSoon = seldom(load, STORE_MS);

function poll() {
	if (!document.hidden && !$("all").hidden)
		loadSoon();
}
const pollLater = seldom(() => setTimeout(poll, STORE_MS), 500);

// ---- one view ----

function onEvent(e) {
	const before = Date.parse(e.ts) < began;

	events.add(e, before);
	denies.add(e);
	if (before)
		return;
	if (e.action === "ask")
		review.asked(e);
	sandboxes.touch(e.sandbox);
	activity.touch();
	pollLater();
}

// What the ring of denials has, whenever the stream begins or comes back.
function loadDenies() {
	const signal = now.signal;

	if (view.isOne)
		get(`${view.base}denies?limit=1000`, signal).then((d) => signal.aborted || d.denies.forEach(denies.add), () => {});
}

// What the store has of the last day from before what the stream began with.
async function loadPast(signal) {
	const first = events.all().at(-1)?.ts ?? new Date().toISOString(), since = new Date(Date.parse(first) - DAY_MS).toISOString();
	const got = signal.aborted ? null : await get(`${view.base}events/stored?since=${since}&until=${first}&limit=500`, signal).catch(() => null);

	if (!got || signal.aborted)
		return;
	events.addOlder(got.events);
	got.events.forEach(denies.add);
}

function onState(live, reason, since) {
	began = since ?? began;
	$("link").className = live ? "link live" : "link";
	$("link").textContent = live ? ["live", plain(reason)].filter(Boolean).join(", ") : `not live: ${plain(reason)}`;
	if (!live || reason)
		return;
	loadDenies();
	if (!view.hasPast)
		setTimeout(loadPast, PAST_MS, now.signal);
	view.hasPast = true;
}

async function enter() {
	const id = new URLSearchParams(location.hash.slice(1)).get("s") ?? "";

	leave();
	const signal = now.signal;
	view = { id: isDaemon ? id : "", base: "", isOne: !isDaemon || Boolean(id) };
	if (view.id)
		view.base = `sandboxes/${encodeURIComponent(view.id)}/`;
	began = Date.now();
	review.reset(view.base, !view.isOne);
	events.reset(view.base, !view.isOne, signal);
	activity.reset(view.base, !view.isOne);
	editor.reset(view.base);
	grants.set([]);
	why.close();
	denies.reset();
	policy.reset();
	$("all").classList.toggle("many", !view.isOne);
	show("policy", view.isOne);
	show("sandboxes", !view.isOne);
	show("back", isDaemon && view.isOne);
	show("all", true);
	try {
		load();
		await follow(`${view.base}events`, signal, onEvent, onState);
	} catch (e) {
		handled(e);
	}
}

// The first question tells whether a token is needed, and what this is the API of.
async function begin(tried) {
	try {
		await get("status");
		isDaemon = await get("sandboxes").then(() => true, (e) => {
			if (e.status === 404)
				return false;
			throw e;
		});
		show("login", false);
		trouble(null);
		enter();
	} catch (e) {
		if (!(e instanceof Refused) || ![401, 429].includes(e.status))
			trouble(e);
		else if (e.status === 429)
			askToken("Too many wrong tokens were shown. Wait a minute.");
		else
			askToken(tried ? NOT_TAKEN : "");
	}
}

[denies, policy, why, grants].forEach((part) => part.start());
[review, editor].forEach((part) => part.start(loadSoon));
sandboxes.start(grants.set);
events.start(activity.span, activity.isFixed);
activity.start(events.find, events.follow, events.all);
$("login").addEventListener("submit", (e) => {
	e.preventDefault();
	setToken($("token").value.trim());
	$("token").value = $("login-fault").textContent = "";
	begin(true);
});
window.addEventListener("hashchange", () => {
	enter();
	$("tile-h").focus(); // what had the keyboard is gone
});
document.addEventListener("visibilitychange", poll);
// Nothing of it waits in the browser's memory for somebody to come back.
window.addEventListener("pagehide", () => {
	forget();
	setToken("");
});
window.addEventListener("pageshow", (e) => {
	if (e.persisted)
		begin(false);
});
setInterval(poll, POLL_MS);
begin(false);
