"""One call of a golden check, and one of its recording."""
