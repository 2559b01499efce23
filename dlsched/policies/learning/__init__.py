"""Small models whose answers a person can follow: sums of shape functions, and decision trees."""
