"""The power goes off at every write, sync, truncation and deletion; what was acknowledged is there afterwards."""

import shutil
from contextlib import suppress

import pytest

from holdfast.testing.auditor import audit
from holdfast.testing.crash.faults import PowerCut, PowerCutVFS
from tests.crash.workload import THOROUGH, assert_goes_on, assert_whole, eager_checkpoints, open_on, sample, work
from tests.crash.writer import Acks

PARTS = 4


class Trial:
    """A run over a VFS that may cut the power."""

    def __init__(self, folder, *, cut_at=None, seed=None, durability="full"):
        folder.mkdir()
        self.folder, self.path, self.durability = folder, folder / "store.db", durability
        self.vfs = PowerCutVFS("power", folder / "shadow", cut_at=cut_at, seed=seed)
        self.shadow = self.vfs.shadow(self.path)
        self.acks = Acks(folder / "acks")

    def run(self, work):
        """Open the store, work and close it, as far as the power allows."""
        with suppress(PowerCut), eager_checkpoints():
            app = open_on("power", self.path, self.durability)
            try:
                work(app, self.acks)
            finally:
                app.close()
        self.acks.close()
        return self


def rest(app, acks):
    """No work at all: the store is opened and closed."""


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    """How many operations there are at which the power can go off."""
    trial = Trial(tmp_path_factory.mktemp("count") / "trial").run(work)
    assert_whole(trial.path, trial.acks)
    assert_whole(trial.shadow, trial.acks)
    return trial.vfs.operations


@pytest.mark.parametrize("torn", [False, True], ids=["what was synced", "some of the rest too"])
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_survives_a_power_cut_anywhere(operations, part, torn, tmp_path):
    promises = set()
    for cut_at in sample(operations, 120, seed=torn)[part::PARTS]:
        trial = Trial(tmp_path / str(cut_at), cut_at=cut_at, seed=cut_at if torn else None).run(work)
        assert trial.vfs.off, f"the power stayed on at {cut_at}"
        assert_whole(trial.shadow, trial.acks)
        promises.add(trial.acks.count)
        shutil.rmtree(trial.folder)
    assert len(promises) > 10, "the power went off at different moments"


def test_the_weaker_durability_loses_what_was_acknowledged_but_breaks_no_chain(operations, tmp_path):
    lost = 0
    for cut_at in sample(operations, 60, seed=3):
        trial = Trial(tmp_path / str(cut_at), cut_at=cut_at, seed=cut_at, durability="process").run(work)
        assert_goes_on(trial.shadow)
        findings = audit(trial.shadow, trial.acks.path)
        assert all("was acknowledged and is not there" in finding for finding in findings), findings
        lost += len(findings)
        shutil.rmtree(trial.folder)
    assert lost, "without syncs something must be lost, or these tests prove nothing"


def test_the_weaker_durability_keeps_everything_when_only_the_process_dies(operations, tmp_path):
    for cut_at in sample(operations, 40, seed=4):
        trial = Trial(tmp_path / str(cut_at), cut_at=cut_at, durability="process").run(work)
        assert_whole(trial.path, trial.acks)
        shutil.rmtree(trial.folder)


def test_a_first_open_cut_off_anywhere_can_be_repeated(tmp_path):
    whole = Trial(tmp_path / "whole").run(rest)
    assert whole.vfs.operations > 30
    for cut_at in range(1, whole.vfs.operations + 1):
        for seed in (None, cut_at) if THOROUGH else (None if cut_at % 2 else cut_at,):
            trial = Trial(tmp_path / f"{cut_at} {seed}", cut_at=cut_at, seed=seed).run(rest)
            assert trial.vfs.off
            assert_goes_on(trial.shadow)
            assert_goes_on(trial.path)
            assert audit(trial.shadow) == audit(trial.path) == []
            shutil.rmtree(trial.folder)
