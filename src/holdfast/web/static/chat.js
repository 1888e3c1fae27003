// The conversation: messages as a chat; a call with its tries, approvals, a kill and its result in one frame.

import { h } from "./dom.js";
import { markdown } from "./markdown.js";
import { openValue } from "./values.js";
import { calm, duration, money, plural, shown, value } from "./text.js";

const OPEN_TURNS = 3;
const FOLDED_FROM = 8;
const LONG = 700;
const MOST_PAGES = 10;

/** Read the conversation at a seq, page by page. */
export async function readChat(get, path, upto) {
  const found = { messages: [], next: null, user: null };
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const part = await get(`${path}/messages`, { after: found.next, ...(upto ? { upto } : {}) });
    found.messages.push(...part.messages);
    found.next = part.next;
    found.user = part.user;
    if (part.next === null) break;
  }
  return found;
}

export function conversation(known, agent, goTo, page) {
  const found = known.messages;
  if (!found) return h("p", { class: "plain muted" }, "Reading the conversation …");
  if (!found.messages.length) return h("p", { class: "panel plain muted" }, "This task has no messages, and asked no question.");
  const turns = [...Map.groupBy(found.messages, (one) => one.turn)];
  const draw = ([, entries]) => entries.map((one) => entry(one, known, agent, goTo, found.user));
  const parts = turns.length < FOLDED_FROM ? turns.flatMap(draw) : folded(turns, draw, known, page);
  return h("section", { class: "panel chat", "aria-label": "Conversation" }, parts, found.next !== null ? h("p", { class: "plain muted sm" }, `There are more messages after seq ${found.next}; move the slider, or use `, h("code", null, "holdfast show --json"), ".") : null);
}

/** The first turn and the last ones are open; those between are folded, and open by a press. */
function folded(turns, draw, known, page) {
  const first = turns.slice(0, 1);
  const last = turns.slice(-OPEN_TURNS);
  const between = turns.slice(1, -OPEN_TURNS);
  const flip = (name) => () => { known.unfolded.has(name) ? known.unfolded.delete(name) : known.unfolded.add(name); page.draw(); };
  const all = known.unfolded.has("all");
  const middle = h("button", { class: "turnfold", type: "button", "aria-expanded": String(all), onclick: flip("all") }, all ? "▾ " : "▸ ", `turn ${between[0][0]} … ${between[between.length - 1][0]}`, h("span", { class: "muted" }, ` · ${told(between.flatMap(([, entries]) => entries))}`));
  const inner = all ? between.flatMap((turn) => {
    const open = known.unfolded.has(turn[0]);
    return [h("button", { key: `turn${turn[0]}`, class: "turnfold in", type: "button", "aria-expanded": String(open), onclick: flip(turn[0]) }, open ? "▾ " : "▸ ", `turn ${turn[0]}`, h("span", { class: "muted" }, ` · ${told(turn[1])}`)), ...(open ? draw(turn) : [])];
  }) : [];
  return [...first.flatMap(draw), middle, ...inner, ...last.flatMap(draw)];
}

function told(entries) {
  const calls = entries.reduce((sum, one) => sum + one.calls.length, 0);
  const tokens = entries.reduce((sum, one) => sum + one.tokens, 0);
  const cost = entries.reduce((sum, one) => sum + Number(one.cost || 0), 0);
  return [plural(entries.length, "message"), calls ? plural(calls, "call") : "", tokens ? `${short(tokens)} tok` : "", cost ? money(cost) : ""].filter(Boolean).join(", ");
}

/** A duration, if the log tells it: of a first try that failed it has only the end. */
const length = (ms) => (ms > 0 ? duration(ms) : "");

const short = (tokens) => (tokens < 1000 ? String(tokens) : `${(tokens / 1000).toFixed(1)}k`);

function entry(one, known, agent, goTo, user) {
  const kind = one.kind === "answer" || one.role === "user" ? "user" : ["system", "developer"].includes(one.role) || one.kind === "summary" ? "sys0" : one.role === "tool" ? "tool0" : "";
  const asked = one.kind === "answer" ? known.messages.messages.find((other) => other.kind === "question" && other.step === one.step) : null;
  const more = [one.kind === "question" ? "asked" : "", asked ? `after ${duration(one.at_ms - asked.at_ms)}` : "", one.model, one.tokens ? `${short(one.tokens)} tok` : "", one.cost ? money(one.cost) : ""].filter(Boolean);
  return h("article", { key: `m${one.seq}`, class: `msg ${kind}${one.is_sent ? "" : " unsent"}`, "data-seq": one.seq },
    h("div", { class: "who" }, shown(nameOf(one, agent, user))),
    h("div", { class: "body" }, one.is_sent ? null : h("span", { class: "n" }, "not sent to the model: a summary stands for it"), one.kind === "summary" ? h("span", { class: "n" }, "summary, sent in place of earlier messages") : null,
      one.parts.map((part) => body(part, one)), one.calls.map((call) => frame(call, known, goTo))),
    h("div", { class: "at" }, more.map((text) => [shown(text), " · "]), h("button", { class: "link", type: "button", onclick: () => goTo(one.seq) }, `seq ${one.seq}`)));
}

