// Tasks: counts that are the filter, and a row for each task with how it went.

import { act, chosenBar } from "./bulk.js";
import { calmly, get, post, Problem } from "./api.js";
import { chips, words } from "./chips.js";
import { h } from "./dom.js";
import { icon, status, statusOf } from "./icons.js";
import { legend } from "./keys.js";
import { commandLine, copyAs } from "./copy.js";
import { addressOf, ask, go, goWithin, namespaceOf, within } from "./route.js";
import { startTask } from "./start.js";
import { ago, duration, money, name, number, shown, trouble } from "./text.js";

const COUNTED = ["running", "waiting", "doubt", "interrupted", "pending", "failed", "completed", "cancelled"];
const AGAIN_MS = 200;
const VIEWS = "holdfast-views";
const HIDDEN = "holdfast-columns-hidden";
const COLUMNS = [["st", "Status"], ["id", "Task"], ["stage", "Stage"], ["why", "Why, or what came of it"], ["strip", "How it went"], ["took", "Took"], ["cost", "Budget · cost"], ["when", "Changed"]];
const OPTIONAL = COLUMNS.slice(2);

export function tasks(page, at) {
  const known = { rows: null, next: null, looked: 0, strips: new Map(), counts: page.counts, rates: null, fresh: 0, on: -1, error: null, dead: new Set(), chosen: [], money: null, words: [], job: null, demo: null, place: null };
  let query = at.query.get("q") || "";
  let asked = 0;

  async function load(more = false) {
    const turn = ++asked;
    try {
      const found = await get("/tasks", { q: query, after: more ? known.next : "" });
      if (turn !== asked) return;
      if (!more) known.place = found.place;
      known.rows = more ? [...known.rows, ...found.tasks] : found.tasks;
      known.next = found.next;
      known.looked = (more ? known.looked : 0) + found.looked_at;
      known.fresh = 0;
      known.error = null;
      page.draw();
      if (known.demo && known.demo.task && known.rows.some((row) => row.id === known.demo.task)) return go(`/tasks/${encodeURIComponent(known.demo.task)}`);
      await strips();
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 400) throw error;
      known.error = error;
      page.draw();
    }
  }

  async function strips() {
    const ids = known.rows.map((row) => row.id);
    for (let from = 0; from < ids.length; from += 50) {
      const found = await get("/strips", { id: ids.slice(from, from + 50) });
      for (const id in found.strips) known.strips.set(id, found.strips[id]);
    }
    page.draw();
  }

  const again = calmly(() => load().catch(page.failed), AGAIN_MS);

  function hear(kind, data) {
    if (kind === "reset") again();
    else if (kind === "changed") {
      const here = new Map((known.rows || []).map((row, index) => [row.id, index]));
      const fresh = data.tasks.filter((row) => !here.has(row.id));
      if (window.scrollY > 120 && fresh.length) {
        known.fresh += fresh.length;
        for (const row of data.tasks) if (here.has(row.id)) known.rows[here.get(row.id)] = row;
      } else again();
    } else if (kind === "counts") {
      known.counts = data;
      const dead = new Set(data.dead || []);
      if ([...dead].some((id) => !known.dead.has(id)) || dead.size !== known.dead.size) again();
      known.dead = dead;
      if (spread()) again(); // it is told that something changed, and not what
    }
  }

  function chosen() {
    const found = /(?:^| )status:([\w-]+)/.exec(query);
    return found ? found[1] : "";
  }

  function choose(which) {
    const rest = query.replace(/(?:^| )status:[\w-]+/, "").trim();
    ask({ q: chosen() === which ? rest : `status:${which} ${rest}`.trim() });
  }

  function move(by) {
    if (!known.rows || !known.rows.length) return;
    document.activeElement?.blur(); // else Enter would press the button that was used last
    known.on = Math.max(0, Math.min(known.rows.length - 1, known.on + by));
    page.draw();
    requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector("tr.on .id")?.focus()));
  }

  function select() {
    const row = known.rows && known.rows[known.on];
    if (!row) return;
    flip(row.id);
  }

  function flip(id) {
    known.chosen = known.chosen.includes(id) ? known.chosen.filter((one) => one !== id) : [...known.chosen, id];
    page.draw();
  }

  /** Begin the demo in this empty store. Its task is opened as soon as it is there. */
  function runDemo() {
    known.demo = {};
    page.draw();
    post("/demo", {}).then((found) => { known.demo = found; again(); }, (error) => { known.demo = { error }; page.draw(); });
  }

  const bulk = (verb, all) => act(page, known, verb, all ? { q: query } : { ids: known.chosen });

  const compared = () => known.chosen.length === 2 && go(`/compare/${known.chosen.map(encodeURIComponent).join("/")}`);

  const spread = () => Boolean(page.about && page.about.spread);

  return {
    title: () => "Tasks",
    keys: { x: () => !spread() && select(), c: () => !spread() && compared(), j: () => move(1), k: () => move(-1), Enter: () => known.rows && known.rows[known.on] && opened(known.rows[known.on]) },
    ticks: () => true,
    async start(listen) {
      const [counts, rates] = await Promise.all([get("/tasks/counts"), get("/rates"), load()]);
      get("/money").then((found) => { known.money = found; page.draw(); }, () => undefined);
      get("/words").then((found) => { known.words = found.words; }, () => undefined);
      known.counts = { ...counts, ...(known.counts || {}), by_status: counts.by_status };
      known.rates = rates;
      known.dead = new Set(counts.dead);
      page.draw();
      listen("/stream", known.place, hear);
    },
    moved(to) {
      if (to.screen !== "tasks") return false;
      query = to.query.get("q") || "";
      known.on = -1;
      load().catch(page.failed);
      return true;
    },
    close: () => again.stop(),
    draw: () => isEmpty(known, query) ? empty(page, known.demo, runDemo) : [head(query, page), h("div", { class: "counts" }, statebar(known.counts, chosen(), choose), rates(known.rates, known.money)), filter(query, known.error, known.words), spread() ? namespaces(known.counts) : null, ...(known.error ? [] : [chosenBar(page, known, query, bulk, compared), known.fresh ? fresh(known.fresh, load) : null, body(known, page, () => load(true).catch(page.failed), flip)])],
  };
}

