"""The losses and what they learn beside the encoder: one file a method, equations as functions of tensors."""
