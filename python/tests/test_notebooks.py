"""The notebooks, executed from their first cell to their last."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_is_a_notebook_for_each_founding_study() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["aaa", "ike", "mih", "pppoe"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_and_shows_its_figures(notebook: Path, tmp_path: Path) -> None:
    read = nbformat.read(notebook, as_version=4)
    code = [cell for cell in read.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "notebooks are kept without outputs"
    nbclient.NotebookClient(read, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in code:
        shown = [output.data for output in cell.outputs if output.output_type == "execute_result"]
        if ".figure(" in cell.source:
            drawn = ET.fromstring(shown[-1]["image/svg+xml"])
            # A curve at least: an empty frame has axes alone.
            assert any(element.tag.endswith(("path", "polyline", "circle", "rect")) for element in drawn.iter())
        if cell.source.endswith(".claims"):
            assert "<tr><td>" in shown[-1]["text/html"]
        # Nothing may be on the error stream: what a reader sees is results.
        assert not [
            output for output in cell.outputs if output.output_type in ("stream", "error") and output.get("name") == "stderr"
        ]
