// The page: finds the session, shows the screen that the address names, and keeps the bar above it.

import { connection, exchange, forget, get, hold, login, Problem, stream } from "./api.js";
import { commandLine } from "./copy.js";
import { h, render } from "./dom.js";
import { icon } from "./icons.js";
import { onKeys, showKeys } from "./keys.js";
import { addressOf, go, goWithin, onMove, route } from "./route.js";
import { ago, clock, number, sentence, shown, trouble } from "./text.js";
import { worded } from "./chips.js";
import { startTask } from "./start.js";

/** The module of each screen. It is loaded when the screen is first shown. */
const people = () => import("./people.js");
const SCREENS = { tasks: () => import("./tasks.js"), task: () => import("./task.js"), inbox: () => import("./inbox.js"), workers: () => import("./workers.js"), audit: () => import("./audit.js"), compare: () => import("./compare.js"), user: people, users: people, thread: people, threads: people };

/** What every screen shares: who acts, what the store is, the numbers of the bar, and how to draw. */
const page = { about: null, counts: null, draw, hear: null, problem: null, notice: "", act: null };
let screen = null;
let feed = null;
let drawing = false;
let session = false;
let refused = null;
let ready = false;
let showing = 0;

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render(session ? [bar(), body(), bottom()] : entrance(), document.getElementById("page"));
    document.title = screen && session ? `${screen.title()} · Holdfast` : "Holdfast";
  });
}

function body() {
  const content = page.problem ? problem(page.problem) : screen ? screen.draw() : null;
  return h("main", { id: "main", tabindex: "-1", key: "main" }, banner(), content, h("div", { class: "vh", role: "status", "aria-live": "polite" }, page.notice));
}

// The bar

const PLACES = [["tasks", "Tasks", "/"], ["inbox", "Inbox", "/inbox"], ["workers", "Workers", "/workers"], ["audit", "Audit", "/audit"]];

/** Whether this page is of all namespaces: then a task, and what is done about it, is on the page of one. */
const spread = () => Boolean(page.about && page.about.spread);

function places() {
  const here = ["task", "compare"].includes(route().screen) ? "tasks" : route().screen;
  const waiting = page.counts && page.counts.inbox;
  return PLACES.map(([name, label, path]) =>
    h("a", { href: addressOf(path), "aria-current": here === name ? "page" : null }, h("span", { class: "ic" }, icon(name)), label, name === "inbox" && waiting ? h("span", { class: "n hot" }, number(waiting)) : null),
  );
}

function bar() {
  const about = page.about || {};
  return h("header", { class: "top", key: "top" },
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); document.getElementById("main").focus(); } }, "Skip to content"),
    h("a", { class: "brand", href: addressOf("/") }, icon("brand"), "Holdfast"),
    h("span", { class: "store m", title: about.store || "The store" }, shown((about.store || "").split("/").pop()), about.spread ? " · all namespaces" : about.namespace ? [" · ", shown(about.namespace)] : null),
    about.one_of_many ? h("a", { class: "store under", href: `${document.body.dataset.base.replace(/\/ns\/[^/]*$/, "")}/`, "data-whole": "" }, "all namespaces") : null,
    h("nav", { class: "nav", "aria-label": "Pages" }, places()),
    h("div", { class: "right" }, live(),
      h("button", { class: "find", type: "button", onclick: find, "aria-label": "Find and commands" }, icon("search"), h("span", { class: "w" }, "Go to task, step …"), h("kbd", null, "/")),
      h("span", { class: "sm who", title: "What you do here is recorded with this name" }, about.read_only ? "read only" : ["by ", h("b", { class: "ink2" }, shown(about.by || "–"))]),
    ),
  );
}

