"""Variants of a configuration in which one field moves: what a golden cannot see, and what a port ignores."""
