"""The power goes off at every write, sync, truncation and deletion; what was acknowledged is there afterwards."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from workload import assert_goes_on, assert_whole, eager_checkpoints, open_on, sample, work
from writer import Acks

from holdfast.engine.app import App
from holdfast.store.sqlite_file import Durability
from holdfast.testing.auditor import audit
from holdfast.testing.faults import PowerCut, PowerCutVFS


class Trial:
    """One run of the workload over a VFS that may cut the power."""

    def __init__(
        self, folder: Path, *, cut_at: int | None = None, seed: int | None = None, durability: Durability = "full"
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.path = folder / "store.db"
        self.vfs = PowerCutVFS("power", folder / "shadow", cut_at=cut_at, seed=seed)
        self.shadow = self.vfs.shadow(self.path)
        self.acks = Acks(folder / "acks")
        self.durability: Durability = durability

    def run(self) -> None:
        app: App | None = None
        try:
            with eager_checkpoints():
                app = self.open()
                work(app, self.acks)
        except PowerCut:
            pass
        finally:
            self.close(app)

    def open(self) -> App:
        return open_on("power", self.path, self.durability)

    def close(self, app: App | None) -> None:
        self.acks.close()
        with suppress(PowerCut):
            if app is not None:
                app.close()


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many operations there are at which the power can go off."""
    trial = Trial(tmp_path_factory.mktemp("count") / "trial")
    trial.run()
    assert_whole(trial.path, trial.acks)
    return trial.vfs.operations


PARTS = 4


@pytest.mark.parametrize("torn", [False, True], ids=["only what was synced", "some of the rest too"])
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_survives_a_power_cut_anywhere(
    operations: int, part: int, torn: bool, tmp_path: Path
) -> None:
    acknowledged = set[int]()
    for cut_at in sample(operations, 60, seed=torn)[part::PARTS]:
        trial = Trial(tmp_path / str(cut_at), cut_at=cut_at, seed=cut_at if torn else None)
        trial.run()
        assert trial.vfs.off, f"the power stayed on at {cut_at}"
        assert_whole(trial.shadow, trial.acks)
        acknowledged.add(trial.acks.count)
        shutil.rmtree(trial.folder)
    assert len(acknowledged) > 3, "the cuts came at different moments"


def test_the_weaker_durability_loses_acknowledged_events_but_never_breaks_a_chain(
    operations: int, tmp_path: Path
) -> None:
    lost = 0
    for cut_at in sample(operations, 40, seed=3):
        trial = Trial(tmp_path / str(cut_at), cut_at=cut_at, seed=cut_at, durability="process")
        trial.run()
        assert_goes_on(trial.shadow)
        findings = audit(trial.shadow, trial.acks.path)
        assert all("was acknowledged and is not there" in finding for finding in findings), findings
        lost += len(findings)
        shutil.rmtree(trial.folder)
    assert lost, "without syncs something must be lost, or these tests prove nothing"
