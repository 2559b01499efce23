"""How fast jobs run: the truth that moves a world, and what policies may believe of it."""
