"""The rest of the documents on state: slices, positions, machines, rollbacks, migrations, lines of the log."""

import logging

import msgspec
import pytest

import holdfast
from holdfast import Machine, StatePatch, agent


@pytest.fixture
def app(tmp_path):
    with holdfast.open(str(tmp_path / "holdfast.db")) as opened:
        yield opened


@agent
def research(task) -> str:
    task.plan(["look", "write"])
    task.fact("service", "post", source="ana")
    task.step(lambda: 1, name="look")
    task.done("look")
    return "done"


def test_what_matters_to_a_step_can_be_cut_out_of_any_state(app):
    """Row 67."""
    done = app.run(research, id="t", goal="deliver")
    before = app.at("t", 2).context("write", max_bytes=400)
    assert (
        "post" in done.context("write", max_bytes=400).text and "deliver" in done.context("write", max_bytes=400).text
    )
    assert "post" not in before.text


def test_a_task_says_how_far_its_plan_has_come(app):
    """Row 167."""
    done = app.run(research, id="t")
    assert (done.steps_completed, done.steps_remaining, done.current_step) == (1, 1, "write")


def test_kinds_of_events_are_a_closed_set_and_the_docs_say_what_to_use(app):
    """Row 178: refused, by decision 0076. A line of the log with fields takes its place."""

    @agent
    def a(task):
        task.log("order placed", order=7)
        return hasattr(task, "event")

    assert app.run(a, id="t").result is False
    assert any("order placed" in str(one.event) for one in app.events("t"))


TABLE = {
    ("idle", "new_task"): "planning",
    ("planning", "plan_ready"): "executing",
    ("executing", "step_complete"): "executing",
    ("executing", "needs_input"): "waiting_feedback",
    ("waiting_feedback", "input_received"): "executing",
    ("executing", "task_complete"): "done",
}


def test_a_table_of_state_and_event_is_a_machine_as_it_is(app):
    """Rows 186 and 187: the table of the document, word for word."""

    @agent(phases=Machine(TABLE))
    def a(task):
        for event in ("new_task", "plan_ready", "step_complete", "needs_input", "input_received"):
            task.phase(on=event)
        return task.current.phase

    done = app.run(a, id="t")
    assert done.result == "executing" and done.phase == "done"


def test_a_task_that_waits_for_its_user_is_in_the_phase_for_it(app):
    """Row 188."""

    @agent
    def a(task):
        task.phase("planning")
        task.phase("executing")
        return task.ask("which seat?", name="seat")

    assert app.run(a, id="t").phase == "waiting_feedback"
    app.answer("t", "seat", "aisle", by="ana")
    assert app.get("t").phase == "executing"


def test_a_rollback_counts_steps_or_versions_of_the_state_and_is_clamped(app):
    """Row 196."""

    @agent
    def a(task):
        return task.wait("go")

    app.run(a, id="t")
    for n in (1, 2, 3):
        app.patch("t", StatePatch(set={"n": n}))
    assert app.rollback("t", versions=1).state == {"n": 2}
    assert app.rollback("t", versions=99).state == {}


class One(msgspec.Struct):
    n: int = 0


class Two(msgspec.Struct):
    count: int = 0


def test_all_tasks_of_an_older_state_are_found_and_migrated(app):
    """Row 205."""

    @agent(name="counter", state=One)
    def old(task):
        task.state.n = 3
        return task.wait("go")

    for id in ("a", "b"):
        app.run(old, id=id)

    @agent(name="counter", state=Two, state_version=2)
    def new(task):
        return task.wait("go")

    @new.upcast(1, 2)
    def renamed(values):
        return {"count": values["n"]}

    assert {one.id for one in app.list(state_version_below=2)} == {"a", "b"}
    app.migrate_states(new)
    assert app.list(state_version_below=2) == []
    assert new.read_state(app.get("a")) == Two(3)


def test_a_line_of_the_log_has_fields(app):
    """Row 231."""

    @agent
    def a(task):
        task.log("sent", to="ana", count=2)

    app.run(a, id="t")
    shown = [line for line in app.describe("t") if "sent" in str(line)]
    assert shown and "ana" in str(shown[0])


def test_a_failure_is_logged_with_the_place_of_the_state_it_failed_in(app, caplog):
    """Row 232."""

    @agent
    def a(task):
        task.note("k", "v")
        task.step(lambda: 1, name="one")
        raise ValueError("no")

    with caplog.at_level(logging.ERROR, logger="holdfast.failures"):
        failed = app.run(a, id="t")
    assert f"app.at('t', {failed.failed_at})" in caplog.text
    assert app.at("t", failed.failed_at).notes["k"] == "v"


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_conversation_memory_of_langchain_is_kept_here(tmp_path):
    """Row 199: the same two lines as with memory in the process, and a restart in between."""
    from langchain_classic.memory import ConversationBufferMemory

    from holdfast.adapters.langchain import HoldfastChatMessageHistory

    for said in ("I am Ana.", "Who am I?"):
        with holdfast.open(str(tmp_path / "holdfast.db")) as app:
            memory = ConversationBufferMemory(chat_memory=HoldfastChatMessageHistory(app, "ana"))
            memory.save_context({"input": said}, {"output": "I see."})
            known = memory.load_memory_variables({})["history"]
    assert known == "Human: I am Ana.\nAI: I see.\nHuman: Who am I?\nAI: I see."
