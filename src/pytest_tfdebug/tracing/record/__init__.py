"""The hooks, and what a call is given and gives."""
