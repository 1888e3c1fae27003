"""Users with a model: what does not fit is refused, older versions are migrated, and one can go back."""

import dataclasses
import threading
from typing import Annotated

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import (
    InvalidState,
    InvalidValue,
    SeqOutOfRange,
    StateMutated,
    StateNotMigrated,
    StatePatch,
    UserModel,
    agent,
)

STORES = ("memory", "sqlite", "postgres")


@dataclasses.dataclass
class Address:
    city: str
    zip: int = 0


@dataclasses.dataclass
class Profile:
    name: str
    seats: Annotated[int, msgspec.Meta(le=12)] = 10
    address: Address | None = None
    likes: list[str] = dataclasses.field(default_factory=lambda: ["trains"])


class PProfile(pydantic.BaseModel):
    name: str
    seats: int = pydantic.Field(default=10, le=12)
    address: dict | None = None
    likes: list[str] = pydantic.Field(default_factory=lambda: ["trains"])


@pytest.fixture
def typed(url, clock):
    with holdfast.open(url, clock=clock, users=Profile) as app:
        yield app


def nothing():
    return None


def test_what_is_set_has_the_type_of_the_model(typed):
    ana = typed.user("ana")
    assert ana.state.seats == 10 and ana.state.likes == ["trains"] and "name" not in ana.state
    ana.state.name = "Ana"
    ana.state.address = Address("Oslo")
    assert ana.state.address == Address("Oslo", 0) and ana.state["address.city"] == "Oslo"
    ana.state.set("address.zip", 150)
    assert ana.state.increment("seats") == 11
    ana.state.append("likes", "ferries")
    assert ana.state.model == Profile("Ana", 11, Address("Oslo", 150), ["trains", "ferries"])
    assert ana.state.update("address", lambda found: Address(found.city, 7)) == Address("Oslo", 7)
    assert ana.state.all()["seats"] == 11 and ana.get().state_version == 1
    assert typed.verify().ok


@pytest.mark.parametrize("model", [Profile, PProfile])
def test_what_does_not_fit_is_refused_and_nothing_is_written(model):
    with holdfast.open("memory:", users=model) as app:
        ana = app.user("ana")
        ana.state.name = "Ana"
        seq = ana.get().seq
        with pytest.raises(InvalidState):
            ana.state.seats = 13
        with pytest.raises(InvalidState):
            ana.state.name = None
        with pytest.raises(InvalidState):
            ana.state.sets = 3
        with pytest.raises(InvalidState):
            ana.state.increment("seats", 5)
        with pytest.raises(InvalidState):
            ana.state.append("likes", 7)
        with pytest.raises(InvalidState):
            ana.patch(StatePatch(set={"seats": "many"}))
        with pytest.raises(InvalidState):
            ana.state.update("seats", lambda seats: seats + 100)
        with pytest.raises(AttributeError):
            _ = ana.state.nothing
        assert ana.get().seq == seq and ana.state.seats == 10


def test_the_model_says_what_is_missing(typed):
    with pytest.raises(InvalidState) as missing:
        _ = typed.user("ana").state.model
    assert "name" in str(missing.value)


def test_a_typed_value_that_is_changed_in_place_is_found_out(typed):
    ana = typed.user("ana")
    ana.state.address = Address("Oslo")
    ana.state.address.city = "Rome"
    with pytest.raises(StateMutated) as lost:
        _ = ana.state.address
    assert "app.user('ana').state.address" in str(lost.value)
    assert ana.state.address.city == "Oslo"


def test_tasks_read_and_write_the_model(typed, either):
    @either()
    def moving(task, city):
        before = task.user.state.address
        task.user.state.address = Address(city)
        task.user.state.increment("seats")
        yield task.step(nothing)
        likes = yield task.user.state.update("likes", lambda likes: [*likes, city])
        return [before and before.city, task.user.state.address.city, task.user.state.seats, list(likes)]

    typed.user("ana").state.name = "Ana"
    assert typed.run(moving, {"city": "Oslo"}, id="a", user="ana").result == [None, "Oslo", 11, ["trains", "Oslo"]]
    second = typed.run(moving, {"city": "Rome"}, id="b", user="ana")
    assert second.result == ["Oslo", "Rome", 12, ["trains", "Oslo", "Rome"]]
    third = typed.run(moving, {"city": "Bonn"}, id="c", user="ana")
    assert third.status == "failed" and third.failure.code == "invalid-state"
    assert typed.user("ana").state.model == Profile("Ana", 12, Address("Bonn"), ["trains", "Oslo", "Rome"])


def test_a_task_that_changes_a_typed_value_in_place_is_told(typed, either):
    typed.user("ana").state.address = Address("Oslo")

    @either()
    def careless(task):
        task.user.state.address.city = "Rome"
        with pytest.raises(StateMutated) as lost:
            yield task.step(nothing)
        return str(lost.value)

    assert "task.user.state.address.city" in typed.run(careless, id="a", user="ana").result


@dataclasses.dataclass
class Named:
    full_name: str
    seats: int = 10


def upcasted():
    model = UserModel(Named, version=2)

    @model.upcast(1, 2)
    def _(old):
        return {"full_name": old["name"].title(), **({"seats": old["seats"]} if "seats" in old else {})}

    return model


def older(app):
    """Let an older version of the program write users."""
    app.logs.users = UserModel(Profile)
    app.user("ana").state.name = "ana"
    app.user("ana").state.seats = 3
    app.user("ben").state.name = "ben"


