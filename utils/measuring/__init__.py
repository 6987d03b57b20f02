"""The parts of ``utils/bench.py``: what is measured, against what, how, and what it may cost."""
