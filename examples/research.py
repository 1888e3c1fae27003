r"""Read many sources, more than a model can be shown at once, and write a report from what was learned.

    python examples/research.py [store.db]

Shows a loop of turns, a conversation that outgrows its window (the rest is summarised, once, in steps of their own),
facts with their sources, artifacts, a slice of them for one step (`task.context`), and a budget of tokens. The model is
a plain function. Kill it (Ctrl-\, or kill -9) after some sources, and run it again: it goes on with the turn it was in.
"""

import re
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Budget, Task, agent, tool

REPORT = Path("research-report.md")
ROSE = {"Oslo": 14, "Rome": 9, "Lima": 22, "Bern": 11, "Kyiv": 7, "Bonn": 18, "Cork": 5, "Nice": 16, "Graz": 12}
PAUSE = 0.3  # seconds that a source takes: time to kill it


@tool(effect="read")
def read_source(city: str) -> str:
    print(f"reading about {city} …")
    time.sleep(PAUSE)
    return f"Where lanes were built, cycling rose by {ROSE[city]} % in {city}. " + "Counts were taken by hand. " * 20


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Stands for a language model: it keeps the numbers of what it is shown, also when asked for a summary."""
    text = "\n".join(str(message["content"]) for message in messages)
    found = dict.fromkeys(re.findall(r"rose by \d+ % in \w+", str(messages[-1]["content"])))
    usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 10 * len(found)}
    return {"role": "assistant", "content": "; ".join(found), "usage": usage}


def write_report(context: str) -> str:
    found = sorted(re.findall(r"rose by (\d+) % in (\w+)", context), key=lambda one: -int(one[0]))
    return "# Cycling\n\n" + "".join(f"- {city}: +{percent} %\n" for percent, city in found)


@tool(effect="idempotent")
def save(text: str) -> str:
    REPORT.write_text(text, "utf-8")
    return str(REPORT)


@agent(loop=True, max_turns=20, budget=Budget(tokens=20_000))
def research(task: Task, goal: str, cities: list[str]) -> str | None:
    if task.turn == 1:
        task.message({"role": "system", "content": "Find the numbers."})
    if task.turn > len(cities):  # all is read
        report = task.step(write_report, task.context("report", max_bytes=2_000).text)
        task.artifact(report, type="report", summary=goal)
        return task.call(save, text=report)
    city = cities[task.turn - 1]
    text = task.call(read_source, city=city)
    source = task.artifact(text, type="page", summary=f"about {city}")
    task.message({"role": "user", "content": f"{goal}\n{text}"})
    window = task.summarise(model, max_tokens=800)  # in place of what does not fit, a summary: a step, made once
    reply = task.step(model, window, name="model")
    task.message(reply)
    task.fact(city, reply["content"], source=source)
    return None  # another turn


if __name__ == "__main__":
    with holdfast.open(*sys.argv[1:] or ["research.db"]) as app:
        given = {"goal": "How much did cycling rise?", "cities": list(ROSE)}
        done = app.run(research, given, id="research-1")
        summaries = sum(step.name == "summary" for step in app.steps(done.id))
        print(f"{done.id} is {done.status}: {done.result}, {len(done.facts)} facts, {done.turn} turns.")
        print(f"{len(done.messages)} messages, {summaries} summaries of them; {done.budget}. Run it again: it is done.")
