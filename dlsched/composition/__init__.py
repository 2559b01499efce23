"""How a run is put together from parts and options, for both worlds."""
