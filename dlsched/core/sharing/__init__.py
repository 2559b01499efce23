"""What tenants have used, and what is due to them: decayed usage, and shares of a tree."""
