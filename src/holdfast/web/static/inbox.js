// The inbox: what tasks wait for that a person can give, oldest first, and what came of what the person did.

import { calmly, get, post } from "./api.js";
import { commandLine, copyAs } from "./copy.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { choices, fieldsOf, labelOf, valueOf } from "./forms.js";
import { icon, status } from "./icons.js";
import { legend } from "./keys.js";
import { addressOf, goWithin, namespaceOf, within } from "./route.js";
import { clock, duration, looksAlike, money, name, number, shown, trouble, value } from "./text.js";

const KINDS = [
  ["", "Everything", "waiting"], ["question", "Questions", "waiting"], ["approval", "Approvals", "waiting"], ["doubt", "Calls in doubt", "doubt"],
  ["budget", "Budgets", "waiting"], ["quarantined", "Quarantined", "quarantined"], ["other", "Other", "pending"],
];
const NAMED = new Set(["question", "approval", "doubt", "budget", "quarantined"]);
const WORDS = { question: "question", approval: "approval", doubt: "call in doubt", budget: "budget", blocked: "blocked", quarantined: "quarantined", diverged: "diverged", damaged: "damaged", no_worker: "no worker" };
const KEPT_MS = 20_000;

/** What was done here, by entry: it stays for a moment, with what came of it. */
const done = new Map();
/** What a person has typed or pressed once, by entry. */
const drafts = new Map();

const nameOf = (entry) => [entry.task, entry.kind, entry.key].join("\u0000");

export function inbox(page, to) {
  const known = { entries: null, on: 0, kind: to.task ? "" : to.query.get("kind") || "", more: false };

  async function load() {
    const found = await get("/inbox");
    known.entries = found.entries;
    known.more = found.more;
    page.draw();
  }

  const visible = () => {
    const open = known.entries || [];
    const here = new Set(open.map(nameOf));
    const kept = [...done.values()].filter((one) => Date.now() - one.at < KEPT_MS && !here.has(nameOf(one.entry))).map((one) => one.entry);
    const all = [...open, ...kept].sort((one, two) => one.since_ms - two.since_ms);
    if (to.task) return all.filter((one) => one.task === to.task && one.kind === to.kind && one.key === to.key);
    return all.filter((one) => !known.kind || kindOf(one) === known.kind);
  };

  const kindOf = (one) => (NAMED.has(one.kind) ? one.kind : "other");
  const chosen = () => visible()[known.on];

  function move(by) {
    known.on = Math.max(0, Math.min(visible().length - 1, known.on + by));
    page.draw();
    requestAnimationFrame(() => document.querySelector(".card.sel")?.scrollIntoView({ block: "nearest" }));
  }

  const press = (which) => () => chosen() && pressed(page, chosen(), which);
  const again = calmly(() => load().catch(page.failed));
  const settled = (event) => { if (event === "changed" || event === "counts" || event === "reset") again(); };

  return {
    title: () => "Inbox",
    keys: { j: () => move(1), k: () => move(-1), o: () => chosen() && goWithin(chosen().namespace, pathOf(chosen())), a: press("approve"), r: press("reject"), h: press("happened"), n: press("not"), Enter: press("confirm"), Escape: () => chosen() && drafts.delete(nameOf(chosen())) && page.draw(), 1: press("choice1"), 2: press("choice2"), 3: press("choice3") },
    ticks: () => true,
    close: () => again.stop(),
    async start(listen) {
      await load();
      listen("/stream", null, settled);
    },
    moved: () => false,
    draw() {
      const entries = visible();
      if (known.entries === null) return h("p", { class: "plain muted" }, "Reading the inbox …");
      const count = (kind) => known.entries.filter((one) => !kind || kindOf(one) === kind).length;
      return [
        h("div", { class: "row" }, h("h1", null, "Inbox"), h("span", { class: "muted sm desc" }, "Tasks waiting for human input. What you decide is recorded with your name."), h("span", { class: "grow" }), copyAs({ command: "holdfast inbox --json", python: "list(app.inbox())", path: "/api/v1/inbox" })),
        h("div", { class: "split" },
          h("nav", { class: "kinds", "aria-label": "Kinds" }, KINDS.filter(([kind]) => kind !== "other" || count("other")).map(([kind, label, shape]) => h("button", { type: "button", "aria-pressed": String(known.kind === kind), onclick: () => { known.kind = kind; known.on = 0; page.draw(); } }, h("span", { class: `st ${shape}` }, icon(shape)), label, h("span", { class: "n" }, String(count(kind))))),
            h("p", { class: "muted sm desc" }, "Oldest first. A worker resumes a task as soon as you have decided.")),
          h("div", null, entries.length ? entries.map((one, index) => card(page, one, { on: index === known.on })) : nothing(to), known.more ? h("p", { class: "muted sm" }, "There are more; these are of the tasks that were started first.") : null)),
        legend([["j k", "next, previous"], ["a", "approve"], ["r", "reject"], ["h n", "settle"], ["o", "open the task"]]),
      ];
    },
  };
}

