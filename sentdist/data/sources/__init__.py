"""Read tables from files under the data root, the Hugging Face Hub and the releases of authors."""
