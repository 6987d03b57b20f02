"""An expected and an actual forward go in, a verdict and a culprit come out."""
