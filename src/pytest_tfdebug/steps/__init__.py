"""A train step held to a reference: loss, gradients, and what the optimiser does, each with the line that is wrong."""
