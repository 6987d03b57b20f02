"""The line that goes wrong, from what operators compute."""
