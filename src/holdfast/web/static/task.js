// A task: its header, its timeline, its state at any moment. All of it shows the moment that the slider is at.

import { get, post, Problem, save } from "./api.js";
import { commandLine, copy, copyAs, quoted } from "./copy.js";
import { ask as askPerson } from "./dialogs.js";
import { h } from "./dom.js";
import { rowsOf } from "./folds.js";
import { icon, status } from "./icons.js";
import { legend } from "./keys.js";
import { mapped, Moments, plain } from "./moments.js";
import { addressOf, ask, go } from "./route.js";
import { panel, sections } from "./state.js";
import { counted, failing } from "./tally.js";
import { ago, clock, duration, money, name, number, plural, shown, value } from "./text.js";
import { foldRow, lane, marks, nameOf, noteRow, overlay, row, scale } from "./waterfall.js";

const SHOWN_AT_ONCE = 80;
const MARGIN = 6;
const VERIFIED_AT_ONCE = 2000;
const phone = window.matchMedia("(max-width: 700px)");
const DIGESTS = 500;
const CHILD_AGAIN_MS = 2000;
const COARSE_MS = 600_000;
const TABS = [["timeline", "Timeline"], ["conversation", "Conversation"], ["state", "State"], ["knowledge", "Decisions & facts"], ["artifacts", "Artifacts"], ["failures", "Failures"], ["events", "Events"]];

/** What a tab, or a task that waits for a person, needs beside the timeline. It is loaded when it is first shown. */
const PARTS = { chat: () => import("./chat.js"), failures: () => import("./failures.js"), knowledge: () => import("./knowledge.js"), inbox: () => import("./inbox.js") };
const LATER = { conversation: "chat", failures: "failures", knowledge: "knowledge", artifacts: "knowledge" };
const loaded = new Map();

/** A part, null until it is there; `draw` is called then. */
function part(which, draw) {
  if (!loaded.has(which)) {
    loaded.set(which, null);
    PARTS[which]().then((found) => { loaded.set(which, found); draw(); }, () => loaded.delete(which));
  }
  return loaded.get(which);
}

