"""How an optimal allocation is found: water filling, prices, column generation, centres."""