/** What is said if no entry is shown. */
function nothing(to) {
  if (!to.task) return h("p", { class: "panel plain" }, "Inbox is empty.");
  return h("p", { class: "panel plain" }, "Nothing is asked here. It was decided, or the task has moved on: ", h("a", { class: "link", href: addressOf(`/tasks/${encodeURIComponent(to.task)}`) }, shown(to.task)), ".");
}

// Acts

function rights(page, right) {
  return page.about && page.about.rights.includes(right) && !page.about.read_only;
}

async function act(page, entry, verb, body, told) {
  const key = nameOf(entry);
  const draft = drafts.get(key) || {};
  drafts.set(key, { ...draft, busy: true, error: null });
  page.draw();
  try {
    const header = await post(`/tasks/${encodeURIComponent(entry.owner || entry.task)}/${verb}`, body);
    drafts.delete(key);
    if (verb === "reconcile") learn(page, entry);
    if (verb === "reconcile" && header.inbox.some((one) => one.kind === entry.kind && one.key === entry.key)) {
      drafts.set(key, { ...draft, busy: false, error: { message: "The destination can't tell. The call stays in doubt.", hint: "" } });
      return page.draw();
    }
    done.set(key, { entry, at: Date.now(), told, status: header.status, waiting: header.waiting });
    follow(page, key);
  } catch (error) {
    drafts.set(key, { ...draft, busy: false, error, armed: null });
    if (verb === "reconcile") learn(page, entry);
    const late = error.status === 409 && error.code !== "approval-changed" && verb !== "reconcile";
    if (late) done.set(key, { entry, at: Date.now(), error });
  }
  page.draw();
}

/** See what came of it: whether a worker has taken the task, and after how long. */
async function follow(page, key) {
  const one = done.get(key);
  for (let look = 0; look < 40 && done.get(key) === one; look += 1) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    const header = await get(`/tasks/${encodeURIComponent(one.entry.task)}`).catch(() => null);
    if (!header) return;
    Object.assign(one, { status: header.status, waiting: header.waiting, holder: header.holder });
    page.draw();
    if (header.status !== "pending") {
      one.after = Date.now() - one.at;
      return;
    }
  }
}

