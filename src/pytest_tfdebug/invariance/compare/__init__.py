"""How the repeated call is compared with the original: outputs and traces, at real tokens."""
