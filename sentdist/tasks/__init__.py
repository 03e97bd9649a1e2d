"""Evaluation tasks: one module a kind, with its value in a recipe, its checks, its reader and its score; `kinds` lists them.

Planning imports these modules, so data, measures and numpy are imported only inside functions that load or score.
"""
