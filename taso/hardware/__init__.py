"""Hardware targets: what a device is, how long a kernel takes on it, and running models without being taken down.

`target` describes devices, `runtime` runs onnxruntime in a process of its own, `timing` compares whole models,
`latency` gives the cost of single kernels out of `store`, by measuring, or by `roofline` for an absent device.
"""