/** A key or a button was pressed on an entry. */
function pressed(page, entry, which) {
  const key = nameOf(entry);
  const draft = drafts.get(key) || {};
  const why = draft.why || "";
  if (draft.busy) return;
  if (which === "cancel" && rights(page, "steer")) return cancelled(page, entry, why);
  const arm = (what) => { drafts.set(key, { ...draft, armed: what, error: null }); page.draw(); };
  if (entry.kind === "approval" && rights(page, "answer")) {
    if (which === "approve") return arm("approve");
    if (which === "reject") return arm("reject");
    if (which === "confirm" && draft.armed) {
      const approves = draft.armed === "approve";
      return act(page, entry, draft.armed, { call: entry.key, bound: entry.bound, why }, approves ? "Approved" : "Rejected");
    }
  } else if (entry.kind === "doubt" || entry.kind === "blocked") {
    if (!rights(page, "answer")) return undefined;
    if (which === "again" && asksAgain(page, entry)) return act(page, entry, "reconcile", { call: entry.key }, "The destination was asked");
    if (which === "happened" || which === "not") return arm(which);
    if (which === "confirm" && draft.armed) {
      const happened = draft.armed === "happened";
      return act(page, entry, "settle", { call: entry.key, happened, result: happened ? parsed(draft.result) : null, why }, happened ? "Settled: it happened" : "Settled: it did not happen");
    }
  } else if (entry.kind === "question" && rights(page, "answer")) {
    const index = { choice1: 0, choice2: 1, choice3: 2 }[which];
    const few = choicesOf(entry);
    const picked = index === undefined ? /^choice(\d+)$/.exec(which) : [null, index + 1];
    if (picked && few[picked[1] - 1] !== undefined) return act(page, entry, "answer", { question: entry.key, value: few[picked[1] - 1][1], why }, `Answered ${few[picked[1] - 1][0]}`);
    if (which === "answer" && entry.answer) {
      try {
        return act(page, entry, "answer", { question: entry.key, value: valueOf(fieldsOf(entry.answer), typedIn(draft)), why }, "Answered");
      } catch (error) {
        drafts.set(key, { ...draft, error });
        return page.draw();
      }
    }
    if (which === "answer") return act(page, entry, "answer", { question: entry.key, value: answerOf(draft.text || ""), why }, "Answered");
  } else if (entry.kind === "budget" && which === "allow" && rights(page, "steer")) {
    return act(page, entry, "budget", { limits: { [entry.key]: more(entry) }, why }, `Allowed ${entry.key} up to ${number(more(entry))}`);
  } else if (entry.kind === "budget" && which === "limit" && rights(page, "steer")) {
    const most = Number((draft.limit || "").replaceAll(",", ""));
    if (!(most > 0)) {
      drafts.set(key, { ...draft, error: { message: "Another limit must be a number above 0.", hint: "" } });
      return page.draw();
    }
    return act(page, entry, "budget", { limits: { [entry.key]: most }, why }, `Allowed ${entry.key} up to ${number(most)}`);
  } else if (entry.kind === "quarantined" && which === "resume" && rights(page, "steer")) {
    return act(page, entry, "resume", { why }, "Made pending for workers");
  } else if (entry.kind === "diverged" && rights(page, "steer")) {
    if (which === "resume") return arm("resume");
    if (which === "confirm" && draft.armed) return act(page, entry, "resume", { anyway: true, why }, "Made pending for workers, without what is lost");
  }
  return undefined;
}

function cancelled(page, entry, why) {
  return ask({ title: `Cancel ${entry.task}?`, text: "The task and its children stop. What it did is compensated, as its tools declare. This can't be undone.", fields: [{ name: "why", label: "Why (recorded)", value: why }], confirm: "Cancel the task", bad: true, act: (given) => act(page, entry, "cancel", { why: given.why }, "Cancelled") });
}

function parsed(text) {
  const given = (text || "").trim();
  if (!given) return null;
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}

const answerOf = parsed;

/** The next limit that is large enough: twice as much, as often as it takes. */
function more(entry) {
  let most = 2 * (entry.of || 1);
  while (most <= (entry.used || 0) + (entry.ahead || 0)) most *= 2;
  return Number.isInteger(most) ? most : Number(most.toPrecision(6));
}

/** What was typed into the fields of a form. */
const typedIn = (draft) => Object.fromEntries(Object.entries(draft).filter(([name]) => name.startsWith("field:")).map(([name, text]) => [name.slice(6), text]));

/** Whether this page can ask the destination of a call: it has the tool, and that can. */
const asksAgain = (page, entry) => entry.kind === "doubt" && page.about && (page.about.reconciles || []).includes(entry.tool);

