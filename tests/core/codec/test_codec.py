"""Values, envelopes, failures, digests."""

import dataclasses
import enum
import math
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from holdfast import agent
from holdfast.core import codec, events as ev, limits
from holdfast.core.codec import failures
from holdfast.core.errors import InvalidValue, NotSerializable, ValueDamaged
from holdfast.core.state.patch import StatePatch, changes_of
from tests.legal import any_event, json_values


def fetch_from(blobs):
    return {blob.hash: blob.data for blob in blobs}.__getitem__


def no_blobs(hash):
    raise AssertionError("nothing was large")


@settings(max_examples=500)
@given(json_values)
def test_any_json_comes_back_equal_even_if_it_looks_like_an_envelope(value):
    assert codec.unpack(codec.pack(value), no_blobs) == value


@given(json_values)
def test_equal_values_have_equal_bytes(value):
    again = msgspec.json.decode(bytes(msgspec.json.encode(value)))
    assert codec.pack(value) == codec.pack(again)


def test_keys_are_sorted_so_that_the_order_of_a_dict_does_not_matter():
    assert codec.pack({"b": 1, "a": 2}) == codec.pack({"a": 2, "b": 1})


@pytest.mark.parametrize(
    "envelope", [{"$blob": "ab"}, {"$json": 1}, {"$append": [[1], 2]}, {"$messages": {}}, {"$": 0}]
)
def test_a_users_envelope_stays_the_users(envelope):
    raw = codec.pack(envelope)
    assert codec.unpack(raw, no_blobs) == envelope
    assert codec.unpack(codec.appended(None, raw), no_blobs) == [envelope]
    assert codec.shape(raw) == "object"


@given(st.lists(json_values, max_size=5), st.lists(json_values, max_size=5))
def test_appending_grows_a_list_by_exactly_the_items(base, items):
    raw = codec.pack(base)
    for item in items:
        raw = codec.appended(raw, codec.pack(item))
    assert codec.unpack(raw, no_blobs) == base + items
    assert codec.shape(raw) == "list"


def test_a_large_list_in_a_blob_can_still_grow():
    ref, blob = codec.make_blob(codec.pack(["x" * 5000]))
    grown = codec.appended(codec.appended(ref, codec.pack(1)), codec.pack({"$json": 2}))
    assert codec.unpack(grown, fetch_from([blob])) == ["x" * 5000, 1, {"$json": 2}]


@given(st.integers(-(10**6), 10**6), st.integers(-100, 100))
def test_incrementing_adds(start, by):
    assert codec.unpack(codec.increased(codec.pack(start), by), no_blobs) == start + by
    assert codec.unpack(codec.increased(None, by), no_blobs) == by


@given(any_event)
def test_every_event_survives_being_stored(event):
    drafted, blobs = codec.draft(event, 1)
    assert codec.decode(drafted.kind, drafted.body) == drafted.event
    assert len(drafted.body) < limits.BLOB_BYTES + 4_096 or isinstance(event, ev.StatePatched)
    assert {ref.hash for ref in codec.blob_refs(drafted.event)} == {blob.hash for blob in blobs}


def test_large_values_move_into_blobs_and_come_back():
    event = ev.StepCompleted(key="a#1", name="a", result=codec.pack("r" * 9000), input={"x": codec.pack(["i" * 9000])})
    drafted, blobs = codec.draft(event, 1)
    assert len(drafted.body) < 600 and len(blobs) == 2
    assert sum(len(blob.data) for blob in blobs) < 600, "they are compressed"
    assert codec.unpack(drafted.event.result, fetch_from(blobs)) == "r" * 9000
    assert codec.unpack(drafted.event.input["x"], fetch_from(blobs)) == ["i" * 9000]


@agent
def keeper(task, value: dict):
    task.state.kept = value
    return task.step(lambda: value, name="keep")


@pytest.mark.parametrize("name", ["$blob", "$json", "$append", "$messages", "$erased"])
def test_a_large_value_that_looks_like_an_envelope_moves_into_a_blob_and_comes_back(app, name):
    value = {name: "x" * 9000}
    done = app.run(keeper, {"value": value}, id="t")
    assert done.result == value and done.state["kept"] == value and dict(done.input) == {"value": value}
    assert app.verify().ok


def test_a_salt_changes_a_blobs_name_so_that_it_tells_nothing():
    (_, plain), (ref, salted) = (
        codec.make_blob(codec.pack("x" * 5000)),
        codec.make_blob(codec.pack("x" * 5000), "pepper"),
    )
    assert plain.hash != salted.hash
    assert codec.unpack(ref, fetch_from([salted])) == "x" * 5000


def test_a_blob_with_other_content_is_refused(texts):
    ref, blob = codec.make_blob(codec.pack("x" * 5000))
    _, other = codec.make_blob(codec.pack("y" * 5000))
    with texts.raises(ValueDamaged):
        codec.unpack(ref, lambda hash: other.data)
    with texts.raises(ValueDamaged):
        codec.unpack(ref, lambda hash: b"not zstd")
    assert codec.unpack(ref, lambda hash: blob.data)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "value['a'][1]"),
        ([math.inf], "value[0]"),
        ({"a": {"b": object()}}, "value['a']['b']"),
        ([{(1, 2): 3}], "value[0]"),
        ({"text": "a\ud800b"}, "value['text']"),
        ({"f": [lambda: 1]}, "value['f'][0]"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value, path):
    with pytest.raises(NotSerializable) as refused:
        codec.pack(value)
    assert refused.value.details["path"] == path
    assert refused.value.hint


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_limited_exactly(texts):
    codec.pack(nested(limits.MAX_DEPTH))
    for depth in (limits.MAX_DEPTH + 1, 5000):
        with texts.raises(NotSerializable):
            codec.pack(nested(depth))


