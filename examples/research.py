r"""Read many sources, more than a model can be shown at once, and write a report from what was learned.

    python examples/research.py [holdfast.db]

Shows a loop of turns, a conversation that outgrows its window (the rest is summarised, once), facts, a slice of them
for one step, and a budget. Kill it (Ctrl-\, or kill -9) after some sources, and run it again: it resumes in its turn.
"""

import re
import sys
import time
from pathlib import Path

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


def model(messages: list[dict]) -> dict:  # stands for a language model: it keeps the numbers
    found = dict.fromkeys(re.findall(r"rose by \d+ % in \w+", str(messages[-1]["content"])))
    tokens = {"prompt_tokens": sum(len(str(one["content"])) for one in messages) // 4}
    return {"role": "assistant", "content": "; ".join(found), "usage": tokens}


@tool(effect="idempotent")
def report(facts: str) -> str:
    found = sorted(re.findall(r"rose by (\d+) % in (\w+)", facts), key=lambda one: -int(one[0]))
    REPORT.write_text("# Cycling\n\n" + "".join(f"- {city}: +{percent} %\n" for percent, city in found), "utf-8")
    return str(REPORT)


@agent(loop=True, max_turns=20, budget=Budget(tokens=20_000))
def research(task: Task, goal: str, cities: list[str]) -> str | None:
    if task.turn > len(cities):  # all is read
        return report(facts=task.context("report", max_bytes=2_000).text)
    city = cities[task.turn - 1]
    text = read_source(city=city)
    source = task.artifact(text, type="page", summary=f"about {city}")
    task.message({"role": "user", "content": f"{goal}\n{text}"})
    reply = task.step(model, task.summarise(model, max_tokens=800), name="model")  # what does not fit is summarised
    task.message(reply)
    task.fact(city, reply["content"], source=source)
    return None  # another turn


if __name__ == "__main__":
    with holdfast.open(*sys.argv[1:] or ["research.db"]) as app:
        done = app.run(research, {"goal": "How much did cycling rise?", "cities": list(ROSE)}, id="research-1")
        print(f"{done.id} is {done.status}: {len(done.facts)} facts, {done.turn} turns, {done.budget}. Run it again.")
