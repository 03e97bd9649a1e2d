"""Recipes, stages and plans. `sentdist.plan(recipe)` is `sentdist.api.plan`."""