function live() {
  const age = Date.now() - connection.at;
  const told = (kind, word, small, what) => h("button", { type: "button", class: `live${kind}`, title: `${what} the live view`, onclick: () => { hold(!connection.held); draw(); } }, h("i"), `${word} `, h("small", null, small), h("span", { class: "vh" }, `, press to ${what.toLowerCase()}`));
  if (connection.state === "live") return told("", "Live", age < 20_000 ? "as of now" : `as of ${ago(age)} ago`, "Pause");
  if (connection.state === "paused") return told(" off", "Paused", connection.at && age > 1500 ? `as of ${ago(age)} ago` : "", "Resume");
  const left = Math.max(0, Math.ceil((connection.next - Date.now()) / 1000));
  return h("span", { class: "live lost" }, h("i"), "Not connected ", h("small", null, `tries again in ${left} s`));
}

function bottom() {
  return h("nav", { class: "bottom", "aria-label": "Pages, below", key: "bottom" }, places());
}

/** What stands above a screen while the server, or the store, does not answer. What is on screen stays. */
function banner() {
  if (connection.outdated) return outdated();
  if (connection.state !== "lost") return null;
  const error = connection.error;
  if (error && error.status === 401) return ended();
  const when = connection.at ? `What you see is from ${clock(connection.at)}.` : "";
  const told = error && error.status ? trouble(error) : "The page's server does not answer. Tasks are safe: workers continue without this page.";
  return h("div", { class: "notice bad", role: "alert" }, h("span", { class: "st failed" }, icon("failed")), h("span", null, told, " ", when), h("span", { class: "grow" }), h("button", { class: "btn", type: "button", onclick: () => feed && feed.now() }, "Try now"));
}

/** The server was updated, and this tab still has the page of before. */
function outdated() {
  return h("div", { class: "notice past", role: "status" }, h("span", null, "This page was updated on the server. What you see is the version of before."), h("span", { class: "grow" }), h("button", { class: "btn pri", type: "button", onclick: () => location.reload() }, "Load again"));
}

/** The session is over while a screen is shown: it stays, and continues with a new link. */
function ended() {
  const enter = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target).get("code").trim();
    try {
      await exchange(given.split("#code=").pop());
      feed.now();
    } catch (error) {
      page.notice = error.message;
      draw();
    }
  };
  return h("form", { class: "notice bad", role: "alert", onsubmit: enter }, h("span", null, "This session has ended: the page was started again, or 12 hours have passed. What you see stays. Print a new link with ", h("code", null, "holdfast ui --link")), h("span", { class: "grow" }), h("input", { class: "field", name: "code", autocomplete: "off", "aria-label": "Link or token", placeholder: "Paste the link" }), h("button", { class: "btn pri", type: "submit" }, "Continue"));
}

/** What went wrong, alone on the page: what happened, why, one command, ids that begin alike. */
function problem(error) {
  const [what, why] = parted(error.message);
  const [aim, command] = /^(.*?)(?:: )?(holdfast .+)$/.exec(error.hint)?.slice(1) || [error.hint, ""];
  const more = [why, aim.startsWith("to ") && command ? "" : aim].filter(Boolean).map(sentence).join(" ");
  return h("section", { class: "card alone", role: "alert" }, h("div", { class: "in" },
    h("p", null, h("span", { class: "risk" }, error.code)),
    h("h1", null, shown(sentence(what).replace(/\.$/, ""))),
    more ? h("p", { class: "ink2" }, shown(more)) : null,
    command ? h("div", { class: "acts" }, commandLine(command)) : null,
    alike(error),
    h("div", { class: "acts" }, h("a", { class: "btn pri", href: addressOf("/") }, "All tasks"), h("button", { class: "btn", type: "button", onclick: () => location.reload() }, "Load again")),
  ));
}

