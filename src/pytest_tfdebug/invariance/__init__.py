"""Ask a model again in another way: the answer must not change. One folder for each step of a check."""