const pathOf = (row) => `/tasks/${encodeURIComponent(row.local || row.id)}`;
const opened = (row) => goWithin(row.namespace, pathOf(row));

/** Whether tasks can be started here: the page was given a file, and the person may. */
const starts = (page) => Boolean(page.about && page.about.agents.length && page.about.rights.includes("steer") && !page.about.read_only);

function head(query, page) {
  const filtered = query ? ` # ${query.replace(/[\p{C}\s]+/gu, " ")}` : ""; // a comment is one line
  return h("div", { class: "row" }, h("h1", null, "Tasks"), h("span", { class: "muted sm desc" }, "Every task in this store, newest first. The counts are the filter."), h("span", { class: "grow" }),
    starts(page) ? h("button", { class: "btn pri", type: "button", onclick: () => startTask().catch(page.failed) }, icon("play"), "Start a task") : null,
    copyAs({ command: `holdfast list --json${filtered}`, python: "app.list()", path: `/api/v1/tasks${query ? `?q=${encodeURIComponent(query)}` : ""}` }),
    columnsMenu());
}

function statebar(counts, on, choose) {
  const of = (which) => (!counts ? null : which === "doubt" ? counts.in_doubt : which === "interrupted" ? counts.interrupted : counts.by_status[which] || 0);
  return h("div", { class: "statebar", role: "group", "aria-label": "Status" }, COUNTED.map((which) => {
    const count = of(which);
    return h("button", { type: "button", class: `${which}${count ? "" : " none"}`, "aria-pressed": String(on === which), onclick: () => choose(which) }, status(which), h("b", null, count === null ? "–" : number(count)));
  }));
}

