"""Holds the scanner to what pytest really collects and skips."""
