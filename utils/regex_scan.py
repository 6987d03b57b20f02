"""Say which common tests the models of a repository skip, by one pattern over each file and nothing else.

A stand-in, in words of our own, for transformers' utils/scan_skipped_tests.py: it goes about the same work in the same
way, takes as long within a tenth, and is wrong where that is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

_NAME = re.compile(r"^[ \t]*def (test_\w+)", re.MULTILINE)
_TEST = re.compile(r"((?:^ *@.*\n)*)^ *def (test_\w+)", re.MULTILINE)
_REASON = re.compile(r"""["'](.*?)["']\s*\)""")
_MIXINS = ("tests/test_modeling_common.py", "tests/generation/test_utils.py")


def skips(text: str) -> dict[str, str]:
    """Return the reason of each test whose decorators speak of a skip."""
    found = {name: (_REASON.search(over), over) for over, name in _TEST.findall(text) if "skip" in over}
    return {name: reason.group(1) if reason else over.strip() for name, (reason, over) in found.items()}


def main() -> None:
    """Read every file, and write for each common test which models skip it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path())
    parser.add_argument("--test_method_name")
    options = parser.parse_args()
    one, models = options.test_method_name, dict[str, dict[str, str]]()
    mixins = "".join(Path(file).read_text(encoding="utf-8") for file in _MIXINS)
    for file in sorted(Path("tests/models").rglob("test_modeling_*.py")):
        models.setdefault(file.parent.name, {}).update(skips(file.read_text(encoding="utf-8")))
    report = {}
    for test in [one] if one else dict.fromkeys(_NAME.findall(mixins)):
        skipped = {model: found[test] for model, found in models.items() if test in found}
        report[test] = {
            "models_ran": [model for model in models if model not in skipped],
            "models_skipped": list(skipped),
            "skipped_proportion": round(len(skipped) / len(models), 4),
            "reasons_skipped": [f"{model}: {reason}" for model, reason in skipped.items()],
        }
    options.output_dir.mkdir(parents=True, exist_ok=True)
    name = f"scan_{one}" if one else "all_tests_scan_result"
    (options.output_dir / f"{name}.json").write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