function rates(found, money1) {
  const done = found ? found.completed : [];
  const bad = found ? found.failed : [];
  const total = done.reduce((sum, one) => sum + one, 0);
  const failed = bad.reduce((sum, one) => sum + one, 0);
  const minute = done.slice(-10).reduce((sum, one, index) => sum + one + bad.slice(-10)[index], 0) / 10;
  const days = money1 ? money1.days.map(([day, cost]) => `${day}: ${money(cost)}`).join("\n") : "";
  return h("div", { class: "panel thr" }, h("span", { title: "in the last ten minutes" }, h("span", { class: "muted sm" }, "done a minute"), h("b", null, number(minute))),
    sparks({ completed: done, failed: bad }, `${total} tasks completed and ${failed} failed in the last hour`),
    h("span", { title: `${days}${money1 && money1.more ? "\nof the newest 200 tasks" : ""}` }, h("span", { class: "muted sm" }, money1 && money1.more ? "spent today, at least" : "spent today"), h("b", null, money1 ? money(money1.today) : "–")));
}

/** What was done in each of the last 60 minutes: a bar each, with failures on top. */
export function sparks({ completed: done, failed: bad }, label) {
  const most = Math.max(1, ...done.map((one, index) => one + bad[index]));
  const bars = done.flatMap((one, index) => {
    const high = (one / most) * 40;
    const over = (bad[index] / most) * 40;
    return [one ? h("rect", { x: index * 4, y: 44 - high, width: 3, height: high, class: "f-done" }) : null, bad[index] ? h("rect", { x: index * 4, y: 44 - high - over, width: 3, height: over, class: "f-fail" }) : null];
  });
  return h("svg", { viewBox: "0 0 240 46", preserveAspectRatio: "none", role: "img", "aria-label": label }, h("path", { d: "M0 45H240", class: "s-line" }), bars);
}

/** Filters that a person has kept, in this browser. */
function views() {
  try {
    const found = JSON.parse(localStorage.getItem(VIEWS) || "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one === "string").slice(0, 20) : [];
  } catch {
    return [];
  }
}

function keep(all) {
  localStorage.setItem(VIEWS, JSON.stringify(all));
  ask({}); // which draws
}

function filter(query, error, known) {
  const kept = views();
  const saved = kept.includes(query);
  const save = query ? h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(saved), onclick: () => keep(saved ? kept.filter((one) => one !== query) : [...kept, query]) }, saved ? "Saved" : "Save view") : null;
  return [
    chips({ query, change: (text) => ask({ q: text }), placeholder: "status:failed  agent:recap  stage:booking  user:ana  agent!=heartbeat  id:order-*  changed<3h", more: save, list: known }),
    kept.length ? h("nav", { class: "views", "aria-label": "Saved views" }, kept.map((one) => h("button", { key: one, class: "btn ghost sm m", type: "button", "aria-pressed": String(one === query), onclick: () => ask({ q: one }) }, shown(words(one).join(" "))))) : null,
    error ? h("p", { class: "notice bad", role: "alert" }, trouble(error)) : null,
  ];
}

function hiddenColumns() {
  try {
    const found = JSON.parse(localStorage.getItem(HIDDEN) || "[]");
    return OPTIONAL.map(([id]) => id).filter((id) => Array.isArray(found) && found.includes(id));
  } catch {
    return [];
  }
}

/** Which columns the list has, kept in this browser. Status and id are always there. */
function columnsMenu() {
  const hidden = hiddenColumns();
  const change = (id) => (event) => {
    localStorage.setItem(HIDDEN, JSON.stringify(event.target.checked ? hidden.filter((one) => one !== id) : [...hidden, id]));
    ask({}); // which draws
  };
  return h("details", { class: "menu columns" }, h("summary", { class: "btn" }, "Columns"),
    h("div", { class: "sheet" }, OPTIONAL.map(([id, label]) => h("label", { key: id, class: "row" }, h("input", { type: "checkbox", checked: !hidden.includes(id), onchange: change(id) }), label))));
}

function fresh(count, load) {
  return h("button", { class: "btn fresh", type: "button", onclick: () => { window.scrollTo(0, 0); load(); } }, `${count} new`);
}

