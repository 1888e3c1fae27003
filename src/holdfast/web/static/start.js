// Start a task: of an agent that the page was given with its file. Workers take it; nothing is run here.

import { get, post } from "./api.js";
import { ask } from "./dialogs.js";
import { fieldsOf, labelOf, valueOf } from "./forms.js";
import { go } from "./route.js";

const MORE = ["id", "queue", "user"];

/** Ask which agent, then for its input; opens the new task. */
export async function startTask() {
  const { agents } = await get("/agents");
  let chosen = agents[0];
  if (agents.length > 1) {
    const picked = await ask({ title: "Start a task", text: "Of which agent?", fields: [{ name: "agent", label: "Agent", choices: agents.map((one) => [one.name, one.name]) }], confirm: "Next", act: async (given) => given });
    if (!picked) return;
    chosen = agents.find((one) => one.name === picked.agent);
  }
  const fields = fieldsOf(chosen.input);
  const shown = fields.filter((one) => one.name);
  await ask({
    title: `Start ${chosen.name}`,
    text: chosen.about.split("\n")[0] || "The task is pending until a worker takes it.",
    fields: [...shown.map(drawn), { name: "\u0000id", label: "Id of the task (empty: made up)" }, { name: "\u0000queue", label: "Queue", value: "default" }, { name: "\u0000user", label: "User (optional)" }],
    confirm: "Start",
    act: async (given) => {
      const body = { agent: chosen.name, input: valueOf(shown, given) };
      for (const name of MORE) if (given[`\u0000${name}`].trim()) body[name] = given[`\u0000${name}`].trim();
      const made = await post("/tasks", body);
      go(`/tasks/${encodeURIComponent(made.id)}`);
    },
  });
}

function drawn(one) {
  const initial = one.initial === undefined || one.initial === null ? "" : one.kind === "text" ? one.initial : JSON.stringify(one.initial);
  if (one.kind === "choice") {
    const first = one.choices.find(([, value]) => value === one.initial);
    return { name: one.name, label: labelOf(one), value: first ? first[0] : "", choices: [...(one.required && !first ? [] : [["", "–"]]), ...one.choices.map(([label]) => [label, label])] };
  }
  return { name: one.name, label: labelOf(one), value: initial, lines: one.kind === "json" ? 3 : 0 };
}
