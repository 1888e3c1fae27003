// Copy as: the same thing on the command line, in Python, with curl, or as a link.

import { h } from "./dom.js";
import { icon } from "./icons.js";

/** Put a text on the clipboard, and say so. */
export async function copy(text, button) {
  await navigator.clipboard.writeText(text).catch(() => undefined);
  if (!button) return;
  const label = button.querySelector(".w");
  if (!label) return;
  const before = label.textContent;
  label.textContent = "Copied";
  setTimeout(() => { label.textContent = before; }, 1200);
}

/** A word as it is typed in a shell: an id may hold spaces, quotes and line ends, and must not become a command. */
export function quoted(word) {
  if (/^[\w@%+=:,./~#-]+$/.test(word) && !/^[~#]/.test(word)) return word;
  if (!/\p{C}|[\u2028\u2029]/u.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
  return `$'${word.replace(/['\\]/g, "\\$&").replace(/\p{C}|[\u2028\u2029]/gu, (one) => `\\U${one.codePointAt(0).toString(16).padStart(8, "0")}`)}'`;
}

/** A button with a menu of ways. */
export function copyAs({ command, python, path }) {
  const ways = [["Command", command], ["Python", python], ["cURL", `curl -H "Authorization: Bearer $TOKEN" '${location.origin}${document.body.dataset.base || ""}${path.replaceAll("'", "%27")}'`], ["Link", null]];
  return h("details", { class: "menu" }, h("summary", { class: "btn ghost" }, icon("copy"), "Copy as"),
    h("div", { class: "sheet" }, ways.filter(([, text]) => text !== undefined).map(([label, text]) => h("button", { type: "button", onclick: (event) => copy(text === null ? location.href : text, event.currentTarget) }, h("span", { class: "w" }, label), h("code", null, text === null ? "this address" : text)))));
}

/** A command that can be copied. */
export function commandLine(text) {
  return h("button", { class: "cmd m", type: "button", title: "Copy", onclick: (event) => copy(text, event.currentTarget) }, icon("copy"), h("span", { class: "w" }, text));
}
