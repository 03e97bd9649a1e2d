"""Build plans in this process or on a Ray cluster. No other package imports Ray or DeepSpeed.

Start with `backend.py`, which runs a recipe; `local.py` builds plans in this process, `sweep.py` on a cluster through the board
(`client.py`, `board.py`), which has each stage built once, by resident workers or worker groups (`workers.py`, `group.py`, `orders.py`,
`rank.py`). `resources.py` knows what a stage reserves and how much runs at once.
"""
