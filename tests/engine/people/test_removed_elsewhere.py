"""Threads and users that another process removes: what is written after that begins them anew, and nothing is lost."""

import dataclasses

import pytest

import holdfast
from holdfast import InvalidState, agent

STORES = ("sqlite", "postgres")
CLOCK = None  # the real one


@agent
def chat(task, text: str) -> int:
    task.message({"role": "user", "content": text})
    return len(task.messages)


def removed(app, what):
    if what == "deleted":
        return app.thread("d").delete()
    app.thread("d").update(expire=0.000001)
    return app.gc()


@pytest.mark.parametrize("what", ["deleted", "expired"])
def test_what_is_written_after_a_thread_was_removed_elsewhere_is_there_for_everyone(url, what):
    with holdfast.open(url) as one, holdfast.open(url) as two:
        for number in (1, 2, 3):
            one.thread("d").state.set("x", number)
            one.thread("d").add([{"role": "user", "content": str(number)}])
            assert one.run(chat, {"text": "more"}, id=f"t{number}", thread="d").result == 2
            assert two.thread("d").state.all() == one.thread("d").state.all() == {"x": number}
            assert [m["content"] for m in two.thread("d").messages] == [str(number), "more"]
            removed(two, what)
        one.thread("d").add([{"role": "user", "content": "last"}])
        assert [m["content"] for m in two.thread("d").messages] == ["last"]
        assert one.verify().problems == two.verify().problems == []


def test_what_is_written_after_a_user_expired_elsewhere_is_there_for_everyone(url):
    with holdfast.open(url) as one, holdfast.open(url) as two:
        one.user("ana").state.set("seat", "aisle")
        two.user("ana").update(expire=0.000001)
        two.gc()
        one.user("ana").state.set("seat", "window")
        assert two.user("ana").state.all() == {"seat": "window"} and two.verify().problems == []


@dataclasses.dataclass
class Profile:
    seats: int = 10


def test_rollback_to_what_another_process_wrote_without_the_model_must_fit_it(url):
    with holdfast.open(url) as plain, holdfast.open(url, users=Profile) as app:
        plain.user("ana").state.seats = "many"
        seq = plain.user("ana").get().seq
        plain.user("ana").state.seats = 3
        with pytest.raises(InvalidState, match="seats"):
            app.user("ana").rollback(to=seq)
        assert app.user("ana").state.seats == 3
