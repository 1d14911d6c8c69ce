// SPDX-License-Identifier: Apache-2.0
// Another policy for a sandbox: written, checked by the API while it is written, compared with the one in force, applied.
import { getTagged, post, postOver } from "./api.js";
import { $, fill, h, say, seldom, show } from "./dom.js";
import { literal, plain } from "./text.js";

const CELLS_MAX = 4e6, LINES_MAX = 500;
let base = "", before = "", tag = null, round = 0, changed = () => {};

// A rule on each line, so that a difference is of rules.
function write({ egress, ...rest }) {
	const keys = Object.entries(rest).map(([k, v]) => `  ${JSON.stringify(k)}: ${JSON.stringify(v)}`);
	const rules = (egress ?? []).map((r) => `    ${JSON.stringify(r)}`);

	return `{\n${[...keys, `  "egress": [${rules.length ? `\n${rules.join(",\n")}\n  ` : ""}]`].join(",\n")}\n}\n`;
}

const read = (text) => write(text.trim() ? JSON.parse(text) ?? {} : {});
const lines = (text) => text.trimEnd().split("\n").map((line) => line.replace(/,$/, ""));

// [[sign, line], …]: what is taken away, added, and else between the two.
export function difference(a, b) {
	let from = 0, end = 0;
	const found = [];

	while (from < a.length && from < b.length && a[from] === b[from])
		from++;
	while (end < a.length - from && end < b.length - from && a[a.length - 1 - end] === b[b.length - 1 - end])
		end++;
	const x = a.slice(from, a.length - end), y = b.slice(from, b.length - end), w = y.length + 1;
	if (x.length * y.length > CELLS_MAX)
		return [...x.map((l) => ["-", l]), ...y.map((l) => ["+", l])];
	// How many lines two rests have in common.
	const common = new Uint16Array((x.length + 1) * w);
	for (let i = x.length - 1; i >= 0; i--)
		for (let j = y.length - 1; j >= 0; j--)
			common[i * w + j] = x[i] === y[j] ? common[(i + 1) * w + j + 1] + 1 : Math.max(common[(i + 1) * w + j], common[i * w + j + 1]);
	for (let i = 0, j = 0; i < x.length || j < y.length;) {
		if (i < x.length && j < y.length && x[i] === y[j]) {
			i++;
			j++;
		} else if (j >= y.length || (i < x.length && common[(i + 1) * w + j] >= common[i * w + j + 1])) {
			found.push(["-", x[i++]]);
		} else {
			found.push(["+", y[j++]]);
		}
	}
	return found;
}

function goTo(line, column) {
	const text = $("editor-text"), start = text.value.split("\n").slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);

	text.focus();
	text.setSelectionRange(start + column - 1, start + column - 1);
}

function faultLine(f) {
	const at = /:(\d+):(\d+): /.exec(f.text);

	return h("li", { class: f.level === "error" ? "bad" : "warn" }, h("strong", {}, f.level), `: ${plain(f.text)} `,
		at ? h("button", { type: "button", class: "small", on: { click: () => goTo(Number(at[1]), Number(at[2])) } }, `Line ${at[1]}`) : "");
}

function drawDiff(text) {
	const found = difference(lines(before), lines(read(text)));

	fill("editor-diff", found.length ? found.slice(0, LINES_MAX).map(([sign, line]) =>
		h("li", { class: sign === "+" ? "plus" : "minus" }, `${sign} ${literal(line.trim())}`)) : h("li", { class: "quiet" }, "Nothing."),
	found.length > LINES_MAX ? h("li", { class: "quiet" }, `And ${found.length - LINES_MAX} lines more.`) : "");
	return found.length > 0;
}

async function check() {
	const mine = ++round, text = $("editor-text").value;
	let differs = false;

	$("editor-apply").disabled = true;
	try {
		differs = drawDiff(text);
	} catch {
		fill("editor-diff", h("li", { class: "quiet" }, "It isn't JSON yet."));
	}
	try {
		const got = await post(`${base}policy/check`, text);
		if (mine !== round)
			return;
		fill("editor-faults", got.faults.length ? got.faults.map(faultLine) : h("li", { class: "good" }, "None."));
		$("editor-apply").disabled = !got.valid || !differs;
		$("editor-fault").textContent = "";
	} catch (e) {
		if (mine === round)
			$("editor-fault").textContent = plain(e.message);
	}
}
const checkSoon = seldom(check, 400);

async function open() {
	try {
		const got = await getTagged(`${base}policy`);
		before = write(got.policy);
		tag = got.tag;
	} catch (e) {
		say(plain(e.message));
		return;
	}
	$("editor-text").value = before;
	$("editor-fault").textContent = "";
	show("editor", true);
	show("edit", false);
	check();
	$("editor-text").focus();
}

export function close() {
	round++;
	before = "";
	$("editor-text").value = "";
	["editor-faults", "editor-diff"].forEach((id) => fill(id));
	show("editor", false);
}

function leave() {
	close();
	show("edit", true);
	$("edit").focus();
}

const refusals = {
	403: "Not allowed: this API changes nothing for who has no token.",
	412: "Nothing was applied. The policy in force has changed meanwhile: cancel, and edit that one.",
};

async function apply(event) {
	const text = $("editor-text").value;

	event.preventDefault();
	if ($("editor-apply").disabled)
		return;
	$("editor-apply").disabled = true;
	try {
		await postOver(tag, `${base}policy`, text);
		leave();
		say("The policy is in force.");
		changed();
	} catch (e) {
		$("editor-fault").textContent = refusals[e.status] ?? plain(e.message);
	}
}

// @path: of which sandbox; @readOnly: nobody may change anything there.
export function reset(path) {
	base = path;
	close();
	show("edit", false);
}

export const setReadOnly = (yes) => show("edit", !yes && $("editor").hidden);

export function start(onChanged) {
	changed = onChanged;
	$("edit").addEventListener("click", open);
	$("editor-cancel").addEventListener("click", leave);
	$("editor-text").addEventListener("input", () => { $("editor-apply").disabled = true; checkSoon(); });
	$("editor").addEventListener("submit", apply);
}
