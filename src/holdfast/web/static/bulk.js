// Acts on many tasks: on those that are selected, or on all that match. A job does it; its progress stands here.

import { get, post } from "./api.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { number, plural, shown } from "./text.js";

const LOOK_MS = 300;
const WORDS = { cancel: ["Cancel", "Each task and its children stop. What it did is compensated, as its tools declare. This can't be undone.", "Cancelled"], resume: ["Resume", "Each becomes pending, and workers take them. Steps that are done are not repeated.", "Resumed"] };

/** Ask, then do it: `given` has `ids`, or `q` for all that match. The number that was shown is the number that is meant. */
export async function act(page, known, verb, given) {
  const body = { verb, q: "", expected: 0, ...given };
  body.expected = given.ids ? given.ids.length : (await get("/bulk", { verb, q: body.q })).found;
  if (!body.expected) {
    known.job = { told: `No task that matches can be ${verb === "cancel" ? "cancelled" : "resumed"}.` };
    return page.draw();
  }
  const [word, text] = WORDS[verb];
  const job = await ask({ title: `${word} ${plural(body.expected, "task")}?`, text, fields: [{ name: "why", label: "Why (recorded with each)" }], confirm: `${word} ${number(body.expected)}`, bad: verb === "cancel", act: ({ why }) => post("/bulk", { ...body, why }) });
  if (!job) return undefined;
  known.chosen = [];
  return followed(page, known, job);
}

async function followed(page, known, job) {
  known.job = job;
  while (!known.job.over) {
    page.draw();
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    known.job = await get(`/bulk/${job.job}`);
  }
  page.draw();
}

export function chosenBar(page, known, query, bulk, compared) {
  const may = page.about && page.about.rights.includes("admin") && !page.about.read_only;
  const count = known.chosen.length;
  const job = known.job;
  return [
    count || (query && may) ? h("div", { class: "row picked", role: "group", "aria-label": "Selected tasks" },
      count ? h("b", null, `${plural(count, "task")} selected`) : null,
      count && may ? [h("button", { key: "resume", class: "btn sm", type: "button", onclick: () => bulk("resume", false).catch(page.failed) }, "Resume …"), h("button", { key: "cancel", class: "btn sm bad", type: "button", onclick: () => bulk("cancel", false).catch(page.failed) }, "Cancel …")] : null,
      count ? h("button", { key: "clear", class: "btn ghost sm", type: "button", onclick: () => { known.chosen = []; page.draw(); } }, "Clear the selection") : null,
      // It comes last, and each button has its key: what is under the pointer never becomes another button.
      count === 2 ? h("button", { key: "compare", class: "btn sm", type: "button", onclick: compared }, "Compare", h("kbd", null, "c")) : null,
      !count && query && may ? [h("span", { key: "all", class: "muted sm" }, "All that match:"), h("button", { key: "resume-all", class: "btn ghost sm", type: "button", onclick: () => bulk("resume", true).catch(page.failed) }, "Resume all …"), h("button", { key: "cancel-all", class: "btn ghost sm", type: "button", onclick: () => bulk("cancel", true).catch(page.failed) }, "Cancel all …")] : null) : null,
    job ? h("div", { class: "notice past", role: "status" }, h("span", null, job.told || `${WORDS[job.verb][2]} ${number(job.done - job.refused)} of ${number(job.total)}${job.refused ? `; ${plural(job.refused, "task")} refused: ` : ""}`, job.why && job.why.length ? shown(`${job.why[0].task}: ${job.why[0].detail}`) : ""), job.told || job.over ? h("button", { class: "btn ghost sm", type: "button", onclick: () => { known.job = null; page.draw(); } }, "Close") : null) : null,
  ];
}
