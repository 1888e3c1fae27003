// Workers: those that are alive, those that died with tasks in hand; what waits in queues; schedules.

import { connection, get } from "./api.js";
import { commandLine, copyAs, quoted } from "./copy.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { addressOf, namespaceOf } from "./route.js";
import { ago, duration, number, plural, shown } from "./text.js";
import { sparks } from "./tasks.js";

const AGAIN_MS = 2000;
const MOST_CELLS = 20;
const UNITS = { s: "second", m: "minute", h: "hour", d: "day" };

export function workers(page) {
  const known = { found: null, rates: null };
  let timer = null;

  async function load() {
    [known.found, known.rates] = await Promise.all([get("/workers"), get("/rates")]);
    page.draw();
  }

  return {
    title: () => "Workers",
    ticks: () => false,
    async start(listen) {
      await load();
      timer = setInterval(() => !document.hidden && !connection.held && load().catch(() => undefined), AGAIN_MS);
      listen("/stream", null, () => undefined);
    },
    close: () => clearInterval(timer),
    moved: () => false,
    draw: () => (known.found ? drawn(known.found, known.rates, page) : h("p", { class: "plain muted" }, "Reading workers …")),
  };
}

function drawn({ workers: alive, dead, gone, queues, schedules, now_ms: now }, rates, page) {
  const limits = limitsOf(alive);
  const spread = new Set(queues.map((one) => one.namespace)).size > 1;
  const lonely = queues.filter((one) => one.ready > 0 && !one.served);
  const busy = alive.reduce((sum, one) => sum + one.busy, 0);
  const room = alive.reduce((sum, one) => sum + (one.concurrency || 0), 0);
  const oldest = Math.min(...queues.map((one) => one.oldest_ms ?? Infinity));
  return [
    h("div", { class: "row" }, h("h1", null, "Workers and queues"), h("span", { class: "muted sm desc" }, "Which processes take tasks, and what waits to be taken."), h("span", { class: "grow" }), copyAs({ command: "holdfast workers --json", python: "app.workers()", path: "/api/v1/workers" })),
    h("div", { class: "cols three" }, tile("workers alive", String(alive.length)), tile("tasks worked on", [String(busy), room ? h("small", null, ` of ${room}`) : null]), tile("oldest ready task waits", Number.isFinite(oldest) ? duration(now - oldest) : "–")),
    lonely.map((one) => h("div", { class: "notice", role: "status" }, h("span", { class: "st waiting" }, icon("waiting")), h("span", null, h("b", null, "No worker serves queue ", h("span", { class: "m" }, shown(one.queue)), spread ? [" of ", shown(namespaceOf({ namespace: one.namespace || "-" }))] : "", ". "), `${one.ready === 1 ? "1 task waits" : `${number(one.ready)} tasks wait`} in it${one.oldest_ms ? `, the oldest for ${duration(now - one.oldest_ms)}` : ""}. `), h("span", { class: "grow" }), commandLine(`holdfast worker FILE${one.namespace ? ` --namespace ${quoted(one.namespace)}` : ""}${one.queue === "default" ? "" : ` --queue ${quoted(one.queue)}`}`))),
    h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Workers")), alive.length || dead.length || gone.length ? h("table", { class: "cards workers" }, heads(["Machine", "Process", "Serves", "Queues", "Busy", "Up", "Heard of"]), h("tbody", null,
      alive.map((one) => h("tr", { key: one.holder }, h("td", { class: "b" }, shown(one.host || "–")), h("td", { class: "m" }, String(one.pid || one.holder)), h("td", { class: "m ink2 val" }, shown(Object.keys(one.agents || {}).join(", "))), h("td", { class: "m ink2" }, shown((one.queues || []).join(", "))), h("td", { class: "m" }, cells(one.busy, one.concurrency), `${one.busy}${one.concurrency ? ` of ${one.concurrency}` : ""}`, one.clogged ? h("span", { class: "risk" }, "clogged") : null), h("td", { class: "m muted r" }, one.started_us ? duration(now - one.started_us / 1000) : "–"), h("td", { class: "m muted r" }, "now"))),
      dead.map((one) => h("tr", { key: one.holder, class: "dead" }, h("td", null, shown(one.machine || "–")), h("td", { class: "m" }, shown(one.pid)), h("td", { colspan: 2 }, h("a", { class: "link", href: addressOf("/?q=status:interrupted") }, `${plural(one.tasks, "task")} not taken over`)), h("td", null, h("span", { class: "st failed" }, icon("failed"), "dead")), h("td", { class: "m muted r" }, "–"), h("td", { class: "m muted r" }, `last wrote ${ago(now - one.since_ms)} ago`))),
      gone.map((one) => h("tr", { key: one.holder, class: "dead" }, h("td", null, shown(one.machine || "–")), h("td", { class: "m" }, shown(one.pid)), h("td", { class: "m val" }, shown(one.agents.join(", "))), h("td", { class: "m" }, shown(one.queues.join(", "))), h("td", null, h("span", { class: "st cancelled", title: "It ended or died. No task waits for it" }, icon("cancelled"), "gone")), h("td", { class: "m muted r" }, "–"), h("td", { class: "m muted r" }, `seen ${ago(now - one.seen_ms)} ago`))))) : h("p", { class: "plain muted" }, "No worker is alive. Start one: ", h("code", null, "holdfast worker FILE"))),
    h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Queues")), queues.length ? h("table", { class: "cards queues" }, heads(["Queue", "Ready", "Working", "Waiting for a time", "Last hour", "Oldest", "Limit"]), h("tbody", null, queues.map((one) => h("tr", { key: `${one.namespace}/${one.queue}` }, h("td", { class: "m" }, h("a", { class: "id", href: addressOf(`/?q=${encodeURIComponent(`queue:${one.queue}${page.about && page.about.spread ? ` namespace:${one.namespace || "-"}` : ""}`)}`) }, shown(one.queue)), spread ? [" ", h("span", { class: "muted sm" }, shown(namespaceOf({ namespace: one.namespace || "-" })))] : null, one.served || !one.ready ? null : [" ", h("span", { class: "risk" }, "not served")]), h("td", { class: "m r" }, number(one.ready)), h("td", { class: "m r" }, number(one.running)), h("td", { class: "m r" }, number(one.timed ?? 0)), h("td", null, h("div", { class: "hour" }, sparks(rateOf(rates, one) || { completed: [], failed: [] }, `queue ${one.queue}`))), h("td", { class: "m muted r" }, one.oldest_ms ? duration(now - one.oldest_ms) : "–"), h("td", { class: "m muted" }, shown(limits.get(one.queue) || "–")))))) : h("p", { class: "plain muted" }, "No task waits in a queue.")),
    schedules.length ? h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Schedules"), h("span", { class: "muted sm" }, "of the workers that are alive")), h("table", { class: "cards schedules" }, heads(["Schedule", "Agent", "When", "Time zone", "Queue", "Next"]), h("tbody", null, schedules.map((one) => h("tr", { key: `${one.namespace}/${one.name}/${one.when}` }, h("td", { class: "m" }, h("a", { class: "id", href: addressOf(`/?q=${encodeURIComponent(`id:${one.name}/*`)}`) }, shown(one.name))), h("td", { class: "m ink2" }, shown(one.agent)), h("td", { class: "m" }, shown(one.when)), h("td", { class: "ink2" }, shown(one.zone)), h("td", { class: "m ink2" }, shown(one.queue)), h("td", { class: "m r" }, one.next_ms ? h("span", { title: new Date(one.next_ms).toISOString() }, `in ${duration(one.next_ms - now)}`) : "–")))))) : null,
  ];
}

