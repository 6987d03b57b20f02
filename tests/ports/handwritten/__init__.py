"""Ports written for this corpus; they share no code and no names with their references."""
