"""ONNX in: a model file becomes a net with weights; what no layer computes is refused."""
