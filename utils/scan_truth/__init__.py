"""Hold the scanner to what pytest really collects and skips.

    PYTHONPATH=utils python -m pytest -p scan_truth.plugin --skip-report=run.json tests/models/bert
    PYTHONPATH=utils python -m scan_truth run.json --repo .

The first writes a report of a real run in the scanner's form, from live classes and reports alone. The second lists
every pair of test and model on which the scan and the run disagree, and exits with 1 where there is one.
"""
