"""A forward goes in, a trace comes out."""
