"""The table of rules, by bucket.

The order within a bucket matters where texts overlap: the first rule that matches an exception decides.
"""

from __future__ import annotations

from pytest_tfdebug.triage.rules.auto_class import AUTO_CLASS_RULES
from pytest_tfdebug.triage.rules.download import DOWNLOAD_RULES
from pytest_tfdebug.triage.rules.files import FILE_RULES
from pytest_tfdebug.triage.rules.install import INSTALL_RULES
from pytest_tfdebug.triage.rules.logged import LOG_RULES
from pytest_tfdebug.triage.rules.numeric import NUMERIC_RULES
from pytest_tfdebug.triage.rules.runtime import RUNTIME_RULES
from pytest_tfdebug.triage.rules.silent import SILENT_RULES

__all__ = ["LOG_RULES", "RULES"]

RULES = (
    *DOWNLOAD_RULES,
    *FILE_RULES,
    *INSTALL_RULES,
    *RUNTIME_RULES,
    *NUMERIC_RULES,
    *SILENT_RULES,
    *AUTO_CLASS_RULES,
)
