"""The module that goes wrong, from the calls."""
