"""Ports that the tool was never built on: random edits of them give the figure of a first try (``utils/first_try.py``)."""