function nameOf(one, agent, user) {
  if (one.kind === "answer") return one.by || "a person";
  if (one.kind === "summary") return "summary";
  if (one.kind === "question" || one.role === "assistant") return agent;
  return one.role === "user" ? one.by || user || "user" : one.role;
}

function body(part, one) {
  if (part.text && part.text.$blob) return h("p", null, calm(part.text.$blob.preview), " ", openValue(part.text.$blob, `message at seq ${one.seq}`));
  const text = String(part.text ?? "");
  if (part.kind === "thinking") return text ? h("details", { class: "think" }, h("summary", null, "thinking"), h("p", { class: "muted" }, calm(text))) : null;
  if (part.kind === "image") return h("p", { class: "muted m" }, "[image] ", shown(text.slice(0, 200)));
  if (part.kind === "other") return h("p", { class: "m" }, calm(text));
  if (text.length > LONG && one.role === "system") return h("details", null, h("summary", null, calm(text.slice(0, 120)), h("span", { class: "muted" }, ` … ${plural(text.trim().split(/\s+/).length, "word")}`)), markdown(text));
  return h("div", { class: "md" }, markdown(text));
}

/** A call: what was asked for, each try, who approved it, what killed it, and what it gave. */
function frame(call, known, goTo) {
  const step = known.steps.get(call.step);
  const bars = step ? step.bars : [];
  const made = bars.filter(([kind, , to]) => to !== null && ["run", "done", "failed", "killed", "child"].includes(kind));
  const took = length(made.reduce((sum, [, from, to]) => sum + to - from, 0));
  const line = (kind, sign, text, right) => h("div", { class: kind }, h("span", { "aria-hidden": "true" }, sign), h("span", null, text), h("span", { class: "muted r" }, right || ""));
  return h("div", { class: "tool", "data-call": call.id },
    line("", "ƒ", [h("b", null, shown(call.name)), "(", given(call.arguments), ")"], took),
    step ? history(step, known).map(([kind, sign, text, right]) => line(kind, sign, text, right)) : null,
    call.result === null || call.result === undefined ? line("res", "←", h("span", { class: "muted" }, step ? step.status : "no result"), "") : line(`res${call.is_error ? " bad" : ""}`, "←", call.brief ? [shown(call.brief), " · ", openValue({ bytes: sizeOf(call.result), href: call.href }, `result of ${call.name}`)] : call.result.$blob ? [calm(call.result.$blob.preview.slice(0, 300)), " … ", openValue(call.result.$blob, `result of ${call.name}`)] : calm(call.result), call.seq ? h("button", { class: "link", type: "button", onclick: () => goTo(call.seq) }, `seq ${call.seq}`) : ""));
}

const sizeOf = (result) => (result.$blob ? result.$blob.bytes : new TextEncoder().encode(result).length);

function given(text) {
  if (text && text.$blob) return [calm(text.$blob.preview.slice(0, 300)), " … ", openValue(text.$blob, "arguments")];
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return shown(text);
  }
  if (!found || typeof found !== "object" || Array.isArray(found)) return value(found);
  return Object.entries(found).map(([key, one], index) => [index ? ", " : "", h("span", { class: "ink2" }, shown(key)), "=", value(one)]);
}

/** What befell a call on its way, of its bars and events: failed tries, approvals, a kill, doubt. */
export function history(step, known) {
  const own = known.rows.slice(step.first - 1, step.last).filter((one) => step.key === one[4] || step.key.endsWith(`/${one[4]}`) || one[4].endsWith(step.key.replace(/^\d+\//, "")));
  const tries = own.filter((one) => one[2] === "attempt_failed" || one[2] === "step_failed");
  const approved = own.filter((one) => one[2] === "approval_given" || one[2] === "approval_refused");
  const settled = own.find((one) => one[2] === "step_settled");
  let failed = 0;
  let waits = 0;
  return step.bars.flatMap(([kind, from, to]) => {
    const took = to === null ? "" : length(to - from);
    if (kind === "failed") {
      const one = tries[failed];
      failed += 1;
      return [["bad", "×", `try ${failed}: ${one && one[5] ? one[5].replace(/^attempt \d+ failed, again in [^:]*: /, "") : "failed"}`, took]];
    }
    if (kind === "killed") return [["bad", "⚡", "the process died", took]];
    if (kind === "doubt") return [["odd", "?", settled ? `in doubt; settled${settled[11] ? ` by ${settled[11]}` : ""}: ${settled[5]}` : "in doubt", took]];
    if (kind === "wait") {
      const one = approved[waits];
      waits += 1;
      return [["ask", "‖", one ? `${one[2] === "approval_given" ? "approved" : "rejected"}${one[11] ? ` by ${one[11]}` : ""}` : "approval requested", took]];
    }
    return [];
  });
}
