// The other tabs of a task: its conversation, and its failures.

import { h } from "./dom.js";
import { clock, duration, plural, shown, value } from "./text.js";

/** Messages as a chat. What a model or a tool wrote is text. */
export function conversation(known, read, seq, page) {
  if (!known.messages || known.messages.seq !== seq) {
    if (known.asking !== seq) {
      known.asking = seq;
      read().then((found) => { known.messages = { ...found, seq }; page.draw(); }, page.failed);
    }
    if (!known.messages) return h("p", { class: "plain muted" }, "Reading the conversation …");
  }
  const found = known.messages.messages;
  if (!found.length) return h("p", { class: "panel plain muted" }, "This task has no messages.");
  return h("section", { class: "panel chat", "aria-label": "Conversation" }, found.map((one, index) => message(one, index)));
}

function message(one, index) {
  const told = one && typeof one === "object" && !one.$blob ? one : { role: "message", content: one };
  const role = String(told.role || "message");
  const kind = role === "user" ? "user" : role === "system" || role === "developer" ? "sys0" : role === "tool" ? "tool0" : "";
  return h("article", { key: index, class: `msg ${kind}` }, h("div", { class: "who" }, shown(role)), h("div", { class: "body" }, parts(told.content), (told.tool_calls || []).map((call) => h("div", { class: "tool" }, h("div", null, h("span", null, "ƒ"), h("span", null, shown(call.function ? call.function.name : call.name || ""), "(", shown(call.function ? call.function.arguments : JSON.stringify(call.arguments || {})), ")"))))), h("div", { class: "at" }, told.tool_call_id ? shown(told.tool_call_id) : ""));
}

function parts(content) {
  if (content === null || content === undefined) return null;
  if (typeof content === "string") return h("p", null, shown(content));
  if (Array.isArray(content)) return content.map((one) => (one && typeof one.text === "string" ? h("p", null, shown(one.text)) : h("p", { class: "m" }, value(one))));
  return h("p", { class: "m" }, value(content));
}

/** Steps that failed, or failed on the way: each try, and the traceback of the last. */
export function failures(known, read, page) {
  const bad = [...known.steps.values()].filter((one) => one.bars.some(([kind]) => kind === "failed") || one.status === "failed");
  if (!bad.length) return h("p", { class: "panel plain muted" }, "No try of a step has failed.");
  known.failed = known.failed || new Map();
  for (const one of bad) {
    const name = `${one.key}@${one.last}`;
    if (!known.failed.has(name)) {
      known.failed.set(name, null);
      read(one.key).then((found) => { known.failed.set(name, found); page.draw(); }, () => undefined);
    }
  }
  return bad.map((one) => {
    const found = known.failed.get(`${one.key}@${one.last}`) || {};
    const failure = found.failure || (found.failures || []).at(-1);
    return h("section", { class: "panel failure", key: one.key }, h("header", null, h("h2", { class: "m" }, shown(one.key)), h("span", { class: "muted sm" }, plural(one.attempts, "attempt"), ", ", one.status)),
      failure && failure.traceback ? h("pre", { class: "code" }, shown([failure.traceback].flat().join("\n"))) : h("p", { class: "plain m" }, shown(failure ? `${failure.type}: ${failure.message}` : one.came)),
      h("table", null, h("thead", null, h("tr", null, ["try", "at", "took", "then waited"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, one.bars.filter(([kind]) => kind === "failed").map(([, from, to], index) => {
        const pause = one.bars.find(([kind, start]) => kind === "pause" && start === to);
        return h("tr", null, h("td", { class: "m" }, String(index + 1)), h("td", { class: "m muted" }, clock(from)), h("td", { class: "m" }, duration(to - from)), h("td", { class: "m muted" }, pause ? duration(pause[2] - pause[1]) : "–"));
      }))));
  });
}
