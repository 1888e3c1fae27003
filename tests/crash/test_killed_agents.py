"""Real agents in real processes, killed with SIGKILL at the worst moments."""

import subprocess
import sys
import textwrap
import time

import pytest

import holdfast
from holdfast.testing.auditor import audit
from tests.waiting import until

AGENT = textwrap.dedent(
    """
    import os, pathlib, signal, sys
    import holdfast
    from holdfast import DidNotHappen, Happened, agent, tool

    WORLD = pathlib.Path(sys.argv[1]) / "world"
    KILL_AT = sys.argv[2]

    def did(what, key):
        with open(WORLD, "a") as world:
            world.write(f"{what} {key}\\n")

    def die(where):
        marker = WORLD.with_name("killed")
        if where == KILL_AT and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def find(call):
        seen = WORLD.read_text().splitlines() if WORLD.exists() else []
        return Happened("found") if f"paid {call.idempotency_key}" in seen else DidNotHappen()

    @tool(effect="once", reconcile=find, reconcile_after=0)
    def pay(amount: int, *, idempotency_key: str) -> str:
        die("before the effect")
        did("paid", idempotency_key)
        die("after the effect")
        return "paid"

    def prepare():
        die("in the first step")
        did("prepared", "-")
        return 1

    @agent
    def shop(task):
        task.state.increment("visits")
        task.step(prepare)
        die("between the steps")
        task.fact("paid", task.call(pay, amount=3))
        die("before the end")
        return task.state.visits

    print(holdfast.open(WORLD.with_name("a.db")).run(shop, id="t").status)
    """
)


@pytest.mark.parametrize(
    "kill_at",
    ["in the first step", "between the steps", "before the effect", "after the effect", "before the end", "never"],
)
def test_a_killed_agent_goes_on_and_its_effect_is_there_once(tmp_path, kill_at):
    script = tmp_path / "shop.py"
    script.write_text(AGENT)
    runs = [subprocess.run([sys.executable, str(script), str(tmp_path), kill_at], capture_output=True, text=True)]
    if kill_at != "never":
        assert runs[0].returncode == -9
        with holdfast.open(tmp_path / "a.db") as app:
            assert app.get("t").interrupted, "nothing is reported finished while work remains"
        runs.append(
            subprocess.run([sys.executable, str(script), str(tmp_path), kill_at], capture_output=True, text=True)
        )
    assert runs[-1].stdout == "completed\n", runs[-1].stderr
    requests = (tmp_path / "world").read_text().splitlines()
    assert [line.split()[0] for line in requests] == ["prepared", "paid"]
    with holdfast.open(tmp_path / "a.db") as app:
        done = app.get("t")
        assert done.result == 1 and done.state["visits"] == 1
        assert done.facts["paid"].value == ("found" if kill_at == "after the effect" else "paid")
        doubts = [record for record in app.events("t") if record.kind == "step_doubted"]
        assert bool(doubts) == (kill_at in ("before the effect", "after the effect")), "what was in doubt was flagged"
        assert app.verify().ok
    assert audit(tmp_path / "a.db") == []


def test_a_second_process_that_is_asked_to_wait_takes_over_when_the_first_is_killed(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time, pathlib, holdfast
            @holdfast.agent
            def slow(task):
                def sit(): pathlib.Path(sys.argv[1], "sitting").touch(); time.sleep(60)
                return task.step(sit) if sys.argv[2] == "sit" else "taken over"
            app = holdfast.open(sys.argv[1] + "/a.db")
            pathlib.Path(sys.argv[1], "opened-to-" + sys.argv[2]).touch()
            print(app.run(slow, id="t", wait=20).result, time.time())
            """
        )
    )
    run = [sys.executable, str(script), str(tmp_path)]
    first = subprocess.Popen([*run, "sit"])
    until(lambda: (tmp_path / "sitting").exists())
    second = subprocess.Popen([*run, "go"], stdout=subprocess.PIPE, text=True)
    until(lambda: (tmp_path / "opened-to-go").exists())
    time.sleep(0.5)
    killed_at = time.time()
    first.kill()
    first.wait()
    out, _ = second.communicate(timeout=20)
    result, at = out.rsplit(" ", 1)
    assert result == "taken over" and float(at) - killed_at < 5.0, "it waits for no lease"
