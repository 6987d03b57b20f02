"""From skips to the state of each test of a class."""
