"""The command line: ``python -m pytest_tfdebug.scan``."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.redaction import without_commands
from pytest_tfdebug.scan.answer import Answer, Cache
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.tree import DiskTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

OK, FAILED, UNANSWERED = 0, 1, 2
#: Characters in a line of the help.
_WIDTH = 100
#: Options that do not go with ``--fix``, as messages spell them.
_NOT_WITH_FIX = ("format", "output_dir", "strict-reasons", "strict", "test_method_name")
_FORMATS = ("json", "markdown", "github")
_NAMES = {".json": "JSON", ".md": "Markdown"}
#: Characters by which a repository could steer a terminal or turn the direction of text -> escapes that JSON knows.
_STEERING = {
    code: f"\\u{code:04x}"
    for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a scan and return its exit code: 0, 1 for a failed ratchet or comparison, 2 for no answer."""
    arguments = sys.argv[1:] if argv is None else argv
    parts = (argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in arguments)
    # options have hyphens, as the parser knows them, where underscores were typed
    options = parser().parse_args([f"{name.replace('_', '-')}{equals}{value}" for name, equals, value in parts])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # escape the characters that its encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(options)
    except ScanError as error:
        _tell(f"error: {error}")
        return UNANSWERED
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return OK


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m pytest_tfdebug.scan",
        description="Which common tests does each model of a transformers-style repository skip, and why.",
        formatter_class=partial(argparse.HelpFormatter, width=_WIDTH),  # which spares the import of shutil
    )
    add = found.add_argument
    add("--repo", default=".", metavar="DIR", help="root of the repository (default: the current directory)")
    add("--models-dir", default="", metavar="DIR", help="model test directory (default: found automatically)")
    add("--test-method-name", metavar="NAME", help="scan one common test, such as test_inputs_embeds")
    where = "where reports go (default: the current directory; a comparison writes none)"
    add("--output-dir", metavar="DIR", help=where)
    add("--write-baseline", metavar="FILE", help="write what --baseline needs, a hundredth of a report")
    add("--format", choices=_FORMATS, help="print this instead of the summary; markdown is saved too")
    add("--verbose", action="store_true", help="list everything that is counted or cut short")
    add("--no-cache", action="store_true", help="neither read nor write the cache")
    add(
        "--strict",
        action="store_true",
        help="exit with 2 if a file or what makes tests cannot be read; checks the syntax of every file",
    )
    add("--strict-reasons", action="store_true", help="exit with 1 if any skip has no reason, old ones too")
    compare = found.add_mutually_exclusive_group()
    compare.add_argument("--baseline", metavar="FILE", help="compare with an earlier report; exit with 1 on a new skip")
    compare.add_argument("--base", metavar="REV", help="compare with a git revision; exit with 1 on a new skip")
    fix = "show how to remove skips that skip nothing, or to add missing reasons"
    compare.add_argument("--fix", choices=("stale", "reasons"), help=fix)
    how = found.add_mutually_exclusive_group()
    how.add_argument("--diff", action="store_true", help="print what --fix would change (default)")
    how.add_argument("--write", action="store_true", help="let --fix rewrite the files")
    return found


def _run(options: argparse.Namespace) -> int:
    if options.fix:
        return _fix(options)
    if options.diff or options.write:
        raise ScanError("--diff and --write go with --fix stale or --fix reasons; give one of them.")
    earlier = _earlier(options)
    cache = None if options.no_cache or options.strict else Cache(options.repo, options.models_dir)
    found = Answer(options.repo, options.models_dir, options.test_method_name, cache, is_strict=options.strict)
    _print(found.warnings, sys.stderr)
    if options.strict and found.head.bad:
        raise ScanError(f"{len(found.head.bad)} unreadable file(s), named above, with --strict.")
    if options.strict and found.head.unread:
        raise ScanError(f"{len(found.head.unread)} line(s) that could not be read, named above, with --strict.")
    target = _target(options, found)
    saved = [] if target is None else _save(target, options.format, found)
    found.keep()
    if options.write_baseline:
        from pytest_tfdebug.scan.baseline import compact
        from pytest_tfdebug.scan.result import write

        write(options.write_baseline, compact(found.report))
        saved.append(options.write_baseline)
    code = _show_report(options, found) if earlier is None else _show_changes(options, found, earlier)
    for path in saved:
        _tell(f"📄 {_NAMES.get(os.path.splitext(path)[1], 'Baseline')} saved to {os.path.realpath(path)}")
    return code


