"""Notebooks run from top to bottom without a network, are stored clean, and hold no logic."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_CELL_S = 120
KERNEL = "this-interpreter"
# ZeroMQ opens its sockets without Python's knowledge, so the kernel itself still talks to the test.
OFFLINE_KERNEL = """
import runpy, sys

def refuse(event, arguments):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(arguments[1], tuple)):
        raise OSError(f"{event} {arguments[1:]}: notebooks run offline")

sys.addaudithook(refuse)
runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
"""
LOGIC = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Try,
    ast.comprehension,
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that lies beside data/, as notebooks/ does; Jupyter knows one kernel and no user."""
    argv = [sys.executable, "-c", OFFLINE_KERNEL, "-f", "{connection_file}"]
    spec = tmp_path / "jupyter" / "kernels" / KERNEL / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": argv, "display_name": KERNEL, "language": "python"}), "utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "data").symlink_to(ROOT / "data", target_is_directory=True)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    return folder


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=MAX_CELL_S, kernel_name=KERNEL, resources=resources).execute()


def test_kernel_of_these_tests_refuses_the_network(working_directory: Path) -> None:
    source = "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    with pytest.raises(CellExecutionError, match="notebooks run offline"):
        execute(notebook, working_directory)


@each_notebook
def test_notebook_runs_and_writes_nothing(path: Path, working_directory: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, working_directory)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert outputs
    # A stream is a warning or a progress line: neither belongs among tables and plots.
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result"}
    assert list(working_directory.iterdir()) == []


@each_notebook
def test_notebook_is_stored_without_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@each_notebook
def test_notebook_holds_no_logic(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            found = [
                type(node).__name__ for node in ast.walk(ast.parse(cell.source)) if isinstance(node, LOGIC)
            ]
            assert not found, f"cell {cell.id} holds {found}: it belongs into fastci_ml"
