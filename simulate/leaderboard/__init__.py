"""The leaderboard: every policy on the same traces, loads and seeds, under the same conditions."""
