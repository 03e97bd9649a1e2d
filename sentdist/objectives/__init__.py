"""What an encoder can be asked to minimize: one file a method, with its values in a recipe, what is known of it, and how its loss is made.

Planning reads these files, so none of them loads torch while it is imported:
torch and `sentdist.learning` are imported where a loss is made. A new method is a new file here; nothing else lists it.
"""
