// Workers that are alive, and what waits in queues.

import { get } from "./api.js";
import { commandLine } from "./copy.js";
import { h } from "./dom.js";
import { duration, number, shown } from "./text.js";

export function workers(page) {
  const known = { found: null };
  let timer = null;

  async function load() {
    known.found = await get("/workers");
    page.draw();
  }

  return {
    title: () => "Workers",
    ticks: () => false,
    async start(listen) {
      await load();
      timer = setInterval(() => !document.hidden && load().catch(() => undefined), 2000);
      listen("/stream", null, () => undefined);
    },
    close: () => clearInterval(timer),
    moved: () => false,
    draw() {
      if (!known.found) return h("p", { class: "plain muted" }, "Reading workers …");
      const { workers: alive, queues, now_ms: now } = known.found;
      const served = new Set(alive.flatMap((one) => one.queues || []));
      const lonely = queues.filter((one) => one.ready > 0 && !served.has(one.queue));
      const busy = alive.reduce((sum, one) => sum + one.busy, 0);
      const room = alive.reduce((sum, one) => sum + (one.concurrency || 0), 0);
      return [
        h("div", { class: "row" }, h("h1", null, "Workers and queues"), h("span", { class: "muted sm desc" }, "Which processes take tasks, and what waits to be taken.")),
        h("div", { class: "cols three" }, tile("workers alive", String(alive.length)), tile("tasks worked on", `${busy}${room ? ` of ${room}` : ""}`), tile("tasks ready", number(queues.reduce((sum, one) => sum + one.ready, 0)))),
        lonely.map((one) => h("div", { class: "notice", role: "status" }, h("span", null, h("b", null, "No worker serves queue ", h("span", { class: "m" }, shown(one.queue)), ". "), `${one.ready === 1 ? "1 task waits" : `${number(one.ready)} tasks wait`} in it. `), h("span", { class: "grow" }), commandLine(`holdfast worker FILE${one.queue === "default" ? "" : ` --queue ${one.queue}`}`))),
        h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Workers")), alive.length ? h("table", null, heads(["Machine", "Process", "Serves", "Queues", "Busy", "Up"]), h("tbody", null, alive.map((one) => h("tr", { key: one.holder }, h("td", { class: "b" }, shown(one.host || "")), h("td", { class: "m" }, String(one.pid || one.holder)), h("td", { class: "m ink2" }, shown(Object.keys(one.agents || {}).join(", "))), h("td", { class: "m ink2" }, shown((one.queues || []).join(", "))), h("td", { class: "m" }, `${one.busy}${one.concurrency ? ` of ${one.concurrency}` : ""}`), h("td", { class: "m muted" }, one.started_us ? duration(now - one.started_us / 1000) : "–"))))) : h("p", { class: "plain muted" }, "No worker is alive.")),
        h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Queues")), queues.length ? h("table", null, heads(["Queue", "Ready", "Working", "Waiting for a time"]), h("tbody", null, queues.map((one) => h("tr", { key: `${one.namespace}/${one.queue}` }, h("td", { class: "m" }, shown(one.queue)), h("td", { class: "m" }, number(one.ready)), h("td", { class: "m" }, number(one.running)), h("td", { class: "m" }, number(one.timed ?? one.later ?? 0)))))) : h("p", { class: "plain muted" }, "No task waits in a queue.")),
      ];
    },
  };
}

function tile(label, text) {
  return h("div", { class: "panel tile" }, h("span", { class: "muted sm" }, label), h("b", null, text));
}

function heads(names) {
  return h("thead", null, h("tr", null, names.map((one) => h("th", { scope: "col" }, one))));
}