def test_brackets_in_text_do_not_count_as_depth():
    codec.pack(["[" * 1000])


def test_a_value_that_is_too_large_is_refused(monkeypatch, texts):
    monkeypatch.setattr(limits, "MAX_VALUE_BYTES", 100)
    codec.pack("x" * 98)
    with texts.raises(NotSerializable):
        codec.pack("x" * 99)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Place(msgspec.Struct):
    name: str
    at: Point


def test_dataclasses_structs_and_enums_are_values():
    value = {"place": Place("Oslo", Point(1, 2.5)), "colour": Colour.RED, "pair": (1, 2)}
    plain = {"place": {"name": "Oslo", "at": {"x": 1, "y": 2.5}}, "colour": "red", "pair": [1, 2]}
    assert codec.unpack(codec.pack(value), no_blobs) == plain


def test_nan_is_found_inside_a_dataclass():
    with pytest.raises(NotSerializable) as refused:
        codec.pack([Point(1, math.nan)])
    assert refused.value.details["path"] == "value[0]['y']"


def test_integers_of_any_size_come_back_exact():
    assert codec.unpack(codec.pack(2**200), no_blobs) == 2**200


def test_a_failure_keeps_the_causes_the_traceback_and_the_notes():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            inner.add_note("while looking")
            raise ValueError("outer") from inner
    except ValueError as error:
        failure = failures.failure(error)
    assert (failure.type, failure.message) == ("ValueError", "outer")
    assert failure.cause is not None and failure.cause.type == "KeyError"
    assert failure.cause.notes == ("while looking",)
    assert "test_codec.py" in failure.traceback[-1] and 'raise ValueError("outer")' in failure.traceback[-1]
    assert codec.load(codec.dump(failure), ev.Failure) == failure


def test_a_failure_of_a_group_keeps_its_members():
    failure = failures.failure(ExceptionGroup("both", [ValueError("a"), TypeError("b")]))
    assert [one.type for one in failure.group] == ["ValueError", "TypeError"]


def test_a_failure_survives_a_broken_str_and_an_endless_chain():
    class Rude(Exception):
        def __str__(self):
            raise RuntimeError("no")

    assert "RuntimeError" in failures.failure(Rude()).message
    error = ValueError("0")
    for n in range(100):
        after = ValueError(str(n))
        after.__cause__ = error
        error = after
    depth, failure = 0, failures.failure(error)
    while failure is not None:
        depth, failure = depth + 1, failure.cause
    assert depth == limits.MAX_CAUSES + 1


def test_the_digest_changes_with_every_part_of_an_event():
    base = (b"\0" * 32, 1, "kind", 5, b"\1" * 32)
    digests = {codec.chain(*base)}
    for index, other in enumerate((b"\2" * 32, 2, "other", 6, b"\3" * 32)):
        digests.add(codec.chain(*base[:index], other, *base[index + 1 :]))
    assert len(digests) == 6
    assert codec.genesis("a") != codec.genesis("b")


def test_a_body_is_pinned_byte_for_byte():
    """What is stored today must hash the same for ever."""
    event = ev.StepCompleted(key="a#1", name="a", result=codec.pack({"b": 1, "a": "é"}), input={"n": codec.pack(1)})
    drafted = codec.draft(event, 0)[0]
    assert drafted.body == '{"key":"a#1","name":"a","result":{"a":"é","b":1},"input":{"n":1}}'.encode()
    digest = codec.chain(codec.genesis("t"), 1, drafted.kind, drafted.at_us, drafted.body_hash)
    assert digest.hex() == "fa7b2a13f2c2d9a84c467355fff3b7ec86e5c6cbb62248384551adaa92f08e0d"


def test_a_retired_kind_is_read_as_a_present_event(monkeypatch):
    monkeypatch.setitem(codec.RETIRED, "stage_changed", lambda body: ev.StageSet(stage=msgspec.json.decode(body)["to"]))
    assert codec.decode("stage_changed", b'{"to":"sending"}') == ev.StageSet(stage="sending")


def test_a_field_of_a_newer_version_is_ignored_and_an_unknown_kind_is_not():
    assert codec.decode("stage_set", b'{"stage":"a","colour":"red"}') == ev.StageSet(stage="a")
    with pytest.raises(KeyError):
        codec.decode("telepathy_used", b"{}")


def test_a_patch_with_a_bad_section_is_refused(texts):
    with texts.raises(InvalidValue):
        changes_of(StatePatch(append_facts=[{"value": 1}]))
    with pytest.raises(NotSerializable):
        changes_of(StatePatch(set={"x": math.nan}))


def test_what_is_first_decoded_by_many_threads_at_once_kills_nobody():
    """msgspec works out a type at its first decode; only a fresh process shows it."""
    script = (
        "import sys, threading; sys.setswitchinterval(1e-6)\n"
        "import holdfast; from holdfast.core import codec; from holdfast.core.state.shapes import State\n"
        "app = holdfast.open('memory:'); app.start('x', id='t'); body = codec.dump(app.logs.load('t').state)\n"
        "start = threading.Barrier(16)\n"
        "threads = [threading.Thread(target=lambda: (start.wait(), codec.load(body, State))) for _ in range(16)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
    )
    assert {subprocess.run([sys.executable, "-c", script], check=False).returncode for _ in range(5)} == {0}
