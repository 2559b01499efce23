"""Training of networks that schedule: worlds to learn in, memories, and the learner (PyTorch)."""
