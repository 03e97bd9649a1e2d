"""Embeddings in, scores out: measures of tasks, classifiers on embeddings, and the tests that say which systems differ.

Arrays of NumPy alone: nothing here knows encoders, recipes or stores.
"""