/** The first part of a message, and the rest: it begins after the first semicolon outside of quotes. */
function parted(text) {
  for (const { index } of text.matchAll(/; /g)) {
    const before = text.slice(0, index).replace(/\w'(?=[a-z])/g, "");
    if (before.split("'").length % 2 && before.split('"').length % 2) return [text.slice(0, index), text.slice(index + 2)];
  }
  return [text, ""];
}

/** Tasks whose ids begin like one that is not there; looked for once. */
function alike(error) {
  if (error.code !== "task-not-found" || !error.details.id) return null;
  if (!error.near) {
    error.near = [];
    nearest(error.details.id).then((found) => { error.near = found; draw(); }, () => undefined);
  }
  return error.near.length ? h("p", { class: "sm" }, h("span", { class: "muted" }, "Ids that begin alike: "), error.near.map((one, index) => [index ? ", " : "", h("a", { class: "m under", href: addressOf(`/tasks/${encodeURIComponent(one)}`) }, shown(one))])) : null;
}

async function nearest(id) {
  for (const length of [id.length - 1, Math.ceil(id.length / 2), 3]) {
    const { tasks: found } = length > 0 ? await get("/search", { q: id.slice(0, length) }) : { tasks: [] };
    if (found.length) return found.slice(0, 5).map((one) => one.id);
  }
  return [];
}

// Logging in

function entrance() {
  const field = { value: "" };
  const enter = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target).get("code").trim();
    try {
      await exchange(given.split("#code=").pop());
      await begin();
    } catch (error) {
      refused = error;
      draw();
    }
  };
  return h("main", { id: "main", class: "entrance" }, h("div", { class: "mark0" }, icon("brand")), h("h1", null, "Open the link that holdfast ui printed"),
    h("p", { class: "muted" }, refused ? trouble(refused) : "This page has no session. A link works once; print a new one with this command:"),
    h("pre", { class: "code" }, "holdfast ui --link"),
    h("form", { class: "acts", onsubmit: enter }, h("input", { class: "field", name: "code", autocomplete: "off", "aria-label": "Link or token", placeholder: "Paste the link or token", ...field }), h("button", { class: "btn pri", type: "submit" }, "Log in")),
  );
}

// Find, and commands

function commands() {
  const may = page.about && !page.about.read_only && page.about.rights.includes("steer");
  const places1 = [["Tasks", "/", "g t"], ["Inbox", "/inbox", "g i"], ["Workers and queues", "/workers", "g w"], ["Audit", "/audit", "g a"], ["Users", "/users", ""], ["Threads", "/threads", ""]];
  return [
    ...places1.filter(([, path]) => !spread() || PLACES.some(([, , one]) => one === path)).map(([label, path, keys]) => ({ label, told: keys || "screen", act: () => go(path) })),
    ...(may && page.about.agents.length ? [{ label: "Start a task", told: "of an agent of this page's file", act: () => startTask().catch(failed) }] : []),
    { label: "Keys", told: "?", act: showKeys },
    { label: "Copy the link", told: "y", act: () => navigator.clipboard.writeText(location.href).catch(() => undefined) },
  ];
}

/** What a text finds: commands, steps of the open task, tasks by the beginning of their id, and values to filter by. */
async function found1(text) {
  const fits = (one) => one.label.toLowerCase().includes(text.toLowerCase());
  const own = [...commands(), ...(screen && screen.find ? screen.find() : [])].filter(fits).slice(0, text ? 8 : 12);
  if (!text) return own;
  const found = await get("/search", { q: text }).catch(() => ({ tasks: [], words: [] }));
  return [
    ...found.tasks.map((one) => ({ label: one.id, told: `${one.agent} · ${one.status}`, act: () => goWithin(one.namespace, `/tasks/${encodeURIComponent(one.local || one.id)}`) })),
    ...own,
    ...found.words.map(([kind, word]) => ({ label: word, told: `filter by ${kind}`, act: () => go(`/?q=${encodeURIComponent(worded(kind, word))}`) })),
  ];
}

