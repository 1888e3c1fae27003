// Large values and artifacts: opened as text in a dialog, or saved. They are never shown as a page of their own.

import { fetchText, save } from "./api.js";
import { h, render } from "./dom.js";
import { bytes, calm, shown } from "./text.js";

const MOST_SHOWN = 200_000;

/** A button that opens a large value. */
export function openValue(blob, name) {
  return h("button", { class: "link", type: "button", onclick: () => open(blob.href, name) }, `${bytes(blob.bytes)}, open`);
}

/** Show a value as text, whatever it is: markup stays markup. */
export async function open(href, name) {
  const dialog = document.createElement("dialog");
  dialog.className = "whole";
  dialog.setAttribute("aria-label", name);
  let text = null;
  let error = null;
  const show = () => render([
    h("h2", null, shown(name)),
    error ? h("p", { class: "notice bad", role: "alert" }, shown(error.message), " ", shown(error.hint || "")) : h("pre", { class: "code", tabindex: "0" }, text === null ? "Reading …" : calm(text.slice(0, MOST_SHOWN))),
    text !== null && text.length > MOST_SHOWN ? h("p", { class: "muted sm" }, `${text.length - MOST_SHOWN} characters more; save it to see them.`) : null,
    h("div", { class: "acts" }, h("button", { class: "btn pri", type: "button", onclick: () => save(href, fileName(name)) }, "Save"), h("button", { class: "btn ghost", type: "button", onclick: () => dialog.close() }, "Close")),
  ], dialog);
  show();
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  try {
    text = await fetchText(href);
  } catch (problem) {
    error = problem;
  }
  show();
}

/** A name that is safe for a file: letters, digits, dots and hyphens. */
export function fileName(name) {
  return name.replace(/[^\w.-]+/g, "-").replace(/^[.-]+/, "").slice(0, 80) || "value";
}
