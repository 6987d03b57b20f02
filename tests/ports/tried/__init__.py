"""Ports that gave the figure of a first try once (``utils/first_try.py``) and may be looked at since."""