export function task(page, to) {
  const id = to.id;
  const path = `/tasks/${encodeURIComponent(id)}`;
  const moments = new Moments(id);
  const known = { header: null, rows: [], steps: new Map(), lanes: [], stages: [], detail: null, chain: null, dead: null, skew: 0, mark: null, whole: false, scroll: 0, small: false, messages: null, docs: {}, arrived: null, unfolded: new Set(), failed: new Map(), read: new Map(), digests: new Map(), raw: null, open: new Set(), children: new Map() };
  let view = viewOf(to);
  let reading = null;

  // What is shown

  const head = () => (known.header ? known.header.head : 0);
  const seq = () => view.at || head();
  const steps = () => [...known.steps.values()];

  function viewOf(given) {
    const at = Number(given.query.get("at"));
    return { at: Number.isInteger(at) && at > 0 ? at : null, step: given.query.get("step"), tab: given.query.get("tab") || "timeline", events: given.query.get("view") === "events", real: given.query.get("time") === "real" };
  }

  /** Read the documents that the moment needs; draws when they are there. */
  function settle() {
    const at = seq();
    const since = known.mark || Math.max(at - 1, 0);
    if (!at || (known.docs.at === at && known.docs.since === since)) return;
    const ready = moments.ready(at);
    const before = since ? moments.ready(since) : mapped({});
    if (ready && before) {
      known.docs = { at, since, now: ready, before };
      return;
    }
    if (reading) return;
    reading = Promise.all([moments.at(at), since ? moments.at(since) : mapped({})]).then(() => {
      reading = null;
      page.draw();
    }, (error) => {
      reading = null;
      page.failed(error);
    });
  }

  /** The header at the moment: what the document then says, over what is known now. */
  function shownHeader() {
    const header = known.header;
    if (!view.at || view.at >= head()) return header;
    const doc = known.docs.now ? plain(known.docs.now) : null;
    if (!doc) return { ...header, is_now: false, inbox: [], interrupted: false };
    const past = steps().filter((one) => one.first <= view.at);
    return { ...header, is_now: false, interrupted: false, inbox: [], status: doc.status, stage: doc.stage, turn: doc.turn, goal: doc.goal, budget: doc.budget, waiting: doc.waiting ? { kind: doc.waiting, why: "" } : null, failure: doc.status === "failed" ? header.failure : null, steps: { known: past.length, committed: past.filter((one) => one.status === "completed" && one.last <= view.at).length } };
  }

  function goTo(to) {
    const at = Math.max(1, Math.min(head(), to));
    ask({ at: at >= head() ? null : at });
    const one = known.rows[at - 1];
    page.notice = one ? `seq ${at} of ${head()}, ${one[3]} ${one[4]}` : `seq ${at}`;
  }

  function goToStep(by) {
    const ends = [...new Set(steps().map((one) => one.last))].sort((a, b) => a - b);
    const next = by > 0 ? ends.find((one) => one > seq()) : ends.filter((one) => one < seq()).pop();
    goTo(next || (by > 0 ? head() : 1));
  }

  function goToTurn(by) {
    const first = new Map();
    for (const one of steps()) if (!first.has(one.turn)) first.set(one.turn, one.first);
    const begins = [...first.values()].sort((a, b) => a - b);
    const next = by > 0 ? begins.find((one) => one > seq()) : begins.filter((one) => one < seq()).pop();
    goTo(next || (by > 0 ? head() : 1));
  }

  async function choose(step) {
    ask({ step: view.step === step.key ? null : step.key });
  }

  async function inspect() {
    if (!view.step || (known.detail && known.detail.key0 === view.step && known.detail.seq0 === known.steps.get(view.step)?.last)) return;
    const wanted = view.step;
    const seq0 = known.steps.get(wanted)?.last;
    known.detail = { key0: wanted, seq0 };
    const found = await get(`${path}/steps/${encodeURIComponent(wanted)}`).catch(() => null);
    if (view.step === wanted) known.detail = { ...(found || {}), key0: wanted, seq0 };
    page.draw();
  }

  /** What a tab shows at the moment: read once for each seq; until it is there, what was there before. */
  function tabled(tab, read) {
    const wanted = `${tab}@${seq()}`;
    const kept = known.read.get(tab);
    if (!kept || (kept.name !== wanted && !kept.asking)) {
      const asked = { name: wanted, found: kept ? kept.found : null, asking: true };
      known.read.set(tab, asked);
      read().then((found) => { asked.found = found; }, page.failed).finally(() => { asked.asking = false; page.draw(); });
    }
    return known.read.get(tab).found;
  }

  const upto = () => (view.at ? { upto: view.at } : {});

  /** The digests of a block of events, asked for once. */
  function digest(number1) {
    const block = Math.floor((number1 - 1) / DIGESTS);
    if (!known.digests.has(block)) {
      known.digests.set(block, new Map());
      get(`${path}/digests`, { after: block * DIGESTS, limit: DIGESTS }).then((found) => { known.digests.set(block, new Map(found.digests)); page.draw(); }, () => known.digests.delete(block));
    }
    const found = known.digests.get(block).get(number1);
    if (!found && known.digests.get(block).size && number1 <= head()) known.digests.delete(block); // it came after the block was read
    return found || "";
  }

  function intact(number1) {
    if (!known.chain || known.chain.asking || number1 > known.chain.seq) return "";
    return known.chain.problems.some((one) => one.seq <= number1) ? h("span", { class: "failed", title: "not proven" }, "✗") : h("span", { class: "completed", title: "proven" }, "✓");
  }

  /** The event at the moment, as it is stored. */
  function raw() {
    const wanted = seq();
    if (!known.raw || known.raw.seq !== wanted) {
      known.raw = { seq: wanted, text: known.raw ? known.raw.text : "" };
      get(`${path}/events/${wanted}`).then((found) => { if (known.raw.seq === wanted) known.raw.text = JSON.stringify(found, null, 2); page.draw(); }, () => undefined);
    }
    return h("aside", { class: "panel statep", "aria-label": `Event ${wanted} as it is stored` }, h("header", null, h("h2", null, `Event ${wanted}, as it is stored`)), h("pre", { class: "code json", tabindex: "0" }, shown(known.raw.text)));
  }

  // What comes live

  function hear(kind, data) {
    if (kind === "rows") {
      const after = known.rows.length;
      const fresh = data.rows.filter((one) => one[0] > after);
      known.rows.push(...fresh);
      moments.heard(data.deltas, after, known.rows.length);
      for (const one of data.steps) known.steps.set(one.key, one);
      known.lanes = data.lanes;
      known.stages = data.stages;
      adopt(data.header);
      known.arrived = Date.now();
      inspect();
    } else if (kind === "holder") {
      if (known.header) known.header = { ...known.header, interrupted: data.interrupted, holder: data.holder || known.header.holder };
      if (!data.interrupted) known.dead = null;
      else if (!known.dead) {
        known.dead = { since: known.arrived ? Date.now() + known.skew : lastMs() };
        page.notice = `interrupted: ${nameOf(known.lanes[known.lanes.length - 1] || {})} died`;
      }
    } else if (kind === "gone") page.failed(new Problem({ ...data, status: 410 }));
  }

  function adopt(header) {
    known.header = { ...header, head: Math.max(header.head, known.rows.length) };
    known.skew = header.now_ms - Date.now();
    if (!header.interrupted) known.dead = null;
  }

  const lastMs = () => (known.rows.length ? known.rows[known.rows.length - 1][1] : 0);

  async function verify() {
    known.chain = { asking: true };
    page.draw();
    known.chain = { ...(await get(`${path}/verify`)), seq: head() };
    page.draw();
  }

  // What people do

  const act = (verb, body) => post(`${path}/${verb}`, body).then((header) => {
    if (header.id === id) adopt(header);
    page.draw();
    return header;
  });

  const cancel = () => askPerson({ title: `Cancel ${id}?`, text: "The task and its children stop. What it did is compensated, as its tools declare. This can't be undone.", fields: [{ name: "why", label: "Why (recorded)" }], confirm: "Cancel the task", bad: true, act: ({ why }) => act("cancel", { why }) });

  const resume = () => askPerson({ title: `Resume ${id}?`, text: "The task becomes pending, and a worker takes it. The step that failed is tried afresh; completed steps are not repeated.", fields: [{ name: "why", label: "Why (recorded)" }, ...(known.header.deadline ? [{ name: "deadline", label: "New deadline, from now, such as 2h (empty: the old one)" }] : [])], confirm: "Resume", act: ({ why, deadline = "" }) => act("resume", { why, ...(deadline.trim() ? { deadline: deadline.trim() } : {}) }) });

  const VOID = "are void; the history is kept. A call that has happened is not made again: it returns its outcome.";
  const rollback = () => (view.at ? rollbackThere() : rollbackSomewhere());

  const rollbackThere = () => askPerson({ title: `Roll ${id} back to seq ${seq()}?`, text: `Steps recorded after seq ${seq()} ${VOID}`, fields: [{ name: "why", label: "Why (recorded)" }], confirm: `Roll back to seq ${seq()}`, bad: true, act: ({ why }) => act("rollback", { to: seq(), why }) });

  /** At the newest moment there is nothing to take back: the person says to where. The last checkpoint is proposed. */
  const rollbackSomewhere = () => askPerson({
    title: `Roll ${id} back?`, text: `Steps recorded after the seq that you give ${VOID} The slider shows the task at each seq.`,
    fields: [{ name: "to", label: `Back to seq, 1 to ${head() - 1}`, value: lastCheckpoint() }, { name: "why", label: "Why (recorded)" }], confirm: "Roll back", bad: true,
    act: ({ to: typed, why }) => {
      const wanted = Number(typed);
      if (!Number.isInteger(wanted) || wanted < 1 || wanted >= head()) throw new Error(`The seq must be a whole number from 1 to ${head() - 1}.`);
      return act("rollback", { to: wanted, why });
    },
  });

  function lastCheckpoint() {
    const found = known.docs.now && known.docs.now.get("checkpoints");
    return found && found.size ? String(Math.max(...found.values())) : "";
  }

  /** Go to a checkpoint, and ask whether to take the task back to it. */
  const rollBackTo = (at) => { goTo(at); rollback(); };

  /** What the state of this agent may hold: of the file that the page was given, if its state is typed. */
  async function stateHelp() {
    const sections = h("p", { class: "muted sm" }, "Sections: ", h("code", null, "set"), ", ", h("code", null, "delete"), ", ", h("code", null, "append_facts"), " (key, value, source), ", h("code", null, "replace_plan"), ", ", h("code", null, "raise_flags"), ".");
    const { agent } = known.header;
    const schema = page.about.agents.includes(agent) ? (await get("/agents")).agents.find((one) => one.name === agent)?.state : null;
    if (!schema) return sections;
    const { fieldsOf, labelOf } = await import("./forms.js");
    return [sections, h("details", { class: "sm schema" }, h("summary", null, `The state of ${agent}: `, fieldsOf(schema).map((one, index) => [index ? ", " : "", shown(labelOf(one))])), h("pre", { class: "code", tabindex: "0" }, shown(JSON.stringify(schema, null, 2))))];
  }

  const fork = () => stateHelp().then(forkWith).catch(page.failed);

  const forkWith = (help) => askPerson({
    title: `Fork from seq ${seq()}`,
    text: "A new task begins whose past is this one's. This one is not changed. Completed steps are not repeated.",
    fields: [
      { name: "id", label: "Id of the new task (empty: made up)" },
      { name: "patch", label: 'What to change, as JSON, such as {"set": {"seat": "window"}}', lines: 3, value: "", help },
      { name: "effects", label: "Calls that change the world", value: "ask", choices: [["ask", "ask: each waits for an approval"], ["live", "live: they are made"], ["recorded", "recorded: answered from this log, nothing is touched"]] },
    ],
    confirm: "Fork",
    act: async ({ id: named, patch, effects }) => {
      const body = { at: seq(), effects };
      if (named.trim()) body.id = named.trim();
      if (patch.trim()) body.patch = parsedPatch(patch);
      const made = await act("fork", body);
      go(`/tasks/${encodeURIComponent(made.id)}`);
    },
  });

  const keys = {
    ArrowLeft: () => goTo(seq() - 1), ArrowRight: () => goTo(seq() + 1), "Shift+ArrowLeft": () => goToStep(-1), "Shift+ArrowRight": () => goToStep(1),
    "[": () => goToTurn(-1), "]": () => goToTurn(1),
    Home: () => goTo(1), End: () => goTo(head()), ".": () => goTo(head()), Escape: () => (view.step ? ask({ step: null }) : view.at ? goTo(head()) : go("/")),
    e: () => ask({ view: view.events ? null : "events" }), t: () => ask({ time: view.real ? null : "real" }), d: () => { known.whole = !known.whole; page.draw(); },
    b: () => { known.mark = known.mark === seq() ? null : seq(); page.draw(); },
    j: () => step1(1), k: () => step1(-1), f: () => canAct("steer") && fork(), r: () => canAct("steer") && resumable(known.header) && resume(),
    y: () => copy(location.href), Y: () => copy(`holdfast show ${quoted(id)}${view.at ? ` --at ${view.at}` : ""}`),
    ...Object.fromEntries(TABS.map(([tab], index) => [String(index + 1), () => ask({ tab: tab === "timeline" ? null : tab })])),
  };

  function step1(by) {
    const all = steps();
    const index = all.findIndex((one) => one.key === view.step);
    const next = all[Math.max(0, Math.min(all.length - 1, index + by))];
    if (next) ask({ step: next.key });
  }

  const broken = () => known.chain && known.chain.ok === false;
  const canAct = (right) => page.about && page.about.rights.includes(right) && !page.about.read_only && !broken();

  // Drawing

  function draw() {
    if (!known.header) return h("p", { class: "plain muted" }, "Reading the task …");
    settle();
    if (view.step) inspect();
    const header = shownHeader();
    return [crumb(header), top(header), budget(header.budget, pace(header)), past(), damaged(), orphaned(header), needs(header), failed(header), tabs(), h("div", { key: `tab-${view.tab}`, role: "tabpanel", "aria-label": TABS.find(([tab]) => tab === view.tab)?.[1] || "Timeline" }, content())];
  }

  const pace = (header) => shareDone(header, known.docs.now);

  function crumb(header) {
    const more = [];
    const other = (label, one) => more.push(" · ", label, " ", h("a", { class: "m", href: addressOf(`/tasks/${encodeURIComponent(one)}`) }, shown(one)));
    if (header.parent) other("child of", header.parent);
    for (const one of header.children || []) other("has child", one);
    const { count, newest } = header.forks || { count: 0, newest: [] };
    newest.forEach((one, index) => (index ? more.push(", ", h("a", { class: "m", href: addressOf(`/tasks/${encodeURIComponent(one)}`) }, shown(one))) : other(count === 1 ? "forked once:" : `forked ${number(count)} times${count > newest.length ? `, the newest ${newest.length}` : ""}:`, one)));
    const forked = known.rows.find((one) => one[2] === "task_forked");
    if (forked) {
      const from = forked[4].replace(/^from /, "").replace(/ at \d+$/, "");
      other("forked", from);
      more.push(" · ", h("a", { href: addressOf(`/compare/${encodeURIComponent(from)}/${encodeURIComponent(id)}`) }, "compare"));
    }
    return h("div", { class: "crumb" }, h("a", { href: addressOf("/") }, "Tasks"), h("span", { class: "sep" }, " › "), h("a", { href: addressOf(`/?q=${encodeURIComponent(`agent:${header.agent}`)}`) }, shown(header.agent)), h("span", { class: "sep" }, " › "), h("span", { class: "m" }, shown(id)), h("span", { class: "muted" }, more));
  }

  function which(header) {
    if (header.interrupted) return "interrupted";
    if (header.waiting && header.waiting.kind === "doubt") return "doubt";
    if (header.waiting && header.waiting.kind === "quarantined") return "quarantined";
    return header.status;
  }

  function top(header) {
    const at = known.stages.indexOf(header.stage);
    const mark = { failed: "x", doubt: "q", waiting: "w", interrupted: "x" }[which(header)] || "c";
    const lane1 = known.lanes.findLast((one) => header.is_now || one.seq <= view.at);
    return h("div", { class: "thead" },
      h("div", null,
        h("div", { class: "row" }, h("h1", { class: "m tid" }, name(id)), status(which(header), { pill: true }),
          h("span", { class: "pips" }, known.stages.map((_, index) => h("i", { class: index < at || header.status === "completed" ? "d" : index === at ? mark : "" })), header.stage ? h("span", { class: "sm ink2" }, shown(header.stage), at >= 0 ? ` · stage ${at + 1} of ${known.stages.length}` : "") : null)),
        h("dl", { class: "meta" },
          header.goal ? fact("goal", shown(header.goal)) : null,
          fact("worker", header.status === "running" && lane1 ? h("span", { class: "m" }, shown(nameOf(lane1)), header.interrupted ? " (dead)" : "") : "none"),
          fact("position", `${plural(header.steps.known, "step")} known, ${header.steps.committed} committed${header.turn ? ` · turn ${header.turn}` : ""}`),
          header.deadline && header.status !== "completed" ? fact("deadline", header.is_now ? due(header.deadline) : dueThen(header.deadline, known.rows[view.at - 1])) : null,
          header.user ? fact("user", h("a", { class: "under", href: addressOf(`/users/${encodeURIComponent(header.user)}`) }, shown(header.user))) : null,
          header.thread ? fact("thread", h("a", { class: "under", href: addressOf(`/threads/${encodeURIComponent(header.thread)}`) }, shown(header.thread))) : null,
          fact("chain", chain()),
          header.status === "completed" && header.is_now ? fact("result", value(header.result, 120)) : null)),
      h("div", { class: "row acts0" },
        canAct("steer") && resumable(header) ? h("button", { class: "btn pri", type: "button", onclick: resume }, icon("play"), again(header), h("kbd", null, "r")) : null,
        canAct("steer") ? [h("button", { class: "btn", type: "button", onclick: fork }, icon("fork"), "Fork from here", h("kbd", null, "f")), head() > 1 ? h("button", { class: "btn", type: "button", onclick: rollback }, icon("back"), "Roll back …") : null] : null,
        canAct("steer") && !header.cancelling && !["completed", "failed", "cancelled"].includes(header.status) ? h("button", { class: "btn bad", type: "button", onclick: cancel }, icon("stop"), "Cancel …") : null,
        copyAs({ command: `holdfast show ${quoted(id)}${view.at ? ` --at ${view.at}` : ""}`, python: view.at ? `app.at(${JSON.stringify(id)}, ${view.at})` : `app.get(${JSON.stringify(id)})`, path: `/api/v1${path}${view.at ? `?at=${view.at}` : ""}` })));
  }

  /** What the button says: which step is tried again, if one failed the task. */
  function again(header) {
    const step = header.status === "failed" && header.failure && header.failure.step;
    return step ? ["Resume: try ", shown(step.replace(/#1$/, "").replace(/^\d+\//, "")), " again …"] : "Resume …";
  }

  function chain() {
    if (!known.chain) return h("button", { class: "link", type: "button", onclick: () => verify().catch(page.failed) }, "check it");
    if (known.chain.asking) return "checking …";
    return known.chain.ok ? h("span", { class: "completed" }, `✓ intact to seq ${known.chain.seq}`) : h("span", { class: "failed" }, `✗ broken at seq ${known.chain.problems[0].seq}: `, shown(known.chain.problems[0].why));
  }

  /** The same as a mark, above the events that it is about. */
  function proof() {
    if (!known.chain || known.chain.asking || !known.chain.ok) return h("span", { class: "sm" }, chain());
    return [status("completed", { pill: true, word: "chain is intact" }), h("span", { class: "muted sm" }, `to seq ${known.chain.seq}`)];
  }

  function past() {
    if (!view.at || view.at >= head()) return null;
    const one = known.rows[view.at - 1];
    const since = one ? ago(Date.now() + known.skew - one[1]) : "";
    return h("div", { class: "notice past", role: "status" }, h("span", null, h("b", null, `You are looking at seq ${view.at} of ${head()}`), " ", h("span", { class: "ink2" }, one ? [since === "now" ? "just now" : `${since} ago`, ", just after the event ", h("b", null, shown(one[3])), one[4] ? [" ", shown(one[4])] : "", ". Everything on this page is as it was then."] : "", waitedFor())), h("span", { class: "grow" }),
      canAct("steer") ? h("button", { class: "btn", type: "button", onclick: fork }, icon("fork"), `Fork from seq ${view.at}`) : null,
      h("button", { class: "btn pri", type: "button", onclick: () => goTo(head()) }, "Back to now", h("kbd", null, ".")));
  }

  /** What the task waited for at the moment, if it waited for a person. */
  function waitedFor() {
    if (!known.docs.now || known.docs.at !== view.at || !known.docs.now.get("waiting")) return null;
    const one = known.rows.slice(0, view.at).findLast((each) => ["wait_started", "approval_asked", "step_doubted"].includes(each[2]));
    return one ? [" It waited for this: ", h("b", null, shown(one[3])), " ", shown(one[4]), one[5] ? [", ", shown(one[5])] : "", "."] : null;
  }

  /** What the log holds is not what was written: it is shown, and not acted on. */
  function damaged() {
    return broken() ? h("div", { class: "notice bad", role: "alert" }, h("span", { class: "st failed" }, icon("failed")), h("span", null, h("b", null, `The chain of this log is broken at seq ${known.chain.problems[0].seq}.`), " What you see may not be what was written, so nothing can be decided here. Compare with a backup: ", h("code", null, shown(`holdfast verify ${quoted(id)}`)))) : null;
  }

  /** Its process died, and no other has it yet: nothing needs to be decided, but a process is needed. */
  function orphaned(header) {
    if (!header.is_now || !(header.interrupted || header.cancelling)) return null;
    const asked = header.cancelling ? [h("b", null, "It is asked to stop."), " The process that has it ends it, and compensates what its tools declare. "] : "";
    if (!header.interrupted) return h("div", { class: "notice past", role: "status" }, h("span", null, asked));
    return h("div", { class: "notice past orphaned", role: "status" }, h("span", null, asked, h("b", null, "Its process died."), " What was recorded is safe. A worker that serves ", h("span", { class: "m" }, shown(header.agent)), " takes it over by itself; without one, resume it:"), h("span", { class: "grow" }), commandLine(`holdfast resume ${quoted(id)} FILE`));
  }

  function needs(header) {
    if (broken() || !header.is_now || !header.inbox.length) return null;
    const cards = part("inbox", page.draw);
    return cards && h("section", { class: "needs", "aria-label": "It waits for a person" }, header.inbox.map((one) => cards.card(page, one, { short: true })));
  }

  function failed(header) {
    if (!header.failure || header.status !== "failed") return null;
    const failure = header.failure;
    const first = failure.cause && failure.type === "StepFailed" ? failure.cause : failure;
    const step = known.steps.get(failure.step) || steps().findLast((one) => one.key.endsWith(failure.step || "\u0000"));
    const took = step && step.bars.length ? Math.max(...step.bars.map(([, , to]) => to || 0)) - step.bars[0][1] : 0;
    return h("div", { class: "notice bad" }, h("span", { class: "st failed" }, icon("failed")),
      h("span", null, h("b", { class: "m" }, shown(`${first.type}: ${first.message}`)), step ? [" in ", h("b", { class: "m" }, shown(step.key)), ` after ${plural(step.attempts, "attempt")}${took > 1000 ? ` over ${duration(took)}` : ""}.`] : "", " ", h("span", { class: "ink2" }, header.steps.committed ? `${plural(header.steps.committed, "committed step")} ${header.steps.committed === 1 ? "is" : "are"} kept and not repeated.` : "No step was committed.")), h("span", { class: "grow" }),
      step && canAct("steer") && step.first > 1 ? h("button", { class: "btn", type: "button", onclick: () => { goTo(step.first - 1); fork(); } }, icon("fork"), "Fork before it") : null,
      view.tab === "failures" ? null : h("button", { class: "btn", type: "button", onclick: () => ask({ tab: "failures" }) }, "Traceback"));
  }

  function tabs() {
    const doc = known.docs.now;
    const sized = (section) => (doc && doc.get(section) ? doc.get(section).size || 0 : 0);
    const decided = known.rows.filter((one) => one[2] === "decision_made" && one[0] <= seq()).length;
    const counts = { timeline: known.steps.size, conversation: counted(known.rows.slice(0, seq())), knowledge: decided + sized("facts"), artifacts: sized("artifacts"), events: head(), failures: failing(steps()).length };
    if (known.tabSeen !== view.tab) {
      known.tabSeen = view.tab; // on a phone the tabs are wider than the screen
      requestAnimationFrame(() => requestAnimationFrame(() => centred(document.querySelector(".tabs [aria-selected=true]"))));
    }
    const choose1 = (tab) => (event) => { event.preventDefault(); ask({ tab: tab === "timeline" ? null : tab }); };
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the task" }, TABS.map(([tab, label]) => h("a", { role: "tab", href: `?tab=${tab}`, "aria-selected": String(view.tab === tab), onclick: choose1(tab) }, label, counts[tab] ? h("span", { class: "n" }, number(counts[tab])) : null)));
  }

  /** The document at another seq; null until it is there. */
  function known1(at) {
    const ready = moments.ready(at);
    if (!ready && !known.failed.has(`doc@${at}`)) {
      known.failed.set(`doc@${at}`, true);
      moments.at(at).then(page.draw, () => undefined);
    }
    return ready;
  }

  function content() {
    const writers = moments.writers(seq());
    if (view.tab === "state") return sections(known.docs.now, writers, goTo, canAct("steer") ? rollBackTo : null);
    if (view.tab === "events") return h("div", { class: view.at ? "work" : "" }, h("section", { class: "panel" }, eventsHead(), events(true)), view.at ? raw() : null);
    if (LATER[view.tab]) {
      const found = part(LATER[view.tab], page.draw);
      return found ? later(found, writers) : h("p", { class: "plain muted" }, "Loading …");
    }
    return h("div", { class: "work" }, h("div", null, timeline(), legend([["← →", "one event"], ["⇧← ⇧→", "one step"], ["j k", "rows"], ["f", "fork here"], ["d", "diff"], ["e", "events"], [".", "now"], ["y", "copy link"]])),
      h("div", { class: "side" }, view.step ? inspector() : null,
        panel({ seq: seq(), now: known.docs.now, before: known.docs.before, since: known.docs.since || 0, event: known.rows[seq() - 1], whole: known.whole, toggle: (whole) => { known.whole = whole; page.draw(); }, goTo, writers })));
  }

  function later(found, writers) {
    if (view.tab === "knowledge") return found.knowledge(tabled("knowledge", () => get(`${path}/decisions`, upto())), known.docs.now, writers, goTo);
    if (view.tab === "artifacts") return found.artifacts(tabled("artifacts", () => get(`${path}/artifacts`, upto())), path, goTo, page);
    if (view.tab === "failures") return found.failures(known, { step: (key) => get(`${path}/steps/${encodeURIComponent(key)}`), same: (after) => get(`${path}/same-failure`, { after }), first: () => get(`${path}/events/1`), moment: known1 }, goTo, page);
    known.messages = tabled("conversation", () => found.readChat(get, path, view.at));
    return found.conversation(known, known.header.agent, goTo, page);
  }

  function timeline() {
    const header = known.header;
    const all = steps();
    const start = known.rows.length ? known.rows[0][1] : 0;
    const open = header.status === "running" && !header.interrupted;
    const pending = all.some((one) => one.bars.some(([, , to]) => to === null));
    const end = Math.max(lastMs(), known.dead ? known.dead.since : open || pending ? Date.now() + known.skew : 0, start + 1); // a dead worker writes nothing: its bars end with it
    const made = [known.rows.length, known.arrived, end, view.real].join(); // of a long task it takes as long as all the rest
    if (!known.scale || known.scale.made !== made) known.scale = { made, time: scale(all, known.rows, known.lanes, start, end, !view.real) };
    const { time } = known.scale;
    time.open = known.dead ? known.dead.since : end;
    const moment = view.at && known.rows[view.at - 1] ? known.rows[view.at - 1][1] : null;
    const working = all.reduce((sum, one) => sum + one.bars.reduce((part, [kind, from, to]) => part + (["run", "done", "failed", "killed"].includes(kind) ? (to === null ? time.open : to) - from : 0), 0), 0);
    const folded = time.silences.length ? ` · ${plural(time.silences.length, "silence")} folded` : "";
    return h("section", { class: "panel wf" },
      h("header", null, h("h2", null, "Timeline"), h("span", { class: "muted sm" }, `${duration(end - start)}, of which ${duration(working)} working${folded}`), h("span", { class: "grow" }),
        h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(!view.events), onclick: () => ask({ view: null }) }, "Steps"),
        h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(view.events), onclick: () => ask({ view: "events" }) }, "Events"),
        h("button", { class: "btn ghost sm", type: "button", "aria-pressed": String(view.real), onclick: () => ask({ time: view.real ? null : "real" }) }, "Real time")),
      view.events ? events(false) : waterfall(time, all, moment, open),
      slider());
  }

  function waterfall(time, all, moment, open) {
    if (!all.length) return [lane(time, known.lanes, known.dead, view.at), h("p", { class: "plain muted" }, "No step yet.")];
    const high = phone.matches ? 50 : 31;
    const found = rowsOf(all, { open: known.open, children: known.children, chosen: view.step, read: readChild });
    const many = found.length > SHOWN_AT_ONCE;
    const first = many ? Math.max(0, Math.floor(known.scroll / high) - MARGIN) : 0;
    const last = many ? Math.min(found.length, first + 30 + 2 * MARGIN) : found.length;
    const rows = found.slice(first, last).map((one) => (one.fold ? foldRow(time, one, flip) : one.note ? noteRow(one) : stepRow(time, one)));
    return [
      h("div", { class: "wbody" }, lane(time, known.lanes, known.dead, view.at),
        h("div", { class: many ? "wscroll" : "", tabindex: many ? "0" : null, role: many ? "region" : null, "aria-label": many ? "Steps" : null, onscroll: many ? (event) => { known.scroll = event.target.scrollTop; page.draw(); } : null },
          h("ol", { class: "wrows", style: { "padding-top": `${first * high}px`, "padding-bottom": `${(found.length - last) * high}px` } }, rows)),
        overlay(time, known.lanes, known.dead, moment, open)),
    ];
  }

  function stepRow(time, { step, first, deep, task: child }) {
    const same = { deep, flip, isOpen: known.open.has(step.child), firstOfTurn: first };
    if (child) return row(time, step, { ...same, task: child, on: false, later: false, choose: () => go(`/tasks/${encodeURIComponent(child)}?step=${encodeURIComponent(step.key)}`) });
    return row(time, step, { ...same, on: view.step === step.key, later: Boolean(view.at) && step.first > view.at, choose });
  }

  function flip(name) {
    if (!known.open.delete(name)) known.open.add(name);
    page.draw();
  }

  /** Read the steps of a child that is open: once, and while it runs now and then. */
  function readChild(child, runs) {
    const kept = known.children.get(child);
    const age = kept ? Date.now() - kept.at : Infinity;
    if (kept && (kept.asking || !(runs || kept.ran) || age < CHILD_AGAIN_MS)) return;
    const asked = { steps: kept ? kept.steps : null, at: Date.now(), ran: runs, asking: true };
    known.children.set(child, asked);
    get(`/tasks/${encodeURIComponent(child)}/steps`).then((found) => { asked.steps = found.steps; }, (error) => { asked.error = error.message; }).finally(() => { asked.asking = false; page.draw(); });
  }

  function slider() {
    const at = seq();
    const one = known.rows[at - 1];
    return h("div", { class: "slider" },
      h("button", { class: "btn ghost", type: "button", "aria-label": "Back one event", onclick: () => goTo(at - 1) }, "←"),
      h("label", { class: "m sm", for: "seq" }, `seq ${at}`),
      h("span", { class: "rng" }, marks(known.rows, head()), h("input", { id: "seq", type: "range", min: 1, max: head(), value: String(at), "aria-valuetext": `seq ${at} of ${head()}${one ? `, ${one[3]} ${one[4]}` : ""}`, oninput: (event) => goTo(Number(event.target.value)) })),
      h("span", { class: "m sm muted" }, String(head())),
      h("button", { class: "btn ghost", type: "button", "aria-label": "Forward one event", onclick: () => goTo(at + 1) }, "→"));
  }

  function eventsHead() {
    return h("header", null, h("h2", null, `${plural(head(), "event")}, each chained to the one before`), proof(), h("span", { class: "grow" }),
      known.chain && !known.chain.asking ? h("button", { class: "btn ghost sm", type: "button", onclick: () => verify().catch(page.failed) }, "Verify again") : null,
      h("button", { class: "btn ghost sm", type: "button", onclick: () => save(`${path}/export`, "task.jsonl").catch(page.failed) }, "Export .jsonl"));
  }

  function events(whole) {
    const wanted = known.rows.filter((one) => known.small || !one[12]);
    const high = 33;
    const many = wanted.length > SHOWN_AT_ONCE;
    const first = many ? Math.max(0, Math.floor(known.scroll / high) - MARGIN) : 0;
    const last = many ? Math.min(wanted.length, first + 30 + 2 * MARGIN) : wanted.length;
    const start = known.rows.length ? known.rows[0][1] : 0;
    const gone = new Map(known.lanes.filter((one, index) => index > 0 && ["killed", "lost"].includes(known.lanes[index - 1].end)).map((one) => [one.seq, known.lanes[known.lanes.indexOf(one) - 1]]));
    const columns = phone.matches ? ["seq", "what", "about", "value", ...(whole ? ["proven"] : [])] : ["seq", "seconds", "what", "about", "value", "by", ...(whole ? ["digest", "proven"] : [])];
    const hidden = known.rows.length - known.rows.filter((one) => !one[12]).length;
    return h("div", { class: many ? "wscroll" : "scrollx", tabindex: "0", role: "region", "aria-label": "Events", onscroll: many ? (event) => { known.scroll = event.target.scrollTop; page.draw(); } : null },
      h("table", { class: "events" }, h("thead", null, h("tr", null, columns.map((one) => h("th", { scope: "col", class: `e-${one} ${one === "seq" || one === "seconds" ? "r" : ""}` }, one === "proven" ? h("span", { class: "vh" }, one) : one)))),
        h("tbody", null, first ? h("tr", { key: "above" }, h("td", { colspan: columns.length, style: { height: `${first * high}px` } })) : null,
          wanted.slice(first, last).flatMap((one) => [gone.has(one[0]) ? h("tr", { class: "died", key: `d${one[0]}` }, h("td", { colspan: columns.length }, "⚡ ", shown(nameOf(gone.get(one[0]))), " died; the next process continues")) : null, eventRow(one, start, columns)]),
          last < wanted.length ? h("tr", { key: "below" }, h("td", { colspan: columns.length, style: { height: `${(wanted.length - last) * high}px` } })) : null)),
      hidden ? h("label", { class: "row plain sm" }, h("input", { type: "checkbox", checked: known.small, onchange: (event) => { known.small = event.target.checked; page.draw(); } }), `Show ${plural(hidden, "small write")} too`) : null);
  }

  function eventRow(one, start, columns) {
    const [number1, ms, , verb, about, text, tone, , , , , by] = one;
    const cell = (column) => ({ seq: () => h("button", { class: "link", type: "button" }, String(number1)), seconds: () => ((ms - start) / 1000).toFixed(1), what: () => shown(verb), about: () => shown(about), value: () => shown(text), by: () => shown(by), digest: () => digest(number1).slice(0, 7), proven: () => intact(number1) })[column]();
    return h("tr", { key: number1, "data-seq": number1, class: `${number1 === seq() ? "on" : ""}${view.at && number1 > view.at ? " later" : ""}`, onclick: () => goTo(number1) },
      columns.map((column) => h("td", { class: { seq: "r m muted", seconds: "r m muted", what: `b t-${one[2] === "step_doubted" ? "doubt" : tone}`, about: "m", value: "m ink2 val", by: "sm", digest: "m muted" }[column] || "", title: column === "seconds" ? clock(ms) : null }, cell(column))));
  }

  /** The events of a step. */
  const about = (one) => known.rows.slice(one.first - 1, one.last).filter((each) => each[4] && `/${one.key}`.endsWith(`/${each[4]}`));

  /** Who approved or rejected a call, and after how long. */
  function decidedBy(one) {
    const found = about(one);
    const asked = found.find((each) => each[2] === "approval_asked");
    return found.filter((each) => ["approval_given", "approval_refused"].includes(each[2])).map((each) => [h("dt", null, shown(each[3])), h("dd", null, each[11] ? ["by ", shown(each[11])] : "", asked ? `, after ${duration(each[1] - asked[1])}` : "", each[5] ? ["; ", shown(each[5])] : "")]);
  }

  function settledBy(one) {
    const settled = about(one).findLast((each) => each[2] === "step_settled");
    if (!settled) return "";
    return ["; ", shown(settled[11] || "settled"), ": ", shown(settled[5]), one.status === "completed" ? ". It was not made again." : "."];
  }

  function inspector() {
    const one = known.steps.get(view.step);
    if (!one) return null;
    const found = known.detail && known.detail.key0 === view.step ? known.detail : {};
    const kind = { completed: "completed", failed: "failed", "in doubt": "doubt", running: "running", interrupted: "interrupted", waiting: "waiting", "approval requested": "waiting", rejected: "failed", retrying: "running" }[one.status] || "pending";
    const doubt = one.bars.filter(([what]) => what === "doubt");
    const now = Date.now() + known.skew;
    return h("aside", { class: "panel insp", "aria-label": `Step ${one.key}` }, h("header", null, h("h2", { class: "m" }, shown(one.key)), one.effect ? h("span", { class: "risk" }, shown(one.effect)) : null, h("span", { class: "grow" }), status(kind, { pill: true, word: one.status }), h("button", { class: "btn ghost sm", type: "button", "aria-label": "Close", onclick: () => ask({ step: null }) }, "×")),
      h("dl", null,
        found.input && Object.keys(found.input).length ? [h("dt", null, "arguments"), h("dd", null, Object.entries(found.input).map(([key, given]) => h("div", null, shown(key), " = ", value(given))))] : null,
        found.result !== undefined && found.result !== null ? [h("dt", null, "result"), h("dd", null, value(found.result))] : one.came ? [h("dt", null, "outcome"), h("dd", null, shown(one.came))] : null,
        found.failure ? [h("dt", null, "failure"), h("dd", { class: "failed" }, shown(`${found.failure.type}: ${found.failure.message}`))] : null,
        found.idempotency_key ? [h("dt", null, "key"), h("dd", null, shown(found.idempotency_key))] : null,
        decidedBy(one),
        doubt.length ? [h("dt", null, "in doubt"), h("dd", null, duration(doubt.reduce((sum, [, from, to]) => sum + (to === null ? now : to) - from, 0)), settledBy(one))] : null,
        h("dt", null, "attempts"), h("dd", null, String(one.attempts), about(one).filter((each) => ["step_started", "step_settled"].includes(each[2])).map((each) => ` · ${each[3]} at seq ${each[0]}`)),
        one.tokens ? [h("dt", null, "tokens"), h("dd", null, number(one.tokens))] : null,
        one.cost ? [h("dt", null, "cost"), h("dd", null, money(one.cost))] : null,
        h("dt", null, "events"), h("dd", null, h("button", { class: "link", type: "button", onclick: () => goTo(one.first) }, `seq ${one.first}`), one.last !== one.first ? [" to ", h("button", { class: "link", type: "button", onclick: () => goTo(one.last) }, `seq ${one.last}`)] : null),
        one.child ? [h("dt", null, "child"), h("dd", null, h("a", { href: addressOf(`/tasks/${encodeURIComponent(one.child)}`) }, shown(one.child)))] : null));
  }

  return {
    title: () => id,
    keys,
    ticks: () => known.header && (known.header.status === "running" || steps().some((one) => one.bars.some(([, , to]) => to === null))),
    async start(listen) {
      const [header, found] = await Promise.all([get(path), get(`${path}/steps`)]);
      let rows = [];
      for (let more = true; more;) {
        const part = (await get(`${path}/rows`, { after: rows.length, upto: found.seq })).rows;
        rows = rows.concat(part);
        more = part.length > 0 && rows.length < found.seq;
      }
      known.rows = rows;
      known.steps = new Map(found.steps.map((one) => [one.key, one]));
      known.lanes = found.lanes;
      known.stages = found.stages;
      adopt({ ...header, head: found.seq });
      if (header.interrupted) known.dead = { since: lastMs() };
      if (view.at > found.seq) return page.failed(new Problem({ status: 404, code: "seq-out-of-range", detail: `task '${id}' has no seq ${view.at}; its log goes from 1 to ${found.seq}`, hint: `holdfast log ${quoted(id)}` }));
      page.draw();
      listen(`${path}/stream`, found.seq, hear);
      if (found.seq <= VERIFIED_AT_ONCE) verify().catch(() => { known.chain = null; });
    },
    moved(next) {
      if (next.screen !== "task" || next.id !== id) return false;
      view = viewOf(next);
      return true;
    },
    find: () => steps().map((one) => ({ label: one.key, told: `step, ${one.status}`, act: () => ask({ step: one.key, tab: null }) })),
    draw,
  };
}

