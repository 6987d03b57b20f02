"""Where goldens are, and what is in the files."""
