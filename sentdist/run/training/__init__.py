"""Train on one or several workers of a cluster: worker groups, the DeepSpeed engine, checkpoints, progress."""
