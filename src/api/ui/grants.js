// SPDX-License-Identifier: Apache-2.0
// Rules that end, and what is left of them.
import { $, fill, h, show } from "./dom.js";
import { clock, count, left, literal, plain } from "./text.js";

let grants = []; // { target, ends (ms by this clock), until, sandbox }

function draw() {
	const now = Date.now(), list = grants.filter((g) => g.ends > now);

	$("grants-n").textContent = list.length ? count(list.length) : "";
	show("grants", list.length > 0);
	fill("grants-list", list.map((g) => h("li", {}, h("span", { class: "what" }, h("span", { class: "name mono" }, literal(g.target)),
		g.sandbox ? h("span", { class: "quiet" }, ` of ${plain(g.sandbox)}`) : ""),
	h("span", { class: "n", title: clock(g.until) }, `${left((g.ends - now) / 1000)} left`))));
}

// @all: [[sandbox or "", its grants as /status has them, when it was asked (ms)], …]
export function set(all) {
	grants = all.flatMap(([sandbox, list, at]) => (list ?? []).map((g) => ({ target: g.target, until: g.until, sandbox, ends: at + g.secondsLeft * 1000 })));
	grants.sort((a, b) => a.ends - b.ends);
	draw();
}

export const start = () => setInterval(() => { if (grants.length && !document.hidden) draw(); }, 1000);
