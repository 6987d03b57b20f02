"""``--tf-skip-report=FILE``: what a run of pytest really skipped, in the scanner's own form."""