/** The few answers there are, as [label, value]. */
function choicesOf(entry) {
  if (entry.answer) return choices(entry.answer);
  const prompt = entry.prompt;
  const options = prompt && typeof prompt === "object" ? prompt.options || prompt.choices : null;
  return Array.isArray(options) ? options.slice(0, 9).map((one) => [typeof one === "string" ? one : JSON.stringify(one), one]) : [];
}

// Cards

/** An entry. On a task's own page it is shorter. */
export function card(page, entry, { on = false, short = false } = {}) {
  const key = nameOf(entry);
  const now = Date.now();
  const shape = entry.kind === "doubt" || entry.kind === "blocked" ? "doubt" : ["quarantined", "damaged", "diverged"].includes(entry.kind) ? "quarantined" : entry.kind === "no_worker" ? "pending" : "waiting";
  const came = done.get(key);
  return h("article", { key, class: `card${on ? " sel" : ""}`, "data-entry": `${entry.task}/${entry.kind}/${entry.key}` },
    h("header", null, status(shape, { pill: true, word: WORDS[entry.kind] }), short ? null : h("a", { class: "id", href: addressOf(within(entry.namespace, pathOf(entry))), "data-whole": entry.namespace ? "" : null }, name(entry.local || entry.task)), short ? null : h("span", { class: "muted sm" }, entry.namespace ? [h("b", null, shown(namespaceOf(entry))), " · "] : null, shown(entry.agent)), h("span", { class: "grow" }),
      h("span", { class: "muted sm" }, `waits ${duration(Math.max(0, now - entry.since_ms))}`), entry.until_ms ? h("span", { class: "risk" }, entry.until_ms > now ? `expires in ${duration(entry.until_ms - now)}` : "expired") : null,
      entry.expires_ms ? h("span", { class: "muted sm", title: "Nothing happens to it meanwhile" }, entry.expires_ms > now ? `the task is cancelled in ${duration(entry.expires_ms - now)}` : "the task has expired") : null),
    h("div", { class: "in" }, question(entry, page), came ? outcome(came) : entry.namespace ? elsewhere(entry) : controls(page, entry, drafts.get(key) || {})));
}

const pathOf = (entry) => `/tasks/${encodeURIComponent(entry.local || entry.task)}`;

/** On a page of all namespaces an entry leads to the page of its own, where it is decided. */
function elsewhere(entry) {
  const path = `/inbox/${[entry.local, entry.kind, entry.key].map(encodeURIComponent).join("/")}`;
  return h("div", { class: "acts" }, h("a", { class: "btn pri", href: addressOf(within(entry.namespace, path)), "data-whole": "" }, "Decide …"));
}

const callOf = (entry) => `${entry.task}\n${entry.key}\n${entry.bound}`;
const calls = new Map();
const NOTHING = { origins: {}, announced: null, earlier: null, idempotency_key: "", pace: null, asked: [] };

/** What is known of a call beside its arguments: who wrote them, who announced it; asked for once for what is asked. */
function knownOf(page, entry) {
  const key = callOf(entry);
  if (!calls.has(key)) {
    calls.set(key, NOTHING);
    learn(page, entry);
  }
  return calls.get(key);
}

/** Read it, or read it anew; what was known stays until then. */
function learn(page, entry) {
  get(`/inbox/${encodeURIComponent(entry.task)}/${encodeURIComponent(entry.key)}`).then((found) => { calls.set(callOf(entry), found); page.draw(); }, () => undefined);
}

/** What other calls of the tool came to in this task. */
function earlier(known, tool) {
  if (!known.earlier) return "";
  const { count, last } = known.earlier;
  if (!count) return `no earlier ${tool} in this task`;
  return `earlier in this task: ${count} ${tool}${last.came ? `, the last gave ${last.came}` : ""} (seq ${last.seq})`;
}

