"""How many mistakes would a test catch: its port is changed in many places, and its own checks run on each change."""
