// SPDX-License-Identifier: Apache-2.0
// The API that has served this page. The token is in this module's memory and nowhere else.

const TOKEN_HEADER = "OPENSANDBOX-EGRESS-AUTH";
const LINE_MAX = 1 << 17; // of the stream; a longer one isn't the API's
const HIDDEN_MS = 10000;
const root = new URL("../", location.href);
let token = "";

export function setToken(text) {
	token = text;
}

// An answer that isn't 2xx, with its line of text; status 0: there was none.
export class Refused extends Error {
	constructor(status, text) {
		super(text || `the API answers ${status}`);
		this.status = status;
	}
}

async function call(method, path, { signal, body, headers = {} } = {}) {
	let answer;

	if (token)
		headers[TOKEN_HEADER] = token;
	try {
		answer = await fetch(new URL(path, root), {
			method, headers, signal, body, cache: "no-store", credentials: "same-origin", mode: "same-origin",
			redirect: "error", referrerPolicy: "no-referrer",
		});
	} catch (e) {
		if (e.name === "AbortError")
			throw e;
		throw new Refused(0, "the API doesn't answer");
	}
	if (!answer.ok)
		throw new Refused(answer.status, (await answer.text()).trim().slice(0, 500));
	return answer;
}

export async function get(path, signal) {
	return (await call("GET", path, { signal })).json();
}

// With the tag of what is there: {tag, ...}.
export async function getTagged(path) {
	const answer = await call("GET", path);

	return { tag: answer.headers.get("ETag"), ...await answer.json() };
}

export async function post(path, body, signal) {
	return (await call("POST", path, { body, signal })).json();
}

// Where the tag is another one by now: Refused, 412.
export async function postOver(tag, path, body) {
	return (await call("POST", path, { body, headers: { "If-Match": tag ?? '""' } })).json();
}

// Server-sent events, a chunk of text at a time: onEvent(id, data), onComment(text).
export function parser(onEvent, onComment = () => {}) {
	let rest = "", id = "", data = [];

	function line(text) {
		if (text === "") {
			if (data.length)
				onEvent(id, data.join("\n"));
			data = [];
		} else if (text.startsWith("id: ")) {
			id = text.slice(4);
		} else if (text.startsWith("data: ")) {
			data.push(text.slice(6));
		} else if (text.startsWith(": ")) {
			onComment(text.slice(2));
		}
	}
	return (chunk) => {
		const lines = (rest + chunk).split("\n");
		rest = lines.pop();
		if (rest.length > LINE_MAX)
			rest = "";
		lines.forEach(line);
	};
}

function pause(ms, signal) {
	return new Promise((done) => {
		const timer = setTimeout(done, ms);
		signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
	});
}

// Resolves when somebody looks at the page, or @signal says that nobody will.
function seen(signal) {
	return new Promise((done) => {
		const look = () => {
			if (document.hidden && !signal.aborted)
				return;
			document.removeEventListener("visibilitychange", look);
			done();
		};
		document.addEventListener("visibilitychange", look);
		signal.addEventListener("abort", look, { once: true });
		look();
	});
}

// A browser has six connections to a server for all of its tabs: one that nobody has looked at for a while gives its
// own up. Return: what ends with @signal and then, and what undoes it.
function whileSeen(signal) {
	const one = new AbortController();
	let timer = 0;
	const end = () => one.abort();
	const look = () => {
		clearTimeout(timer);
		timer = document.hidden ? setTimeout(end, HIDDEN_MS) : 0;
	};
	signal.addEventListener("abort", end, { once: true });
	document.addEventListener("visibilitychange", look);
	look();
	return [one.signal, () => {
		clearTimeout(timer);
		signal.removeEventListener("abort", end);
		document.removeEventListener("visibilitychange", look);
	}];
}

// What happens, as it happens, and first what the API still knows; again and again until @signal.
// onState(is it live, why not or what of it, since when by the API's clock). Rejects when the token isn't taken any more.
export async function follow(path, signal, onEvent, onState) {
	let last = "0-0", wait = 500, isFirst = true;

	async function once(one) {
		const answer = await call("GET", path, { signal: one, headers: { "Last-Event-ID": last } });
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		const read = parser((id, data) => {
			last = id;
			onEvent(JSON.parse(data));
		}, (text) => {
			if (text.includes("missing") && !isFirst)
				onState(true, "some events were missed");
		});

		onState(true, "", Date.parse(answer.headers.get("Date")) || Date.now());
		wait = 500;
		for (let part = await reader.read(); !part.done; part = await reader.read())
			read(part.value);
	}

	while (!signal.aborted) {
		const [one, undo] = whileSeen(signal);
		try {
			await once(one);
			onState(false, "the stream has ended");
		} catch (e) {
			if (signal.aborted)
				return;
			if (e.status === 401)
				throw e;
			onState(false, one.aborted ? "nobody looks" : e.message);
		} finally {
			undo();
		}
		isFirst &&= last === "0-0";
		await seen(signal);
		await pause(wait, signal);
		wait = Math.min(wait * 2, 15000);
	}
}
