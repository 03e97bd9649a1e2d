"""Training objectives: one module each, with its recipe fields, requirements, citations and loss.

Planning imports these modules, so torch and `sentdist.learning` are imported only inside functions that compute a loss.
A new objective is a new module here; nothing else lists it.
"""