function fact(term, detail) {
  return h("div", null, h("dt", null, term), h("dd", null, detail));
}

function resumable(header) {
  return header && (header.status === "failed" || (header.waiting && header.waiting.kind === "quarantined"));
}

/** Bring a tab to the middle of its row; the page itself does not move. */
function centred(tab) {
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - (tab.parentElement.clientWidth - tab.clientWidth) / 2;
}

function due(iso) {
  const left = Date.parse(iso) - Date.now();
  return left > 0 ? `in ${roughly(left)}` : `was ${roughly(-left)} ago`;
}

/** Of what is far away, seconds are left out. */
const roughly = (ms) => duration(ms > COARSE_MS ? ms - (ms % 60_000) : ms);

/** What is to be changed in a fork, as it was typed. */
function parsedPatch(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`What to change is not JSON: ${error.message}`);
  }
}

/** How far away a deadline was at an event. */
function dueThen(iso, event) {
  const left = event ? Date.parse(iso) - event[1] : 0;
  return left > 0 ? `was in ${roughly(left)}` : "had passed";
}

const LIMITS = { cost: ["cost", money], wall_time: ["working time", (one) => duration(one * 1000)] };
const LIMITS_IN_ORDER = ["cost", "tokens", "turns", "calls", "steps", "wall_time"];
const place = (limit) => (LIMITS_IN_ORDER.includes(limit) ? LIMITS_IN_ORDER.indexOf(limit) : LIMITS_IN_ORDER.length);

