"""Calls of both sides that stand for each other, by name."""
