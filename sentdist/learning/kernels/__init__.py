"""Kernels for a transformer layer between matrix products: `cpp_kernels` for CPUs, `triton_kernels` for GPUs, compiled on first use."""