def test_an_older_state_is_migrated_by_the_first_write(app):
    older(app)
    app.logs.users = upcasted()
    ana = app.user("ana")
    assert ana.state.full_name == "Ana" and ana.get().state_version == 1, "reading writes nothing"
    ana.state.seats = 4
    assert ana.get().state_version == 2 and dict(ana.get().state) == {"full_name": "Ana", "seats": 4}
    assert [event.kind for event in ana.events()][-2:] == ["state_migrated", "state_patched"]
    assert app.verify().ok


def test_an_older_state_is_migrated_when_a_task_begins(app, either):
    older(app)
    app.logs.users = upcasted()

    @either()
    def greeting(task):
        task.user.state.increment("seats")
        yield task.step(nothing)
        return [task.user.state.full_name, task.user.state.seats]

    assert app.run(greeting, id="a", user="ben").result == ["Ben", 11]
    assert app.user("ben").get().state_version == 2 and app.verify().ok


def test_a_newer_state_is_not_read_by_an_older_program(app):
    older(app)
    app.logs.users = upcasted()
    app.user("ana").state.seats = 4
    app.logs.users = UserModel(Profile)
    with pytest.raises(StateNotMigrated):
        _ = app.user("ana").state.seats


def test_a_state_that_no_upcast_reaches_is_refused(app):
    older(app)
    app.logs.users = UserModel(Named, version=2)
    with pytest.raises(StateNotMigrated) as missing:
        app.user("ana").state.seats = 4
    assert "upcast(1, 2)" in missing.value.hint
    assert app.user("ana").get().state_version == 1


def test_rollback_goes_back_by_changes_or_to_a_seq(app):
    ana = app.user("ana")
    ana.state.city = "Oslo"
    first = ana.get().seq
    ana.patch(StatePatch(set={"city": "Rome", "seat": "aisle"}))
    ana.state.increment("trips")
    assert dict(ana.rollback(versions=1, by="desk").state) == {"city": "Rome", "seat": "aisle"}
    assert dict(ana.rollback(to=first, why="asked to").state) == {"city": "Oslo"}
    assert dict(ana.rollback(versions=1).state) == {"city": "Rome", "seat": "aisle"}, "a rollback can be rolled back"
    assert dict(ana.rollback(versions=99).state) == {}
    told = [event.event for event in ana.events() if event.kind == "state_patched"]
    assert [one.why for one in told][-4:] == [
        f"rolled back to {first + 1}",
        "asked to",
        "rolled back to 5",
        "rolled back to 1",
    ]
    assert told[-4].by == "desk" and app.verify().ok


def test_rollback_over_a_migration_gives_the_newer_version(app):
    older(app)
    app.logs.users = upcasted()
    ana = app.user("ana")
    seq = ana.get().seq
    ana.state.full_name = "Ana B"
    ana.state.seats = 9
    assert dict(ana.rollback(to=seq).state) == {"full_name": "Ana", "seats": 3}
    app.logs.users = None
    with pytest.raises(StateNotMigrated):
        app.user("ana").rollback(to=seq)


def test_bad_rollbacks_and_models_are_refused(app):
    ana = app.user("ana")
    with pytest.raises(InvalidValue):
        ana.rollback(versions=1)
    ana.state.city = "Oslo"
    for wrong in ({}, {"to": 1, "versions": 1}, {"versions": 0}, {"versions": True}, {"to": "first"}):
        with pytest.raises(InvalidValue):
            ana.rollback(**wrong)
    with pytest.raises(SeqOutOfRange):
        ana.rollback(to=99)
    for wrong in ("text", 7, int, UserModel):
        with pytest.raises(InvalidValue):
            holdfast.open("memory:", users=wrong)
    with pytest.raises(InvalidValue):
        UserModel(Profile, version=0)


def test_tenants_and_workers_know_the_model(url, clock):
    if url == "memory:":
        pytest.skip("each memory store is one tenant's")

    @agent
    def greeting(task):
        return task.user.state.seats

    with holdfast.open(url, clock=clock, users=Profile, namespace="acme") as app:
        assert app.run(greeting, id="a", user="ana").result == 10
        with pytest.raises(InvalidState):
            app.user("ana").state.seats = 99


def test_rollback_by_versions_counts_changes_of_the_state_and_not_facts(app):
    ana = app.user("ana")
    ana.state.city = "Oslo"
    ana.state.city = "Rome"
    ana.patch(StatePatch(append_facts=[{"key": "born", "value": 1990}]))
    assert dict(ana.rollback(versions=1).state) == {"city": "Oslo"}
    assert ana.get().facts["born"].value == 1990


def test_two_that_go_back_one_version_at_once_go_back_two(url):
    with holdfast.open(url) as app:
        for city in ("Oslo", "Rome", "Bonn", "Bern"):
            app.user("ana").state.city = city
        head = app.user("ana").get().seq
        together = threading.Barrier(2)

        def back():
            together.wait()
            app.user("ana").rollback(versions=1)

        threads = [threading.Thread(target=back) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        changed = [one.event.why for one in app.user("ana").events(after=head)]
        assert changed == [f"rolled back to {head - 1}", f"rolled back to {head}"], "each by what it saw when it wrote"


def test_a_user_of_whom_nothing_is_known_has_no_past(app):
    for ask in (lambda: app.user("eve").at(1), lambda: app.user("eve").rollback(to=1)):
        with pytest.raises(InvalidValue, match="no user 'eve'"):
            ask()
    ana = app.user("ana")
    ana.state.city = "Oslo"
    with pytest.raises(SeqOutOfRange, match="user 'ana' has no seq 99"):
        ana.at(99)
    with pytest.raises(InvalidValue, match="already"):
        ana.rollback(to=ana.get().seq)
