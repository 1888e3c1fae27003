"""Stores with a part missing of what keeps their files whole. Each is caught by a test that passes with that part."""

import fcntl

import pytest

import holdfast
from holdfast.store.sqlite import file_guard, locks
from holdfast.store.sqlite.file_guard import FileGuard
from tests.crash.test_planted_bugs import Bug
from tests.store.sqlite import test_file_guard as guard


def checking(test, **given):
    """A check that runs a test of the guard on a store of its own."""

    def check(tmp_path):
        number = sum(1 for _ in tmp_path.iterdir())
        path = str(tmp_path / f"{number}" / "store.db")
        (tmp_path / f"{number}").mkdir()
        with pytest.MonkeyPatch.context() as patch, holdfast.open(path) as app:
            app.start("clerk", id="t")
            wanted = {"app": app, "path": path, "monkeypatch": patch, "impatient": None, **given}
            names = test.__code__.co_varnames[: test.__code__.co_argcount]
            if "impatient" in names:
                patch.setattr(file_guard, "BUSY_SECONDS", 0.2)
            try:
                test(**{name: wanted[name] for name in names})
            except (Exception, pytest.fail.Exception) as error:  # whatever it says, the test noticed
                raise AssertionError(f"noticed: {error}") from error

    check.__name__ = test.__name__
    return check


def the_files_in_use_are_not_held(patch):
    patch.setattr(file_guard, "_IN_USE", locks.Span(1 << 40))


def writers_take_no_turns(patch):
    patch.setattr(file_guard, "_TAKE_TURN", file_guard.TURN.free)


def readers_hold_nothing(patch):
    patch.setattr(FileGuard, "enter_reading", lambda self, descriptor: None)


def any_reader_may_rebuild_the_index(patch):
    patch.setattr(FileGuard, "index_is_whole", lambda self: True)
    patch.setattr(FileGuard, "hold_off_recovery", lambda self: None)
    patch.setattr(FileGuard, "allow_recovery", lambda self: None)


def the_door_stays_open(patch):
    patch.setattr(file_guard, "_DOOR_SECONDS", 0.0)


def acknowledged_without_a_look(patch):
    patch.setattr(FileGuard, "check", lambda self: None)


def signs_of_life_belong_to_the_process(patch):
    patch.setattr(locks, "SET", fcntl.F_SETLK)


class Texts:
    """The fixture of that name. What a planted bug makes of a text does not matter."""

    raises = staticmethod(pytest.raises)


LOST = checking(guard.test_a_store_that_lost_a_file_while_others_use_it_is_not_opened, suffix="-shm", texts=Texts)
TWO_WRITERS = checking(guard.test_nothing_is_written_during_a_transaction_whose_locks_were_dropped)
MOVED = checking(guard.test_what_a_reader_sees_is_not_moved_under_it_though_its_locks_were_dropped)
REBUILT = checking(guard.test_an_index_that_is_being_written_is_not_rebuilt_under_its_writer)
STARVED = checking(guard.test_readers_that_follow_each_other_do_not_starve_a_checkpoint)
GONE = checking(
    guard.test_a_file_that_is_gone_is_noticed_before_the_next_acknowledgement, suffix="-wal", how="removed", texts=Texts
)
DEAD = checking(guard.test_a_worker_stays_alive_when_its_guard_file_is_read)

BUGS = [
    Bug(the_files_in_use_are_not_held, LOST),
    Bug(writers_take_no_turns, TWO_WRITERS),
    Bug(readers_hold_nothing, MOVED),
    Bug(any_reader_may_rebuild_the_index, REBUILT),
    Bug(the_door_stays_open, STARVED),
    Bug(acknowledged_without_a_look, GONE),
    Bug(signs_of_life_belong_to_the_process, DEAD),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug, tmp_path):
    bug.assert_caught(tmp_path)
