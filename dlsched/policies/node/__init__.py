"""What happens on one GPU between two rounds: pure steps for agents and replays."""
