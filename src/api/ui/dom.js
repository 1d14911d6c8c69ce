// SPDX-License-Identifier: Apache-2.0
// Elements, made one by one. Text goes in as text nodes alone: nothing is ever read as HTML.

const attributes = new Set(["class", "id", "type", "href", "role", "title", "datetime", "hidden", "disabled", "scope",
	"aria-label", "aria-expanded", "aria-controls", "aria-sort", "aria-hidden", "data-label", "data-key",
	"d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "viewBox", "preserveAspectRatio", "text-anchor"]);

export const $ = (id) => document.getElementById(id);

function put(e, props, children) {
	for (const [key, value] of Object.entries(props)) {
		if (key === "on")
			Object.entries(value).forEach(([type, f]) => e.addEventListener(type, f));
		else if (attributes.has(key) && value !== false && value !== null && value !== undefined)
			e.setAttribute(key, value === true ? "" : value);
	}
	e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
	return e;
}

// h("td", { class: "mono" }, "text", child, …); "on" holds listeners. null and "" children are left out.
export const h = (tag, props = {}, ...children) => put(document.createElement(tag), props, children);

// The same for what is drawn.
export const svg = (tag, props = {}, ...children) =>
	put(document.createElementNS($("chart-svg").namespaceURI, tag), props, children);

export const show = (id, shown) => { $(id).hidden = !shown; };

export const time = (iso, text) => h("time", { datetime: iso, title: iso }, text);

// Rows of cells: [[title, class], …]. The roles stay when a narrow screen stacks the cells.
export function table(columns, rows) {
	const head = columns.map(([title, kind]) => h("th", { role: "columnheader", scope: "col", class: kind }, title));
	return h("table", { role: "table" },
		h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
		h("tbody", { role: "rowgroup" }, rows));
}

export function row(columns, cells, kind) {
	return h("tr", { role: "row", class: kind }, cells.map((cell, i) =>
		h("td", { role: "cell", class: columns[i][1], "data-label": columns[i][0] }, cell)));
}

// A line of a list of the most: what, how much, and a bar as long as its part of @most.
export function topLine(what, amount, part, most) {
	const width = `${most > 0 ? Math.max(1, Math.round(part / most * 100)) : 0}%`;

	return h("li", {}, h("span", { class: "what" }, what), " ", h("span", { class: "n" }, amount),
		svg("svg", { class: "part", "aria-hidden": "true" }, svg("rect", { width, height: "100%" })));
}

// Something for who doesn't see the page change; the last of two within a second.
let saying = 0;
export function say(text) {
	clearTimeout(saying);
	saying = setTimeout(() => { $("said").textContent = text; }, 300);
}

export function fill(id, ...children) {
	$(id).replaceChildren(...children.flat().filter((c) => c !== ""));
}

// Call @f at most every @ms, the last call never lost.
export function seldom(f, ms) {
	let timer = 0, last = 0;
	return () => {
		if (timer)
			return;
		timer = setTimeout(() => {
			timer = 0;
			last = Date.now();
			f();
		}, Math.max(0, last + ms - Date.now()));
	};
}