/** Who announced a call in doubt, and when its worker died. */
function announced(known, since) {
  const found = known.announced;
  if (!found || !found.holder) return `Announced ${clock(since)}; no outcome is recorded. `;
  const died = found.ended_ms ? `, which ${found.end === "lost" ? "was lost" : "died"} after ${clock(found.ended_ms)}` : "";
  return [`Announced ${clock(found.at_ms || since)} by process `, h("span", { class: "m" }, shown(found.holder.pid), found.holder.machine ? [" on ", shown(found.holder.machine)] : ""), `${died}; no outcome is recorded. `];
}

/** The answers of the destination to people who asked it from this page. */
function said(known) {
  return known.asked.map((one, index) => [index ? "; " : " Asked from this page: ", clock(one.at_ms), one.by ? [" by ", shown(one.by)] : "", ", ", shown(one.told), index === known.asked.length - 1 ? ". " : ""]);
}

const WROTE = { model: () => "written by the model", person: (one) => `same as ${one} gave`, tool: (one) => `same as in the result of ${one}`, step: (one) => `same as in the result of ${one}`, input: () => "same as in the task's input" };

function wrote(places) {
  return places.map((one, index) => [index ? "; " : "", shown(WROTE[one.who](one.name)), ` (seq ${one.seq})`]);
}

