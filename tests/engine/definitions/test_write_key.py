"""Call.write_key: names for what a step writes elsewhere, the same when the step is repeated."""

from holdfast import Retry, agent, current_call

STORES = ("memory",)


def test_an_attempt_counts_its_writes_and_a_repeated_one_counts_them_again(app):
    lives = []

    @agent
    def writer(task):
        def write():
            lives.append([current_call().write_key(name) for name in ("a", "a", "b")])
            if len(lives) < 3:
                raise ConnectionError("away")

        task.step(write, name="write", retry=Retry(2, first=0))

    assert app.run(writer, id="t").status == "failed" and app.resume("t", writer).status == "completed"
    assert lives == [["t:0/write#1:a#1", "t:0/write#1:a#2", "t:0/write#1:b#1"]] * 3


def test_steps_turns_and_tasks_have_names_of_their_own(app):
    @agent(loop=True)
    def writer(task):
        found = [task.step(lambda: current_call().write_key("a"), name="write") for _ in range(2)]
        task.state.set("names", [*task.state.get("names", []), *found])
        return task.state["names"] if task.turn == 2 else None

    names = [*app.run(writer, id="t").result, *app.run(writer, id="u").result]
    assert len(set(names)) == 8
