"""What a transformer layer does between its matrix products: in C++ for processors (`cpp_kernels`), in Triton for GPUs (`triton_kernels`),
each compiled where it runs, once. Both modules have the functions of `interface.Kernels`."""