function question(entry, page) {
  const known = !entry.namespace && (entry.tool || entry.kind === "budget") ? knownOf(page, entry) : NOTHING;
  const tool = h("span", { class: "m" }, shown(entry.tool || entry.name));
  if (entry.kind === "approval") {
    return [h("p", { class: "q" }, "Approval requested: ", tool), entry.prompt ? h("p", { class: "ink2" }, shown(textOf(entry.prompt))) : null, args(entry, known.origins),
      h("p", { class: "muted sm" }, [entry.risk, `bound to ${entry.bound.slice(0, 12)}…`, "if an argument changes, you are asked again", earlier(known, entry.tool)].filter(Boolean).map((one, index) => [index ? " · " : "", shown(one)]))];
  }
  if (entry.kind === "doubt" || entry.kind === "blocked") {
    return [h("p", { class: "q" }, "Did ", tool, " happen?"), args(entry, {}, known.idempotency_key),
      h("p", { class: "ink2 sm" }, h("b", null, "What is known. "), announced(known, entry.since_ms), entry.prompt ? [shown(capital(textOf(entry.prompt))), ". "] : "", said(known), "It is not made again until you settle it.", entry.owner ? [" The call belongs to ", shown(entry.owner), "."] : null)];
  }
  if (entry.kind === "question") return h("p", { class: "q" }, shown(textOf(entry.prompt) || entry.name));
  if (entry.kind === "budget") {
    const show = entry.key === "cost" ? money : number;
    const { pace } = known;
    return [h("p", { class: "q" }, entry.key ? `The budget is used up: ${show(entry.used || 0)} of ${show(entry.of || 0)} ${entry.key.replace("_", " ")}` : "The budget is used up"), entry.prompt ? h("p", { class: "muted sm" }, shown(textOf(entry.prompt))) : null, pace ? h("p", { class: "muted sm" }, `The last ${pace.steps === 1 ? "step" : `${pace.steps} steps`} used ${show(pace.each)}${pace.steps === 1 ? "" : " each"}; ${pace.done} steps are done.`) : null, entry.owner ? h("p", { class: "muted sm" }, "It belongs to ", shown(entry.owner), ".") : null];
  }
  if (entry.kind === "quarantined") return [h("p", { class: "q" }, "Workers in a row died with this task, without a step done."), entry.prompt ? h("p", { class: "muted sm" }, shown(textOf(entry.prompt))) : null];
  // The commands below say how to start one.
  return h("p", { class: "q" }, shown(capital(textOf(entry.prompt).split("; start one")[0] || WORDS[entry.kind])));
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

function textOf(prompt) {
  if (prompt === null || prompt === undefined) return "";
  if (typeof prompt === "string") return prompt;
  if (typeof prompt === "object" && typeof (prompt.question || prompt.text || prompt.prompt) === "string") return prompt.question || prompt.text || prompt.prompt;
  return JSON.stringify(prompt);
}

/** A value as the server wrote it, because a number in it is larger than this browser can hold. */
function text(given) {
  return [h("span", { class: "sy-n" }, shown(given.slice(0, 4000))), given.length > 4000 ? h("span", { class: "muted" }, ` … ${given.length - 4000} characters more`) : null];
}

/** Exact arguments, one a row; nothing is cut without a count of what is hidden. */
function args({ arguments: given, exact = {} }, from = {}, named = "") {
  const entries = Object.entries(given || {});
  if (!entries.length && !named) return null;
  return h("dl", { class: "args" }, entries.map(([key, one]) => h("div", { key, class: typeof one === "number" ? "flag" : "" }, h("dt", null, shown(key)), h("dd", null, Object.hasOwn(exact, key) ? text(exact[key]) : value(one, 4000), looksAlike(JSON.stringify(one)) ? [" ", h("span", { class: "risk", title: "A word has letters of scripts that look alike" }, "mixed scripts")] : null), Object.hasOwn(from, key) ? h("dd", { class: "from" }, wrote(from[key])) : null)), named ? h("div", { key: "\u0000key" }, h("dt", { class: "muted", title: "The idempotency key that the destination was given" }, "key"), h("dd", null, shown(named))) : null);
}

function controls(page, entry, draft) {
  const press = (which) => () => pressed(page, entry, which);
  const change = (field) => (event) => drafts.set(nameOf(entry), { ...(drafts.get(nameOf(entry)) || {}), [field]: event.target.value });
  const why = h("input", { class: "field", "aria-label": "Why", placeholder: "Why (recorded)", value: draft.why || "", oninput: change("why") });
  const error = draft.error ? h("p", { class: "notice bad", role: "alert" }, trouble(draft.error)) : null;
  const right = ["budget", "quarantined", "diverged"].includes(entry.kind) ? "steer" : "answer";
  if (!rights(page, right) || !CONTROLS[entry.kind]) return [error, h("div", { class: "acts" }, entry.commands.map((one) => commandLine(one)))];
  return [error, h("form", { class: "acts", onsubmit: (event) => { event.preventDefault(); press(entry.kind === "question" ? "answer" : "confirm")(); } }, CONTROLS[entry.kind]({ entry, draft, press, change, why, busy: draft.busy, page }))];
}

const button = (label, key, onclick, kind = "", busy = false) => h("button", { class: `btn ${kind}`, type: "button", onclick, disabled: busy || false }, label, key ? h("kbd", null, key) : null);

function armed(label, bad, busy) {
  return h("button", { class: `btn ${bad ? "bad" : "pri"} armed`, type: "submit", disabled: busy || false }, label, h("kbd", null, "Enter"));
}

/** How much a call is about, if it takes one number: `240 euros`. */
function amount(entry, before) {
  const numbers = Object.entries(entry.arguments || {}).filter(([, one]) => typeof one === "number");
  if (numbers.length !== 1) return "";
  const [name1, given] = numbers[0];
  // Every digit is there: what is approved is never rounded.
  const digits = entry.exact && Object.hasOwn(entry.exact, name1) ? entry.exact[name1] : given.toLocaleString("en", { maximumFractionDigits: 20 });
  return [before, digits, " ", shown(name1)];
}

const CONTROLS = {
  approval: ({ draft, press, why, busy, entry }) => [
    draft.armed === "approve" ? armed(["Yes, approve ", shown(entry.tool || entry.name), amount(entry, " of "), " once"], false, busy) : button(["Approve", amount(entry, " "), " …"], "a", press("approve"), "pri", busy),
    draft.armed === "reject" ? armed("Yes, reject it for good", true, busy) : button("Reject …", "r", press("reject"), "bad", busy), why,
    h("a", { class: "btn ghost", href: addressOf(`/tasks/${encodeURIComponent(entry.task)}?tab=state`) }, "See what it knew")],
  doubt: ({ draft, press, change, why, busy, entry, page }) => [
    draft.armed === "happened" ? armed("Yes, it happened", false, busy) : button("It happened …", "h", press("happened"), "pri", busy),
    draft.armed === "not" ? armed("Yes, it did not happen", true, busy) : button("It did not happen …", "n", press("not"), "", busy),
    asksAgain(page, entry) ? button("Ask again", "", press("again"), "", busy) : null,
    h("input", { class: "field", "aria-label": "Its result", placeholder: "Its result: JSON, or text", value: draft.result || "", oninput: change("result") }), why],
  question: ({ entry, draft, press, change, why, busy }) => [
    choicesOf(entry).map(([label], index) => button(shown(label), index < 3 ? String(index + 1) : "", press(`choice${index + 1}`), index ? "" : "pri", busy)),
    entry.answer && choicesOf(entry).length ? null : [entry.answer ? form(entry.answer, draft, change) : h("input", { class: "field", "aria-label": "Answer", placeholder: choicesOf(entry).length ? "or say it in words" : "Answer: text, or JSON", value: draft.text || "", oninput: change("text") }), h("button", { class: "btn pri", type: "submit", disabled: busy || false }, "Answer")], why],
  budget: ({ entry, draft, press, change, why, busy }) => [entry.key ? [button(`Allow up to ${number(more(entry))}`, "", press("allow"), "pri", busy), h("input", { class: "field short", "aria-label": "Another limit", placeholder: "Another limit", inputmode: "decimal", value: draft.limit || "", oninput: change("limit") }), button("Allow", "", press("limit"), "", busy)] : null, why, button("Cancel the task …", "", press("cancel"), "bad", busy)],
  diverged: ({ draft, press, why, busy }) => [draft.armed ? armed("Yes, continue without what is lost", true, busy) : button("Continue from what is left …", "", press("resume"), "pri", busy), why, button("Cancel the task …", "", press("cancel"), "bad", busy)],
  quarantined: ({ press, why, busy }) => [button("Let workers try again", "", press("resume"), "pri", busy), why, button("Cancel the task …", "", press("cancel"), "bad", busy)],
};
CONTROLS.blocked = CONTROLS.doubt;

/** The fields of an answer, each with its name. */
function form(schema, draft, change) {
  return h("div", { class: "form" }, fieldsOf(schema).map((one) => {
    const name1 = `field:${one.name}`;
    const given = draft[name1] ?? "";
    return h("label", { class: "stack", key: one.name }, shown(labelOf(one)),
      one.kind === "choice" ? h("select", { class: "field", onchange: change(name1) }, [["", "–"], ...one.choices].map(([label]) => h("option", { value: label, selected: label === given || null }, shown(label))))
        : one.kind === "json" ? h("textarea", { class: "field m", rows: 3, spellcheck: "false", oninput: change(name1) }, given)
          : h("input", { class: "field", inputmode: one.kind === "number" ? "decimal" : null, autocomplete: "off", value: given, oninput: change(name1) }));
  }));
}

function outcome(one) {
  if (one.error) return h("p", { class: "notice bad", role: "alert" }, trouble(one.error));
  const ran = one.after !== undefined && (one.holder || ["running", "completed", "failed"].includes(one.status)); // released soon
  const took = ran ? `; ${one.holder ? `process ${one.holder.pid}` : "a worker"} took it after ${duration(one.after)}` : "";
  const unserved = one.waiting && one.waiting.kind === "no_worker" ? one.waiting.why : "";
  return h("p", { class: "outcome", role: "status" }, h("span", { class: "st completed" }, icon("completed"), one.told), h("span", { class: "muted" }, ` · the task is ${one.status}${took}`), unserved ? h("span", { class: "risk" }, shown(unserved)) : null);
}
