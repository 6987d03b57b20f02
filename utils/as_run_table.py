"""Write the table of docs/as-run.md from the outcomes of the tests that hold it.

Each of these tests says with ``@pytest.mark.as_run(row, works=, limits=, refused=)`` what it holds. What a test says
stands in the table only if the test passed, in every one of its cases. The markers are read, and no test file is
imported for that: a test of the page tells without a run whether it names the tests that exist.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "as-run.md"
HEAD = "| As it is run | Works | Limits | Refused | Tests |\n|---|---|---|---|---|\n"
COLUMNS = ("works", "limits", "refused")
#: The rows by what the markers call them, in their order.
ROWS = {
    "wrapped": "`DistributedDataParallel`, FSDP1, `AveragedModel`, checkpoint wrappers",
    "peft": "peft",
    "compiled": "Compiled: `torch.compile(model)`, `model.compile()`, `model.forward = torch.compile(model.forward)`, "
    "single layers",
    "compiled function": "A compiled function inside a forward",
    "torchscript": "TorchScript",
    "offloaded": "Offloaded with accelerate",
    "method": "Another method than `forward`",
    "generate": "`generate`: greedy, sampled, beams, prompt lookup, static cache",
    "kept state": "Dynamic rotary embeddings, counters, lists and tensors kept by modules",
    "tensors": "Quantized, float8, four-bit, sparse, nested, jagged tensors, `DTensor`",
    "torchao": "Quantized with torchao",
    "ranks": 'On several ranks: `parallelize_module`, `tp_plan="auto"` of transformers, `fully_shard`, '
    "a loop that slices tied weights",
    "part": "A part of a model, a pipeline stage",
    "dtype": "`autocast`, or bfloat16 against a float32 golden",
    "threads": "Threads inside a forward",
    "libraries": "torchvision, diffusers",
    "architectures": "Encoder-decoders, vision-language models, packed sequences",
}


class Held(NamedTuple):
    """What a test holds of a row.

    Args:
        row: The row, a key of :data:`ROWS`.
        said: What it says in each column.
        test: Name of the test.
        file: Its file.
    """

    row: str
    said: dict[str, str]
    test: str
    file: Path


def held() -> Iterator[Held]:
    """Yield what the markers of all tests say."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.as_run":
                    row = ast.literal_eval(mark.args[0])
                    said = {str(word.arg): ast.literal_eval(word.value) for word in mark.keywords}
                    if row not in ROWS or not said.keys() <= set(COLUMNS):
                        raise SystemExit(f"{file}: as_run({row!r}, {', '.join(said)}) is no row and columns of ROWS.")
                    yield Held(row, said, node.name, file)  # type: ignore[attr-defined] # a function


def table(found: Collection[Held]) -> str:
    """Return the table of what tests hold."""
    lines = []
    for row, title in ROWS.items():
        own = [each for each in found if each.row == row]
        cells = [" ".join(each.said[column] for each in own if column in each.said) for column in COLUMNS]
        lines.append(f"| {' | '.join([title, *cells, ', '.join(f'`{each.test}`' for each in own)])} |\n")
    return HEAD + "".join(lines)


def with_table(text: str, made: str) -> str:
    """Return the text of the page with a table in the place of its own."""
    return text[: text.index("| As it is run")] + made


def passed(files: Collection[Path], libraries: str = "") -> set[str]:
    """Run the marked tests of some files in a process of their own and return those that passed in all their cases.

    Args:
        files: The files.
        libraries: What is put into ``PYTHONPATH`` before the rest.
    """
    paths = os.pathsep.join(filter(None, [libraries, os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "outcomes.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "as_run", f"--junitxml={told}", *map(str, files)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=False)
        return passed_in(told.read_text(encoding="utf-8"))


def passed_in(told: str) -> set[str]:
    """Return the names of the tests of which, in pytest's JUnit XML, every case passed: none failed or was skipped."""
    outcomes: dict[str, bool] = {}
    for case in ET.fromstring(told).iter("testcase"):  # noqa: S314 - written by the run above
        name = case.get("name", "").partition("[")[0]
        is_passed = not any(child.tag in ("failure", "error", "skipped") for child in case)
        outcomes[name] = outcomes.get(name, True) and is_passed
    return {name for name, is_passed in outcomes.items() if is_passed}


def main() -> int:
    """Run the tests and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--libraries", default="", help="where what tests/libraries needs was installed")
    libraries = parser.parse_args().libraries
    found, text = list(held()), TABLE.read_text(encoding="utf-8")
    files = sorted({each.file for each in found})
    on_libraries = [file for file in files if file.parent.name == "libraries"]
    names = passed([file for file in files if file not in on_libraries]) | passed(on_libraries, libraries)
    kept = [each for each in found if each.test in names]
    TABLE.write_text(with_table(text, table(kept)), encoding="utf-8")
    print(f"{len(kept)} of {len(found)} tests passed and stand in {TABLE.relative_to(ROOT)}")
    return int(len(kept) < len(found))


if __name__ == "__main__":
    sys.exit(main())
