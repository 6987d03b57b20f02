"""``--tf-run-skipped``: runs what a run has skipped once more, without the skips, and lists what passes now."""
