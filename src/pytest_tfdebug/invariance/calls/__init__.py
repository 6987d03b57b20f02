"""The call that the test made and what was seen of it, and how it is made again: with pads, with some of its rows."""
