"""Credit between layers: errors that reach lower layers through the memory of higher ones."""
