"""Values changed inside: the same whether they lie in the log or beside it, and never read by the fold."""

from hypothesis import example, given, settings, strategies as st
from msgspec import Raw

from holdfast.core import codec, limits
from holdfast.core.codec.edits import noted_edits
from holdfast.core.state import paths

NAMES = st.sampled_from(["a", "b", "$x", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), PATHS, VALUES),
        st.tuples(st.just("delete"), PATHS, st.none()),
        st.tuples(st.just("increment"), PATHS, st.integers(-9, 9)),
        st.tuples(st.just("append"), PATHS, VALUES),
    ),
    max_size=20,
)


def done(value, how, path, part):
    """An edit, in plain Python."""
    if how == "delete":
        return paths.without(value, path)
    at = value
    for name in path:
        at = at.get(name) if isinstance(at, dict) else None
    if how == "increment":
        part = (at if isinstance(at, int) and not isinstance(at, bool) else 0) + part
    elif how == "append":
        part = [*(at if isinstance(at, list) else []), part]
    return paths.placed(value if isinstance(value, dict) else {}, path, part)


class Beside:
    """Large values beside the log."""

    def __init__(self):
        self.kept = {}

    def put(self, value):
        raw, blob = codec.make_blob(codec.pack(value))
        self.kept[blob.hash] = blob.data
        return raw

    def get(self, hash):
        return self.kept[hash]


def nothing(hash):
    raise AssertionError("a fold fetches nothing")


@settings(max_examples=300)
@example({"b": None}, [("set", ("a",), None)] * 5 + [("set", ("a", "b"), None), ("delete", ("a", "b"), None)], True, 0)
@example({}, [("set", ("a", "b"), 1), ("increment", ("a",), 2), ("delete", ("a", "b"), None)] * 4, True, 0)
@example({}, [("increment", ("a", "b"), 1), ("append", ("a",), 1), ("increment", ("a", "b"), 1)] * 5, True, 1)
@given(start=st.dictionaries(NAMES, VALUES, max_size=3), edits=EDITS, large=st.booleans(), far=st.integers(0, 12))
def test_an_object_is_changed_inside_as_a_dict_is_wherever_it_lies(start, edits, large, far):
    beside, wanted = Beside(), start
    raw = beside.put(start) if large else codec.pack(start)
    for number, (how, path, part) in enumerate(edits):
        wanted = done(wanted, how, path, part)
        value = beside.put(part) if number == far and how in ("set", "append") else codec.pack(part)
        raw = codec.edited(raw, path, how, value)
        assert codec.unpack(raw, beside.get) == wanted
        assert codec.shape(raw) == "object"


def test_what_is_no_object_counts_as_an_empty_one_and_loses_nothing_by_a_deletion():
    for found in (None, codec.pack(3), codec.pack([1]), codec.pack(None)):
        made = codec.edited(found, ("a", "b"), "set", codec.pack(1))
        assert codec.unpack(made, nothing) == {"a": {"b": 1}}
    for found in ({"a": 3}, [1]):
        assert codec.unpack(codec.edited(codec.pack(found), ("a", "b"), "delete"), nothing) == found


def test_edits_of_a_large_value_do_not_pile_up():
    beside = Beside()
    raw = beside.put({"n": 0, "log": "z" * limits.BLOB_BYTES})
    longest = 0
    for number in range(3_000):
        raw = codec.edited(raw, ("n",), "increment", codec.pack(1))
        raw = codec.edited(raw, (f"field {number % 5}",), "set", codec.pack("x" * 20))
        longest = max(longest, len(raw))
    read = codec.unpack(raw, beside.get)
    assert read["n"] == 3_000 and len(read) == 7 and len(noted_edits(bytes(raw))[1]) < 40
    assert longest < 2_100, "an edit that a later one makes up for is forgotten"


def test_a_users_object_that_looks_like_edits_is_none():
    looks = {"$edits": [{"a": 1}, ["set", ["a"], 2]]}
    assert codec.unpack(codec.pack(looks), nothing) == looks
    made = codec.edited(codec.pack(looks), ("b",), "set", codec.pack(looks))
    assert codec.unpack(made, nothing) == {**looks, "b": looks}


def test_an_edit_may_lead_to_a_value_that_begins_like_an_envelope():
    made = codec.edited(Raw(b'{"b":1}'), ("$a",), "append", codec.pack({"$blob": "no"}))
    assert codec.unpack(made, nothing) == {"$a": [{"$blob": "no"}], "b": 1}
