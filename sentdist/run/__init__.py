"""Build plans in this process or on a Ray cluster. No other package imports Ray or DeepSpeed.

Start with `build_recipe.py`, which runs a recipe and builds plans in this process; `sweep.py` builds them on a cluster through the board
(`board/`), which builds each stage once. `demand.py` knows what a stage reserves, `capacity.py` how much runs at once.
"""
