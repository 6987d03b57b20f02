"""Records become text, rows and JSON; nothing is computed here."""
