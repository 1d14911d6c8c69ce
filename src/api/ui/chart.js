// SPDX-License-Identifier: Apache-2.0
// Pictures of numbers by time: a few paths, however many events there were.
import { $, svg } from "./dom.js";
import { bytes, short } from "./text.js";

const LEFT = 52, RIGHT = 6, AXIS = 20, GAP = 18;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080].map((m) => m * 60000);
const PANELS = [
	{ title: "denied", parts: [["deny", "denied"], ["limit", "limited"]], share: 2, text: short },
	{ title: "allowed", parts: [["allow", "allowed"]], share: 1, text: short },
	{ title: "sent", parts: [["bytes", "sent"]], share: 1, text: bytes },
];
const two = (n) => String(n).padStart(2, "0");

// At least @n, and a number that people know.
function round(n) {
	const scale = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
	return [1, 2, 3, 5, 10].map((k) => k * scale).find((k) => k >= n);
}

function tickText(ms, step) {
	const t = new Date(ms);

	return step >= 86400000 || (t.getHours() === 0 && t.getMinutes() === 0)
		? `${two(t.getMonth() + 1)}-${two(t.getDate())}` : `${two(t.getHours())}:${two(t.getMinutes())}`;
}

// Bars of @values on top of @under, up to @top at @height.
function bars(values, under, place) {
	const { x, y } = place;
	let d = "";

	values.forEach((v, i) => {
		if (v > 0)
			d += `M${x(i)} ${y(under[i])}V${Math.min(y(under[i] + v), y(under[i]) - 1)}H${x(i + 1, true)}V${y(under[i])}Z`;
	});
	return d;
}

function panel(p, data, box) {
	const count = data.deny.length, zero = new Array(count).fill(0);
	const sums = p.parts.reduce((sum, [key]) => sum.map((s, i) => s + data[key][i]), zero);
	const top = round(Math.max(...sums, 1));
	const per = box.width / count, gap = per > 4 ? 1 : 0;
	const place = {
		x: (i, isEnd) => (LEFT + i * per - (isEnd ? gap : 0)).toFixed(1),
		y: (v) => Math.round(box.y + box.height * (1 - v / top)),
	};
	let under = zero;
	const paths = p.parts.map(([key]) => {
		const path = svg("path", { class: `bars ${key}`, d: bars(data[key], under, place) });
		under = under.map((u, i) => u + data[key][i]);
		return path;
	});

	return [
		svg("line", { class: "axis", x1: LEFT, x2: LEFT + box.width, y1: box.y + box.height + .5, y2: box.y + box.height + .5 }),
		svg("line", { class: "axis faint", x1: LEFT, x2: LEFT + box.width, y1: box.y + .5, y2: box.y + .5 }),
		svg("text", { class: "label", x: LEFT - 5, y: box.y + 4, "text-anchor": "end" }, p.text(top)),
		svg("text", { class: "label", x: LEFT - 5, y: box.y + box.height, "text-anchor": "end" }, "0"),
		svg("text", { class: "label title", x: LEFT, y: box.y - 5 }, p.parts.flatMap(([key, word], i) => [
			svg("tspan", { class: `ink ${key}` }, `${i > 0 ? "  " : ""}■ `), svg("tspan", {}, word)])),
		...paths,
	];
}

function ticks(data, width, y) {
	const from = data.since, to = from + data.step * data.deny.length, per = width / (to - from);
	const step = STEPS.find((s) => s * per >= 64) ?? STEPS.at(-1);
	const offset = new Date(from).getTimezoneOffset() * 60000;
	const all = [];

	for (let t = Math.ceil((from - offset) / step) * step + offset; t < to; t += step) {
		const x = Math.round(LEFT + (t - from) * per) + .5;
		all.push(svg("line", { class: "axis faint", x1: x, x2: x, y1: 14, y2: y }));
		if (x > LEFT + 16 && x < LEFT + width - 14)
			all.push(svg("text", { class: "label", x, y: y + 14, "text-anchor": "middle" }, tickText(t, step)));
	}
	return all;
}

// @data: { since, step (ms), deny: […], limit, allow, bytes }
export function draw(data) {
	const e = $("chart-svg"), width = $("chart").clientWidth - LEFT - RIGHT, height = $("chart").clientHeight;
	const shares = PANELS.reduce((sum, p) => sum + p.share, 0), room = height - AXIS - PANELS.length * GAP;
	let y = GAP;

	if (width < 50 || room < 50)
		return;
	const parts = PANELS.flatMap((p) => {
		const box = { y, width, height: Math.floor(room * p.share / shares) };
		y += box.height + GAP;
		return panel(p, data, box);
	});
	e.setAttribute("viewBox", `0 0 ${width + LEFT + RIGHT} ${height}`);
	e.replaceChildren(...ticks(data, width, y - GAP), ...parts,
		svg("rect", { class: "at", id: "chart-mark", y: 14, height: y - GAP - 14, x: 0, width: 0 }));
}

// What is pointed at, and what was dragged over: onPoint(i or null), onZoom(from, to), of buckets.
export function point(countOf, onPoint, onZoom) {
	const e = $("chart");
	let begun = null;
	const bucket = (event) => {
		const box = e.getBoundingClientRect(), width = box.width - LEFT - RIGHT;
		return Math.max(0, Math.min(countOf() - 1, Math.floor((event.clientX - box.left - LEFT) / width * countOf())));
	};
	const mark = (from, to) => {
		const per = (e.clientWidth - LEFT - RIGHT) / countOf();
		$("chart-mark")?.setAttribute("x", LEFT + from * per);
		$("chart-mark")?.setAttribute("width", Math.max(0, to - from) * per);
	};
	const stop = () => { begun = null; mark(0, 0); onPoint(null); };

	e.addEventListener("pointerdown", (event) => {
		if (event.button !== 0 || !countOf())
			return;
		begun = bucket(event);
		e.setPointerCapture(event.pointerId);
	});
	e.addEventListener("pointermove", (event) => {
		if (!countOf())
			return;
		const at = bucket(event);
		if (begun === null)
			mark(at, at + 1);
		else
			mark(Math.min(begun, at), Math.max(begun, at) + 1);
		onPoint(at);
	});
	e.addEventListener("pointerup", (event) => {
		const from = begun, to = bucket(event);
		stop();
		if (from !== null && from !== to)
			onZoom(Math.min(from, to), Math.max(from, to) + 1);
	});
	e.addEventListener("pointercancel", stop);
	e.addEventListener("pointerleave", () => { if (begun === null) stop(); });
	document.addEventListener("keydown", (event) => { if (event.key === "Escape" && begun !== null) stop(); });
}

// A small one without words.
export function spark(values) {
	const top = Math.max(...values, 1), last = values.length - 1;
	const line = values.map((v, i) => `${i ? "L" : "M"}${(i / last * 100).toFixed(1)} ${(27 - v / top * 25).toFixed(1)}`).join("");

	return svg("svg", { viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" },
		svg("path", { class: "under", d: `${line}V28H0Z` }), svg("path", { class: "over", d: line }));
}
