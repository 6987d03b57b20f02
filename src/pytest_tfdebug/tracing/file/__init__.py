"""A trace as a safetensors file."""