/** What was done of a queue in the last hour; a page of all namespaces names it with its namespace. */
function rateOf(rates, { queue, namespace }) {
  const name = rates && [`${namespace}/${queue}`, queue].find((one) => Object.hasOwn(rates.queues, one));
  return name ? rates.queues[name] : null;
}

/** What workers declare of their queues, in words. If they disagree, each of it is there. */
function limitsOf(alive) {
  const found = new Map();
  for (const one of alive.flatMap((each) => each.limits || [])) {
    const text = [one.concurrency && `${number(one.concurrency)} at a time`, one.per_key && `${number(one.per_key)} of a key`, one.rate && one.rate.replace(/\s*\/\s*([smhd])\s*$/, (_, unit) => ` a ${UNITS[unit]}`), one.max_ready && `at most ${number(one.max_ready)} ready`].filter(Boolean).join(", ");
    const known = found.get(one.name);
    found.set(one.name, !known || known === text ? text : known.split(" or ").includes(text) ? known : `${known} or ${text}`);
  }
  return found;
}

function cells(busy, room) {
  if (!room || room > 50) return null;
  const wide = Math.min(room, MOST_CELLS);
  const full = Math.round((busy / room) * wide);
  return h("span", { class: "cells", "aria-hidden": "true" }, Array.from({ length: wide }, (_, index) => h("i", { class: index < full ? "on" : "" })));
}

function tile(label, content) {
  return h("div", { class: "panel tile" }, h("span", { class: "muted sm" }, label), h("b", null, content));
}

function heads(names) {
  return h("thead", null, h("tr", null, names.map((one) => h("th", { scope: "col", class: ["Ready", "Working", "Waiting for a time", "Oldest", "Up", "Heard of", "Next"].includes(one) ? "r" : "" }, one))));
}
