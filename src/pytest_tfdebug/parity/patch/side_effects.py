"""What code must not be run with an edit: what writes files or starts programs, and what may never end."""

from __future__ import annotations

import ast

#: Names of functions and methods that write or start something, and modules whose functions do.
_WRITES = frozenset(
    {
        *("save", "savez", "save_file", "save_model", "save_pretrained", "save_state_dict", "push_to_hub", "dump"),
        *("write", "writelines", "write_text", "write_bytes", "to_csv", "to_json", "to_parquet", "tofile", "touch"),
        *("unlink", "rmdir", "rmtree", "rename", "mkdir", "makedirs", "symlink_to", "Popen", "system"),
    }
)
_MODULES = frozenset({"os", "shutil", "subprocess", "socket", "requests"})
#: Letters of a mode in which ``open`` writes.
_MODES = frozenset("wax+")


def has_side_effects(function: ast.AST) -> bool:
    """Tell whether the text of a function writes a file, starts a program or has a loop that an edit may not end."""
    return any(
        isinstance(node, ast.While) or (isinstance(node, ast.Call) and _writes(node)) for node in ast.walk(function)
    )


def _writes(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Attribute):
        owner = called.value
        is_path = isinstance(owner, ast.Attribute) and owner.attr == "path"
        is_of_module = isinstance(owner, ast.Name) and owner.id in _MODULES
        return called.attr in _WRITES or (is_of_module and not is_path) or _opens(called.attr, call)
    return isinstance(called, ast.Name) and (called.id in _WRITES or _opens(called.id, call))


def _opens(name: str, call: ast.Call) -> bool:
    """Tell whether a call opens a file to write to it, or in a mode that is not known."""
    if name != "open":
        return False
    given = [*call.args[1:], *(each.value for each in call.keywords if each.arg == "mode")]
    return any(not isinstance(each, ast.Constant) or not _MODES.isdisjoint(str(each.value)) for each in given)
