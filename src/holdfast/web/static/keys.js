// Keys: a letter does something on a screen. They can be switched off, for who types by voice or by accident.

import { h, render } from "./dom.js";

const OFF = "holdfast-keys-off";
const HELP = [
  ["/", "find, and commands"], ["?", "these keys"], ["g t", "tasks"], ["g i", "inbox"], ["g w", "workers"], ["g a", "audit"],
  ["j k", "next, previous row"], ["Enter", "open"], ["x c", "select; compare two"], ["← →", "one event"], ["⇧← ⇧→", "one step"], ["[ ]", "one turn"], ["Home End", "first event, now"], [".", "back to now"],
  ["e", "steps or events"], ["t", "real or folded time"], ["d", "differences or everything"], ["b", "mark this moment"], ["1 … 7", "tabs; in the inbox: choices"],
  ["f", "fork"], ["a", "approve"], ["r", "reject; resume"], ["h n", "it happened, it did not"], ["y", "copy the link"], ["Y", "copy the command"], ["Esc", "back"],
];

let before = "";
let timer = null;

function named(event) {
  if (event.key === " ") return "Space";
  const arrow = event.key.startsWith("Arrow");
  return event.shiftKey && (arrow || event.key.length > 1) ? `Shift+${event.key}` : event.key;
}

function isTyping(target) {
  return target.closest("input:not([type=range]), textarea, select, [contenteditable]") !== null;
}

/** Hear keys: those of the page, and those of the screen that is shown. */
export function onKeys(own, ofScreen) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const key = named(event);
    if (isTyping(event.target)) {
      if (key === "Escape") event.target.blur();
      return;
    }
    if (localStorage.getItem(OFF) && key.length === 1 && key !== "?") return;
    const both = before ? `${before} ${key}` : key;
    const keys = { ...own, ...ofScreen() };
    const act = keys[both] || keys[key];
    clearTimeout(timer);
    before = key === "g" && !before ? "g" : "";
    if (before) timer = setTimeout(() => { before = ""; }, 1000);
    if (act && !(key === "Enter" && event.target.closest("a, button, summary"))) {
      event.preventDefault();
      act(event);
    }
  });
}

/** Show which keys there are, and let them be switched off. */
export function showKeys() {
  const dialog = document.createElement("dialog");
  dialog.className = "help";
  dialog.setAttribute("aria-label", "Keys");
  const off = () => Boolean(localStorage.getItem(OFF));
  const show = () => render([
    h("h2", null, "Keys"),
    h("dl", null, HELP.map(([keys, what]) => h("div", null, h("dt", null, keys.split(" ").map((one) => h("kbd", null, one))), h("dd", null, what)))),
    h("label", { class: "row" }, h("input", { type: "checkbox", checked: off(), onchange: (event) => { event.target.checked ? localStorage.setItem(OFF, "1") : localStorage.removeItem(OFF); show(); } }), "Switch single letters off"),
    h("div", { class: "acts" }, h("button", { class: "btn pri", type: "button", onclick: () => dialog.close() }, "Close")),
  ], dialog);
  show();
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

/** The keys of a screen, below it. */
export function legend(pairs, right) {
  return h("footer", { class: "keys" }, pairs.map(([keys, what]) => h("span", null, keys.split(" ").map((one) => h("kbd", null, one)), what)), h("span", { class: "grow" }), right || null);
}
