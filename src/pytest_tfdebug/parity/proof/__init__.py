"""Changes of one place that are tried on a forward until it gives what was expected, and the values they act on."""
