"""How the scanner's files stand to each other."""

import ast
from pathlib import Path

import grimp
import pytest

ROOM = Path(__file__).parents[2] / "src" / "pytest_tfdebug" / "scan"


def test_no_file_imports_another_in_a_circle():
    graph = grimp.build_graph("pytest_tfdebug")
    files = [name for name in graph.modules if name.startswith("pytest_tfdebug.scan.")]

    circles = [
        (file, other)
        for file in files
        for other in graph.find_modules_directly_imported_by(file)
        if other in files and graph.chain_exists(other, file)
    ]

    assert files
    assert circles == []


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: path.relative_to(ROOM).as_posix())
def test_python_is_read_by_libcst_alone(path):
    imported = {
        name
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert not imported & {"ast", "re", "tokenize", "symtable"}
