// The audit: who did what. Calls of tools, what people did, decisions; newest first.

import { get, Problem, save } from "./api.js";
import { copyAs, typed } from "./copy.js";
import { chips, words } from "./chips.js";
import { h } from "./dom.js";
import { addressOf, ask, namespaceOf, within } from "./route.js";
import { clock, number, shown, trouble } from "./text.js";

const FIELDS = ["tool", "by", "decision", "task", "since", "until"];
const TONES = { approved: "good", done: "good", settled: "good", rejected: "bad", "step failed": "bad", cancelled: "bad", "in doubt": "doubt" };

export function audit(page, to) {
  const known = { acts: null, next: null, asking: false, error: null, stopped: false };
  let query = to.query.get("q") || "";

  const fields = () => (page.about && page.about.spread ? [...FIELDS, "namespace"] : FIELDS);
  const wanted = () => Object.fromEntries(words(query).map((one) => one.split(/:(.*)/s)).filter(([name]) => fields().includes(name)).map(([name, text]) => [name, text || ""]));

  async function load(more) {
    known.asking = true;
    known.stopped = false;
    page.draw();
    const odd = words(query).find((one) => !fields().includes(one.split(":")[0]));
    try {
      if (odd) throw new Problem({ status: 400, detail: `${odd} is not a filter of the audit`, hint: `Use ${fields().map((one) => `${one}:`).join(" ")}` });
      const found = await get("/audit", { ...wanted(), after: more ? known.next : "" });
      known.acts = more ? [...known.acts, ...found.acts] : found.acts;
      known.next = found.next;
      known.error = null;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 400) throw error;
      known.error = error;
      known.acts = known.acts || [];
    } finally {
      known.asking = false;
      page.draw();
    }
  }

  // Older acts are read as the end of the list comes into view, until they are stopped.
  const scrolled = () => {
    const near = document.documentElement.scrollHeight - window.innerHeight - window.scrollY < 300;
    if (near && known.next && !known.asking && !known.stopped) load(true).catch(page.failed);
  };

  return {
    title: () => "Audit",
    async start(listen) {
      window.addEventListener("scroll", scrolled, { passive: true });
      await load(false);
      listen("/stream", null, () => undefined);
    },
    close: () => window.removeEventListener("scroll", scrolled),
    moved(next) {
      if (next.screen !== "audit") return false;
      query = next.query.get("q") || "";
      load(false).catch(page.failed);
      return true;
    },
    draw() {
      const options = Object.entries(wanted()).map(([name, text]) => ` --${name} ${typed(text)}`).join("");
      const asked = new URLSearchParams(wanted()).toString();
      return [
        h("div", { class: "row" }, h("h1", null, "Audit"), h("span", { class: "muted sm desc" }, "Who did what: calls of tools, what people did, what was decided."), h("span", { class: "grow" }), copyAs({ command: `holdfast audit${options} --json`, python: "app.audit()", path: `/api/v1/audit${asked ? `?${asked}` : ""}` }),
          h("button", { class: "btn", type: "button", onclick: () => save(`/audit/export${asked ? `?${asked}` : ""}`, "audit.jsonl").catch(page.failed) }, "Export .jsonl")),
        chips({ query, change: (text) => ask({ q: text }), placeholder: "tool:charge_card  by:ana  decision:flight  task:trip-7  since:24h", more: query.includes("since:") ? null : h("button", { class: "btn ghost sm", type: "button", onclick: () => ask({ q: `${query} since:24h`.trim() }) }, "Last day") }),
        known.error ? h("p", { class: "notice bad", role: "alert" }, trouble(known.error)) : null,
        known.error ? null : known.acts === null ? h("p", { class: "plain muted" }, "Reading …") : !known.acts.length ? h("p", { class: "panel plain" }, "Nothing of this is recorded.") : h("div", { class: "panel scrollx" }, h("table", { class: "cards audit" }, h("thead", null, h("tr", null, ["Time", "What", "Tool", "Task", "seq", "By", "Recorded"].map((one) => h("th", { scope: "col", class: one === "seq" ? "r" : "" }, one)))),
          h("tbody", null, known.acts.map((one) => h("tr", { key: `${one.task}/${one.seq}` }, h("td", { class: "m muted", title: new Date(one.at_ms).toISOString() }, day(one.at_ms), clock(one.at_ms)), h("td", { class: `b t-${TONES[one.what] || "plain"}` }, shown(one.what)), h("td", { class: "m" }, shown(one.tool)), h("td", null, h("a", { class: "id", href: addressOf(within(one.namespace, `/tasks/${encodeURIComponent(one.local || one.task)}?at=${one.seq}`)), "data-whole": one.namespace ? "" : null }, shown(one.local || one.task)), one.namespace ? h("span", { class: "sub" }, shown(namespaceOf(one))) : null), h("td", { class: "m muted r" }, String(one.seq)), h("td", null, shown(one.by)), h("td", { class: "m ink2 val" }, shown(one.value || one.about))))))),
        !known.error && known.acts && known.acts.length ? h("p", { class: "muted sm row", role: "status" }, `${number(known.acts.length)} acts${known.next ? `, back to ${new Date(known.acts[known.acts.length - 1].at_ms).toLocaleString("sv")}` : ", all there are"}`, known.next ? h("button", { class: "link", type: "button", disabled: known.asking, onclick: () => load(true).catch(page.failed) }, known.asking ? "Reading …" : "Older acts") : null, known.next && !known.stopped ? h("button", { class: "link", type: "button", onclick: () => { known.stopped = true; page.draw(); } }, "Stop reading on") : null) : null,
      ];
    },
  };
}

const day = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? "" : `${new Date(ms).toISOString().slice(0, 10)} `);
