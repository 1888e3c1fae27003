// Rows of the waterfall that open in place: turns of a loop that are folded, and the steps of child tasks.

import { plural } from "./text.js";

const OPEN_TURNS = 3;
const FOLDED_FROM = 8;
const MOST_DEEP = 4;

/** Rows to draw: `{step, turn, deep, task}` for a step, `{fold}` for turns between the first and the last ones. */
export function rowsOf(steps, { open, children, chosen, read }) {
  const turns = [...new Set(steps.filter((one) => one.turn > 0).map((one) => one.turn))];
  const between = turns.length < FOLDED_FROM ? [] : turns.slice(1, -OPEN_TURNS);
  const folded = new Set(between);
  const inside = between.length ? steps.filter((one) => folded.has(one.turn)) : [];
  const isOpen = open.has("turns") || inside.some((one) => one.key === chosen);
  const found = [];
  let turn = 0;
  for (const step of steps) {
    if (step === inside[0]) found.push({ fold: inside, isOpen, label: `turn ${between[0]} … ${between[between.length - 1]}`, told: plural(inside.length, "step") });
    if (isOpen || !folded.has(step.turn)) found.push({ step, first: step.turn > 0 && step.turn !== turn, deep: 0, task: null }, ...inChild(step, 1, open, children, read));
    turn = step.turn;
  }
  return found;
}

/** The steps of a child that is open, and of its children. A child that still runs is read again. */
function inChild(step, deep, open, children, read) {
  if (!step.child || !open.has(step.child) || deep > MOST_DEEP) return [];
  read(step.child, step.bars.some(([, , to]) => to === null));
  const found = children.get(step.child);
  if (!found || !found.steps) return [{ note: found && found.error ? found.error : "Reading the child …", key: step.child, deep }];
  if (!found.steps.length) return [{ note: "No step yet.", key: step.child, deep }];
  return found.steps.flatMap((one) => [{ step: one, first: false, deep, task: step.child }, ...inChild(one, deep + 1, open, children, read)]);
}
