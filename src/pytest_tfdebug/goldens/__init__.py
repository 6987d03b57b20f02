"""Goldens: recorded forwards on disk that a model is held to."""
