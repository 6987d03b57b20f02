"""A failed check as a directory that runs alone."""
