"""The checks: one class each, on one base."""
