// SPDX-License-Identifier: Apache-2.0
// Text as it is shown. What a sandbox made up is shown as what it is: bytes that would turn the line
// round, hide or imitate a letter are spelled out.

const spelled = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

// Of names, addresses, commands, rules: ASCII as it is, all else spelled.
export const literal = (text) => String(text ?? "").replace(/[^\x20-\x7e]/gu, spelled);

// Of what an operator wrote: letters of all scripts, but no controls and nothing invisible.
export const plain = (text) => String(text ?? "").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, spelled);

const two = (n) => String(n).padStart(2, "0");

// "14:03:07" of today, "11-20 14:03:07" of other days of the year, "2025-11-20 14:03:07" of others.
export function clock(iso) {
	const t = new Date(iso ?? NaN);
	if (Number.isNaN(t.getTime()))
		return "";
	const time = [t.getHours(), t.getMinutes(), t.getSeconds()].map(two).join(":");
	const now = new Date(), day = `${two(t.getMonth() + 1)}-${two(t.getDate())} ${time}`;
	if (t.toDateString() === now.toDateString())
		return time;
	return t.getFullYear() === now.getFullYear() ? day : `${t.getFullYear()}-${day}`;
}

export const count = (n) => Number(n ?? 0).toLocaleString("en");
export const some = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// "93.184.216.34:443/tcp", of what is known of it.
export function remote(ip, port, protocol) {
	let text = literal(ip);
	if (port)
		text = text.includes(":") ? `[${text}]:${port}` : `${text}:${port}`;
	return protocol ? `${text}/${literal(protocol)}` : text;
}

// "curl (812)"
export function process(e) {
	if (e.command)
		return literal(e.command) + (e.pid ? ` (${e.pid})` : "");
	if (e.pid)
		return `process ${e.pid}`;
	return Number.isInteger(e.uid) ? `user ${e.uid}` : "";
}

// 1234567 as "1.2 MB"; 1234 packets as "1.2 k".
function scaled(n, units) {
	let i = 0;
	while (n >= 999.5 && i < units.length - 1) {
		n /= 1000;
		i++;
	}
	return `${i === 0 || n >= 9.95 ? Math.round(n) : n.toFixed(1)}${units[i]}`;
}
export const bytes = (n) => scaled(Number(n ?? 0), [" B", " kB", " MB", " GB", " TB", " PB"]);
export const short = (n) => scaled(Number(n ?? 0), ["", " k", " M", " G", " T"]);

// "9 min 58 s", "3 h 2 min", "2 d 4 h"
export function left(seconds) {
	const s = Math.max(0, Math.round(seconds));
	for (const [long, unit, below, other] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
		if (s >= long)
			return `${Math.floor(s / long)} ${unit} ${Math.floor(s % long / below)} ${other}`;
	}
	return `${s} s`;
}