/** How much of a task is done, by its plan; 0 if that is not known, or it has ended. */
function shareDone(header, doc) {
  const plan = doc && doc.get("plan");
  if (!plan || !plan.length || ["completed", "failed", "cancelled"].includes(header.status)) return 0;
  return plan.filter((one) => plain(one).done).length / plan.length;
}

function budget(found, share) {
  const limits = found ? Object.entries(found.limits).sort(([one], [two]) => place(one) - place(two)) : [];
  if (!limits.length) return null;
  return h("section", { class: "budget", "aria-label": "Budget" }, limits.map(([limit, most]) => {
    const used = found.used[limit] || 0;
    const part = Math.round((used / most) * 100);
    const [label, show] = LIMITS[limit] || [limit.replace("_", " "), number];
    return h("div", { key: limit }, h("div", { class: "k" }, h("span", null, label), h("span", null, `${part}%`)), h("div", { class: "v" }, show(used), " ", h("small", null, `of ${show(most)}`)),
      h("div", { class: `meter${part >= 100 ? " x" : part >= 80 ? " p" : ""}`, role: "meter", "aria-label": label, "aria-valuenow": Math.min(100, part), "aria-valuemin": 0, "aria-valuemax": 100 }, h("i", { style: { width: `${Math.min(100, part)}%` } }), share ? h("u", { style: { left: `${Math.min(100, part)}%`, width: `${Math.max(0, Math.min(100, part / share) - Math.min(100, part))}%` }, title: `at this pace: ${show(used / share)} in the end` }) : null, h("s")));
  }));
}
