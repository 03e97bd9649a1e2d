"""What a transformer layer does between its matrix products, on a processor: C++ that is compiled where it runs, once."""
