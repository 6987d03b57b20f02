"""What a whole run of pytest knows of its goldens."""
