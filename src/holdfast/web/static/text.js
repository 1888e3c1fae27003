// Values as people read them: durations, times, money, JSON; and text of others with nothing hidden in it.

import { h } from "./dom.js";

// What could hide or turn text around: controls, zero-width, bidi and tag characters. Each is shown as a box.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|[\u{e0000}-\u{e0fff}]|\p{Cf}/gu;

/** Text that others wrote, with every invisible character shown as what it is. */
export function shown(text) {
  const parts = [];
  let last = 0;
  const given = String(text);
  for (const found of given.matchAll(HIDDEN)) {
    if (found.index > last) parts.push(given.slice(last, found.index));
    const code = found[0].codePointAt(0);
    const name = code === 0x1b ? "␛" : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(h("span", { class: "hid", title: `An invisible character, U+${code.toString(16).toUpperCase()}` }, name));
    last = found.index + found[0].length;
  }
  if (last < given.length) parts.push(given.slice(last));
  return parts;
}

/** Text that people read as such: colours of terminals are dropped, everything else is shown. */
export function calm(text) {
  return shown(String(text).replace(/\u001b\[[0-9;]{0,20}m/g, "").replace(/\r\n/g, "\n"));
}

/** Whether a name mixes scripts that look alike, such as Latin and Cyrillic. */
export function mixesScripts(text) {
  const scripts = [/\p{Script=Latin}/u, /\p{Script=Cyrillic}/u, /\p{Script=Greek}/u];
  return scripts.filter((one) => one.test(text)).length > 1;
}

/** Whether a word of a text does, as one does that is to be taken for another. */
export const looksAlike = (text) => String(text).split(/[^\p{L}]+/u).some(mixesScripts);

/** A name of a task, a step or a person. */
export function name(text) {
  const parts = shown(text);
  return mixesScripts(text) ? [...parts, h("span", { class: "risk", title: "Letters of scripts that look alike" }, "mixed scripts")] : parts;
}

/** A value as JSON, with its type by colour. Long ones are cut, with how much is left out. */
export function value(given, most = 400) {
  if (given && typeof given === "object" && given.$blob) {
    return [h("span", { class: "sy-s" }, shown(given.$blob.preview.slice(0, most))), h("span", { class: "muted" }, ` … ${bytes(given.$blob.bytes)} in all`)];
  }
  const text = JSON.stringify(given) ?? "";
  const kind = typeof given === "string" ? "sy-s" : typeof given === "number" ? "sy-n" : "sy-j";
  const cut = text.length > most;
  return [h("span", { class: kind }, shown(cut ? text.slice(0, most) : text)), cut ? h("span", { class: "muted" }, ` … ${text.length - most} characters more`) : null];
}

/** A duration: 12 ms, 3.2 s, 5 m, 1 m 26 s, 2 h 03 m, 4 d 02 h. */
export function duration(ms) {
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return both(Math.floor(s / 60), "m", s % 60, "s");
  if (s < 86_400) return both(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "m");
  return both(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

const both = (large, unit, small, lesser) => `${large} ${unit}${small ? ` ${String(small).padStart(2, "0")} ${lesser}` : ""}`;

/** How long ago, in one word. */
export function ago(ms) {
  if (ms < 1500) return "now";
  if (ms < 60_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} m`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

export function clock(ms) {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((one) => String(one).padStart(2, "0")).join(":");
}

export function number(given) {
  return Math.abs(given) >= 1 || given === 0 ? given.toLocaleString("en", { maximumFractionDigits: 2 }) : given.toPrecision(2);
}

export function money(given) {
  return given === null || given === undefined ? "–" : `$${Number(given).toFixed(Number(given) < 0.01 && Number(given) > 0 ? 4 : 2)}`;
}

export function bytes(given) {
  return given < 1024 ? `${given} bytes` : given < 1_048_576 ? `${(given / 1024).toFixed(1)} KB` : `${(given / 1_048_576).toFixed(1)} MB`;
}

/** A sentence: it begins with a capital letter, unless that is a name such as `since='soon'`, and has an end. */
export const sentence = (text) => `${/^[a-z]+[ ,]/.test(text) ? text.slice(0, 1).toUpperCase() : text.slice(0, 1)}${text.slice(1)}${/[.?!…:]$/.test(text) ? "" : "."}`;

/** An error in a line: what failed and why, and what to do. A command stays as it is typed. */
export function trouble(error) {
  const hint = error.hint || "";
  return [shown(sentence(error.message)), hint ? [" ", shown(hint.startsWith("holdfast ") ? hint : hint.includes("holdfast ") ? hint.slice(0, 1).toUpperCase() + hint.slice(1) : sentence(hint))] : ""];
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many || `${one}s`}`;
}
