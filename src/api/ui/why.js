// SPDX-License-Identifier: Apache-2.0
// Why an event was refused: what it says of itself, and what the policy in force says of its target.
import { get } from "./api.js";
import { $, fill, h, time } from "./dom.js";
import { clock, count, literal, plain, process, remote } from "./text.js";

let asked = 0;

// What `weir policy explain` would be asked.
function target(e) {
	if (e.name)
		return e.remote_port ? `${e.name}:${e.remote_port}` : e.name;
	const ip = e.remote_ip.includes(":") ? `[${e.remote_ip}]` : e.remote_ip;
	return e.remote_port ? `${ip}:${e.remote_port}` : e.remote_ip;
}

function facts(e) {
	const rule = e.rule ? literal(e.rule) + (e.rule_file ? ` (${plain(e.rule_file)}:${e.rule_line})` : "") : "no rule: the default";
	const all = [["What", [literal(e.name), remote(e.remote_ip, e.remote_port, e.protocol)].filter(Boolean).join(" ")],
		["When", time(e.ts, clock(e.ts))], ["Rule", rule], ["Reason", plain(e.reason)], ["Process", process(e)],
		["Packets", count(e.packets)], ["It would be open with", e.allow ? `--allow ${literal(e.allow)}` : ""]];

	return all.filter(([, value]) => value).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", { class: "name" }, value)));
}

// @base: below which the API has the event's sandbox.
export async function ask(e, base) {
	const mine = ++asked;

	fill("why-event", facts(e));
	fill("why-text", h("li", { class: "quiet" }, "The policy in force is being asked."));
	$("why-fault").textContent = "";
	if (!$("why").open)
		$("why").showModal();
	$("why-h").focus();
	try {
		const said = await get(`${base}policy/explain?target=${encodeURIComponent(target(e))}`);
		if (mine !== asked)
			return;
		const lines = said.text.trimEnd().split("\n");
		fill("why-text", said.action === "allow" ? h("li", { class: "good" }, "The policy in force now allows it: it has changed since, or another check refused it.") : "",
			lines.map((line) => h("li", {}, literal(line))));
	} catch (fault) {
		if (mine !== asked)
			return;
		fill("why-text");
		$("why-fault").textContent = plain(fault.message);
	}
}

export function close() {
	asked++;
	if ($("why").open)
		$("why").close();
	["why-event", "why-text"].forEach((id) => fill(id));
}

export function start() {
	$("why-close").addEventListener("click", close);
	$("why").addEventListener("click", (event) => { if (event.target === $("why")) close(); });
}
