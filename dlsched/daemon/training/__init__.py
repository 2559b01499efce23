"""What trainings report while they run: taken, shown, watched; and what is kept of ended ones."""
