"""What one case costs, and what the same case costs when its ranks are started as others do.

Run ``python -m benchmarks`` in an environment that has torch, DeepSpeed and transformers.
"""
