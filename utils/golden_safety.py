"""Try to lose goldens: kill writers, damage files, prune, update twice at once, record with eight workers.

python utils/golden_safety.py            the whole of it, some minutes
python utils/golden_safety.py --kills 20 --malformed 50 --tests 20 --goldens 200
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from safety.kills import play_kills
from safety.malformed import play_malformed
from safety.prunes import SCENARIOS, play
from safety.together import growth, play_two_updates, play_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: How much more a golden may take at the end of a run than at its start, for the noise of a machine.
_GROWTH = 1.3


def main() -> int:
    """Play everything, print a line for each, and return 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="times that a writing process is killed")
    parser.add_argument("--malformed", type=int, default=700, help="malformed goldens")
    parser.add_argument("--tests", type=int, default=40, help="tests of the runs that write at once")
    parser.add_argument("--goldens", type=int, default=3000, help="goldens of the run whose cost may not grow")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], list[str]]] = {
        f"{options.kills} kills": lambda folder: play_kills(folder, options.kills),
        f"{options.malformed} malformed goldens": lambda folder: play_malformed(folder, options.malformed),
        f"{len(SCENARIOS)} prunes": _play_prunes,
        "two updates at once": lambda folder: play_two_updates(folder, options.tests),
        "eight workers": lambda folder: play_workers(folder, options.tests, 8),
        f"{options.goldens} goldens in a run": lambda folder: _play_growth(folder, options.goldens),
    }
    failed = False
    for name, part in parts.items():
        started = time.monotonic()
        with TemporaryDirectory(prefix="tfdebug-") as folder:
            problems = part(Path(folder))
        print(f"{name}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}", end="")
        print(f" ({time.monotonic() - started:.0f} s)", flush=True)
        for problem in problems:
            print(f"  {problem}")
        failed = failed or bool(problems)
    return int(failed)


def _play_prunes(folder: Path) -> list[str]:
    problems = []
    for number, (name, scenario) in enumerate(SCENARIOS.items()):
        place = folder / str(number)
        place.mkdir()
        problems += [f"{name}: {problem}" for problem in play(scenario, place, _run)]
    return problems


def _run(folder: Path, arguments: Sequence[str]) -> str:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments)
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=600)
    return done.stdout + done.stderr


def _play_growth(folder: Path, tests: int) -> list[str]:
    first, last = growth(folder, tests)
    print(f"{first * 1000:.1f} ms a golden at the start, {last * 1000:.1f} ms at the end; ", end="")
    return [f"{last / first:.2f} times as much at the end"] if last > _GROWTH * first else []


if __name__ == "__main__":
    raise SystemExit(main())
