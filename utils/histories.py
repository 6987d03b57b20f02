"""Put seeded histories of a small repository through ``tfdebug bisect``, and judge what it says of each.

Each has 20 to 60 commits of a real git repository with one model of torch: commits that change nothing, that round
otherwise, that give an output, a class or a module another name or move a class to a file of its own, that do not
import; and in every other one two faults. A history is right where the commits that are said to have changed the result
are those of its faults, and no other.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import command

_LAYERS = """
import torch
from torch import nn


class {attention}(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, {scale}
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden):
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)
        scores = {scores}
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu({ahead})
        mixed = {softmax} @ value
        return self.out(mixed.transpose(-3, -2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden):
        return self.down({act}(self.up(hidden)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width, eps={eps}), nn.LayerNorm(width)
        self.{mixer}, self.mlp = {attention}(width, heads), Mlp(width)

    def forward(self, hidden):
        hidden = hidden + self.{mixer}(self.first(hidden))
        return hidden + {branch}self.mlp({normed})
"""
_PORT = """
import torch
from torch import nn
{broken}
{layers}

class Port(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(40, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        hidden = self.tokens(ids){embedded}
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        return {{"states": hidden, "{pooled}": {mean}}}
"""
_TEST = """
import torch
from pytest_tfdebug import fill
from port import Port


def test_port(tf_golden):
    ids = torch.arange(12).view(2, 6) * 7 % 40
    tf_golden.check(fill(Port().eval()), ids)
"""
#: What a line of the model may be, by its name: the same to rounding. The first is the first commit's.
_SAME = {
    "scores": ("query @ key.transpose(-1, -2) * self.scale", "(query * self.scale) @ key.mT",
               "torch.einsum('...qd,...kd->...qk', query, key) * self.scale"),
    "softmax": ("scores.masked_fill(ahead, -torch.inf).softmax(-1)",
                "torch.softmax(scores.masked_fill(ahead, torch.finfo(scores.dtype).min).double(), -1).float()"),
    "mean": ("hidden.mean(1)", "hidden.sum(1) / hidden.shape[1]", "hidden.double().mean(1).float()"),
    "embedded": ("", " * 3.0 / 3.0"),
}  # fmt: skip
#: Other names, which change no number; ``mixer`` is part of the names of parameters.
_NAMES = {
    "pooled": ("pooled", "pooler_output", "sentence"),
    "attention": ("Attention", "SelfAttention"),
    "mixer": ("attn", "attention", "self_attn"),
    "is_apart": ("", "yes"),  # whether the layers have a file of their own
}
#: Wrong lines, by what the commit is called.
_FAULTS = {
    "halve the branch": {"branch": "0.5 * "},
    "another epsilon": {"eps": "1e-2"},
    "another activation": {"act": "nn.functional.relu"},
    "look one token ahead": {"ahead": "2"},
    "forget a norm": {"normed": "hidden"},
    "scale by the width": {"scale": "width ** -0.5"},
}
_FIRST = {
    **{name: kinds[0] for name, kinds in {**_SAME, **_NAMES}.items()},
    "broken": "",
    "scale": "(width // heads) ** -0.5",
    "ahead": "1",
    "act": "nn.functional.gelu",
    "eps": "1e-5",
    "branch": "",
    "normed": "self.second(hidden)",
}
#: How many of a history's commits round otherwise, rename, and do not import.
_DRIFTS, _RENAMES, _BROKEN = 3, 3, 0.12
#: What the command says of a change, with the subject of its commit; drift over a stretch counts as one that is named.
_NAMED = re.compile(r"^(?:\w{7,} (.+?) changed: |between .+ it drifts)", re.MULTILINE)
_HARMLESS = re.compile(r"^\w{7,} (.+?) (?:renamed|computes otherwise inside) \(harmless\)", re.MULTILINE)


class Commit(NamedTuple):
    """A commit: its subject, the state of its files, and what it is."""

    subject: str
    state: dict[str, str]
    kind: str  # first, idle, drift, rename, broken or fault


class Outcome(NamedTuple):
    """What the command said of a history."""

    named: list[str]  # subjects of commits that are said to have changed the result
    harmless: list[str]
    runs: int
    text: str


def history(seed: int) -> Iterator[Commit]:
    """Yield the commits of a history, the first one first."""
    draw = random.Random(seed)  # noqa: S311 - the same histories every time
    count, state = draw.randint(20, 60), dict(_FIRST)
    places = draw.sample(range(1, count), _DRIFTS + _RENAMES + 2)
    faults = draw.sample(sorted(_FAULTS), 2)
    kinds = dict(zip(places, ["drift"] * _DRIFTS + ["rename"] * _RENAMES + ["fault"] * (2 * (seed % 2)), strict=False))
    yield Commit("the first", dict(state), "first")
    for place in range(1, count):
        kind = kinds.get(place, "broken" if draw.random() < _BROKEN and place < count - 1 else "idle")
        subject = f"{kind} {place}"
        if kind == "fault":
            subject = faults.pop()
            state |= _FAULTS[subject]
        elif kind in ("drift", "rename"):
            table = _SAME if kind == "drift" else _NAMES
            name = draw.choice(sorted(table))
            state[name] = draw.choice([each for each in table[name] if each != state[name]])
            subject = f"{kind} {place} of {name}"
        yield Commit(subject, state | {"broken": "import no_such_module" if kind == "broken" else ""}, kind)


def written(folder: Path, commits: list[Commit]) -> None:
    """Write a repository with these commits."""
    folder.mkdir()
    _git(folder, "init", "-q")
    (folder / "test_port.py").write_text(_TEST, encoding="utf-8")
    for number, commit in enumerate(commits):
        layers = _LAYERS.format(**commit.state)
        apart = folder / "layers.py"
        apart.unlink(missing_ok=True)
        if commit.state["is_apart"]:
            apart.write_text(layers, encoding="utf-8")
            layers = "from layers import Block\n"
        (folder / "port.py").write_text(_PORT.format(**commit.state, layers=layers), encoding="utf-8")
        (folder / "CHANGES").write_text(f"{number}\n", encoding="utf-8")
        _git(folder, "add", "-A")
        _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", commit.subject)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603, S607 - a repository of our own
    return done.stdout.strip()


def bisected(repo: Path, home: Path) -> Outcome:
    """Run the command on a repository, from its first commit to its last."""
    first = _git(repo, "rev-list", "--max-parents=0", "HEAD")
    given = [str(repo / "test_port.py"), "--repo", str(repo), "--good", first, "--dir", str(home)]
    command = [sys.executable, "-m", "pytest_tfdebug", "bisect", *given]
    quick = {**os.environ, "PYTEST_ADDOPTS": "-p no:hypothesispytest"}  # it takes longer to load than torch
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=quick)  # noqa: S603 - this package
    answer = done.stdout.partition("\n\n")[0]
    runs = len(list(home.rglob("ended.txt")))
    return Outcome(_NAMED.findall(answer), _HARMLESS.findall(answer), runs, done.stdout + done.stderr)


def main() -> int:
    """Print a line for each history; the exit status is 1 if one is judged wrongly."""
    parser = command.parser(__doc__, "show")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    parser.add_argument("--count", type=int, default=30, help="how many histories (default %(default)s)")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.first, options.first + options.count):
        began, commits = time.monotonic(), list(history(seed))
        with tempfile.TemporaryDirectory() as folder:
            written(Path(folder) / "repo", commits)
            found = bisected(Path(folder) / "repo", Path(folder) / "home")
        faults, kinds = [each.subject for each in commits if each.kind == "fault"], Counter(it.kind for it in commits)
        is_right, took = found.named == faults, time.monotonic() - began
        wrong += not is_right
        of = ", ".join(f"{kinds[kind]} {kind}" for kind in ("drift", "rename", "broken"))
        verdict = "right" if is_right else "WRONG"
        print(f"{seed:3} {verdict}: {len(commits)} commits ({of}), {found.runs} run, {took:.0f} s")
        print(f"    faults: {faults}; named: {found.named}; harmless: {found.harmless}", flush=True)
        if options.show and not is_right:
            print(found.text, flush=True)
    print(f"{options.count - wrong} of {options.count} right")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
