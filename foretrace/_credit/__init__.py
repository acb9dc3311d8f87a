"""Credit between layers: what reaches the layers below through the memory of those above."""
