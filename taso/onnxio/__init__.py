"""Reading, writing and checking ONNX models."""
