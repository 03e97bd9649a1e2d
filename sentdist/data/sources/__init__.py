"""Where tables come from: files under the data root, the Hugging Face Hub, releases of authors."""
