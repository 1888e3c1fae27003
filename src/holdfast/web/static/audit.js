// Who did what: calls of tools, what people did, decisions; newest first.

import { get } from "./api.js";
import { copyAs } from "./copy.js";
import { h } from "./dom.js";
import { addressOf, ask } from "./route.js";
import { clock, shown } from "./text.js";

const FIELDS = ["tool", "by", "decision", "task"];
const TONES = { approved: "good", done: "good", settled: "good", rejected: "bad", "step failed": "bad", cancelled: "bad", "in doubt": "doubt" };

export function audit(page, to) {
  const known = { acts: null, next: null, asking: false };
  let asked = wanted(to);

  function wanted(given) {
    return Object.fromEntries(FIELDS.map((one) => [one, given.query.get(one) || ""]));
  }

  async function load(more) {
    known.asking = true;
    page.draw();
    const found = await get("/audit", { ...asked, after: more ? known.next : "" });
    known.acts = more ? [...known.acts, ...found.acts] : found.acts;
    known.next = found.next;
    known.asking = false;
    page.draw();
  }

  return {
    title: () => "Audit",
    async start(listen) {
      await load(false);
      listen("/stream", null, () => undefined);
    },
    moved(next) {
      if (next.screen !== "audit") return false;
      asked = wanted(next);
      load(false).catch(page.failed);
      return true;
    },
    draw() {
      const submit = (event) => { event.preventDefault(); ask(Object.fromEntries(new FormData(event.target))); };
      const options = FIELDS.filter((one) => asked[one]).map((one) => ` --${one} ${asked[one]}`).join("");
      return [
        h("div", { class: "row" }, h("h1", null, "Audit"), h("span", { class: "muted sm desc" }, "Who did what: calls of tools, what people did, what was decided."), h("span", { class: "grow" }), copyAs({ command: `holdfast audit${options} --json`, python: "app.audit()", path: "/api/v1/audit" })),
        h("form", { class: "filter", role: "search", onsubmit: submit }, FIELDS.map((one) => h("label", { class: "sm" }, `${one} `, h("input", { class: "field", name: one, value: asked[one], autocomplete: "off" }))), h("button", { class: "btn sm", type: "submit" }, "Filter")),
        known.acts === null ? h("p", { class: "plain muted" }, "Reading …") : !known.acts.length ? h("p", { class: "panel plain" }, "Nothing of this is recorded.") : h("div", { class: "panel scrollx" }, h("table", null, h("thead", null, h("tr", null, ["Time", "What", "Tool", "Task", "seq", "By", "Recorded"].map((one) => h("th", { scope: "col" }, one)))),
          h("tbody", null, known.acts.map((one) => h("tr", { key: `${one.task}/${one.seq}` }, h("td", { class: "m muted" }, clock(one.at_ms)), h("td", { class: `b t-${TONES[one.what] || "plain"}` }, shown(one.what)), h("td", { class: "m" }, shown(one.tool)), h("td", null, h("a", { class: "id", href: addressOf(`/tasks/${encodeURIComponent(one.task)}?at=${one.seq}`) }, shown(one.task))), h("td", { class: "m muted" }, String(one.seq)), h("td", null, shown(one.by)), h("td", { class: "m ink2 val" }, shown(one.value || one.about))))))),
        known.next ? h("p", null, h("button", { class: "btn", type: "button", disabled: known.asking, onclick: () => load(true).catch(page.failed) }, known.asking ? "Reading …" : "Older acts")) : null,
      ];
    },
  };
}
