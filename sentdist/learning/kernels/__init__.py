"""What a transformer layer does between its matrix products: C++ for processors (`calls`), Triton for GPUs (`gpu_calls`), each compiled
where it runs, once. Both have the functions of `values.Kernels`."""
