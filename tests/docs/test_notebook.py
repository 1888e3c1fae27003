"""The notebook of the docs is executed by a real kernel, twice: the second time nothing is done again."""

import shutil
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="it is not installed: make test-notebook")
pytest.importorskip("ipykernel", reason="it is not installed: make test-notebook")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.ipynb"


def executed(folder):
    """What each cell of the notebook prints."""
    import nbformat

    notebook = nbformat.read(folder / NOTEBOOK.name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(one.get("text", "") for one in cell.outputs) for cell in cells]


@pytest.mark.filterwarnings("default")  # of the kernel's libraries
def test_a_notebook_executed_twice_does_everything_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_BY", "ana")
    shutil.copy(NOTEBOOK, tmp_path)
    first = executed(tmp_path)
    asked = "question: who: Who gets it?\n  holdfast answer recap-1 'who#1' VALUE --by ana --store notebook.db\n"
    assert first[2] == asked and first[3] == "sent to Ana\n" and first[4].startswith("created recap\n")
    second = executed(tmp_path)  # a new kernel
    assert second[2] == second[3] == "sent to Ana\n" and second[4] == first[4]
    assert (tmp_path / "mails.txt").read_text() == "Ana: Q3 WENT WELL\n"


def test_the_notebook_is_kept_without_what_it_printed():
    import nbformat

    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells if cell.cell_type == "code")
