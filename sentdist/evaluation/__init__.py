"""Score embeddings: measures of tasks, classifiers on embeddings, and tests of which systems differ.

Only NumPy arrays: no encoders, recipes or stores.
"""
