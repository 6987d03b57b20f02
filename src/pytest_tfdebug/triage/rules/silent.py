"""Rules of the bucket ``silent correctness`` for what does raise: weights that do not fit the model."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import SILENT, Rule

_rule = partial(Rule, SILENT)

SILENT_RULES = (
    _rule(
        "mismatched-weights",
        ("RuntimeError",),
        r"You set `ignore_mismatched_sizes` to `False`",
        ("weights of the checkpoint have other shapes than the model, by its config or the arguments of this call.",),
        (
            "load with the checkpoint's own num_labels and vocab_size; for a new head that you will train: ignore_mismatched_sizes=True",
        ),
        ("compare config.json with the arguments; the LOAD REPORT in the captured output lists the shapes",),
        "transformers.utils.loading_report.log_state_dict_report",
    ),
    _rule(
        "state-dict-does-not-fit",
        ("RuntimeError",),
        r"Error\(s\) in loading state_dict for (?P<cls>\w+):\s*(?P<first>[^\n]{0,200})",
        ("the weights do not fit {cls}: {first}",),
        ("load them into the class and config that they were saved from; do not hide it with strict=False",),
        ("print(model.load_state_dict(state, strict=False))    # lists the missing and unexpected keys",),
        "torch.nn.Module.load_state_dict",
        libraries=("torch", "transformers"),
    ),
)