def _fix(options: argparse.Namespace) -> int:
    for name in _NOT_WITH_FIX:
        if getattr(options, name.replace("-", "_")):
            raise ScanError(f"--{name} cannot be combined with --fix.")
    from pytest_tfdebug.scan.fix import rewrites

    found, bad = rewrites(DiskTree(options.repo), options.models_dir, options.fix)
    _print((f"warning: left out: {path}: {reason}" for path, reason in sorted(bad.items())), sys.stderr)
    for rewrite in found:
        _print((f"{finding.path}:{finding.line}: {finding.text}" for finding in rewrite.findings), sys.stderr)
        if rewrite.problem:
            _tell(f"warning: {rewrite.problem}")
        elif options.write:
            rewrite.write(options.repo)
        else:
            _print(rewrite.diff())
    count, files = sum(len(rewrite.findings) for rewrite in found), len(found)
    done = "rewritten" if options.write else "to rewrite with --write"
    _tell(f"{count} skip(s) in {files} file(s) {done}." if count else "Nothing to fix.")
    return OK


def _earlier(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.baseline is not None:
        from pathlib import Path

        from pytest_tfdebug.scan.baseline import load

        return load(Path(options.baseline))
    if options.base is None:
        return None
    from pytest_tfdebug.scan.read.tree import GitTree
    from pytest_tfdebug.scan.scanner import scan_tree

    found = scan_tree(GitTree(options.repo, options.base), None, options.models_dir)
    bad = found.skipped_files.items()
    _print((f"warning: left out of {options.base}: {path}: {reason}" for path, reason in bad), sys.stderr)
    return found.to_dict()


def _target(options: argparse.Namespace, found: Answer) -> str | None:
    if options.output_dir is None and (options.baseline or options.base or options.write_baseline):
        return None
    target = os.path.join(os.path.expanduser(options.output_dir or "."), f"{found.name}.json")
    if options.baseline and os.path.exists(target) and os.path.samefile(target, options.baseline):
        raise ScanError(f"{target} is what the scan is compared with; name another directory with --output_dir.")
    return target


def _save(target: str, form: str | None, found: Answer) -> list[str]:
    from pytest_tfdebug.scan import render
    from pytest_tfdebug.scan.result import write

    found.save(target)
    if form != "markdown":
        return [target]
    other = os.path.splitext(target)[0] + ".md"
    write(other, [render.to_markdown(found.report)])
    return [target, other]


def _show_changes(options: argparse.Namespace, found: Answer, earlier: dict[str, Any]) -> int:
    from pytest_tfdebug.scan import baseline

    file, test, now = options.baseline, options.test_method_name, found.report
    if file and test is None and len(earlier) == 1 < len(now):
        only = next(iter(earlier))
        raise ScanError(f"{file} is the report of one test; compare it with --test_method_name {only}.")
    if file and test is not None and test not in earlier:
        raise ScanError(f"{file} has no test {test}; write a report of it, or of all tests, before the change.")
    before = {name: values for name, values in earlier.items() if test in (None, name)}
    changed = baseline.changes(before, now, strict_reasons=options.strict_reasons)
    if options.format is None:
        _print(baseline.lines(changed, now, file or options.base, verbose=options.verbose))
    else:
        _print(baseline.FORMATS[options.format](changed, now), are_commands=options.format == "github")
    return FAILED if baseline.is_failure(changed) else OK


def _show_report(options: argparse.Namespace, found: Answer) -> int:
    from pytest_tfdebug.scan import render

    if options.format is None:
        _print(found.summarize(verbose=options.verbose))
    elif options.format == "github":
        _print(render.as_annotations(found.report), are_commands=True)
    else:
        _print([(found.result.dumps() if options.format == "json" else render.to_markdown(found.report)).rstrip("\n")])
    if not options.strict_reasons:
        return OK
    from pytest_tfdebug.scan import baseline

    bare = baseline.without_reason(found.report)
    lines = baseline.lines(bare, found.report) if bare else ()
    _print(lines, sys.stdout if options.format is None else sys.stderr)  # stdout holds the report
    return FAILED if bare else OK


def _print(lines: Iterable[str], stream: TextIO | None = None, *, are_commands: bool = False) -> None:
    stream, text = stream or sys.stdout, "".join(f"{line}\n" for line in lines).translate(_STEERING)
    stream.write(text if are_commands else without_commands(text))
    stream.flush()


def _tell(line: str) -> None:
    _print([line], sys.stderr)