function body(known, page, more, flip) {
  if (known.rows === null) return h("p", { class: "plain muted" }, "Reading tasks …");
  if (!known.rows.length) return h("p", { class: "panel plain" }, known.next ? [`None of the newest ${number(known.looked)} tasks matches this filter. `, h("button", { class: "link", type: "button", onclick: more }, "look further")] : "No task matches this filter.");
  const hidden = hiddenColumns();
  const total = known.counts ? number(known.counts.tasks) : "";
  return [
    h("div", { class: "panel scrollx" }, h("table", { class: `list ${hidden.map((one) => `no-${one}`).join(" ")}` }, h("thead", null, h("tr", null, COLUMNS.map(([id, label], index) => h("th", { scope: "col", class: `c-${id}${index > 4 ? " r" : ""}` }, label)))), h("tbody", null, known.rows.map((row, index) => line(row, known.strips.get(row.id), index === known.on, known.chosen.includes(row.id), flip))))),
    legend([["j k", "move"], ["enter", "open"], ["x", "select"], ["c", "compare two"], ["/", "find"], ["?", "all keys"]], h("span", null, `${total} tasks`, known.next ? [" · ", h("button", { class: "link", type: "button", onclick: more }, "next 50")] : "")),
  ];
}

function line(row, strip, on, chosen, flip) {
  const which = statusOf(row);
  const now = Date.now();
  const changed = Date.parse(row.changed_at);
  const running = row.status === "running";
  return h("tr", { key: row.id, "aria-selected": chosen ? "true" : null, class: `${on ? "on" : ""}${chosen ? " chosen" : ""}${now - changed < 3000 && running ? " new" : ""}` },
    h("td", { class: "c-st" }, row.namespace ? null : h("label", { class: "pick" }, h("input", { type: "checkbox", checked: chosen, "aria-label": `Select ${row.id}`, onchange: () => flip(row.id) })), status(which)),
    h("td", { class: "c-id" }, h("a", { class: "id", href: addressOf(within(row.namespace, pathOf(row))), "data-whole": row.namespace ? "" : null }, name(row.local || row.id)), h("span", { class: "sub" }, row.namespace ? [h("b", null, shown(namespaceOf(row))), " · "] : null, shown(row.agent), row.mock ? " (mock)" : "")),
    h("td", { class: "c-stage" }, pips(row, strip, which)),
    h("td", { class: "c-why" }, h("span", { class: "why" }, shown(strip ? `${which === "interrupted" ? "its process died; " : ""}${strip.came}` : ""))),
    h("td", { class: "c-strip" }, strip ? drawStrip(which === "interrupted" ? [...strip.pieces, ["kill", 0]] : strip.pieces) : h("svg", { class: "strip", viewBox: "0 0 190 16" })),
    h("td", { class: "r m c-took" }, strip && strip.took_ms ? duration(strip.took_ms) : "–"),
    h("td", { class: "r m c-cost" }, strip && strip.share !== null && strip.share !== undefined ? mini(strip.share) : null, strip ? money(strip.cost) : "–"),
    h("td", { class: "r m muted c-when" }, ago(now - changed)));
}

/** Every namespace, with how many tasks it has and how many of them wait for a person. */
function namespaces(counts) {
  if (!counts || !counts.namespaces) return null;
  const left = counts.left_out ? h("p", { class: "notice" }, `These are the first ${number(counts.namespaces.length)} namespaces by name. ${number(counts.left_out)} more are neither listed nor counted here; filter by one to see it: `, h("code", null, "namespace:name")) : null;
  return [left, h("nav", { class: "views", "aria-label": "Namespaces" }, counts.namespaces.map((one) => h("a", { key: one.name, class: "btn sm", href: addressOf(`/ns/${encodeURIComponent(one.name)}/`), "data-whole": "" }, shown(namespaceOf({ namespace: one.name })), h("span", { class: "n" }, number(one.tasks)), one.inbox ? h("span", { class: "n hot", title: "waiting for a person" }, number(one.inbox)) : null)))];
}

function mini(share) {
  const kind = share >= 1 ? " x" : share >= 0.8 ? " p" : "";
  return h("span", { class: `mini${kind}`, role: "img", "aria-label": `${Math.round(share * 100)} % of a limit` }, h("i", { style: { width: `${Math.min(100, share * 100)}%` } }));
}

/** Stages as a row of marks: those behind, the present one, those ahead. */
export function pips(row, strip, which) {
  const stages = (strip && strip.stages) || [];
  const here = stages.indexOf(row.stage);
  const mark = { failed: "x", doubt: "q", waiting: "w", completed: "d", interrupted: "x" }[which] || "c";
  return h("span", { class: "pips" }, stages.map((_, index) => h("i", { class: index < here || which === "completed" ? "d" : index === here ? mark : "" })), h("span", { class: "sm ink2" }, row.stage ? shown(row.stage) : stages.length ? "–" : ""));
}