async function find() {
  const dialog = document.createElement("dialog");
  dialog.className = "finder";
  dialog.setAttribute("aria-label", "Find and commands");
  let found = await found1("");
  let at = 0;
  let asked = 0;
  let looking = Promise.resolve();
  const show = () => render([
    h("input", { class: "field", type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-activedescendant": found.length ? `found${at}` : null, autofocus: true, placeholder: "A task's id, a step, an agent, a user, a command", "aria-label": "Task id, step or command", oninput: (event) => { looking = look(event); }, onkeydown: move }),
    h("ul", { id: "found", role: "listbox", "aria-label": "Found" }, found.map((one, index) => h("li", { key: `${one.told}/${one.label}`, id: `found${index}`, role: "option", "aria-selected": String(index === at), onclick: () => choose(one) }, h("span", { class: "id" }, shown(one.label)), " ", h("span", { class: "muted sm" }, shown(one.told))))),
    found.length ? null : h("p", { class: "plain muted sm" }, "Nothing is found."),
  ], dialog);
  const choose = (one) => {
    dialog.close();
    one.act();
  };
  async function look(event) {
    const turn = ++asked;
    const now = await found1(event.target.value.trim());
    if (turn !== asked) return;
    found = now;
    at = 0;
    show();
  }
  function move(event) {
    if (event.key === "ArrowDown") at = Math.min(at + 1, found.length - 1);
    else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
    else if (event.key === "Enter") return looking.then(() => found[at] && choose(found[at])); // what was typed counts, also if it is still looked for
    else return undefined;
    event.preventDefault();
    return show();
  }
  show();
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

// Screens

async function show() {
  const turn = ++showing;
  if (screen && screen.close) screen.close();
  if (feed) feed.close();
  page.problem = null;
  screen = null;
  feed = null;
  ready = false;
  const to = route();
  const made = await SCREENS[to.screen]().catch(() => null);
  if (turn !== showing) return;
  if (!made) return failed(new Problem({}));
  screen = made[to.screen](page, to);
  const shown1 = screen;
  screen.start(listen).then(() => { ready = ready || screen === shown1; }, failed);
  draw();
  window.scrollTo(0, 0);
}

/** A screen begins to listen once it knows from where. */
function listen(path, after, hear) {
  if (feed) feed.close();
  feed = stream(path, after, (kind, data, id) => heard(kind, data, id, hear), draw);
}

function heard(kind, data, id, hear) {
  if (kind === "counts") page.counts = data;
  hear(kind, data, id);
  draw();
}

/** Something could not be read or done. What is on screen stays while the server, or the store, is away. */
function failed(error) {
  if (!(error instanceof Problem)) throw error;
  const away = error.status === 0 || error.status === 503;
  if (ready && (away || error.status === 401)) {
    setTimeout(draw, 1000);
    return;
  }
  if (away) setTimeout(() => page.problem === error && show(), 2000);
  if (error.status === 401) {
    forget();
    session = false;
    refused = null;
  } else {
    page.problem = error;
    if (!away && session) listen("/stream", null, () => undefined); // the bar still counts what waits
  }
  draw();
}

page.failed = failed;

async function begin() {
  page.about = await get("/about");
  session = true;
  refused = null;
  show();
}

onMove(() => {
  if (!session) return;
  if (screen && screen.moved && screen.moved(route())) draw();
  else {
    show();
    requestAnimationFrame(() => document.getElementById("main")?.focus({ preventScroll: true })); // what had the focus is gone
  }
});

onKeys({
  "/": find,
  "?": showKeys,
  "g t": () => go("/"),
  "g i": () => go("/inbox"),
  "g w": () => go("/workers"),
  "g a": () => go("/audit"),
}, () => (screen && session && !page.problem ? screen.keys || {} : {}));

setInterval(() => {
  if (!document.hidden && (connection.state === "lost" || (screen && screen.ticks && screen.ticks()))) draw();
}, 1000);

login().then((known) => (known ? begin() : draw())).catch((error) => {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) forget();
  refused = error;
  draw();
});
