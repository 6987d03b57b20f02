"""Records become text, rows, JSON and pages; nothing is computed here."""