const FILLED = { done: "f-done", run: "f-run", failed: "f-fail", killed: "f-run", child: "f-child" };
const THIN = { wait: "f-wait", pause: "f-line" };
const WIDTH = 190;

/** How a task went, in a line. Long silences take little room: widths grow with the logarithm of time. */
export function drawStrip(pieces) {
  const weigh = ([kind, ms]) => (kind === "kill" ? 0.15 : Math.log2(2 + ms / 40) * (THIN[kind] ? 1.1 : 1));
  const all = pieces.reduce((sum, piece) => sum + weigh(piece), 0) || 1;
  let x = 0;
  const drawn = pieces.map((piece) => {
    const [kind] = piece;
    const wide = Math.max(1.5, (weigh(piece) / all) * (WIDTH - pieces.length * 1.2));
    const at = x;
    x += wide + 1.2;
    if (kind === "kill") return h("path", { d: `M${(at + 1).toFixed(1)} 1v14`, class: "kill" });
    if (THIN[kind]) return h("rect", { x: at.toFixed(1), y: 7, width: wide.toFixed(1), height: 2, class: THIN[kind] });
    if (kind === "doubt") return [h("rect", { x: at.toFixed(1), y: 3, width: wide.toFixed(1), height: 10, rx: 2, class: "s-doubt" }), h("path", { d: `M${(at + 1.5).toFixed(1)} 12l${Math.min(8, wide - 2).toFixed(1)} -8`, class: "s-doubt" })];
    return h("rect", { x: at.toFixed(1), y: 3, width: wide.toFixed(1), height: 10, rx: 2, class: FILLED[kind] || "f-done" });
  });
  const told = pieces.map(([kind]) => kind).join(", ");
  return h("svg", { class: "strip", viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none", role: "img", "aria-label": told ? `How it went: ${told.slice(0, 200)}` : "nothing done yet" }, drawn.length ? drawn : h("rect", { x: 0, y: 7, width: WIDTH - 4, height: 2, class: "f-line" }));
}

/** Whether there is no task at all: then there is nothing to count or to filter. */
const isEmpty = (known, query) => !query && known.rows !== null && !known.rows.length && known.counts !== null && known.counts.tasks === 0;

function empty(page, began, runDemo) {
  const about = page.about || { rights: [] };
  const name1 = (about.store || "").split("/").pop();
  const comment = (text) => h("span", { class: "muted" }, text);
  const beside = about.loopback && !about.read_only && about.rights.includes("steer");
  const here = about.demo && !about.read_only;
  return h("div", { class: "entrance" }, h("div", { class: "mark0" }, icon("brand")), h("h1", null, "No task yet"),
    h("p", { class: "muted" }, "This page shows the tasks in ", h("b", { class: "m", title: about.store || "" }, shown(name1)), ". The first one appears here by itself."),
    h("pre", { class: "code" }, comment("# run your own"), "\nholdfast run agents.py -p name=ana", beside ? ["\n\n", comment("# or the demo, in a store of its own: an agent is killed, and continues"), "\nholdfast demo --ui"] : null),
    h("div", { class: "acts" }, starts(page) ? h("button", { class: "btn pri", type: "button", onclick: () => startTask().catch(page.failed) }, icon("play"), "Start a task") : null,
      here ? h("button", { class: `btn ${starts(page) ? "" : "pri"}`, type: "button", disabled: Boolean(began && !began.error), onclick: runDemo }, icon("play"), began && !began.error ? "The demo begins …" : "Run the demo here") : null,
      beside ? commandLine("holdfast demo --ui") : null),
    began && began.error ? h("p", { class: "notice bad", role: "alert" }, trouble(began.error)) : null,
    here ? h("p", { class: "muted sm below" }, "The demo needs no key and no network, and takes some 20 seconds. Here it adds the task order-7, and the file ", h("code", null, shown(`${name1}-world`)), " beside the store.") : null);
}
