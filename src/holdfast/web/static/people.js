// Users and threads: what lasts beyond a task, and the tasks of each. They are only shown here.

import { get } from "./api.js";
import { copyAs, typed } from "./copy.js";
import { h } from "./dom.js";
import { status, statusOf } from "./icons.js";
import { markdown } from "./markdown.js";
import { addressOf } from "./route.js";
import { ago, name, number, plural, shown, value } from "./text.js";

function listed(kind, title, told) {
  return function list(page) {
    const known = { rows: null, next: null };

    async function load(more) {
      const found = await get(`/${kind}`, { after: more ? known.next : "" });
      known.rows = more ? [...known.rows, ...found[kind]] : found[kind];
      known.next = found.next;
      page.draw();
    }

    return {
      title: () => title,
      async start(listen) {
        await load(false);
        listen("/stream", null, () => undefined);
      },
      moved: () => false,
      draw: () => [
        h("div", { class: "row" }, h("h1", null, title), h("span", { class: "muted sm desc" }, told)),
        known.rows === null ? h("p", { class: "plain muted" }, "Reading …") : !known.rows.length ? h("p", { class: "panel plain three" }, `There are no ${kind} in this store.`) : h("ul", { class: "panel names three" }, known.rows.map((one) => h("li", { key: one.id }, h("a", { class: "id", href: addressOf(`/${kind}/${encodeURIComponent(one.id)}`) }, name(one.id)), one.messages === undefined ? null : h("span", { class: "muted sm" }, plural(one.messages, "message"))))),
        known.next ? h("p", null, h("button", { class: "btn", type: "button", onclick: () => load(true).catch(page.failed) }, "More")) : null,
      ],
    };
  };
}

export const users = listed("users", "Users", "People with state that lasts beyond their tasks.");
export const threads = listed("threads", "Threads", "Conversations that span tasks.");

export function user(page, to) {
  return one(page, `/users/${encodeURIComponent(to.id)}`, to.id, "user", (found) => [
    panel("State", Object.entries(found.state || {}).map(([key, given]) => pair(key, value(given, 300)))),
    panel("Facts", Object.entries(found.facts || {}).map(([key, given]) => pair(key, [value(given.value, 300), given.source ? h("span", { class: "muted" }, " ", shown(given.source)) : null]))),
  ]);
}

export function thread(page, to) {
  return one(page, `/threads/${encodeURIComponent(to.id)}`, to.id, "thread", (found) => [
    h("section", { class: "panel chat wide" }, h("header", null, h("h2", null, plural(found.count, "message")), found.count > found.messages.length ? h("span", { class: "muted sm" }, `the newest ${found.messages.length}`) : null), found.messages.map((given, index) => h("article", { class: `msg ${given.role === "user" ? "user" : ""}`, key: index }, h("div", { class: "who" }, shown(given.role || "message")), h("div", { class: "body" }, typeof given.content === "string" ? h("div", { class: "md" }, markdown(given.content)) : h("p", { class: "m" }, value(given.content ?? given, 2000)))))),
    Object.keys(found.metadata || {}).length ? panel("Metadata", Object.entries(found.metadata).map(([key, given]) => pair(key, value(given, 300)))) : null,
  ]);
}

function one(page, path, id, kind, parts) {
  const known = { found: null };
  const load = async () => {
    known.found = await get(path);
    page.draw();
  };
  return {
    title: () => id,
    async start(listen) {
      await load();
      listen("/stream", null, (event) => { if (event === "changed") load().catch(page.failed); });
    },
    moved: () => false,
    draw() {
      const found = known.found;
      if (!found) return h("p", { class: "plain muted" }, "Reading …");
      const python = kind === "user" ? `app.user(${JSON.stringify(id)}).get()` : `app.thread(${JSON.stringify(id)}).messages`;
      return [
        h("div", { class: "crumb" }, h("a", { href: addressOf(`/${kind}s`) }, kind === "user" ? "Users" : "Threads"), " › ", h("span", { class: "m" }, shown(id))),
        h("div", { class: "row" }, h("h1", { class: "m tid" }, name(id)), h("span", { class: "muted sm desc" }, kind === "user" ? "What lasts beyond this person's tasks. It is only shown here." : "A conversation that spans tasks. It is only shown here."), h("span", { class: "grow" }), copyAs({ command: `holdfast list --${kind} ${typed(id)} --json`, python, path: `/api/v1${path}` })),
        h("div", { class: "cols three" }, parts(found)),
        h("section", { class: "panel scrollx" }, h("header", null, h("h2", null, "Tasks"), h("span", { class: "muted sm" }, number(found.tasks.length))), found.tasks.length ? h("table", { class: "cards" }, h("thead", null, h("tr", null, ["Status", "Task", "Agent", "Stage", "Changed"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, found.tasks.map((row) => h("tr", { key: row.id }, h("td", null, status(statusOf(row))), h("td", null, h("a", { class: "id", href: addressOf(`/tasks/${encodeURIComponent(row.id)}`) }, name(row.id))), h("td", { class: "ink2" }, shown(row.agent)), h("td", { class: "ink2" }, shown(row.stage || "–")), h("td", { class: "m muted" }, ago(Date.now() - Date.parse(row.changed_at))))))) : h("p", { class: "plain muted" }, "No task.")),
      ];
    },
  };
}

function panel(title, rows) {
  return h("section", { class: "panel" }, h("header", null, h("h2", null, title), h("span", { class: "muted sm" }, String(rows.length))), h("div", { class: "kv" }, rows.length ? rows : h("p", { class: "plain muted" }, "Nothing is recorded.")));
}

function pair(key, content) {
  return h("div", { key }, h("span", { class: "g" }), h("span", { class: "k", title: key }, shown(key)), h("span", { class: "v" }, content));
}
