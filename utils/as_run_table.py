"""Write the table of docs/as-run.md from the tests that hold it.

Each of these tests says with ``@pytest.mark.as_run(row, works=, limits=)`` what it holds. The markers are
read, and no test file is imported for that. A test of the page asks that its table is the one that this writes.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "as-run.md"
HEAD = "| As it is run | Works | Limits |\n|---|---|---|\n"
COLUMNS = ("works", "limits")
#: The rows by what the markers call them, in their order.
ROWS = {
    "wrapped": "`DistributedDataParallel`, FSDP1, `AveragedModel`, checkpoint wrappers, a class of your own",
    "peft": "peft",
    "compiled": "Compiled: a model, its `forward`, single layers",
    "compiled function": "A compiled function inside a forward",
    "torchscript": "TorchScript",
    "offloaded": "Offloaded with accelerate",
    "method": "Another method than `forward`",
    "generate": "`generate`: greedy, sampled, beams, prompt lookup, static cache",
    "kept state": "Dynamic rotary embeddings, and other state that modules keep",
    "tensors": "Quantized, float8, four-bit, sparse, nested, jagged tensors, `DTensor`",
    "torchao": "Quantized with torchao",
    "ranks": '[On several ranks](#several-ranks): `parallelize_module`, `tp_plan="auto"`, `fully_shard`, '
    "sliced tied weights",
    "part": "A part of a model, a pipeline stage",
    "dtype": "`autocast`, or bfloat16 against a float32 golden",
    "threads": "Threads inside a forward",
    "architectures": "torchvision, diffusers, encoder-decoders, vision-language models, packed sequences",
}


#: A row, a key of :data:`ROWS`, and what a test says in each of its columns.
Held = tuple[str, dict[str, str]]


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
                    yield row, said


def table(found: Collection[Held]) -> str:
    """Return the table of what tests hold."""
    lines = []
    for row, title in ROWS.items():
        cells = [" ".join(said[column] for own, said in found if own == row and column in said) for column in COLUMNS]
        lines.append(f"| {' | '.join([title, *cells])} |\n")
    return HEAD + "".join(lines)


def with_table(text: str, made: str) -> str:
    """Return the text of the page with a table in the place of its own."""
    begin = text.index(HEAD.splitlines()[0])
    return text[:begin] + made + text[text.index("\n\n", begin) + 1 :]


if __name__ == "__main__":
    TABLE.write_text(with_table(TABLE.read_text(encoding="utf-8"), table([*held()])), encoding="utf-8")
