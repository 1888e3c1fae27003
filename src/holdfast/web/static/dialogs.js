// Asking a person before something is done: a dialog with what will happen, fields, and one button that does it.

import { h, render } from "./dom.js";
import { shown, trouble } from "./text.js";

/** Ask; a field may have `help`, elements that stand below it. Gives the fields if it is to be done, null if not. `act` does it, and what it throws is shown in the dialog. */
export function ask({ title, text, fields = [], confirm, bad = false, act }) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-label", title);
    let error = null;
    let busy = false;
    const send = async (event) => {
      event.preventDefault();
      if (busy) return;
      const given = Object.fromEntries(new FormData(event.target));
      busy = true;
      error = null;
      show();
      try {
        const done = await act(given);
        dialog.close();
        resolve(done === undefined ? given : done);
      } catch (problem) {
        error = problem;
        busy = false;
        show();
      }
    };
    const show = () => render(h("form", { method: "dialog", onsubmit: send },
      h("h2", null, shown(title)), h("p", { class: "ink2" }, shown(text)),
      fields.map((one) => [h("label", { class: "stack" }, one.label, field(one)), one.help || null]),
      error ? h("p", { class: "notice bad", role: "alert" }, trouble(error)) : null,
      h("div", { class: "acts" }, h("button", { class: `btn ${bad ? "bad" : "pri"}`, type: "submit", disabled: busy }, confirm), h("button", { class: "btn ghost", type: "button", onclick: () => dialog.close() }, "Not now"))), dialog);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
    });
    show();
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("input, select, textarea")?.focus();
  });
}

function field({ name, value = "", choices, lines, placeholder }) {
  if (choices) return h("select", { class: "field", name }, choices.map(([key, label]) => h("option", { value: key, selected: key === value || null }, label)));
  if (lines) return h("textarea", { class: "field m", name, rows: lines, placeholder, spellcheck: "false" }, value);
  return h("input", { class: "field", name, value, placeholder, autocomplete: "off" });
}
