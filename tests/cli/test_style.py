"""What a stream can show, and what is said of an id that is not there when the store is gone as well."""

import io

import pytest

import holdfast
from holdfast.cli.environment import suggesting
from holdfast.cli.show.style import Style, look_of


def test_a_stream_that_is_closed_or_is_none_shows_no_colours():
    closed = io.StringIO()
    closed.close()
    assert look_of(closed) == look_of(object()) == Style()


def test_without_a_terminal_to_ask_or_a_number_in_columns_a_line_is_80_wide(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert look_of(io.StringIO()).width == 80
    monkeypatch.setenv("COLUMNS", "wide")
    assert look_of(io.StringIO()).width == 80
    monkeypatch.setenv("COLUMNS", "100")
    assert look_of(io.StringIO()).width == 100


def test_an_error_stays_as_it_is_if_the_store_cannot_be_asked_for_similar_ids(tmp_path):
    app = holdfast.open(tmp_path / "a.db")
    with pytest.raises(holdfast.TaskNotFound) as missing:
        app.get("x")
    hint = missing.value.hint
    app.close()
    assert suggesting(missing.value, app) is missing.value and missing.value.hint == hint
