"""What other runtimes compute, as arrays with labels: ONNX, MLX, JAX, and dumps of any other."""
