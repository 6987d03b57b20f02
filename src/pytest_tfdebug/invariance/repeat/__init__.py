"""How the call is repeated: with pads, with some of its rows, with position ids."""
