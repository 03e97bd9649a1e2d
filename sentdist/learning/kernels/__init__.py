"""Kernels for the parts of a transformer layer between matrix products: C++ for CPUs, Triton for GPUs, compiled once where they run.

`cpp_kernels` and `triton_kernels` both implement `interface.Kernels`.
"""
