"""The file system that fails on purpose does what it says: otherwise the tests over it would prove nothing."""

import os
import subprocess
import sys

import apsw
import pytest

from holdfast.testing.crash.faults import SECTOR_BYTES, FaultyVFS, PowerCut, PowerCutVFS


def opened(vfs, path):
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MAIN_DB, 0]
    return vfs.xOpen(str(path), flags)


@pytest.fixture
def vfs(tmp_path):
    return PowerCutVFS("probe", tmp_path / "shadow")


def test_a_write_reaches_the_file_at_once_and_the_shadow_when_synced(vfs, tmp_path):
    path = tmp_path / "a"
    file = opened(vfs, path)
    file.xWrite(b"hello", 0)
    assert path.read_bytes() == b"hello"
    assert not vfs.shadow(path).exists()
    file.xSync(0)
    assert vfs.shadow(path).read_bytes() == b"hello"
    file.xWrite(b"y", 0)
    file.xTruncate(3)
    assert vfs.shadow(path).read_bytes() == b"hello"
    file.xSync(0)
    assert vfs.shadow(path).read_bytes() == path.read_bytes() == b"yel"
    assert vfs.operations == 5
    file.xClose()


def test_what_was_there_before_counts_as_synced(vfs, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    opened(vfs, path).xClose()
    assert vfs.shadow(path).read_bytes() == b"old"


@pytest.mark.parametrize("synced", [True, False])
def test_a_deletion_lasts_when_its_directory_is_synced(vfs, tmp_path, synced):
    path = tmp_path / "a"
    file = opened(vfs, path)
    file.xWrite(b"hello", 0)
    file.xSync(0)
    file.xClose()
    vfs.xDelete(str(path), synced)
    assert not path.exists()
    assert vfs.shadow(path).exists() == (not synced)


def test_the_first_sync_of_a_new_journal_makes_earlier_deletions_last(vfs, tmp_path):
    old, new = tmp_path / "a-journal", tmp_path / "a-wal"
    for path in (old, new):
        file = opened(vfs, path)
        file.xWrite(b"hello", 0)
        if path is new:
            vfs.xDelete(str(old), False)
            assert vfs.shadow(old).exists()
        file.xSync(0)
        file.xClose()
    assert not vfs.shadow(old).exists()


def test_the_power_goes_off_at_the_operation_asked_for_and_stays_off(tmp_path):
    vfs = PowerCutVFS("probe", tmp_path / "shadow", cut_at=3)
    path = tmp_path / "a"
    file = opened(vfs, path)
    file.xWrite(b"a", 0)
    file.xSync(0)
    for change in (lambda: file.xWrite(b"b", 1), lambda: file.xSync(0), lambda: file.xTruncate(0)):
        with pytest.raises(PowerCut):
            change()
    assert path.read_bytes() == vfs.shadow(path).read_bytes() == b"a"
    assert vfs.off
    file.xClose()


def test_some_sectors_of_what_was_not_synced_can_reach_the_disk(tmp_path):
    seen = set()
    for seed in range(200):
        vfs = PowerCutVFS("probe", tmp_path / f"shadow {seed}", cut_at=2, seed=seed)
        path = tmp_path / f"file {seed}"
        file = opened(vfs, path)
        file.xWrite(b"x" * 100, 0)
        with pytest.raises(PowerCut):
            file.xWrite(b"y" * 2 * SECTOR_BYTES, 100)
        file.xClose()
        seen.add(vfs.shadow(path).read_bytes().rstrip(b"\0") if vfs.shadow(path).exists() else b"")
    first = b"y" * (SECTOR_BYTES - 100)
    assert b"" in seen
    assert b"x" * 100 in seen
    assert b"x" * 100 + first in seen
    assert b"\0" * 100 + first in seen
    assert b"x" * 100 + b"y" * 2 * SECTOR_BYTES in seen


def test_the_power_can_take_the_process_with_it(tmp_path):
    code = (
        "import sys, apsw; from holdfast.testing.crash.faults import PowerCutVFS\n"
        "vfs = PowerCutVFS('probe', sys.argv[1] + '/shadow', cut_at=7, exit_code=77)\n"
        "apsw.Connection(sys.argv[1] + '/a.db', vfs='probe').execute('create table t (x)')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 77
    assert os.listdir(tmp_path / "shadow")


def test_writes_fail_while_there_is_no_room(tmp_path):
    vfs = FaultyVFS("probe")
    file = opened(vfs, tmp_path / "a")
    vfs.room = 1
    file.xWrite(b"a", 0)
    with pytest.raises(apsw.FullError):
        file.xWrite(b"b", 1)
    vfs.room = None
    file.xWrite(b"c", 1)
    assert (tmp_path / "a").read_bytes() == b"ac"
    file.xClose()


def test_a_sync_that_fails_loses_what_it_was_to_sync(vfs, tmp_path):
    path = tmp_path / "a"
    vfs.fail_sync_at = 2
    file = opened(vfs, path)
    file.xWrite(b"a", 0)
    file.xSync(0)
    file.xWrite(b"b", 1)
    with pytest.raises(apsw.IOError):
        file.xSync(0)
    file.xSync(0)
    assert path.read_bytes() == b"ab"
    assert vfs.shadow(path).read_bytes() == b"a"
    file.xClose()


@pytest.mark.parametrize(("side", "left"), [("before", b"a"), ("halfway", b"abc"), ("after", b"abcde")])
def test_a_process_is_killed_at_one_side_of_an_operation_or_in_it(tmp_path, side, left):
    code = (
        "import sys, apsw; from holdfast.testing.crash.faults import KillVFS\n"
        "flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MAIN_DB, 0]\n"
        "file = KillVFS('probe', kill_at=3, side=sys.argv[2]).xOpen(sys.argv[1], flags)\n"
        "file.xWrite(b'a', 0); file.xSync(0); file.xWrite(b'bcde', 1); file.xTruncate(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a"), side], check=False)
    assert done.returncode == -9
    assert (tmp_path / "a").read_bytes() == left
